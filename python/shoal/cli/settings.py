"""What a training run is told, put together from a TOML file, --set and the flags, later ones winning."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from shoal.cli.console import did_you_mean, fail, wrong_use


def from_file(file: Path) -> dict[str, Any]:
    """The settings of a TOML file. Tables only group them, but for env_kwargs."""
    try:
        import tomllib
    except ModuleNotFoundError:  # Python 3.10
        import tomli as tomllib
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
    return _flat(document, str(file))


def _flat(table: dict[str, Any], where: str) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for name, value in table.items():
        for key, one in (
            _flat(value, where) if isinstance(value, dict) and name != "env_kwargs" else {name: value}
        ).items():
            if key in settings:
                wrong_use(f"{where!r} sets {key} twice")
            settings[key] = one
    return settings


def from_words(words: Iterable[str]) -> dict[str, Any]:
    """The settings of `--set key=value` flags. Values are JSON where they can be read as such, otherwise text."""
    settings = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not name.strip():
            wrong_use(f"--set takes key=value, not {word!r}")
        try:
            settings[name.strip().replace("-", "_")] = json.loads(text)
        except ValueError:
            settings[name.strip().replace("-", "_")] = text
    return settings
