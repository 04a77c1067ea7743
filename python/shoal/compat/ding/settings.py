"""A manager's configuration: the peer's keys, and those of Shoal, with defaults for what is missing."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from easydict import EasyDict

from shoal.vector.faults import FaultPolicy
from shoal.vector.options import WorkerOptions

__all__ = ["OWN", "checked_env_fns", "fault_policy", "number_of_workers", "whole", "worker_options"]

OWN: dict[str, Any] = {
    # (int) So many processes share the environments; None means one for each.
    "num_workers": None,
    # (str) What the death of a worker leads to: "raise", or "restart", which makes a new environment and tells of an abnormal
    # timestep. Also a shoal.FaultPolicy.
    "on_fault": "raise",
    # A shoal.WorkerOptions: threads, GPUs, models … of the workers.
    "worker": None,
}
"""Keys of the configuration that DI-engine does not have, with their defaults."""

_PATIENT = WorkerOptions(start_timeout=600.0)
"""The peer waits for ever for environments to be built."""


def whole(kind: Any, cfg: Any) -> Any:
    """`cfg` with the defaults of `kind` for keys that it lacks: one that was compiled for another class will do."""
    if cfg is None:
        cfg = {}
    if not isinstance(cfg, dict):
        raise TypeError(f"{kind.__name__}(cfg=…) takes an EasyDict, as default_config() returns it, got {cfg!r}")
    all_of_it = EasyDict({**kind.default_config(), **cfg})
    if all_of_it.retry_type not in ("reset", "renew"):
        raise ValueError(f"{kind.__name__}: retry_type is 'reset' or 'renew', got {all_of_it.retry_type!r}")
    return all_of_it


def checked_env_fns(env_fn: Any, who: str) -> list[Callable[[], Any]]:
    """One function an environment.

    Raises:
        TypeError: for what is no list of functions; the message says what to write.
        ValueError: for an empty one.
    """
    if callable(env_fn) or isinstance(env_fn, str) or not hasattr(env_fn, "__iter__"):
        raise TypeError(
            f"{who}() takes a list of functions that make environments, one for each, got {env_fn!r}. "
            f"Write {who}(env_fn=[make_env] * 4, …)"
        )
    functions = list(env_fn)
    if not functions:
        raise ValueError(f"{who}() got an empty env_fn: it takes a function for each environment")
    for i, function in enumerate(functions):
        if not isinstance(function, type) and hasattr(function, "reset") and hasattr(function, "step"):
            raise TypeError(
                f"{who}() takes functions that make environments, env_fn[{i}] is an environment (a "
                f"{type(function).__name__}). Each is made where it runs: write  lambda: {type(function).__name__}(…)"
            )
        if not callable(function):
            raise TypeError(f"{who}() takes functions that make environments, env_fn[{i}] is {function!r}")
    return functions


def number_of_workers(cfg: Any, env_num: int, who: str) -> int:
    if cfg.num_workers is None:
        return env_num
    try:
        number = operator.index(cfg.num_workers)
    except TypeError:
        raise TypeError(f"{who}: num_workers is None or an int, got {cfg.num_workers!r}") from None
    if number < 1:
        raise ValueError(f"{who}: num_workers is 1 or more, got {number}")
    return min(env_num, number)


def worker_options(cfg: Any, given: WorkerOptions | None, who: str) -> WorkerOptions:
    options = cfg.worker if given is None else given
    if options is None:
        return _PATIENT
    if not isinstance(options, WorkerOptions):
        raise TypeError(f"{who}: worker is a shoal.WorkerOptions(…), got {options!r}")
    if options.memory_limit is not None:
        raise ValueError(
            f"{who}: WorkerOptions(memory_limit=…) replaces workers between episodes that the engine ends, and a manager's "
            "environments end their own. Set memory_hard_limit, with on_fault='restart'"
        )
    return options


def fault_policy(cfg: Any, who: str) -> FaultPolicy:
    """What the engine does: it makes new environments also where a failed reset is to renew them."""
    asked = cfg.on_fault
    policy = asked if isinstance(asked, FaultPolicy) else None
    if policy is None and asked in ("raise", "restart"):
        policy = FaultPolicy(asked, max_restarts=max(3, cfg.max_retry))
    if policy is None or policy.on_fault == "drop":
        raise ValueError(
            f"{who}: on_fault is 'raise', 'restart', or a shoal.FaultPolicy of these, got {asked!r}: a policy is asked about "
            "every environment, so none can be dropped"
        )
    return policy
