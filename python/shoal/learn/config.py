"""The options of a training run: one flat set of names, and what a run directory remembers of them."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from shoal import _learn
from shoal.runs import damage_of

__all__ = ["algorithm_names", "config_names", "override", "preset_for", "read_run", "rounded_steps"]

RUN_FORMAT = "shoal.run"


def algorithm_names() -> list[str]:
    """The names of all algorithms, the default one first."""
    return _learn.algorithm_names()


def config_names(algorithm: str = "ppo") -> list[str]:
    """The names of all options that runs of an algorithm take, in alphabetical order."""
    return _learn.config_names(algorithm)


def preset_for(env_id: str, algorithm: str = "ppo") -> str:
    """The preset that `train` takes for this environment id when it is given none."""
    return _learn.preset_for(env_id, algorithm)


def override(config: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """`config` with some options changed. Raises ValueError for a name that is none, with the nearest, or a bad value."""
    for name, value in overrides.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"configure training: {name} = {value} is no finite number")
        if isinstance(value, int) and not -(2**63) <= value < 2**64:
            raise ValueError(f"configure training: {name} = {value} does not go into 64 bits")
        try:
            json.dumps(value)
        except (TypeError, ValueError):
            raise TypeError(f"options are numbers, strings, lists and None, and {name} is {value!r}") from None
    options: dict[str, Any] = json.loads(_learn.override_config(json.dumps(dict(config)), json.dumps(dict(overrides))))
    return options


def flag(name: str, value: Any) -> bool | None:
    """True, False, or None where nothing is said. Raises TypeError for anything else."""
    if value is None or isinstance(value, bool | np.bool_):
        return None if value is None else bool(value)
    raise TypeError(f"{name} is True, False or None, not {value!r}")


def rounded_steps(config: Mapping[str, Any], given: Collection[str], made: int = 0) -> str | None:
    """A sentence on how many steps a run makes instead of `total_steps`: its iterations are whole.

    None where they are the same, where nobody has named any of these numbers, and where it cannot be told beforehand: actors of A3C
    end with the rollouts that they are at, and with `sync_fraction` slow ranks make fewer steps.

    Args:
        config: the options of its algorithm, all of them.
        given: the names of those that the user has given.
        made: steps that a run which goes on has made already.
    """
    if not {"total_steps", "num_envs", "num_steps"}.intersection(given):
        return None
    if config["algorithm"] == "a3c" or config.get("sync_fraction", 1.0) < 1.0:
        return None
    total, each = config["total_steps"], config["num_envs"] * config["num_steps"]
    end = made + max(0, -(-(total - made) // each)) * each
    if made >= total or end == total:
        return None
    return (
        f"total_steps={total:,} ends within an iteration, which is num_envs={config['num_envs']} times "
        f"num_steps={config['num_steps']} steps; the run makes whole ones, at most {end:,} steps"
    )


def holds_run(run_dir: Path) -> bool:
    """Whether there is a checkpoint to go on from; ".old" is one that was being replaced when its process ended."""
    return any((run_dir / "checkpoints" / name).exists() for name in ("last", "last.old"))


def read_run(run_dir: Path) -> dict[str, Any]:
    """config.json of a run: "env", "env_kwargs", "algorithm", "preset", and all options under "config"."""
    file = run_dir / "config.json"
    try:
        run = json.loads(file.read_text())
    except FileNotFoundError:
        raise FileNotFoundError(f"{run_dir} is not the directory of a run: it has no config.json") from None
    except ValueError as error:
        raise ValueError(f"{file} is damaged: {error}") from None
    if not isinstance(run, dict) or run.get("format") != RUN_FORMAT:
        raise ValueError(f"{file} was not written by Shoal")
    if damage := damage_of(run):
        raise ValueError(f"{file} is damaged: {damage}")
    return run
