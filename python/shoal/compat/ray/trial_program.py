"""Runs as trials of Ray Tune."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray.tune

from shoal import learn
from shoal.compat.ray.arguments import check_options, plain
from shoal.compat.ray.reported_run import conduct, report_period
from shoal.compat.ray.resources import with_defaults

__all__ = ["trainable"]


def trainable(
    env: Any = None, algorithm: str | None = None, *, report_every: int | None = None, **defaults: Any
) -> Callable[[dict[str, Any]], None]:
    """A function for `ray.tune.Tuner`, each of whose trials is a run.

        Tuner(
            tune.with_resources(shoal.compat.ray.trainable("CartPole-v1", total_steps=100_000), {"cpu": 2}),
            param_space={"learning_rate": tune.loguniform(1e-4, 1e-2), "num_steps": tune.choice([32, 128])},
            tune_config=TuneConfig(metric="episode_return_mean", mode="max", scheduler=ASHAScheduler(), num_samples=16),
        ).fit()

    What a trial reports are the numbers of `shoal.learn.Trainer.status()`: `episode_return_mean`, `episode_len_mean` (of the last 100
    training episodes), `steps`, `episodes`, `eval_return_mean` (not a number before the first evaluation; in the last report
    the final one's), `steps_per_second`, losses, …. Its checkpoints are folders of a run:
    `shoal.learn.load_policy(best.checkpoint.path)`. A trial that Tune goes on with from a checkpoint, its own or, under
    population based training, another's, goes on with the options that it has then. One that Tune stops ends with its report.

    Args:
        env: as of `shoal.learn.train`; may be among what Tune searches over, too.
        algorithm: likewise.
        report_every: steps between two reports, by default a fiftieth of the run. A checkpoint comes with a report where
            the run has made one since: see `save_every_seconds`, 5 by default here.
        defaults: options of `shoal.learn.train`, but for `run_dir`, `resume`, `nproc`, `listen` and `callback`, where what Tune chooses does
            not say another. `num_workers` is by default as many as the trial has CPUs, and with one it steps the
            environments itself.

    Returns:
        What Tuner, `tune.with_resources` and `tune.with_parameters` take. Where Tune chooses an option that there is not, the
        trial fails with the nearest.

    Raises:
        ValueError: for an option that there is not, with the nearest.
    """
    given = {"env": env, "algorithm": algorithm, **defaults}
    check_options(given, "trainable")

    def shoal_run(config: dict[str, Any]) -> None:
        _trial({**given, **{name: plain(value) for name, value in config.items()}}, report_every)

    return shoal_run


def _trial(options: dict[str, Any], report_every: int | None) -> None:
    check_options(options, "trainable")
    options = with_defaults(options)
    checkpoint = ray.tune.get_checkpoint()
    with tempfile.TemporaryDirectory(prefix="shoal-") as beside:
        run_dir = Path(beside) / "run"
        if checkpoint is not None:
            checkpoint.to_directory(run_dir)
            for name in ("preset", "config"):  # which the run has been told
                options.pop(name, None)
        with learn.Trainer(**options, nproc=1, run_dir=run_dir, resume=checkpoint is not None) as trainer:
            conduct(trainer, report_period(report_every, trainer), _report)


def _report(measured: dict[str, float], copy: Path | None) -> None:
    ray.tune.report(measured, checkpoint=None if copy is None else ray.tune.Checkpoint.from_directory(copy))
