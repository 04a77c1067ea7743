"""A file of rl-baselines3-zoo's: which of its entries is an environment's, and which algorithm it is of."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal.learn.config import algorithm_names

__all__ = ["Found", "algorithm_of", "find"]

# Algorithms that have a file of their own there.
_OF_ZOO = ("a2c", "ars", "crossq", "ddpg", "dqn", "her", "ppo", "ppo_lstm", "qrdqn", "sac", "td3", "tqc", "trpo")
# Files whose algorithm has another name here.
_NAMED = {"ppo_lstm": "recurrent_ppo"}
_OF_MANY = ("default", "atari")


@dataclass(frozen=True)
class Found:
    """An entry as it is in the file.

    Attributes:
        source: where it stands, as "ppo.yml:CartPole-v1".
        instead: says that it is for all environments without an entry; None: it is the environment's own, or was asked for.
    """

    path: Path
    source: str
    settings: Mapping[str, Any]
    instead: str | None


def find(file: str | Path, env_id: str, is_atari: bool) -> Found:
    """The entry of `file` for an environment; arguments and errors as of zoo.read()."""
    path, asked = _split(str(file))
    entries = _loaded(path)
    name = _entry_name(entries, path, asked, env_id, is_atari)
    source = f"{path.name}:{name}"
    settings = entries[name]
    if not isinstance(settings, Mapping):
        raise ValueError(f"{source} is no set of hyperparameters: {settings!r}")
    instead = None
    if asked is None and name == "default":
        near = _nearest(env_id, [key for key in entries if key not in _OF_MANY])
        hint = f"; to take that of {near}, write {path}:{near}" if near else ""
        instead = f"{source} is taken, since {env_id or 'the environment'} has no entry of its own{hint}"
    return Found(path, source, settings, instead)


def algorithm_of(path: Path, asked: str | None) -> str:
    """The one that is asked for, else the one that the file is named after."""
    if asked is not None:
        return asked
    stem = _NAMED.get(path.stem, path.stem)
    if stem in algorithm_names():
        return stem
    if path.stem in _OF_ZOO:
        raise ValueError(
            f"{path} is of {path.stem}, which Shoal has not; there is {', '.join(algorithm_names())}, to be named by algorithm= or "
            "--algorithm"
        )
    return algorithm_names()[0]


def _split(file: str) -> tuple[Path, str | None]:
    path, colon, name = file.rpartition(":")
    return (Path(path), name) if colon and path.endswith((".yml", ".yaml")) else (Path(file), None)


def _loaded(path: Path) -> Mapping[str, Any]:
    try:
        text = path.read_text()
    except FileNotFoundError:
        raise ValueError(f"there is no file {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read as YAML of plain values: {error}") from None
    try:
        import yaml
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"reading {path} needs PyYAML:  pip install pyyaml", name=error.name) from None
    try:
        entries = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"{path} cannot be read as YAML of plain values: {error}") from None
    if not isinstance(entries, Mapping):
        raise ValueError(f"{path} is no file of rl-baselines3-zoo's: it has no entries by environment")
    return entries


def _entry_name(entries: Mapping[str, Any], path: Path, name: str | None, env_id: str, is_atari: bool) -> str:
    task = env_id.rpartition(":")[2]
    wanted = [name] if name is not None else [task, task.rpartition("/")[2], *["atari"] * is_atari, "default"]
    for candidate in wanted:
        if candidate in entries:
            return candidate
    asked = name if name is not None else env_id
    near = _nearest(asked, entries)
    hint = f"; to take that of {near}, write {path}:{near}" if near else f"; it has {', '.join(map(str, entries))}"
    raise ValueError(f"{path} has no entry for {asked!r}{hint}")


def _nearest(name: str, entries: Iterable[Any]) -> str | None:
    near = difflib.get_close_matches(name, map(str, entries), n=1, cutoff=0.5)
    return near[0] if near else None
