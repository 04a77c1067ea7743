"""How objects become messages.

    data, blocks = dumps(obj)      # hold `blocks` until the other side has loaded, or give them to the queue
    obj = loads(data)

Protocol 5 with cloudpickle's rules: lambdas, closures, local classes and what a notebook defines travel by value. What is
registered with `ForkingPickler.register` (here, or in `multiprocessing.reduction`) or `copyreg` holds here too.
"""

from __future__ import annotations

import io
import pickle
from collections import ChainMap
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler, register
from typing import TYPE_CHECKING, Any

import cloudpickle

if TYPE_CHECKING:
    from shoal._core.ipc import Block

__all__ = ["ForkingPickler", "Pickler", "add_reducer", "dumps", "loads", "register"]

_reducers: dict[type, Callable[[Any, list[Block]], Any]] = {}


def add_reducer(kind: type, reducer: Callable[[Any, list[Block]], Any]) -> None:
    """Pickles objects whose type is exactly `kind` by `reducer(obj, blocks)`, which returns what `__reduce__` may
    return and appends the blocks that it names."""
    _reducers[kind] = reducer


class Pickler(cloudpickle.Pickler):
    """Writes one message to `file`; `blocks` are those that it names."""

    dispatch_table = ChainMap(ForkingPickler._extra_reducers, *cloudpickle.Pickler.dispatch_table.maps)

    def __init__(self, file: Any, protocol: int | None = None) -> None:
        super().__init__(file, protocol=5 if protocol is None else protocol)
        self.blocks: list[Block] = []

    def reducer_override(self, obj: Any) -> Any:
        reducer = _reducers.get(type(obj))
        return super().reducer_override(obj) if reducer is None else reducer(obj, self.blocks)


def dumps(obj: Any) -> tuple[bytes, list[Block]]:
    """`obj` as a message, and the blocks that must live until it is loaded."""
    with io.BytesIO() as file:
        pickler = Pickler(file)
        pickler.dump(obj)
        return file.getvalue(), pickler.blocks


loads = pickle.loads
