"""Tensors on CUDA devices that several processes see: what Python does for them. Imports torch."""

from __future__ import annotations

import os
from multiprocessing import util

import torch

from shoal._core import tensors as _core

__all__ = ["before_first_use", "share"]


def before_first_use() -> None:
    """Once in a process that sends or receives tensors on a CUDA device."""
    if torch.backends.cuda.is_built():
        torch.cuda.init()
    # What was sent is whole before the process goes, and its work on the device with it.
    util.Finalize(None, _finish_in, (os.getpid(),), exitpriority=1)


def _finish_in(pid: int) -> None:
    if os.getpid() == pid:
        _core.device_finish()


def share(storage: torch.UntypedStorage) -> None:
    """Moves a storage of at least one byte into memory that outlives this process, in place, by a copy on the current
    stream. Nothing happens to what others may see already."""
    device = storage.device
    before = _core.share_on_device(storage, device.index)
    if before is not None and torch.backends.cuda.is_built():
        before.record_stream(torch.cuda.current_stream(device))  # its memory is used again only after the copy
