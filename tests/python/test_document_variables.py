"""The page of environment variables has all that the sources read, and no others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shoal.doctor.processes import _THREAD_VARIABLES

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/reference/environment-variables.md"
if not PAGE.is_file():
    pytest.skip("the documents are not part of an installed package", allow_module_level=True)

LITERAL = re.compile(r"""["'](SHOAL_[A-Z_]+)["']""")
IN_SHELL = re.compile(r"\$\{?(SHOAL_[A-Z_]+)")
READ_WITH_A_DEFAULT = re.compile(r"""environ\.get\(["'](SHOAL_[A-Z_]+)["'], ["']""")
READ_IN_CPP = re.compile(r"""getenv\("(SHOAL_[A-Z_]+)"\)""")
OF_OTHERS = re.compile(r"""(?:getenv\(|environ\.get\(|os\.environ\[)["']([A-Z][A-Za-z_]+)["'](?!\] =)""")
OF_A_LAUNCHER = re.compile(r'"([A-Z]{2,}[A-Za-z_]*)"')
IN_SHELL_OF_OTHERS = re.compile(r"\$\{([A-Z_]+):")
NO_MATTER = {"PATH"}
OF_THE_DOCTOR = set(_THREAD_VARIABLES)


def of_the_product() -> set[str]:
    found: set[str] = set()
    for folder in ("src", "python", "benchmarks", "examples"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".py", ".cc", ".h") and not is_a_test(path):
                found |= set(LITERAL.findall(path.read_text(encoding="utf-8")))
    for path in (ROOT / "shoal", ROOT / ".ci/run", ROOT / "benchmarks/peers/setup"):
        found |= set(IN_SHELL.findall(path.read_text(encoding="utf-8")))
    return found


def of_others() -> set[str]:
    """Variables that are not Shoal's own, and are read all the same."""
    found = set(IN_SHELL_OF_OTHERS.findall((ROOT / "shoal").read_text(encoding="utf-8")))
    found |= set(OF_A_LAUNCHER.findall((ROOT / "src/shoal/group/launch.cc").read_text(encoding="utf-8")))
    for folder in ("src", "python/shoal"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".py", ".cc", ".h") and not is_a_test(path):
                found |= set(OF_OTHERS.findall(path.read_text(encoding="utf-8")))
    return {name for name in found if not name.startswith(("SHOAL_", "_SHOAL_"))} - NO_MATTER


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


def test_every_variable_of_others_that_the_sources_read_is_on_the_page() -> None:
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith(("| ", "`shoal doctor`"))]
    named = {name for row in rows for name in re.findall(r"`([A-Z][A-Za-z_]+)`", row)}
    assert of_others() - named == set()
    assert {name for name in named if not name.startswith("SHOAL_")} - of_others() - OF_THE_DOCTOR == {"PASSIVE"}


def test_variables_in_the_sources_are_found() -> None:
    assert {"CXX", "MASTER_ADDR", "OMPI_MCA_ess_base_jobid", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS"} <= of_others()
    assert {"SHOAL_LOG", "SHOAL_TRACEBACK", "SHOAL_PYTHON", "SHOAL_IDLE_ZYGOTES", "SHOAL_WERROR"} <= of_the_product()
    assert {"SHOAL_CRASH_ROUNDS", "SHOAL_TEST_EPISODES"} <= of_the_tests()
