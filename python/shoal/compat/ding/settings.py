"""A manager's configuration: the peer's keys, and those of Shoal, with defaults for what is missing."""

from __future__ import annotations

from typing import Any

from easydict import EasyDict

from shoal.compat.arguments import positive
from shoal.vector.faults import FaultPolicy

__all__ = ["OWN", "fault_policy", "number_of_workers", "whole"]

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


def number_of_workers(cfg: Any, env_num: int, who: str) -> int:
    return env_num if cfg.num_workers is None else min(env_num, positive(cfg.num_workers, f"{who}: num_workers"))


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
