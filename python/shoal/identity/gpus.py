"""The GPU that this worker process has leased."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from shoal import _core

if TYPE_CHECKING:
    from shoal._core.process import GpuLease

__all__ = ["lease_gpu", "leased_gpu"]

_held: GpuLease | None = None


def lease_gpu(devices: Sequence[str]) -> None:
    """Makes the least crowded of `devices` the only one that CUDA shows in this process from now on. Before CUDA is
    initialised; the lease ends with the process, and a second call does nothing."""
    global _held
    if _held is None:
        _held = _core.process.GpuLease(list(devices))
        os.environ["CUDA_VISIBLE_DEVICES"] = _held.device


def leased_gpu() -> str | None:
    """The device, as CUDA_VISIBLE_DEVICES names it; None without one, and in children of the worker."""
    return _held.device if _held is not None and _held.held else None
