"""The page of learning's options has all that the learners take, of which algorithms, and with which defaults."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.cli.settings import from_file
from shoal.learn.config import override

PAGE = Path(__file__).resolve().parents[2] / "docs/reference/options.md"
if not PAGE.is_file():
    pytest.skip("the documents are not part of an installed package", allow_module_level=True)

ALGORITHMS = ("ppo", "a2c", "a3c", "impala", "appo", "dqn", "sac", "recurrent_ppo")
WHICH = "algorithm"
"""Is an argument of its own."""


REFUSED = [
    ("appo", "normalize_returns"),
    ("appo", "recompute_advantages"),
    ("recurrent_ppo", "recompute_advantages"),
    ("recurrent_ppo", "shared_hidden"),
]
"""Options of a learner's that it takes with their defaults alone."""


def words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",")]


def algorithms(of: str) -> set[str]:
    if of.startswith("all"):
        return set(ALGORITHMS) - set(words(of.removeprefix("all but ")))
    return set(words(of))


def value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text  # a word


def defaults(cell: str, of: set[str]) -> dict[str, Any]:
    """Of "64; appo, dqn 32": 32 of two algorithms and 64 of the rest."""
    rest, *others = cell.split("; ")
    found = dict.fromkeys(of, value(rest))
    for other in others:
        of_others = re.match(r"(\w+, )*\w+ ", other)
        assert of_others, other
        found |= dict.fromkeys(words(of_others[0]), value(other.removeprefix(of_others[0])))
    return found


def on_the_page() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, of, cell in re.findall(r"^\| `(\w+)` \| ([^|]+) \| ([^|]+) \|", PAGE.read_text("utf-8"), re.MULTILINE):
        yield name, defaults(cell, algorithms(of))


def of_the_learners() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for algorithm in ALGORITHMS:
        preset = shoal.learn.preset(shoal.learn.preset_for("Mine-v0", algorithm), algorithm)
        for name in set(shoal.learn.config_names(algorithm)) - {WHICH}:
            found.setdefault(name, {})[algorithm] = preset[name]
    return found


def test_the_file_of_the_page_is_read(tmp_path: Path) -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    file = tmp_path / "cartpole.toml"
    file.write_text(text)
    given = from_file(file)
    assert given.pop("env_kwargs") == {"sutton_barto_reward": False}
    preset = shoal.learn.preset(given.pop("preset"))
    assert override(preset, given) == {**preset, **given}


def test_each_switch_is_taken_by_the_algorithms_of_its_row() -> None:
    refused = []
    for name, of in on_the_page():
        for algorithm in (algorithm for algorithm, default in of.items() if default is False):
            try:
                override(shoal.learn.preset(shoal.learn.preset_for("Mine-v0", algorithm), algorithm), {name: True})
            except ValueError as error:
                refused.append(f"{algorithm}: {error}")
    assert refused == []


def test_each_option_is_there_once_with_its_algorithms_and_defaults() -> None:
    rows = list(on_the_page())
    assert len(rows) == len(dict(rows))
    learners = of_the_learners()
    for algorithm, name in REFUSED:
        del learners[name][algorithm]
    assert dict(rows) == learners
