"""Storages on the CPU of a torch that lets nobody move them: one without `UntypedStorage._swap_data_ptr_`, whose objects are
not built as those of torch 2.6 to 2.11 are, as a fork of torch may be. Imports torch.

A tensor that has its storage alone is set on a new one in the heap. Others are copied: the receiver gets the values of
that moment, and a warning says so.
"""

from __future__ import annotations

import functools
import warnings
from typing import Any

import torch

from shoal._core import tensors as _core
from shoal.errors import Error

__all__ = ["copied", "is_in_the_way", "moved", "share"]

_CAUSE = f"torch {torch.__version__} keeps storages in a way that Shoal does not know, so they cannot be moved in place"


def is_in_the_way(tensor: torch.Tensor) -> bool:
    """Whether a tensor did not cross for want of a way to move its storage."""
    return (
        _core.exchange_kind() == "none"
        and tensor.device.type == "cpu"
        and tensor.layout is torch.strided
        and not (tensor.is_quantized or tensor.is_nested or tensor.untyped_storage().is_shared())
    )


def share(part: torch.Tensor | torch.UntypedStorage) -> None:
    """Has a tensor lie in the heap. Raises shoal.Error where others look at its storage."""
    if not (isinstance(part, torch.Tensor) and _set_on_heap(part)):
        raise Error(
            f"{_CAUSE}, and this one cannot be exchanged, for more than one tensor, or an array, looks at it: share "
            "tensor.clone() instead, before others look at it"
        )


def moved(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, which lies in the heap now, or a copy that does."""
    if _set_on_heap(tensor):
        return tensor
    return _on(copied(tensor.untyped_storage()), tensor)


def copied(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    """A copy in the heap, with a warning."""
    warnings.warn(
        f"{_CAUSE}: a tensor that shares its storage with others, or with an array, is sent as a copy. What one process "
        "writes to it then, the other does not see. shoal.multiprocessing.SharedTensor(tensor.clone()) makes one that "
        "processes share",
        stacklevel=2,
    )
    copy: torch.UntypedStorage = _core.new_storage(storage.nbytes())
    copy.copy_(storage)
    return copy


def _set_on_heap(tensor: torch.Tensor) -> bool:
    """Sets a tensor on a storage in the heap, if it is alone on its own."""
    storage = tensor.untyped_storage()
    if _core.is_shared(storage):
        return True
    if not storage.resizable() or _users(storage) != _one_user():  # of a fixed size: an array may look at it
        return False
    copy: torch.UntypedStorage = _core.new_storage(storage.nbytes())
    copy.copy_(storage)
    try:
        with torch.no_grad():
            tensor.set_(copy, tensor.storage_offset(), tensor.size(), tensor.stride())
    except RuntimeError:  # of inference mode, from outside of it
        return False
    return True


def _users(storage: torch.UntypedStorage) -> Any:
    count = getattr(torch._C, "_storage_Use_Count", None)
    return count and count(storage._cdata)


@functools.cache
def _one_user() -> Any:
    """What torch counts for a storage that one tensor is on."""
    tensor = torch.empty(1)
    return _users(tensor.untyped_storage()) or -1


def _on(storage: torch.UntypedStorage, tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of the same type and form on another storage."""
    made = torch.empty(0, dtype=tensor.dtype)
    made.set_(storage, tensor.storage_offset(), tensor.size(), tensor.stride())
    bits = {name: True for name, is_set in (("conj", tensor.is_conj()), ("neg", tensor.is_neg())) if is_set}
    torch._C._set_tensor_metadata(made, bits)  # type: ignore[attr-defined]  # as above
    if type(tensor) is torch.nn.Parameter:
        return torch.nn.Parameter(made, requires_grad=tensor.requires_grad)
    return made.requires_grad_(tensor.requires_grad)
