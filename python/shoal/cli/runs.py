"""The folders of training runs, as the commands meet them."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import Any

from shoal.cli.console import fail, nearest, printable, program, wrong_use


def read_config(run_dir: Path, *, to_build: bool = False) -> dict[str, Any]:
    """What the run was told (config.json). Fails with one line when `run_dir` is not the folder of a run, or that is damaged.

    Args:
        to_build: environments or a learner are built of it, so that it has to have what they need.
    """
    if not os.path.isdir(run_dir):  # False for a name that is too long, too
        wrong_use(why_no_folder(run_dir))
    file = run_dir / "config.json"
    try:
        config = json.loads(file.read_text())
    except FileNotFoundError:
        folder = run_dir.resolve().parent
        if folder.name == "checkpoints" and (folder.parent / "config.json").exists():
            if (run_dir / "state.json").exists():
                fail(f"{str(run_dir)!r} is a checkpoint: name the folder of its run, {printable(str(folder.parent))}")
            fail(f"the checkpoint {str(run_dir)!r} is damaged: it has no state.json")
        runs = sorted(run_dir.glob("*/config.json"), key=lambda path: path.stat().st_mtime)
        which = f"; it holds runs, the latest is {printable(str(runs[-1].parent))}" if runs else ""
        fail(f"{str(run_dir)!r} is not the folder of a run: it has no config.json{which}")
    except OSError as error:
        fail(f"cannot read {str(file)!r}: {error.strerror}")
    except (ValueError, RecursionError) as error:
        fail(f"{str(file)!r} is damaged: {error}")
    if not isinstance(config, dict) or config.get("format") != "shoal.run":
        fail(f"{str(file)!r} was not written by Shoal")
    if to_build:
        from shoal.runs import damage_of

        if damage := damage_of(config):
            fail(f"{str(file)!r} is damaged: {damage}")
    return config


def why_no_folder(run_dir: Path) -> str:
    """Why `run_dir` is no folder, and which was meant by it."""
    if os.path.isfile(run_dir):
        of_a_run = f"; its run is {str(run_dir.parent)!r}" if (run_dir.parent / "config.json").exists() else ""
        return f"{str(run_dir)!r} is a file, and not the folder of a run{of_a_run}"
    meant = nearest(run_dir.name, (path.name for path in run_dir.parent.glob("*") if path.is_dir()))
    hint = f"; did you mean {printable(str(run_dir.with_name(meant)))}?" if meant else ""
    return f"there is no folder {str(run_dir)!r}{hint}"


def why_unwritable(path: Path) -> str | None:
    """Why this user cannot write the file `path`, or into the folder `path`, which need not be there yet; None: it is to be had."""
    there = path.absolute()
    while not there.exists() and there != there.parent:
        there = there.parent
    if there.is_file() and there != path.absolute():
        return f"{str(there)!r} is no folder"
    if os.access(there, os.W_OK | (os.X_OK if there.is_dir() else 0)):
        return None
    return "the file system is read-only" if os.statvfs(there).f_flag & os.ST_RDONLY else "permission denied"


def command(*words: str | Path | int) -> str:
    """A command line of this program that can be pasted into a shell, as the user called the program."""
    return shlex.join([program(), *map(str, words)])
