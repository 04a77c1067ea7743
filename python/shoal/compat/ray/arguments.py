"""What the names of shoal.compat.ray are given, checked before Ray is asked for anything."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from shoal import learn
from shoal.collect import Collector

__all__ = ["actor_options", "check_collector_options", "check_listens", "check_options", "even_share", "plain"]

_LISTENING = ("appo", "impala")

_OF_ACTORS = {"num_cpus": 1, "max_restarts": -1, "max_task_retries": -1}
"""Where nobody says otherwise: Ray starts an actor again for as long as there is room for it."""

_SAID_BY_RAY = {
    "run_dir": "a run's folder lies beside its worker and travels in Ray's checkpoints, to RunConfig(storage_path=)",
    "resume": "a run goes on from the checkpoint that Ray hands it",
    "nproc": "Ray starts the ranks: ScalingConfig(num_workers=) of a TorchTrainer whose function is shoal.compat.ray.train_loop",
    "listen": "collectors as actors are shoal.compat.ray.train(num_collectors=)",
    "callback": "what is measured is reported to Ray",
}

_NOT_OF_ACTORS = {
    "mode": "each collector is one of mode='sync', and sync= says whether a batch is of all of them",
    "preemptive_threshold": "all are waited for with sync=True, and none without",
    "ahead": "max_in_flight= bounds what is under way",
    "output": "batches are arrays, read-only views of Ray's object store: torch.tensor(batch['obs']) copies one",
    "device": "batches are arrays, read-only views of Ray's object store: torch.tensor(batch['obs'], device=…) copies one",
}


def actor_options(
    num_collectors: int, remote_configs: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None
) -> list[dict[str, Any]]:
    """Ray's options for each collector's actor.

    Raises:
        ValueError: for a number of collectors that is none, and a list that is not as long.
    """
    if not isinstance(num_collectors, int) or isinstance(num_collectors, bool) or num_collectors < 1:
        raise ValueError(f"num_collectors= takes a number of actors, 1 or more, got {num_collectors!r}")
    if remote_configs is None or isinstance(remote_configs, Mapping):
        remote_configs = [remote_configs or {}] * num_collectors
    if len(remote_configs) != num_collectors:
        raise ValueError(
            f"remote_configs= is a dict of Ray's options for actors, or one for each of the {num_collectors} collectors; "
            f"got {len(remote_configs)}"
        )
    return [_OF_ACTORS | dict(options) for options in remote_configs]


def check_listens(algorithm: str) -> None:
    """Raises ValueError for an algorithm that does not learn from collectors elsewhere."""
    if algorithm in _LISTENING:
        return
    names = learn.algorithm_names()
    if algorithm not in names:
        raise ValueError(f"there is no algorithm {algorithm!r}; there is {', '.join(names)}")
    if algorithm in ("ppo", "a2c"):
        more = f"; {algorithm} learns on Ray as the ranks of a TorchTrainer: shoal.compat.ray.train_loop"
    else:
        more = ""
    raise ValueError(f"collectors as actors are for algorithm= 'appo' and 'impala', not for {algorithm!r}{more}")


def check_options(options: Mapping[str, Any], of: str) -> None:
    """Raises ValueError for what `shoal.learn.train` does not take, with the nearest names, or what is Ray's to say there.

    Args:
        options: of a run, `algorithm` among them where it is not the default one.
        of: who is given them, for the message.
    """
    for name, instead in _SAID_BY_RAY.items():
        if name in options:
            raise ValueError(f"{name}= is not for {of}: {instead}")
    algorithm = options.get("algorithm") or learn.algorithm_names()[0]
    if algorithm not in learn.algorithm_names():
        raise ValueError(f"there is no algorithm {algorithm!r}; there is {', '.join(learn.algorithm_names())}")
    known = {*_keywords(learn.train), *learn.config_names(algorithm)} - _SAID_BY_RAY.keys()
    _check_names(options, known, f"{of} takes the options of shoal.learn.train for {algorithm}")


def check_collector_options(options: Mapping[str, Any]) -> None:
    """Raises TypeError for what `shoal.Collector` does not take, with the nearest names, or what is another thing for actors."""
    for name, instead in _NOT_OF_ACTORS.items():
        if name in options:
            raise TypeError(f"{name}= is not for RayCollector: {instead}")
    known = set(_keywords(Collector)) - _NOT_OF_ACTORS.keys()
    try:
        _check_names(options, known, "RayCollector takes the options of shoal.Collector")
    except ValueError as error:
        raise TypeError(str(error)) from None


def even_share(name: str, number: Any, collectors: int, each: str = "") -> int:
    """`number` over the collectors. Raises ValueError where it cannot be shared out evenly."""
    if not isinstance(number, int) or isinstance(number, bool) or number < 1 or number % collectors:
        raise ValueError(f"{name}= takes a multiple of {collectors}{each}, got {number!r}")
    return number // collectors


def plain(value: Any) -> Any:
    """A sample of a search space as Python has it: NumPy's scalars are no JSON."""
    return value.item() if hasattr(value, "item") and getattr(value, "ndim", None) == 0 else value


def _keywords(function: Any) -> list[str]:
    of = inspect.signature(function).parameters.values()
    return [each.name for each in of if each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)]


def _check_names(options: Iterable[str], known: Iterable[str], takes: str) -> None:
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(name, sorted(known), n=3, cutoff=0.6)
            more = f"; the nearest: {', '.join(near)}" if near else ""
            raise ValueError(f"{takes}, and there is no {name!r}{more}")
