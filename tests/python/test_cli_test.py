"""`shoal test`: the Python tests in several processes."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from shoal.cli.test_command import failed
from shoal.cli.test_python import run_pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A source folder with this project's sharing of tests, and no others of its tests."""
    (tmp_path / "tests").mkdir()
    shutil.copy(ROOT / "tests/conftest.py", tmp_path / "tests")
    (tmp_path / "pyproject.toml").write_text('[tool.pytest.ini_options]\ntestpaths = ["tests"]\n')
    return tmp_path


def write(source: Path, **files: str) -> None:
    for name, text in files.items():
        (source / "tests" / f"test_{name}.py").write_text(text)


MARK = """
import os, pathlib, pytest

@pytest.fixture(scope="module", autouse=True)
def module():
    pathlib.Path(__file__).with_suffix(f".{os.getpid()}").write_text("up\\n")
    yield
    with pathlib.Path(__file__).with_suffix(f".{os.getpid()}").open("a") as file:
        file.write("down\\n")

@pytest.mark.parametrize("number", range(5))
def test_number(number):
    pass
"""


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_each_file_runs_once_and_whole_whatever_the_processes(source: Path, processes: int) -> None:
    names = "abcdef"
    write(source, **dict.fromkeys(names, MARK))
    status, summary, _ = run_pytest(source, None, processes, dict(os.environ))
    assert status == 0
    assert re.fullmatch(r"30 passed in [\d.]+s", summary)
    ran = sorted(path for path in (source / "tests").iterdir() if path.suffix[1:].isdigit())
    assert [path.stem for path in ran] == [f"test_{name}" for name in names]
    assert {path.read_text() for path in ran} == {"up\ndown\n"}


def test_counts_are_added_and_reports_stay_whole(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(
        source,
        a="import pytest\ndef test_good(): pass\ndef test_bad():\n print('FAILED tests/test_z.py')\n assert 'a' == 'b' * 99\n@pytest.mark.skip(reason='why')\ndef test_no(): pass",
        b="import pytest\n@pytest.fixture\ndef broken(): raise OSError('gone')\ndef test_error(broken): pass\n"
        "@pytest.mark.xfail\ndef test_known(): assert 0",
        c="import warnings\ndef test_loud(): warnings.warn('one')\ndef test_louder(): warnings.warn('two')",
    )
    status, summary, failures = run_pytest(source, None, 2, dict(os.environ))
    assert status == 1
    assert re.fullmatch(r"1 failed, 3 passed, 1 skipped, 1 xfailed, 2 warnings, 1 error in [\d.]+s", summary)
    shown = capsys.readouterr().out
    assert len(re.findall(r"^=+ .* in [\d.]+s =+$", shown, re.M)) == 1
    bad = f"FAILED tests/test_a.py::test_bad - AssertionError: assert 'a' == '{'b' * 99}'"
    error = "ERROR tests/test_b.py::test_error - OSError: gone"
    assert sorted(failures) == [error, bad]
    for line in (bad, error, "SKIPPED [1] tests/test_a.py:6: why"):
        assert line in shown


def test_cpp_tests_that_failed_are_named_with_their_first_reason(tmp_path: Path) -> None:
    report = tmp_path / "ctest.xml"
    report.write_text("""<testsuite>
        <testcase name="Heap.Good" status="run"><system-out>fine</system-out></testcase>
        <testcase name="Heap.Bad" status="fail"><failure message=""/><system-out>[ RUN ] Heap.Bad
/src/heap_test.cc:12: Failure
Expected equality of these values:
/src/heap_test.cc:13: Failure</system-out></testcase>
        <testcase name="Heap.Throws" status="fail"><failure message=""/><system-out>[ RUN ] Heap.Throws
unknown file: Failure
C++ exception with description "gone" thrown in the test body.</system-out></testcase>
        <testcase name="Heap.Dies" status="fail"><failure message=""/><system-out>[ RUN ] Heap.Dies</system-out></testcase>
    </testsuite>""")
    assert failed(report) == [
        "FAILED Heap.Bad - /src/heap_test.cc:12: Expected equality of these values:",
        'FAILED Heap.Throws - unknown file: C++ exception with description "gone" thrown in the test body.',
        "FAILED Heap.Dies - its output, above, has no failed expectation",
    ]


def test_a_keyword_deselects_the_same_in_each_process(source: Path) -> None:
    write(source, a=MARK, b=MARK)
    status, summary, _ = run_pytest(source, "number", 2, dict(os.environ))
    assert (status, summary.partition(" in ")[0]) == (0, "10 passed")
    status, summary, _ = run_pytest(source, "test_a", 2, dict(os.environ))
    assert (status, summary.partition(" in ")[0]) == (0, "5 passed, 5 deselected")
    status, summary, _ = run_pytest(source, "nowhere", 2, dict(os.environ))
    assert (status, summary.partition(" in ")[0]) == (5, "10 deselected")


def test_a_process_that_dies_fails_the_run_and_the_others_go_on(source: Path) -> None:
    write(source, a="import os\ndef test_dies(): os.kill(os.getpid(), 9)", b=MARK, c=MARK)
    status, summary, _ = run_pytest(source, None, 2, dict(os.environ))
    assert status == -9
    # The dead process may have taken its next file.
    assert re.fullmatch(r"(5|10) passed in [\d.]+s; pytest left with status -9", summary)


def test_a_file_that_cannot_be_imported_fails_the_run(source: Path) -> None:
    write(source, a="import nothing_of_this_name", b=MARK)
    status, _, failures = run_pytest(source, None, 2, dict(os.environ))
    assert (status, len(failures)) == (2, 1) and failures[0].startswith("ERROR tests/test_a.py")


def test_without_another_process_nothing_is_left_out(source: Path) -> None:
    write(source, a="", b="")
    assert run_pytest(source, None, 2, dict(os.environ))[0] == 5
