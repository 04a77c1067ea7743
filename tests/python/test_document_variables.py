"""The page of environment variables has all that the sources read, and no others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/reference/environment-variables.md"
if not PAGE.is_file():
    pytest.skip("the documents are not part of an installed package", allow_module_level=True)

LITERAL = re.compile(r"""["'](SHOAL_[A-Z_]+)["']""")
IN_SHELL = re.compile(r"\$\{?(SHOAL_[A-Z_]+)")
READ_WITH_A_DEFAULT = re.compile(r"""environ\.get\(["'](SHOAL_[A-Z_]+)["'], ["']""")
READ_IN_CPP = re.compile(r"""getenv\("(SHOAL_[A-Z_]+)"\)""")


def of_the_product() -> set[str]:
    found: set[str] = set()
    for folder in ("src", "python", "benchmarks", "examples"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".py", ".cc", ".h") and not is_a_test(path):
                found |= set(LITERAL.findall(path.read_text(encoding="utf-8")))
    for path in (ROOT / "shoal", ROOT / ".ci/run", ROOT / "benchmarks/peers/setup"):
        found |= set(IN_SHELL.findall(path.read_text(encoding="utf-8")))
    return found


def of_the_tests() -> set[str]:
    """What changes how long or how often a test runs. What a test sets for itself has no default."""
    found: set[str] = set()
    for path in (ROOT / "tests").rglob("*.py"):
        found |= set(READ_WITH_A_DEFAULT.findall(path.read_text(encoding="utf-8")))
    for path in (ROOT / "src").rglob("*_test.cc"):
        found |= set(READ_IN_CPP.findall(path.read_text(encoding="utf-8")))
    return found


def is_a_test(path: Path) -> bool:
    return path.stem.endswith("_test") or "testing" in path.parts


def on_the_page() -> set[str]:
    return set(re.findall(r"^\| `(SHOAL_[A-Z_]+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE))


def test_every_variable_that_the_sources_read_is_on_the_page() -> None:
    assert (of_the_product() | of_the_tests()) - on_the_page() == set()


def test_every_variable_on_the_page_is_read() -> None:
    assert on_the_page() - of_the_product() - of_the_tests() == set()


def test_variables_in_the_sources_are_found() -> None:
    assert {"SHOAL_LOG", "SHOAL_TRACEBACK", "SHOAL_PYTHON", "SHOAL_IDLE_ZYGOTES", "SHOAL_WERROR"} <= of_the_product()
    assert {"SHOAL_CRASH_ROUNDS", "SHOAL_TEST_EPISODES"} <= of_the_tests()
