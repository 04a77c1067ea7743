"""What each worker of Ray Train runs."""

from __future__ import annotations

import os
import secrets
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ray
import ray.train
import ray.train.collective

from shoal import learn
from shoal.compat.ray.arguments import check_options, plain
from shoal.compat.ray.reported_run import conduct, report_period
from shoal.compat.ray.resources import with_defaults

__all__ = ["train_loop"]


def train_loop(config: dict[str, Any]) -> None:
    """Trains on all workers of a Ray Train job, which are ranks of one run: the function of a TorchTrainer, or of a DataParallelTrainer.

        TorchTrainer(
            shoal.compat.ray.train_loop,
            train_loop_config={"env": "CartPole-v1", "total_steps": 100_000},
            scaling_config=ScalingConfig(num_workers=4, resources_per_worker={"CPU": 2}),
            run_config=RunConfig(storage_path="/shared", failure_config=FailureConfig(max_failures=3)),
        ).fit()

    Rank 0 reports what was measured and the run's folder as a checkpoint: `shoal.learn.load_policy(result.checkpoint.path)`. Where a worker
    is lost, Ray starts all again, and they go on from its last checkpoint; ranks beyond the first only report that they are there.

    Args:
        config: the options of `shoal.learn.train`, `env` among them, but for `run_dir`, `resume`, `nproc`, `listen` and
            `callback`; and `report_every`, the steps between two reports, by default a fiftieth of the run. A
            checkpoint comes with a report where the run has made one since: see `save_every_seconds`, 5 by default
            here where there is no replay. `num_workers` is by default as many as the worker has CPUs of Ray's, and with one it steps the
            environments itself.

    Raises:
        ValueError: for an option that there is not, with the nearest.
        shoal.PeerLost: another worker was killed, or failed.
    """
    options = {name: plain(value) for name, value in config.items()}
    every = options.pop("report_every", None)
    check_options(options, "train_loop")
    options = with_defaults(options)
    _become_rank()
    first = ray.train.get_context().get_world_rank() == 0
    checkpoint = ray.train.get_checkpoint()
    with tempfile.TemporaryDirectory(prefix="shoal-") as beside:
        run_dir = Path(beside) / "run"
        if first and checkpoint is not None:
            checkpoint.to_directory(run_dir)
        with learn.Trainer(**options, run_dir=run_dir, resume="auto") as trainer:
            conduct(trainer, report_period(every, trainer), _report, _step_of_first)


def _step_of_first(step: int) -> int:
    return int(ray.train.collective.broadcast_from_rank_zero(step))


def _report(measured: dict[str, float], copy: Path | None) -> None:
    ray.train.report(measured, checkpoint=None if copy is None else ray.train.Checkpoint.from_directory(copy))


def _become_rank() -> None:
    """This process has the variables by which a rank finds the others, as TorchTrainer's have, and their secret. Those of a launcher
    that started Ray itself are replaced."""
    context = ray.train.get_context()
    if context.get_world_size() == 1:
        return
    mine = {
        "RANK": str(context.get_world_rank()),
        "WORLD_SIZE": str(context.get_world_size()),
        "LOCAL_RANK": str(context.get_local_rank()),
        "LOCAL_WORLD_SIZE": str(context.get_local_world_size()),
        "NODE_RANK": str(context.get_node_rank()),
    }
    told = meeting_point(os.environ, mine) if context.get_world_rank() == 0 else None
    os.environ.update(mine | ray.train.collective.broadcast_from_rank_zero(told))


def meeting_point(environment: Mapping[str, str], mine: Mapping[str, str]) -> dict[str, str]:
    """Where rank 0 awaits the others: where TorchTrainer has them meet, if the environment's ranks are Ray's; and their secret."""
    told = {"MASTER_ADDR": ray.util.get_node_ip_address(), "MASTER_PORT": str(_free_port())}
    if all(environment.get(name) == mine[name] for name in ("RANK", "WORLD_SIZE")):
        told |= {name: environment[name] for name in told if name in environment}
    return told | {"SHOAL_GROUP_SECRET": environment.get("SHOAL_GROUP_SECRET") or secrets.token_hex(32)}


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("", 0))
        return int(free.getsockname()[1])
