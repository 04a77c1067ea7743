"""The checked-in stubs of shoal._core say what the extension module has. `python tests/python/test_stubs.py` writes them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

STUBS = Path(__file__).parents[2] / "python" / "shoal" / "_core"


def generate(folder: Path) -> Path:
    """Makes the stubs anew in `folder`, formatted as the sources are."""
    command = [sys.executable, "-m", "nanobind.stubgen", "-q", "-m", "shoal._core", "-r", "-O", str(folder)]
    subprocess.run(command, check=True, timeout=100)
    stubs = folder / "_core"
    for stub in stubs.glob("*.pyi"):
        stub.write_text(with_parameters(stub.read_text()))
    config = f"--config={STUBS.parents[2] / 'pyproject.toml'}"
    subprocess.run([ruff(), "check", "-q", "--fix", "--exit-zero", config, str(stubs)], check=True, timeout=60)
    subprocess.run([ruff(), "format", "-q", config, str(stubs)], check=True, timeout=60)
    return stubs


BARE = {"list": "list[Any]", "dict": "dict[Any, Any]", "tuple": "tuple[Any, ...]", "Callable": "Callable[..., Any]"}


def with_parameters(stub: str) -> str:
    """The stub with what a strict type checker asks for and nanobind does not write.

    Those are the parameters of generic types; types of what Python itself calls (`__exit__`, `__len__`); Any for results that may
    be of any type, since nothing can be done with an `object`; and `builtins.` where a method of the class has a type's name.
    """
    lines = stub.split("\n")
    classes = [""] * len(lines)
    hidden: set[tuple[str, str]] = set()  # names of types that are methods of a class
    for i, line in enumerate(lines):
        classes[i] = classes[i - 1] if i and (not line or line.startswith((" ", ")"))) else ""
        if begin := re.match(r"class (\w+)", line):
            classes[i] = begin[1]
        elif method := re.match(r"    def (list|dict|tuple|bytes)\(", line):
            hidden.add((classes[i], method[1]))
    in_text = False
    for i, line in enumerate(lines):
        if line.count('"""') == 1:
            in_text = not in_text
        elif not in_text and '"""' not in line:

            def named(match: re.Match[str], around: str = classes[i]) -> str:
                name = BARE.get(match[0], match[0])
                return f"builtins.{name}" if (around, match[0]) in hidden else name

            line = re.sub(r"(?<=: |> )(list|dict|tuple|Callable)\b(?!\[)|(?<=[:>|] )bytes\b", named, line)
            line = re.sub(r"\bos\.PathLike\b(?!\[)", "os.PathLike[str]", line)
            line = re.sub(r"-> object\b", "-> Any", line).replace(
                "(self, *args) -> None", "(self, *args: object) -> None"
            )
            lines[i] = line.replace("def __len__(self, /):", "def __len__(self, /) -> int:")
    code = "\n".join(lines)
    needed = [f"import {module}" for module in ("builtins",) if f" {module}." in code]
    needed += ["from typing import Any"] if re.search(r"\bAny\b", code) else []
    first = 0
    if lines[0].startswith('"""'):  # imports come after the module's docstring
        first = 1 + next(i for i, line in enumerate(lines) if line.endswith('"""') and (i or line.count('"""') == 2))
    return "\n".join([*lines[:first], *needed, *lines[first:]])


def test_the_generics_of_a_stub_get_parameters() -> None:
    stub = 'def f(a: list, b: dict = {}, c: list[int] = []) -> tuple:\n    """Of a list: -> object."""\n'
    assert with_parameters(stub) == (
        "from typing import Any\n"
        "def f(a: list[Any], b: dict[Any, Any] = {}, c: list[int] = []) -> tuple[Any, ...]:\n"
        '    """Of a list: -> object."""\n'
    )
    assert with_parameters('"""About."""\ndef f(a: object) -> object: ...\n') == (
        '"""About."""\nfrom typing import Any\ndef f(a: object) -> Any: ...\n'
    )
    shadows = "class A:\n    def list(self) -> list: ...\n\nclass B:\n    def f(self, *args) -> None: ...\n"
    assert with_parameters(shadows) == (
        "import builtins\nfrom typing import Any\n"
        "class A:\n    def list(self) -> builtins.list[Any]: ...\n\nclass B:\n    def f(self, *args: object) -> None: ...\n"
    )
    assert with_parameters("x: int = 1\n") == "x: int = 1\n"


def ruff() -> str:
    return shutil.which("ruff", path=str(Path(sys.executable).parent)) or "ruff"


def test_the_stubs_are_those_of_the_built_module(tmp_path: Path) -> None:
    pytest.importorskip("nanobind")
    if shutil.which(ruff()) is None:
        pytest.skip("ruff is not installed")
    generated = generate(tmp_path)
    names = sorted(path.name for path in generated.iterdir())
    assert sorted(path.name for path in STUBS.glob("*.pyi")) == names
    for name in names:
        assert (STUBS / name).read_text() == (generated / name).read_text(), f"write {name} anew: python {__file__}"


if __name__ == "__main__":
    generate(STUBS.parent)
