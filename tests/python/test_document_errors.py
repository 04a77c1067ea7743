"""The page of errors has every public exception, with a program that raises it; test_document_programs.py runs the programs."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

import document_programs as documents
import shoal
from shoal import errors
from shoal.multiprocessing.pool import BrokenPool

PAGE = documents.ROOT / "docs/reference/errors.md"
if not PAGE.is_file():
    pytest.skip("the documents are not part of an installed package", allow_module_level=True)


def public() -> set[str]:
    """Exceptions of Shoal's own that a package of Shoal's offers, or the module of pools, which has one as CPython's has."""
    found = {BrokenPool.__name__}
    for path in sorted(Path(shoal.__file__).parent.rglob("__init__.py")):
        name = ".".join(("shoal", *path.relative_to(Path(shoal.__file__).parent).parts[:-1]))
        if name.startswith(("shoal.cli", "shoal.bench", "shoal.compat.")):  # commands; what needs another library
            continue
        package = importlib.import_module(name)
        of_package = (getattr(package, each, None) for each in getattr(package, "__all__", ()))
        found |= {each.__name__ for each in of_package if is_ours(each)}
    return found | set(errors.__all__)


def is_ours(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, BaseException) and value.__module__.startswith("shoal.")


PUBLIC = sorted(public())


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
    assert "*Cause*" in text and "*Remedy*" in text


def test_exceptions_are_found() -> None:
    assert {"Error", "WorkerDied", "PicklingError", "BrokenPool", "ProcessException", "SpacesDiffer"} <= set(PUBLIC)
