"""`shoal docs` when it is called wrongly; tests/site looks at the pages that it makes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cli_calls import assert_one_line
from shoal.cli import main

ROOT = Path(__file__).resolve().parents[2]
if not (ROOT / "docs/conf.py").is_file():
    pytest.skip("the documents are not part of an installed package", allow_module_level=True)


def test_an_old_python_is_told_which_one_is_needed(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 10, 4, "final", 0))
    status = main(["docs"])
    assert_one_line((status, *capfd.readouterr()), 1, "requirements-docs.txt need Python 3.11 or newer")


def test_a_file_in_the_place_of_the_folder_is_named(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    if sys.version_info < (3, 11):
        pytest.skip("needs Python 3.11")
    (tmp_path / "file").write_text("")
    status = main(["docs", "--out", str(tmp_path / "file")])
    assert_one_line((status, *capfd.readouterr()), 2, "file is no folder")
