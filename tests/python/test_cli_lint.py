"""`shoal lint` on trees that are made for it, and on this one; and what CI runs."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cli_calls import assert_one_line
from shoal.cli import main

ROOT = Path(__file__).resolve().parents[2]
if not (ROOT / "CMakePresets.json").is_file():
    pytest.skip("the sources are not part of an installed package", allow_module_level=True)

Lint = Callable[..., tuple[int, str, str]]


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A source folder with nothing but what says how sources are checked."""
    for name in ("pyproject.toml", ".clang-format", "requirements-lint.txt", "requirements.lock"):
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / "tests/layers", tmp_path / "tests/layers", ignore=shutil.ignore_patterns("__pycache__"))
    for folder in ("src/shoal/os", "python/shoal"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "python/shoal/__init__.py").write_text("")
    monkeypatch.setattr("shoal.cli.lint_command.source_folder", lambda *_: tmp_path)
    return tmp_path


@pytest.fixture
def lint(capfd: pytest.CaptureFixture[str]) -> Lint:
    def call(*checks: str, fix: bool = False) -> tuple[int, str, str]:
        arguments = [word for check in checks for word in ("--only", check)]
        return (main(["lint", *arguments, *(["--fix"] if fix else [])]), *capfd.readouterr())

    return call


def needs(module: str) -> None:
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"there is no {module}: ./shoal lint installs it")


def test_an_unformatted_python_file_is_named_and_formatted_by_fix(tree: Path, lint: Lint) -> None:
    (tree / "python/shoal/wrong.py").write_text("x = [1,2]\n")
    (tree / "python/shoal/right.py").write_text("x = [1, 2]\n")
    status, out, _ = lint("ruff-format")
    assert status == 1 and "python/shoal/wrong.py" in out and "right.py" not in out
    assert out.splitlines()[-1] == "ruff-format    failed"
    assert lint("ruff-format", fix=True)[0] == 0
    assert (tree / "python/shoal/wrong.py").read_text() == "x = [1, 2]\n"
    assert lint("ruff-format")[0] == 0


def test_an_unformatted_cpp_file_is_named_once_and_formatted_by_fix(tree: Path, lint: Lint) -> None:
    needs("clang_format")
    (tree / "src/shoal/os/wrong.cc").write_text("int  f( ){return 0;}\nint  g( ){return 0;}\n")
    (tree / "src/shoal/os/right.cc").write_text("int f() { return 0; }\n")
    status, out, _ = lint("clang-format")
    assert status == 1 and out.count("src/shoal/os/wrong.cc") == 1 and "right.cc" not in out
    assert out.splitlines()[-1] == "clang-format   failed: 1 file"
    assert lint("clang-format", fix=True)[0] == 0
    assert (tree / "src/shoal/os/wrong.cc").read_text().startswith("int f() { return 0; }\n")
    assert lint("clang-format") == (0, "clang-format   passed\n", "")


def test_what_ruff_finds_is_told_with_its_file(tree: Path, lint: Lint) -> None:
    (tree / "python/shoal/wrong.py").write_text("import os\n")
    status, out, _ = lint("ruff")
    assert status == 1 and "python/shoal/wrong.py" in out and "F401" in out


def test_what_the_type_checker_finds_is_told_with_its_file(tree: Path, lint: Lint) -> None:
    needs("mypy")
    wrong = tree / "python/shoal/wrong.py"
    wrong.write_text("def f(x: list) -> int:\n    return str(x)\n")
    status, out, _ = lint("types")
    assert status == 1 and out.splitlines()[-1] == "types          failed"
    assert (
        "python/shoal/wrong.py:1: error: Missing type" in out and "python/shoal/wrong.py:2: error: Incompatible" in out
    )
    wrong.write_text("def f(x: list[int]) -> str:\n    return str(x)\n")
    status, out, _ = lint("types")
    assert status == 0 and out.startswith("types          Success: no issues found in 2 source files")


def test_what_the_type_checker_is_to_ignore_has_a_code_and_a_reason() -> None:
    marks = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in sorted((ROOT / "python/shoal").rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if "type: ignore" in line and not re.search(r"# type: ignore\[[a-z, -]+\]  # \S", line)
    ]
    assert not marks, "\n".join(marks)


def test_wrong_arrows_and_circles_are_named(tree: Path, lint: Lint) -> None:
    (tree / "src/shoal/os/wrong.h").write_text('#include "shoal/vector/step/rows.h"\n')
    (tree / "python/shoal/a.py").write_text("import shoal.b\n")
    (tree / "python/shoal/b.py").write_text("def f():\n    import shoal.a\n")
    status, out, _ = lint("includes", "imports")
    assert status == 1
    assert "src/shoal/os/wrong.h:1: os includes vector" in out
    assert "2 import each other: shoal.a, shoal.b" in out


def test_each_check_ends_with_one_line(lint: Lint) -> None:
    status, out, _ = lint("includes", "imports", "documents")
    assert status == 0
    assert [line.split()[0] for line in out.splitlines()] == ["includes", "imports", "documents"]


def test_the_checks_are_listed(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", "--list"]) == 0
    out, _ = capfd.readouterr()
    names = ["clang-format", "ruff", "ruff-format", "types", "example-types", "includes", "imports", "documents"]
    assert [line.split()[0] for line in out.splitlines()] == names


def test_an_unknown_check_names_the_nearest(lint: Lint) -> None:
    assert_one_line(lint("ruf"), 2, "there is no check 'ruf'", "did you mean ruff?")


def test_a_pin_that_is_missing_is_told(tree: Path, lint: Lint) -> None:
    (tree / "requirements-lint.txt").write_text("")
    assert_one_line(lint("clang-format"), 1, "requirements-lint.txt has no line clang-format==")


@pytest.mark.parametrize(("failing", "status"), [("nothing", 0), ("lint", 1), ("test", 1)])
def test_ci_runs_both_with_warnings_as_errors(tmp_path: Path, failing: str, status: int) -> None:
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/run", tmp_path / ".ci/run")
    command = tmp_path / "shoal"
    command.write_text(f'#!/bin/sh\necho "$1 $SHOAL_WERROR" >>calls\n[ "$1" != {failing} ]\n')
    command.chmod(0o755)
    assert subprocess.run([tmp_path / ".ci/run"], timeout=60).returncode == status
    assert (tmp_path / "calls").read_text() == "lint 1\ntest 1\n"
