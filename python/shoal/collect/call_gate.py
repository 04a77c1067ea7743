"""One call of a collector at a time; close() may come in the midst of it."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

__all__ = ["CallGate", "in_call"]

P = ParamSpec("P")
Result = TypeVar("Result")

_TURN = 0.05
"""Seconds between two looks at whether another thread's call has ended."""


class _Call(NamedTuple):
    """By identity."""

    name: str
    thread: int
    own: object


class CallGate:
    """What calls of one collector pass.

    Threads: any. A signal's handler, a policy and an environment call within a call of their own thread: they are refused.
    Signals: a handler that raises leaves the gate open. Python runs handlers where a call begins or has ended, and where a
    loop goes round: what opens the gate makes no call.
    """

    def __init__(self) -> None:
        # At most one, under "call": of setdefault() another thread sees all or nothing.
        self._inside: dict[str, _Call] = {}
        self._is_closing = False
        self.is_closed = False

    @property
    def under_way(self) -> str:
        """The name of the call that is inside; empty without one."""
        call = self._inside.get("call")
        return "" if call is None else call.name

    def run(self, name: str, call: Callable[[], Result], close: Callable[[], None]) -> Result:
        """What `call` returns.

        Args:
            close: is called after it where close() came meanwhile.

        Raises:
            RuntimeError: within another call, after close(), and where close() came meanwhile.
        """
        own = _Call(name, threading.get_ident(), object())
        try:
            self._enter(own)
            try:
                result = call()
            except Exception as error:
                if self._is_closing:
                    raise self._closed_meanwhile(name) from error
                raise
            if self._is_closing:
                raise self._closed_meanwhile(name)
            return result
        finally:
            try:
                if self._is_closing:
                    self._close_after(own, close)
            finally:
                if "call" in self._inside and self._inside["call"] is own:
                    del self._inside["call"]

    def close(self, close: Callable[[], None], ask_to_end: Callable[[], None]) -> None:
        """Calls `close` once, alone: at once, or at the end of the call that is under way, which ends early. Where that is of
        another thread, its end is waited for.

        Args:
            ask_to_end: is called while a call is under way: it shall end soon.
        """
        own = _Call("close", threading.get_ident(), object())
        asked = False
        try:
            while (held := self._inside.setdefault("call", own)) is not own:
                if not asked:
                    asked = self._is_closing = True
                    ask_to_end()
                if held.thread == own.thread:
                    return
                time.sleep(_TURN)
            self._close(close)
        finally:
            if "call" in self._inside and self._inside["call"] is own:
                del self._inside["call"]

    def _enter(self, own: _Call) -> None:
        held = self._inside.setdefault("call", own)
        if held is own:
            if self.is_closed:
                raise RuntimeError("this collector is closed: make a new one to go on")
            return
        if held.thread == own.thread:
            raise RuntimeError(
                f"a call of this collector is under way: {held.name}(). This {own.name}() comes from within it, as from a "
                "signal's handler, the policy or an environment: call it when that has returned"
            )
        raise RuntimeError(
            f"a call of this collector is under way: {held.name}(), in another thread. One thread at a time may use it: call "
            f"{own.name}() when that has returned"
        )

    def _close_after(self, own: _Call, close: Callable[[], None]) -> None:
        if self._inside.get("call") is own:
            self._close(close)

    def _close(self, close: Callable[[], None]) -> None:
        if not self.is_closed:
            self.is_closed = True
            close()

    @staticmethod
    def _closed_meanwhile(name: str) -> RuntimeError:
        return RuntimeError(f"this collector was closed while {name}() was under way: make a new one to go on")


def in_call(method: Callable[Concatenate[Any, P], Result]) -> Callable[Concatenate[Any, P], Result]:
    """The same method, as a call of what has a `_gate`, and `_end()` to close it."""
    name = method.__name__.strip("_")

    @functools.wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Result:
        gate: CallGate = self._gate
        return gate.run(name, functools.partial(method, self, *args, **kwargs), self._end)

    return call
