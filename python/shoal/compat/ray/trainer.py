"""Runs whose collectors are actors of Ray."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ray

from shoal import learn
from shoal.compat.ray.arguments import actor_options, check_listens
from shoal.compat.ray.collecting_actors import CollectingActors
from shoal.learn.remote import MAX_LAG
from shoal.learn.trainer import run_to_end

__all__ = ["Trainer", "train"]

_SLICE = 0.2
"""Seconds between two looks at the actors."""


def train(
    env: str | None = None,
    algorithm: str | None = None,
    *,
    num_collectors: int,
    remote_configs: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    listen: str | None = None,
    num_workers: int | None = None,
    callback: Callable[[dict[str, Any]], None] | None = None,
    **options: Any,
) -> learn.Result:
    """Trains here, in the driver, an actor or a task, from collectors that are actors of Ray.

    Each actor is what `shoal collect` is: it steps `num_envs` environments of its own with the newest weights, and sends a rollout when it
    is asked to. An actor that dies is started again by Ray, and costs the rollout that it was at. Ray is initialised where it is not.

    Args:
        env: an environment's id, which every node knows; ids that this process has registered are told to the actors.
        algorithm: "appo" (the default) or "impala".
        num_collectors: how many actors. `max_lag` + 1 are at work at once, so it is as large by default.
        remote_configs: options of Ray for the actors, as `ray.remote` takes them: num_cpus, num_gpus, resources, memory,
            scheduling_strategy, runtime_env, max_restarts, …; or a list with those of each. By default num_cpus=1, and
            max_restarts=-1 and max_task_retries=-1: an actor is started again for as long as there is room for it.
        listen: "host:port" where the actors come to; by default this node's address in Ray, and a free port.
        num_workers: processes in which each collector steps its environments, and this one those of evaluations. By default a
            collector has as many as its actor has CPUs of Ray's (num_cpus), and with one steps them itself.
        callback, options: as of `shoal.learn.train`.

    Returns:
        What came of it. Ctrl-C stops the run, resumable (`resume=True`), and raises KeyboardInterrupt.

    Raises:
        ValueError: for an algorithm that does not learn from collectors elsewhere, and as `shoal.learn.train`.
        Error: no collector is left, of actors that Ray may not start again.
        ray.exceptions.RayTaskError: with what the environments of a collector raised, of whose type it is, too.
    """
    trainer = Trainer(
        env,
        algorithm,
        num_collectors=num_collectors,
        remote_configs=remote_configs,
        listen=listen,
        num_workers=num_workers,
        **options,
    )
    return run_to_end(trainer, callback)


class Trainer(learn.Trainer):
    """A run in the background whose collectors are actors of Ray: `shoal.learn.Trainer`, with the arguments of `train`.

    with shoal.compat.ray.Trainer("CartPole-v1", num_collectors=4) as trainer:
        trainer.start()
        while not trainer.wait(1.0):
            print(trainer.status()["ep_return_mean"], trainer.collectors)
        print(trainer.result().mean_return)

    Threads: one at a time may call wait(); any may call status(), poll() and stop().
    """

    _collecting: CollectingActors | None = None

    def __init__(
        self,
        env: str | None = None,
        algorithm: str | None = None,
        *,
        num_collectors: int,
        remote_configs: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        listen: str | None = None,
        num_workers: int | None = None,
        **options: Any,
    ) -> None:
        actors = actor_options(num_collectors, remote_configs)
        if options.get("resume") is not True:
            algorithm = algorithm if algorithm is not None else "appo"
            options.setdefault("max_lag", max(MAX_LAG, num_collectors - 1))
        if algorithm is not None:
            check_listens(algorithm)
        if not ray.is_initialized():
            ray.init()
        self._secret = os.environ.get("SHOAL_GROUP_SECRET") or secrets.token_hex(32)
        where = {
            "num_workers": num_workers,
            "backend": options.get("backend", "auto"),
            "context": options.get("context", "auto"),
        }
        listen = listen if listen is not None else f"{ray.util.get_node_ip_address()}:0"
        super().__init__(env, algorithm, listen=listen, num_workers=num_workers, **options)
        try:
            self._collecting = CollectingActors(actors, self._seen_by_actors(), self._secret, where)
        except BaseException:
            self.close()
            raise

    def _seen_by_actors(self) -> str:
        assert self.address is not None
        host, _, port = self.address.rpartition(":")
        return f"{ray.util.get_node_ip_address()}:{port}" if host in ("0.0.0.0", "[::]", "::") else self.address

    def wait(self, timeout: float | None = None) -> bool:
        """True once the run has ended. Raises what made it fail, what a collector's environments raised, and KeyboardInterrupt on Ctrl-C."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = _SLICE if deadline is None else min(_SLICE, max(0.0, deadline - time.monotonic()))
            if super().wait(left):
                return True
            if self._collecting is not None:
                self._collecting.look()
            if deadline is not None and time.monotonic() >= deadline:
                return False

    def close(self) -> None:
        """Stops the run where it has not ended, waits for it, and ends the actors. Idempotent; never raises what made the run fail."""
        super().close()
        if self._collecting is not None:
            self._collecting.close()
