"""What a training run is told, put together from a TOML file, --set and the flags, later ones winning."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from shoal.cli.console import did_you_mean, fail, wrong_use


def from_file(file: Path) -> dict[str, Any]:
    """The settings of a TOML file; a YAML file is one of rl-baselines3-zoo's, which the training reads. Tables only group them, but for env_kwargs and atari."""
    if file.name.partition(":")[0].endswith((".yml", ".yaml")):
        return {"config": str(file)}
    try:
        import tomllib
    except ModuleNotFoundError:  # Python 3.10
        import tomli as tomllib  # type: ignore[no-redef]  # the same under its earlier name
    try:
        with file.open("rb") as stream:
            document = tomllib.load(stream)
    except FileNotFoundError:
        siblings = [str(path) for path in file.parent.glob("*.toml")]
        wrong_use(f"there is no file {str(file)!r}{did_you_mean(str(file), siblings)}")
    except OSError as error:
        fail(f"cannot read {str(file)!r}: {error.strerror}")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        wrong_use(f"{str(file)!r} is not TOML: {error}")
    settings = _flat(document, str(file))
    return {
        name: value if _KINDS.get(name, (None,))[0] is str else _read_word(value) for name, value in settings.items()
    }


_TABLES = ("env_kwargs", "atari")  # settings whose value is a table


def _flat(table: dict[str, Any], where: str) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for name, value in table.items():
        for key, one in (
            _flat(value, where) if isinstance(value, dict) and name not in _TABLES else {name: value}
        ).items():
            if key in settings:
                wrong_use(f"{where!r} sets {key} twice")
            settings[key] = one
    return settings


# Settings that are no options of an algorithm, which checks its own: those that are used before anything else looks at them.
_KINDS: dict[str, tuple[type, str]] = {
    "env": (str, "an id such as CartPole-v1"),
    "config": (str, "the path of a file"),
    "preset": (str, "the name of a preset"),
    "run_dir": (str, "the path of a folder"),
    "num_workers": (int, "a whole number"),
    "wrappers": (list, 'a list such as ["module:Name"]'),
}


def check_kinds(settings: dict[str, Any]) -> None:
    """Fails with one line for a value of a kind that its setting cannot have."""
    for name, (kind, what) in _KINDS.items():
        value = settings.get(name)
        if value is not None and not isinstance(value, kind):
            wrong_use(f"{name} takes {what}, not {value!r}")


def from_words(words: Iterable[str]) -> dict[str, Any]:
    """The settings of `--set key=value` flags."""
    return {name.replace("-", "_"): value for name, value in (_pair(word, "--set") for word in words)}


def env_kwargs(words: Iterable[str]) -> dict[str, Any]:
    """The keyword arguments of `--env-kwargs` flags, each key=value or a JSON object of several."""
    kwargs: dict[str, Any] = {}
    for word in words:
        if word.lstrip().startswith("{"):
            try:
                kwargs |= json.loads(word)
            except ValueError as error:
                wrong_use(f"--env-kwargs: {word!r} is not JSON: {error}")
        else:
            name, value = _pair(word, "--env-kwargs")
            kwargs[name] = value
    return kwargs


def bounds(text: str) -> tuple[float, float]:
    """LOW,HIGH of --reward-clip."""
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError:
        wrong_use(f"--reward-clip takes LOW,HIGH such as -1,1, not {text!r}")
    return low, high


def atari(words: Iterable[str]) -> dict[str, Any] | bool:
    """What the `--atari` flags say: switches, a library's name as "like" among them; False: off."""
    switches: dict[str, Any] = {}
    words = list(words)
    if words == ["off"]:
        return False
    for word in words:
        if word == "off":
            wrong_use("--atari off goes with no other --atari")
        name, value = ("like", word) if "=" not in word else _pair(word, "--atari")
        switches[name] = value
    return switches


_WORDS = {"true": True, "false": False, "null": None, "none": None}


def _pair(word: str, flag: str) -> tuple[str, Any]:
    """Key and value; the value is JSON where it can be read as such, True, False and None in any case, otherwise text."""
    name, equals, text = word.partition("=")
    if not equals or not name.strip():
        more = ", or a JSON object" if flag == "--env-kwargs" else ""
        wrong_use(f"{flag} takes key=value{more}, not {word!r}")
    try:
        return name.strip(), json.loads(text)
    except ValueError:
        return name.strip(), _read_word(text)


def _read_word(value: Any) -> Any:
    """What the text of one of `_WORDS` says, in any case; any other value is itself. TOML has no null."""
    return _WORDS.get(value.strip().lower(), value) if isinstance(value, str) else value
