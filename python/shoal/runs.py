"""Where a network comes from: the presets, and the directories of runs. What collecting and learning both ask for."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from shoal import _learn

__all__ = [
    "MODULE_FORMAT",
    "checkpoint_dir",
    "damage_of",
    "is_of_module",
    "kept_by_a_run",
    "preset",
    "preset_names",
    "run_of",
]

MODULE_FORMAT = "shoal.module_checkpoint"
"""What the checkpoint of a torch module calls itself in its state.json."""
_KEPT = ("config.json", "result.json", "progress.jsonl", "lock", "checkpoints", "curve.png", "events.out.tfevents.*")
"""Names in a run's folder, as patterns."""
_NEEDED = {"env": str, "config": dict}
_OPTIONAL = {
    "algorithm": str,
    "preset": str,
    "env_kwargs": dict,
    "wrappers": list,
    "unrecorded": list,
    "listen": str,
    "policy": str,
    "changed": dict,
}
"""Of a run's config.json; it may say null of these."""


def preset_names(algorithm: str = "ppo") -> list[str]:
    """The names of an algorithm's presets: libraries' defaults ("sb3", "cleanrl", …) and tuned ones, named after their task."""
    return _learn.preset_names(algorithm)


def preset(name: str, algorithm: str = "ppo") -> dict[str, Any]:
    """All options of a preset. Raises ValueError naming the nearest for a name that is none."""
    options: dict[str, Any] = json.loads(_learn.preset(name, algorithm))
    return options


def checkpoint_dir(run_dir: str | Path, which: str | None = None) -> Path:
    """The directory of a checkpoint: of a run "best" or "last" (None: best where there is one), or `run_dir` itself.

    Raises:
        ValueError: `run_dir` is another checkpoint than `which` says.
        FileNotFoundError: there is none, or it has lost its state.json.
    """
    run_dir = Path(run_dir)
    if which not in (None, "best", "last"):
        raise ValueError(f"a run has the policies 'best' and 'last', not {which!r}")
    if (run_dir / "state.json").exists():
        if which is not None and which != run_dir.resolve().name.removesuffix(".old"):
            raise ValueError(
                f"{run_dir} is one checkpoint, and not {which!r}: give the folder of its run, or leave which= out"
            )
        return run_dir
    if not run_dir.is_dir():
        raise FileNotFoundError(f"there is no directory {run_dir}")
    if which is None:
        has_best = any((run_dir / "checkpoints" / name).exists() for name in ("best", "best.old"))
        which = "best" if has_best else "last"
    directory = run_dir / "checkpoints" / which
    older = directory.with_name(f"{which}.old")  # while it is replaced
    if not directory.exists() and not older.exists():
        if (run_dir / "policy.safetensors").exists():
            raise FileNotFoundError(f"the checkpoint {run_dir} is damaged: it has no state.json")
        raise FileNotFoundError(f"{run_dir} holds no policy: there is no {directory}")
    found = directory if directory.exists() else older
    if not (found / "state.json").exists():
        raise FileNotFoundError(f"the checkpoint {found} is damaged: it has no state.json")
    return found


def run_of(directory: str | Path) -> Path:
    """The directory of the run that `directory` is, or is a checkpoint of."""
    directory = Path(directory)
    return directory.resolve().parent.parent if (directory / "state.json").exists() else directory


def damage_of(config: dict[str, Any]) -> str | None:
    """What a run's config.json lacks or has of the wrong kind, and what to do, in words that follow "is damaged: "; None: nothing."""
    needed = [*_NEEDED, *(("policy_name", "device") if "policy" in config else ())]
    wrong = [f"no {name}" for name in needed if name not in config]
    if not wrong:
        kinds = _NEEDED | {name: kind for name, kind in _OPTIONAL.items() if config.get(name) is not None}
        wrong = [f"{name} = {config[name]!r}" for name, kind in kinds.items() if not isinstance(config[name], kind)]
    if not wrong and "seed" not in config["config"]:
        wrong = ["no seed among its options"]
    return f"it has {' and '.join(wrong)}; put a copy of it in its place, or begin a new run" if wrong else None


def kept_by_a_run(file: Path) -> str | None:
    """Why nothing else may be written to `file`, or to what it links to, in words that follow its name; None: it may.

    What a run or a checkpoint has, or may come to have, is its own.
    """
    if (file.resolve().parent / "state.json").exists():
        return "is in the folder of a checkpoint, which has no other files: name one elsewhere"
    if _is_of_a_run(file.parent.resolve() / file.name) or _is_of_a_run(file.resolve()):
        return "is what a run keeps there of its own: name the file otherwise"
    return None


def _is_of_a_run(path: Path) -> bool:
    folder = path.parent
    if folder.name == "checkpoints" and _is_run(folder.parent):
        return True
    return any(fnmatchcase(path.name, pattern) for pattern in _KEPT) and _is_run(folder)


def _is_run(folder: Path) -> bool:
    try:
        config = json.loads((folder / "config.json").read_text())
    except (OSError, ValueError):
        return False
    return isinstance(config, dict) and config.get("format") == "shoal.run"


def is_of_module(checkpoint: Path) -> bool:
    """Whether the checkpoint is of a torch module that was trained by `policy=`, and not of a C++ network."""
    try:
        state = json.loads((checkpoint / "state.json").read_text())
    except (OSError, ValueError):
        return False
    return isinstance(state, dict) and state.get("format") == MODULE_FORMAT
