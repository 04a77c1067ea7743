"""What the documents show is what happens: their programs run and print what they say, and their commands exist."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import document_programs as documents
import shoal

ROOT = documents.ROOT
if not (ROOT / "docs").is_dir():
    pytest.skip("the documents are not part of an installed package", allow_module_level=True)

BLOCKS = [block for path in documents.documents() for block in documents.blocks(path)]
PROGRAMS = [program for path in documents.documents() for program in documents.programs(documents.blocks(path))]
COMMANDS = list(documents.commands(BLOCKS))

# Programs of the system that blocks may call; what they do is not Shoal's.
LAUNCHERS = {"torchrun", "mpirun", "srun"}
SYSTEM = {"cd", "cmake", "docker", "export", "git", "kill", "ls", "ulimit", "tensorboard", "sudo", "python", "pip"}

# What is not run, by page: a new one is a decision.
NOT_RUN = {
    "docs/guides/containers.md": 1,
    "docs/guides/exporting.md": 1,
    "docs/guides/plug-ins.md": 1,
    "docs/guides/ray.md": 4,
    "docs/migrating/di_engine.md": 1,
    "docs/migrating/rllib.md": 1,
    "docs/migrating/tianshou.md": 1,
    "docs/migrating/torchrl.md": 1,
}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.where)
def test_a_program_runs_and_prints_what_its_page_says(program: documents.Program, tmp_path: Path) -> None:
    document = program.where.partition(":")[0]
    script = tmp_path / (re.sub(r"\W", "_", document) + ".py")
    script.write_text(program.source)
    for name, text in program.files.items():
        (tmp_path / name).write_text(text)
    package = Path(shoal.__file__).resolve().parents[1]
    path = os.pathsep.join(filter(None, [str(package), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, script.name],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", "MPLBACKEND": "agg"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, f"{program.where}\n{done.stdout}\n{done.stderr}"
    printed = documents.printed(done.stdout)
    assert set(printed) >= set(program.outputs)
    for line, expected in program.outputs.items():
        assert documents.fits(expected, printed[line]), (
            f"{document}:{line} says it prints\n{expected}\nand it printed\n{printed[line]}"
        )


def test_every_block_is_of_a_language_that_is_checked_or_says_why_not() -> None:
    checked = {"", "python", "output", "sh", "text"}
    checked |= {"toml", "cpp"}  # by test_document_options.py and test_headers.py
    unknown = [block.where for block in BLOCKS if block.language not in checked and not block.language.startswith("{")]
    assert not [where for where in unknown if where not in {block.where for block in BLOCKS if block.reason}]


def test_what_is_not_run_says_why_and_is_counted() -> None:
    reasons: dict[str, list[str]] = {}
    for block in BLOCKS:
        if block.reason:
            reasons.setdefault(block.document, []).append(block.reason)
    assert {document: len(why) for document, why in reasons.items()} == NOT_RUN, reasons


def test_the_guide_has_programs() -> None:
    pages = {program.where.partition(":")[0] for program in PROGRAMS}
    guides = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs/guides").glob("*.md")}
    assert guides and not guides - pages
    assert {"README.md", "docs/start.md"} <= pages


@pytest.mark.parametrize("command", sorted({command.words for command in COMMANDS}), ids=" ".join)
def test_a_command_is_one_that_exists(command: tuple[str, ...]) -> None:
    if wrong := what_is_wrong_with(command):
        where = next(found.where for found in COMMANDS if found.words == command)
        pytest.fail(f"{where}: {' '.join(command)}: {wrong}")


@pytest.mark.parametrize("path", documents.documents(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_the_programs_and_the_commands_of_a_page_train_into_folders_of_their_own(path: Path) -> None:
    """So that who does all of the page in one folder is not told that a run is there."""
    assert not trained_twice(documents.blocks(path))


def trained_twice(found: list[documents.Block]) -> set[str]:
    """Folders that a program trains into and a command as well, or two commands."""
    by_programs = {
        folder
        for block in found
        if block.language == "python"
        for folder in re.findall(r'\brun_dir="([^"]+)"', block.text)
    }
    calls = [" ".join(command.words) for command in documents.commands(found)]
    by_commands = [match[1] for call in calls if (match := re.search(r"\btrain\b.* --run-dir (\S+)", call))]
    return {folder for folder in by_commands if folder in by_programs or by_commands.count(folder) > 1}


def what_is_wrong_with(words: tuple[str, ...]) -> str | None:
    program, *arguments = words
    if program in LAUNCHERS and "shoal" in arguments:
        program, *arguments = words[words.index("shoal") :]
    if program in ("shoal", "./shoal"):
        return wrong_call(arguments)
    if program == "pip" and any("[" in word for word in arguments):
        return wrong_extras(arguments)
    if program == "python" and arguments and arguments[0].endswith(".py"):
        files = {name for program in PROGRAMS for name in program.files}
        known = (ROOT / arguments[0]).is_file() or arguments[0] in files | {"program.py", "train.py"}
        return None if known else f"there is no {arguments[0]}"
    return None if program in SYSTEM else f"{program!r} is not among the programs that documents call"


def wrong_call(arguments: list[str]) -> str | None:
    """Parses the arguments as the program does, without calling the command."""
    import typer

    from shoal.cli.app import app

    group: Any = typer.main.get_command(app)
    if not arguments or arguments[0] in ("--version", "--help"):
        return None
    command = group.commands.get(arguments[0])
    if command is None:
        return f"there is no command {arguments[0]!r}"
    if "--help" in arguments:
        return None
    try:
        command.make_context(arguments[0], list(arguments[1:]))
    except Exception as error:
        return str(error)
    return None


def wrong_extras(arguments: list[str]) -> str | None:
    table = (ROOT / "pyproject.toml").read_text().partition("[project.optional-dependencies]\n")[2].partition("\n[")[0]
    known = set(re.findall(r"^(\w+) = ", table, re.MULTILINE))
    named = [name for word in arguments for name in re.findall(r"^(?:shoal|\.)\[([\w,]+)\]", word)]
    missing = [name for names in named for name in names.split(",") if name not in known]
    return f"there is no extra {', '.join(missing)}" if missing else None


# --- the checks themselves


PAGE = """
# A page

