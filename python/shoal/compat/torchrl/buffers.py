"""TensorDicts whose tensors several processes see, as something that a worker is sent: structure, and tensors by their handles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from tensordict import LazyStackedTensorDict, TensorDict

__all__ = ["Buffer", "event_of", "finish_writes", "leaves_of", "portrait_of", "rebuilt"]


class Buffer(NamedTuple):
    """What an environment and its caller exchange.

    Attributes:
        portrait: of the environment's TensorDict, as portrait_of() makes it.
        reset_keys, step_keys: what a reset and a step write.
        non_tensor_keys: what has no place in it, and is sent.
    """

    portrait: tuple[Any, ...]
    reset_keys: list[Any]
    step_keys: list[Any]
    non_tensor_keys: list[Any]


def leaves_of(td: Any) -> Iterator[torch.Tensor]:
    """Its tensors. What is stacked lazily gives those of each part."""
    if isinstance(td, LazyStackedTensorDict):
        for part in td.tensordicts:
            yield from leaves_of(part)
        return
    for value in td.values():
        if isinstance(value, torch.Tensor):
            yield value
        else:
            yield from leaves_of(value)


def event_of(td: Any) -> Any:
    """What finish_writes() waits with: an event of CUDA's where a tensor is on a GPU, else None."""
    return torch.cuda.Event() if any(leaf.is_cuda for leaf in leaves_of(td)) else None


def finish_writes(event: Any) -> None:
    """Returns when what this process has written on the GPU is there for another. Copies to a GPU return before they are done."""
    if event is not None:
        event.record()
        event.synchronize()


def portrait_of(td: Any) -> tuple[Any, ...]:
    """Of builtins and tensors, for rebuilt(): TensorDict's own pickles copy what they hold."""
    if isinstance(td, LazyStackedTensorDict):
        return "stack", td.stack_dim, [portrait_of(part) for part in td.tensordicts]
    parts = {key: value if isinstance(value, torch.Tensor) else portrait_of(value) for key, value in td.items()}
    return "dict", tuple(td.batch_size), td.device, parts


def rebuilt(portrait: tuple[Any, ...]) -> Any:
    """A TensorDict on the very same tensors."""
    if portrait[0] == "stack":
        _, dim, parts = portrait
        return LazyStackedTensorDict(*map(rebuilt, parts), stack_dim=dim)
    _, batch_size, device, parts = portrait
    values = {key: value if isinstance(value, torch.Tensor) else rebuilt(value) for key, value in parts.items()}
    return TensorDict(values, batch_size=batch_size, device=device)
