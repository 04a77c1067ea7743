"""The small dict that all workers of a vector environment share with their parent."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

from shoal.reprs import never_raises

if TYPE_CHECKING:
    from shoal._core.process import SharedState

__all__ = ["SharedDict"]

_MISSING: Any = object()


class SharedDict(MutableMapping[str, Any]):
    """A dict in shared memory: what one process sets, the others get, as a copy.

    Names are str, values anything that can be pickled; all of it together has the size of
    `WorkerOptions(shared_bytes=…)`, 64 KiB by default. Every call is atomic, `update` and `setdefault` too. A value that
    is got is a copy: `shared["list"].append(1)` changes nothing; `shared.change("list", lambda list: [*list, 1])` does. A
    process that is killed while it writes leaves all values as they were, or as they were to be.

    Meant for what is set now and then: a write copies the whole table (microseconds). Counts are cheaper in a counter.
    """

    def __init__(self, shared_state: SharedState) -> None:
        self._shared_state = shared_state

    def __getitem__(self, name: str) -> Any:
        found = self._shared_state.get_value(_checked(name))
        if found is None:
            raise KeyError(name)
        return pickle.loads(found[0])

    def __setitem__(self, name: str, value: Any) -> None:
        self._shared_state.set_values([(_checked(name), _pickled(name, value))])

    def __delitem__(self, name: str) -> None:
        if not self._shared_state.erase_value(_checked(name)):
            raise KeyError(name)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._shared_state.get_value(name) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self._shared_state.value_names())

    def __len__(self) -> int:
        return len(self._shared_state.value_names())

    def setdefault(self, name: str, default: Any = None) -> Any:
        """The value that is there, or `default` after setting it: all who call it at once get the same."""
        data = _pickled(_checked(name), default)
        while (found := self._shared_state.get_value(name)) is None:
            if self._shared_state.set_values([(name, data)], expected=0):
                return default
        return pickle.loads(found[0])

    def update(  # type: ignore[override]  # as dict.update
        self, other: Mapping[str, Any] | Iterable[tuple[str, Any]] = (), /, **named: Any
    ) -> None:
        """Sets all of these values at once, or, if they do not fit, none."""
        values = dict(other, **named)
        self._shared_state.set_values([(_checked(name), _pickled(name, value)) for name, value in values.items()])

    def change(self, name: str, function: Callable[[Any], Any], default: Any = _MISSING) -> Any:
        """Sets `name` to `function(its value)` and returns that. Where another process came between, `function` is called
        again with the newer value, so it must not do anything else.

        Args:
            default: the value where there is none; without it that is a KeyError.
        """
        while True:
            found = self._shared_state.get_value(_checked(name))
            if found is None and default is _MISSING:
                raise KeyError(name)
            old, version = (default, 0) if found is None else (pickle.loads(found[0]), found[1])
            value = function(old)
            if self._shared_state.set_values([(name, _pickled(name, value))], expected=version):
                return value

    def pop(self, name: str, default: Any = _MISSING) -> Any:
        """Takes a value out: of those who call it at once, one gets it."""
        while (found := self._shared_state.get_value(_checked(name))) is not None:
            if self._shared_state.erase_value(name, found[1]):
                return pickle.loads(found[0])
        if default is _MISSING:
            raise KeyError(name)
        return default

    def clear(self) -> None:
        self._shared_state.clear_values()

    @never_raises
    def __repr__(self) -> str:
        return f"SharedDict({dict(self)!r})"


def _checked(name: str) -> str:
    if not isinstance(name, str):
        raise TypeError(f"names in a shared dict are str, got {name!r}")
    return name


def _pickled(name: str, value: Any) -> bytes:
    try:
        return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception:  # a lambda, a local class
        from shoal.ipc.pickling import dumps

        return dumps(value, f"shared[{name!r}]")
