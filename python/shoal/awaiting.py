"""Waiting for descriptors in asyncio's event loops."""

from __future__ import annotations

import asyncio
import weakref

__all__ = ["readable"]

_waiters: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[int, set[asyncio.Future[None]]]]
_waiters = weakref.WeakKeyDictionary()


async def readable(fd: int, timeout: float | None = None) -> bool:
    """Waits until a descriptor is readable; False: `timeout` seconds were over first.

    Several tasks of several loops may wait for one: all of them are woken. So it is not read here: whoever waits again makes it
    unreadable, and sees to it that it becomes readable once more (`PollableWait` in `src/shoal/process`).
    """
    loop = asyncio.get_running_loop()
    waiting = _waiters.setdefault(loop, {}).setdefault(fd, set())
    if not waiting:
        loop.add_reader(fd, _wake, loop, fd)
    woken: asyncio.Future[None] = loop.create_future()
    waiting.add(woken)
    try:
        done, _ = await asyncio.wait((woken,), timeout=timeout)
        return bool(done)
    finally:
        if woken in waiting:  # given up
            waiting.discard(woken)
            if not waiting:
                loop.remove_reader(fd)


def _wake(loop: asyncio.AbstractEventLoop, fd: int) -> None:
    loop.remove_reader(fd)
    waiting = _waiters[loop].pop(fd)
    while waiting:
        woken = waiting.pop()
        if not woken.done():
            woken.set_result(None)
