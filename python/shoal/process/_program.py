"""What a fresh interpreter does that was started as a zygote or as a spawned worker.

It is started with `main()` as its program and speaks the protocol of src/shoal/process/boot/wire.h on descriptor 3. Nothing
heavy is imported here: what it costs is paid by every spawned worker.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal._core.process import Program, WorkerContext


class PreloadError(ImportError):
    """A module of the preload list cannot serve in a zygote."""


def main(ahead: str = "", path: Sequence[str] = ()) -> None:
    """Imports `ahead` with `path` as the search path, before the parent has said what else there is to do."""
    gc.disable()  # what is imported stays: there is nothing to collect
    if ahead:
        sys.path[:] = path
        with contextlib.suppress(Exception):  # the preload tries again, and tells of it
            importlib.import_module(ahead)
    from shoal import _core

    program = _core.process.Program.attach()
    if program.zygote or not program.plain:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's affair
    try:
        _prepare(program)
    except BaseException as error:
        from shoal.process.error_report import pack_exception

        os._exit(program.fail(*pack_exception(error)))
    os._exit(program.run(_run))  # workers end with it; nothing else is left to do


def _prepare(program: Program) -> None:
    import pickle

    from shoal.process import _attributes, _settings, stock

    for stream in (sys.stdout, sys.stderr):
        # Pipes: by lines, so that the last lines of a worker that is killed have left it.
        stream.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]  # nobody has replaced it yet
    settings = pickle.loads(program.bootstrap)
    # The variables are in place since before the interpreter started. Filters come last: modules add their own on import.
    _settings.apply({name: settings[name] for name in ("path", "argv", "folder", "multiprocessing")})
    if program.zygote:
        _attributes.take_over_cpus(settings["attributes"])
    import faulthandler

    # What every worker needs: cloudpickle, since what it has pickled names it.
    import cloudpickle  # noqa: F401

    from shoal.process import _worker  # noqa: F401

    for module in program.preload:
        _preload(module, program)
    _settings.apply({"filters": settings["filters"]})
    faulthandler.enable()
    if not program.zygote:
        stock.is_no_fork()
    else:
        # Workers share these objects for good: no collection walks over them, which would copy their pages. Nor is there
        # one now: it would leave holes in those pages, for the workers to fill with objects of their own.
        gc.freeze()
    gc.enable()


def _preload(module: str, program: Program) -> None:
    from shoal import _core
    from shoal.process._importing import importing

    try:
        with importing(f"{'a zygote' if program.zygote else 'a worker'} imported {module!r}"):
            importlib.import_module(module)
    except BaseException as error:
        raise PreloadError(f"preload: importing {module!r} failed with {type(error).__name__}: {error}") from error
    threads = _core.process.foreign_threads() if program.zygote else []
    if threads:
        raise PreloadError(
            f"preload: importing {module!r} starts {'a thread' if len(threads) == 1 else 'threads'} "
            f"({', '.join(threads)}), and a process with threads cannot be forked safely. Leave it out of the preload "
            "(each worker then imports it by itself), or start the workers with context='spawn'."
        )


def _run(context: WorkerContext) -> int:
    from shoal.process import _worker

    return _worker.run(context)
