"""`shoal eval RUN`: how good the policy of a run is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from shoal.cli import completion, plugins
from shoal.cli.console import closing_json, did_you_mean, fail, note, say, wrong_use

_CHECKPOINTS = ("best", "last")
_LARGEST_SEED = 2**64 - 1


def register(app: typer.Typer) -> None:
    app.command("eval")(evaluate)


def evaluate(
    run: Path = typer.Argument(
        ...,
        metavar="RUN",
        help="Folder of a run, or of one of its checkpoints.",
        show_default=False,
        autocompletion=completion.runs,
    ),
    episodes: int = typer.Option(100, "--episodes", min=1, help="Whole episodes; all of them count."),
    seed: int = typer.Option(0, "--seed", min=0, help="Of the environments."),
    checkpoint: str = typer.Option(None, "--checkpoint", metavar="best|last", help="Which policy [default: best]."),
    env: str = typer.Option(None, "--env", help="Another environment than the run's, of the same spaces."),
    num_envs: int = typer.Option(None, "--num-envs", min=1, help="Environments that share the episodes."),
    num_workers: int = typer.Option(None, "--num-workers", min=0, help="Processes they run in; 0: this one."),
    stochastic: bool = typer.Option(False, "--stochastic", help="Sample actions instead of taking the likeliest."),
    gif: Path = typer.Option(None, "--gif", metavar="FILE.gif", help="Also draw an episode."),
    plugin: list[Path] = plugins.OPTION,
    json: bool = typer.Option(False, "--json", help="Print one line of JSON instead."),
) -> None:
    """Evaluate the policy of a run on fresh episodes."""
    from shoal.cli.environments import resolve
    from shoal.cli.runs import read_config
    from shoal.runs import run_of

    plugins.load(plugin)
    if checkpoint is not None and checkpoint not in _CHECKPOINTS:
        wrong_use(f"--checkpoint takes best or last, not {checkpoint!r}{did_you_mean(checkpoint, _CHECKPOINTS)}")
    if seed > _LARGEST_SEED:
        wrong_use(f"--seed takes at most {_LARGEST_SEED}, not {seed}")
    if gif is not None:
        _check_gif(gif)
    recorded = read_config(run_of(run), to_build=True)
    own = recorded["env"]
    named = env if env is not None or not recorded.get("env_is_id", True) else own
    if named is None and recorded.get("env_path") is None:
        wrong_use(
            f"the run was trained on {own}, which is neither an id nor found by an import path: give an id by --env"
        )
    if named is None and gif is not None:
        wrong_use(f"the run was trained on {own}, which is not an id, and --gif draws what has one: give it by --env")
    env_id = None if named is None else resolve(named)

    from shoal import learn
    from shoal.errors import Error
    from shoal.learn.environments import EnvOptions
    from shoal.process.error_report import traceback_of

    drawn = None
    try:
        if gif is not None:  # first: what drawing lacks is said before many episodes are played
            options = EnvOptions().for_evaluation_of(recorded)
            assert env_id is not None  # which was refused above
            drawn = _draw(run, checkpoint, env_id, options, gif, seed, stochastic)
        result = learn.evaluate(
            run,
            episodes,
            seed,
            which=checkpoint,
            deterministic=False if stochastic else None,
            env=env_id,
            num_envs=num_envs,
            num_workers=num_workers,
        )
    except (FileNotFoundError, ValueError, Error) as error:
        if error.__cause__ is not None or traceback_of(error) is not None:
            raise  # an environment's own
        fail(str(error))
    tell = note if json else say
    tell(
        f"{env_id or own}: mean return {result.mean_return:.1f} ± {result.std_return:.1f} over {result.episodes} episodes"
    )
    if drawn is not None:
        tell(drawn)
    if json:
        closing_json(
            {
                "run_dir": str(run),
                "env": env_id or own,
                "seed": seed,
                "episodes": result.episodes,
                "mean_return": result.mean_return,
                "std_return": result.std_return,
                "mean_length": result.mean_length,
                **({"gif": str(gif)} if gif is not None else {}),
            }
        )


def _check_gif(file: Path) -> None:
    """Before anything is played."""
    from shoal.cli.runs import why_unwritable
    from shoal.runs import kept_by_a_run

    if not file.parent.is_dir():
        wrong_use(f"cannot write {str(file)!r}: there is no folder {str(file.parent)!r}")
    if file.is_dir():
        wrong_use(f"cannot write {str(file)!r}: it is a folder; name a file by --gif")
    if file.suffix.lower() != ".gif":
        wrong_use(f"--gif takes a name that ends in .gif, not {str(file)!r}")
    if why := kept_by_a_run(file):
        wrong_use(f"{str(file)!r} {why} (--gif)")
    if why := why_unwritable(file):
        fail(f"cannot write {str(file)!r}: {why}; name another file by --gif")


def _draw(run: Path, checkpoint: str | None, env: str, options: Any, gif: Path, seed: int, stochastic: bool) -> str:
    from shoal import learn
    from shoal.cli.gif import MOST_STEPS, record
    from shoal.learn.durable import replace_file

    policy = learn.load_policy(run, checkpoint)
    # Without the argument a policy gives the likeliest actions, where it can tell them.
    more = {"deterministic": False} if stochastic else {}
    drawn, over, image = record(env, options, lambda observation: policy.predict(observation, **more), seed)
    try:
        replace_file(gif.resolve(), image)
    except OSError as error:
        fail(f"cannot write {str(gif)!r}: {error.strerror}; name another file by --gif")
    cut = "" if over else f", cut after {MOST_STEPS:,} steps"
    return f"  {gif}   an episode of return {drawn:.1f}{cut}"