```python
def double(x):
    return 2 * x
```

```python
print(double(2))
print("and", id(double))
```

```output
4
and …
```

```python
if __name__ == "__main__":
    print("alone")
```

<!-- not run: it needs a moon -->
```python
launch()
```

```sh
A=1 shoal train CartPole-v1 \\
  --seed 1  # why
```
"""


def test_blocks_of_a_page_share_a_program_and_guarded_ones_are_their_own() -> None:
    found = list(documents.blocks_of("page.md", PAGE))
    shared, alone = documents.programs(found)
    assert (shared.where, alone.where) == ("page.md", "page.md:19")
    assert shared.source.splitlines()[4] == "def double(x):"  # as in the page
    assert list(shared.outputs.values()) == ["4\nand …\n"] and not alone.outputs
    assert [block.reason for block in found if block.reason] == ["it needs a moon"]
    assert "launch" not in shared.source + alone.source
    (command,) = documents.commands(found)
    assert command.words == ("shoal", "train", "CartPole-v1", "--seed", "1")


def test_folders_that_are_trained_into_twice_are_found() -> None:
    program = documents.Block("page.md", 1, "python", 'shoal.learn.train("CartPole-v1", run_dir="here")\n')
    there = documents.Block("page.md", 5, "sh", "shoal train CartPole-v1 --run-dir there\n")
    here = documents.Block("page.md", 9, "sh", "shoal train CartPole-v1 --run-dir here\nshoal eval here\n")
    assert not trained_twice([program, there])
    assert trained_twice([program, there, here]) == {"here"}
    assert trained_twice([there, there]) == {"there"}


def test_output_that_differs_is_found() -> None:
    assert documents.fits("4\nand …\n", "4 \nand 1234\nmore\n")
    assert not documents.fits("4\nand …\n", "5\nand 1\n")
    assert not documents.fits("4\n", "4\n5\n")
    assert documents.printed("\x1e5\na\n\x1e9\n") == {5: "a\n", 9: ""}


def test_commands_that_do_not_exist_are_found() -> None:
    assert "tran" in (what_is_wrong_with(("shoal", "tran", "CartPole-v1")) or "")
    assert "--seeds" in (what_is_wrong_with(("./shoal", "train", "CartPole-v1", "--seeds", "1")) or "")
    assert what_is_wrong_with(("shoal", "train", "CartPole-v1", "--seed", "one"))
    assert what_is_wrong_with(("shoal", "train", "CartPole-v1", "--seed", "1")) is None
    assert what_is_wrong_with(("pip", "install", "shoal[everything]")) == "there is no extra everything"
    assert what_is_wrong_with(("python", "nowhere.py")) and what_is_wrong_with(("frobnicate",))
