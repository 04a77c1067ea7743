"""A Python worker's life between its start and its exit code."""

from __future__ import annotations

import pickle
import signal
import sys
from typing import Any

from shoal import _core
from shoal.identity import this_worker
from shoal.process import _attributes, _forked_child, _settings, stock
from shoal.process._importing import importing
from shoal.process._streams import flush_standard_streams
from shoal.reprs import never_raises

WorkerContext = _core.process.WorkerContext


@never_raises
def _describe(context: WorkerContext) -> str:
    return f"<WorkerContext of {context.name!r}, worker {context.index}>"


WorkerContext.__repr__ = _describe  # type: ignore[method-assign]  # of a class in C++

# Objects that a forked worker takes from its parent's memory, by the number in its payload.
inherited: dict[int, Any] = {}


def pack_call(settings: _settings.Settings, call: bytes) -> bytes:
    """A payload of the entry "python": `call` is the pickled (target, arguments)."""
    return pickle.dumps((settings, call))


def pack_inherited(settings: _settings.Settings, number: int) -> bytes:
    """A payload whose (target, arguments) are in `inherited`; for a forked worker alone."""
    return pickle.dumps((settings, number))


def run(context: WorkerContext) -> int:
    """Calls what the payload says, with `context` before its arguments; returns the exit code, which is 0 or that of
    SystemExit. What the call returns is dropped.

    Any other exception goes on to the C++ side, which reports it to the parent.
    """
    _forked_child.report_from_here()
    _core.log.to_stderr()
    _tell_stack_when_asked()
    identity = _core.process.receive_welcome(context)
    if identity is None:
        return 0  # the parent has gone, or has thought better of it
    this_worker.become(identity)
    settings, call = pickle.loads(context.payload)
    _settings.apply(settings)
    _attributes.take_over(settings["attributes"])  # after the welcome, before which the parent has placed this process
    stock.begin(context.name, context.index)
    with importing(f"{context.name} imported what it is to run"):
        target, arguments = inherited[call] if isinstance(call, int) else pickle.loads(call)
    try:
        target(context, *arguments)
        return 0
    except BaseException as error:
        _forked_child.end_forked_child(error)
        if isinstance(error, SystemExit):
            return _forked_child.exit_code(error)
        raise
    finally:
        flush_standard_streams()


def finish() -> None:
    """After run(), when the parent knows how it ended: what multiprocessing has left to do may wait for others."""
    stock.end()
    flush_standard_streams()


def _tell_stack_when_asked() -> None:
    """Lets the parent ask where this process is: from a signal handler in C, whoever holds the GIL."""
    import faulthandler

    from shoal import _core

    fd = _core.process.install_stack_dump()
    if fd >= 0:  # on top of C++'s handler, which marks the end
        faulthandler.register(_core.process.stack_signal(), file=fd, all_threads=True, chain=True)


def run_forked(context: WorkerContext) -> int:
    """As run(), in a process that was forked from a Python program: with that program's handler of Ctrl-C, and with its
    sys.stdout and sys.stderr, which need not be descriptors 1 and 2 (in a notebook, under a test runner)."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stdin = open(0, closefd=False)
    sys.stdout = open(1, "w", buffering=1, closefd=False, errors="backslashreplace")
    sys.stderr = open(2, "w", buffering=1, closefd=False, errors="backslashreplace")
    return run(context)
