"""The page of errors has every public exception, with a program that raises it; test_document_programs.py runs the programs."""

from __future__ import annotations

import re

import pytest

import document_programs as documents
import shoal.multiprocessing as mp
from shoal import errors
from shoal.multiprocessing.pool import BrokenPool
from shoal.process import PicklingError

PAGE = documents.ROOT / "docs/reference/errors.md"
if not PAGE.is_file():
    pytest.skip("the documents are not part of an installed package", allow_module_level=True)

PUBLIC = {name: getattr(errors, name) for name in errors.__all__} | {
    error.__name__: error for error in (PicklingError, BrokenPool, mp.ProcessRaisedException, mp.ProcessExitedException)
}


def sections() -> dict[str, str]:
    """The text below each heading, by the names in it."""
    found = {}
    for heading, text in re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL):
        for name in re.findall(r"`(\w+)`", heading):
            found[name] = text
    return found


def test_every_public_exception_has_a_section_and_nothing_else_has() -> None:
    assert set(sections()) == set(PUBLIC)


@pytest.mark.parametrize("name", PUBLIC)
def test_a_section_has_a_program_that_raises_it_its_text_and_what_to_do(name: str) -> None:
    text = sections()[name]
    assert "```python\n" in text
    (output,) = re.findall(r"```output\n(.*?)```", text, re.DOTALL)
    assert re.search(rf"^{name}\b", output, re.MULTILINE)  # the program prints the type before the text
    if name not in ("RemoteTraceback", "Error"):
        assert "*Remedy*" in text


def test_exceptions_of_the_package_are_all_on_the_page() -> None:
    """Those that a user can meet derive from `shoal.Error`, or are listed."""
    import shoal

    named = {name for name in shoal.__all__ if isinstance(getattr(shoal, name), type)}
    assert {name for name in named if issubclass(getattr(shoal, name), BaseException)} <= set(PUBLIC)
