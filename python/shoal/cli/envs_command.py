"""`shoal envs`: the environments that can be trained on."""

from __future__ import annotations

from pathlib import Path

import typer

from shoal.cli import plugins
from shoal.cli.console import did_you_mean, fail, say


def register(app: typer.Typer) -> None:
    app.command("envs")(envs)


def envs(
    word: str = typer.Argument(None, help="Only ids with this word in them."),
    every: bool = typer.Option(False, "--all", help="Also the older versions of an environment."),
    plugin: list[Path] = plugins.OPTION,
) -> None:
    """List the environments: Shoal's native ones and those registered with Gymnasium."""
    from shoal.cli.environments import gymnasium_ids, native_ids
    from shoal.vector.extras import lacks

    plugins.load(plugin)
    native = native_ids()
    gymnasium = [name for name in gymnasium_ids(older=every) if name not in native]
    if word:
        known = [*native, *gymnasium]
        native = [name for name in native if word.casefold() in name.casefold()]
        gymnasium = [name for name in gymnasium if word.casefold() in name.casefold()]
        if not native and not gymnasium:
            fail(f"no environment has {word!r} in its id{did_you_mean(word, known)}")
    for title, names in (("native: stepped in C++", native), ("Gymnasium", gymnasium)):
        if names:
            say(f"{title}")
        for name in names:
            need = lacks(name)
            say(f"  {name}" + (f"   (needs {need})" if need else ""))
