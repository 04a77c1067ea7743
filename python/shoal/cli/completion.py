"""What a shell completes: words that this installation and this folder know. A failure completes nothing, and says nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import typer

__all__ = [
    "algorithms",
    "checkpoints",
    "env_ids",
    "formats",
    "pages",
    "parts",
    "presets",
    "runs",
    "sanitizers",
    "sections",
    "settings",
]


def _quiet(words: Callable[[typer.Context], Iterable[str]]) -> Callable[[typer.Context, str], list[str]]:
    """`words` as Typer asks for them: those that begin with what is typed."""

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        try:
            return [word for word in words(ctx) if word.startswith(incomplete)]
        except Exception:
            return []

    return complete


@_quiet
def env_ids(_ctx: typer.Context) -> Iterable[str]:
    from shoal.cli.environments import gymnasium_ids, native_ids

    return dict.fromkeys([*native_ids(), *gymnasium_ids(older=False)])  # a program may have registered ours there, too


@_quiet
def algorithms(_ctx: typer.Context) -> Iterable[str]:
    from shoal.learn.config import algorithm_names

    return algorithm_names()


@_quiet
def presets(ctx: typer.Context) -> Iterable[str]:
    from shoal import _learn

    given: dict[str, Any] = ctx.params
    return _learn.preset_names(given.get("algorithm") or "ppo")


@_quiet
def settings(ctx: typer.Context) -> Iterable[str]:
    """Of the algorithm that is named before, each up to its value."""
    from shoal.learn.config import config_names

    return [f"{name}=" for name in config_names(ctx.params.get("algorithm") or "ppo")]


@_quiet
def runs(_ctx: typer.Context) -> Iterable[str]:
    """Folders of runs: of this folder, and of runs/."""
    return [str(file.parent) for pattern in ("*/config.json", "runs/*/config.json") for file in Path().glob(pattern)]


@_quiet
def formats(_ctx: typer.Context) -> Iterable[str]:
    from shoal.learn.exporting import FORMATS

    return FORMATS


@_quiet
def checkpoints(_ctx: typer.Context) -> Iterable[str]:
    return ["best", "last"]


@_quiet
def pages(_ctx: typer.Context) -> Iterable[str]:
    from shoal.cli.pages import pages as known

    return [page.name for page in known()]


@_quiet
def sections(ctx: typer.Context) -> Iterable[str]:
    from shoal.cli.pages import the_page

    return [section.title for section in the_page(ctx.params["page"]).sections[1:]]


@_quiet
def parts(_ctx: typer.Context) -> Iterable[str]:
    from shoal.cli.test_parts import PARTS

    return [part.name for part in PARTS]


@_quiet
def sanitizers(_ctx: typer.Context) -> Iterable[str]:
    return ["thread", "address"]
