"""`shoal train ENV`: one training run, shown while it goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from shoal.cli import completion, plugins
from shoal.cli.console import wrong_use


def register(app: typer.Typer) -> None:
    app.command("train")(train)


def train(
    env: str = typer.Argument(
        None,
        metavar="ENV",
        help="Any id that gymnasium.make takes, or a native one; MODULE:ID imports the module first, which registers it.",
        autocompletion=completion.env_ids,
    ),
    algorithm: str = typer.Option(
        None,
        "--algorithm",
        help="How it learns: ppo, a2c, a3c, impala, appo, dqn, sac or recurrent_ppo [default: ppo].",
        autocompletion=completion.algorithms,
    ),
    policy: str = typer.Option(
        None,
        "--policy",
        metavar="MODULE:CLASS",
        help="A torch module of your own to train, made of (observation space, action space); MODULE:CLASS(key=value) with"
        " arguments [default: a network of Shoal's].",
    ),
    device: str = typer.Option(None, "--device", help="Where a --policy computes: cpu, cuda:0, … [default: cpu]."),
    total_steps: int = typer.Option(
        None,
        "--total-steps",
        min=1,
        help="Environment steps, over all environments, rounded up to whole iterations [default: the preset's].",
    ),
    seed: int = typer.Option(None, "--seed", min=0, help="Of everything random [default: 0]."),
    num_envs: int = typer.Option(
        None, "--num-envs", min=1, help="Environments that are trained on [default: the preset's]."
    ),
    num_workers: int = typer.Option(
        None, "--num-workers", min=0, help="Processes they run in; 0: this one [default: what the environment needs]."
    ),
    nproc: int = typer.Option(
        None,
        "--nproc",
        min=1,
        help="Processes that train together (ppo, a2c); 1: this one alone [default: the ranks that torchrun, mpirun or srun has"
        " started, else 1].",
    ),
    listen: str = typer.Option(
        None,
        "--listen",
        metavar="HOST:PORT",
        help="Learn from collectors that come here, from this host or others (appo, impala): shoal collect HOST:PORT.",
    ),
    env_kwargs: list[str] = typer.Option(
        None,
        "--env-kwargs",
        metavar="KEY=VALUE",
        help="Keyword argument of every environment, or a JSON object of them; may be repeated.",
    ),
    max_episode_steps: int = typer.Option(
        None, "--max-episode-steps", min=1, help="Steps after which an episode is truncated [default: its own limit]."
    ),
    frame_stack: int = typer.Option(None, "--frame-stack", min=1, help="Observations are the last so many."),
    reward_clip: str = typer.Option(
        None, "--reward-clip", metavar="LOW,HIGH", help="Bounds that rewards are clipped to while training."
    ),
    wrapper: list[str] = typer.Option(
        None,
        "--wrapper",
        metavar="MODULE:NAME",
        help="Put around every environment, the first one innermost; MODULE:NAME(key=value) with arguments; may be repeated.",
    ),
    atari: list[str] = typer.Option(
        None,
        "--atari",
        metavar="KEY=VALUE",
        help="How an Atari game is preprocessed: a switch of AtariPreprocessing, or gymnasium, sb3 or cleanrl for that"
        " library's way, or off for raw frames; may be repeated [default: the usual way, or the preset's].",
    ),
    preset: str = typer.Option(
        None,
        "--preset",
        help="Named set of settings [default: the task's own, or sb3].",
        autocompletion=completion.presets,
    ),
    config: Path = typer.Option(
        None,
        "--config",
        metavar="FILE",
        help="Settings: TOML, or an rl-baselines3-zoo YAML file, FILE.yml[:ENTRY]; flags win over them.",
    ),
    assignments: list[str] = typer.Option(
        None,
        "--set",
        metavar="KEY=VALUE",
        help="Any one setting of the algorithm; may be repeated.",
        autocompletion=completion.settings,
    ),
    overlap: bool = typer.Option(
        None,
        "--overlap",
        help="ppo and a2c: collect the next rollout beside the update, with weights that are one update old.",
    ),
    run_dir: Path = typer.Option(
        None, "--run-dir", metavar="FOLDER", help="Where results go [default: a new folder in runs/]."
    ),
    resume: Path = typer.Option(
        None,
        "--resume",
        metavar="RUN",
        help="Continue this run where it stopped.",
        autocompletion=completion.runs,
    ),
    go_on: bool = typer.Option(
        False,
        "--continue",
        help="Where --run-dir holds a run already, go on with that: for launchers that start the same command again.",
    ),
    plugin: list[Path] = plugins.OPTION,
    json: bool = typer.Option(False, "--json", help="End with one line of JSON, alone on stdout."),
    quiet: bool = typer.Option(False, "--quiet", "-q", help="Show no progress."),
) -> None:
    """Train a policy, and show where the results are."""
    from shoal.cli import settings as words
    from shoal.cli.training import Training

    plugins.load(plugin)
    flags = {
        "env": env,
        "algorithm": algorithm,
        "policy": policy,
        "device": device,
        "total_steps": total_steps,
        "seed": seed,
        "num_envs": num_envs,
        "num_workers": num_workers,
        "nproc": nproc,
        "listen": listen,
        "preset": preset,
        "overlap": overlap,
        "env_kwargs": words.env_kwargs(env_kwargs) if env_kwargs else None,
        "max_episode_steps": max_episode_steps,
        "frame_stack": frame_stack,
        "reward_clip": words.bounds(reward_clip) if reward_clip is not None else None,
        "wrappers": wrapper or None,
        "atari": words.atari(atari) if atari else None,
    }
    settings = _merged(config, assignments or [], {name: value for name, value in flags.items() if value is not None})
    if "resume" in settings:
        wrong_use("--resume is a flag, not a setting")
    words.check_kinds(settings)
    recorded = settings.pop("run_dir", None)
    folder = run_dir or (Path(recorded) if recorded is not None else None)
    if resume is not None and folder is not None:
        wrong_use("a resumed run goes on in its own folder: leave out --run-dir")
    if go_on and (resume is not None or folder is None):
        wrong_use("--continue goes with --run-dir, which says where the run is or will be")
    training = Training(settings, resume or folder, resume="auto" if go_on else resume is not None)
    training.check()
    training.go(json=json, quiet=quiet)


def _merged(config: Path | None, assignments: list[str], flags: dict[str, Any]) -> dict[str, Any]:
    from shoal.cli import settings

    from_file = settings.from_file(config) if config is not None else {}
    return from_file | settings.from_words(assignments) | flags
