"""What a started process does before the code of its Process object runs."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from multiprocessing import process, resource_tracker, spawn, util
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from shoal import _core
from shoal.multiprocessing import main_names
from shoal.process import _attributes, _settings, default_method
from shoal.process._importing import importing

if TYPE_CHECKING:
    from shoal._core.process import WorkerContext
    from shoal.multiprocessing.start_methods import Options

__all__ = ["InheritedFd", "after_fork", "main_script", "pickling_by_reference", "preparation", "run_process"]

_inherited_fds: list[int] = []
_by_name = ""  # why this process was sent names of `__main__`
_main: dict[str, str] = {}  # the main script of the first process of the family, as preparation() tells of it


class InheritedFd:
    """A descriptor on its way to a new process, as what CPython's reducers call a DupFd."""

    def __init__(self, index: int) -> None:
        self.index = index

    def detach(self) -> int:
        """In the new process: the descriptor, which is the caller's then."""
        return _inherited_fds[self.index]


def preparation(process_obj: Any, method: str, fds: dict[str, int], by_name: str) -> dict[str, Any]:
    """What run_process() has to know before it unpickles `process_obj`. In its parent.

    Args:
        by_name: why what `__main__` defines comes by its name; empty where it comes by value.
    """
    log_level = None if util._logger is None else util._logger.getEffectiveLevel()  # type: ignore[attr-defined]  # CPython has it, typeshed does not
    return {
        "name": process_obj.name,
        "fds": fds,
        "authkey": bytes(process_obj.authkey),
        "log_to_stderr": util._log_to_stderr,  # type: ignore[attr-defined]  # CPython has it, typeshed does not
        "log_level": log_level,
        "method": method,
        "default_method": process_obj._start_method or default_method.here.name,
        "folder": process.ORIGINAL_DIR,  # type: ignore[attr-defined]  # CPython has it, typeshed does not
        "ignore_sigint": signal.getsignal(signal.SIGINT) is signal.SIG_IGN,
        "main": main_script(),
        "by_name": by_name,
    }


def run_process(context: WorkerContext) -> int:
    """Runs the Process object of the payload in this fresh process; returns its exit code."""
    try:
        process_obj, prepared = _prepare(context.payload, _receive_fds(context))
        context.close()  # tells the parent that the blocks that the payload names are held here
    except BaseException:
        traceback.print_exc()
        util._flush_std_streams()  # type: ignore[attr-defined]  # CPython has it, typeshed does not
        return 1
    parent = _inherited_fds[prepared["fds"]["parent"]]
    code = process_obj._bootstrap(parent_sentinel=parent)
    if prepared["method"] == "spawn":
        _run_exit_handlers()
    return int(code) & 0xFF


def after_fork(parent: int, process_obj: Any, options: Options) -> None:
    """In a process that was forked from Python code, before its _bootstrap()."""
    _core.process.end_after_parent(parent)
    default_method.here.fix(process_obj._start_method or default_method.here.name)
    for name in _settings.launcher_variables():
        os.environ.pop(name, None)
    os.environ.update(_core.process.worker_variables(options.threads or 0, not options.gpu, list(options.env)))
    if options.threads and (torch := sys.modules.get("torch")):  # it has read the variables already
        torch.set_num_threads(options.threads)


def _receive_fds(context: WorkerContext) -> list[int]:
    fds: list[int] = []
    while True:
        message = context.recv_with_fds()
        if message is None:
            raise EOFError("the parent has gone before it had said everything")
        fds += message[1]
        if message[0] == b"\0":
            return fds


def _prepare(payload: bytes, fds: list[int]) -> tuple[Any, dict[str, Any]]:
    """The Process object, and what preparation() told."""
    settings, (preparation, data) = pickle.loads(payload)
    prepared = pickle.loads(preparation)
    named = prepared["fds"]
    for name, target in (("stdout", 1), ("stderr", 2)):
        if name in named:
            os.dup2(fds[named[name]], target)
            os.close(fds[named[name]])
    signal.signal(signal.SIGINT, signal.SIG_IGN if prepared["ignore_sigint"] else signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])  # in a spawned process it has waited until now
    _inherited_fds[:] = fds
    resource_tracker._resource_tracker._fd = fds[named["tracker"]]  # type: ignore[attr-defined]  # CPython has it, typeshed does not
    _core.ipc.attach(fds[named["heap"]])
    _settings.apply(settings)
    _attributes.take_over(settings["attributes"])
    _apply(prepared)
    _have_main(prepared["main"], prepared["by_name"])
    current = process.current_process()
    current._inheriting = True  # type: ignore[attr-defined]  # CPython's own check against starts while importing
    try:
        with importing(f"{prepared['name']} imported what it is to run"):
            process_obj = pickle.loads(data)
    finally:
        del current._inheriting  # type: ignore[attr-defined]  # as above
    _adopt_main_of(process_obj)
    return process_obj, prepared


def _apply(prepared: dict[str, Any]) -> None:
    current = process.current_process()
    current.name = prepared["name"]
    current.authkey = prepared["authkey"]
    process.ORIGINAL_DIR = prepared["folder"]  # type: ignore[attr-defined]  # CPython has it, typeshed does not
    if prepared["log_to_stderr"]:
        util.log_to_stderr()
    if prepared["log_level"] is not None:
        util.get_logger().setLevel(prepared["log_level"])
    default_method.here.fix(prepared["default_method"])
    if "numpy.random" in sys.modules:  # a zygote's processes have its generator, each of them the same
        sys.modules["numpy.random"].seed()


def _run_exit_handlers() -> None:
    import atexit

    atexit._run_exitfuncs()
    util._flush_std_streams()  # type: ignore[attr-defined]  # CPython has it, typeshed does not


# --- the main script ---------------------------------------------------------------------------------------------------


def main_script() -> dict[str, str]:
    """Where this family's `__main__` comes from; empty where it cannot be run again (a notebook, `python -c`, stdin)."""
    main = sys.modules.get("__main__")
    if _main or main is None or hasattr(main, "_shoal_borrowed"):
        return _main
    name = getattr(getattr(main, "__spec__", None), "name", None)
    if name is not None:
        return {"name": name}
    path = os.path.join(process.ORIGINAL_DIR or "", getattr(main, "__file__", None) or "")  # type: ignore[attr-defined]  # CPython has it, typeshed does not
    return {"path": os.path.normpath(path)} if os.path.isfile(path) else {}


def _have_main(main: dict[str, str], by_name: str) -> None:
    """Makes `__main__` run the parent's main script when, and only when, somebody asks for one of its names."""
    global _main, _by_name
    _main, _by_name = main, by_name
    module = sys.modules["__main__"]
    for name in list(vars(module)):
        if not name.startswith("__"):  # of the program that started this process
            delattr(module, name)
    _say_where_from(module)
    module.__getattr__ = _name_of_main  # type: ignore[method-assign]  # a function of a module (PEP 562)
    module._shoal_borrowed = True  # type: ignore[attr-defined]  # a mark of ours on the module


def _say_where_from(module: ModuleType) -> None:
    """As `__main__` does in a program, where CPython's own start methods look for what their processes are to run."""
    module.__spec__ = ModuleSpec(_main["name"], None) if "name" in _main else None
    if "path" in _main:
        module.__file__ = _main["path"]


def _name_of_main(name: str) -> Any:
    missing = AttributeError(f"module '__main__' has no attribute {name!r}")
    if name.startswith("__") or sys._getframe(1).f_globals.get("__name__") == "inspect":
        raise missing
    found = _class_that_travelled(name)
    if found is None and _main and not _this_thread.pickles:
        with _run_lock:
            found = vars(sys.modules["__main__"]).get(name)  # another thread may have run it
            if found is None and "__mp_main__" not in _running:
                found = _run_main_for(name)
    if found is None:
        raise missing
    return found


def _run_main_for(name: str) -> Any:
    _running.add("__mp_main__")
    try:
        since = f" and could not be sent ({_by_name})" if _by_name else ""
        with importing(
            f"{process.current_process().name} ran the main script for {name!r}, which is defined there{since}"
        ):
            _run_main()
    finally:
        _running.discard("__mp_main__")
    return vars(sys.modules["__main__"]).get(name)


_running: set[str] = set()
_run_lock = threading.RLock()


class _ThisThread(threading.local):
    pickles = False  # by reference


_this_thread = _ThisThread()


@contextmanager
def pickling_by_reference() -> Iterator[None]:
    """While this thread looks whether objects have names in `__main__`: what it has is in memory, so no script is run."""
    before, _this_thread.pickles = _this_thread.pickles, True
    try:
        yield
    finally:
        _this_thread.pickles = before


def _run_main() -> None:
    """As CPython's start methods do for every process: under the name `__mp_main__`."""
    borrowed = sys.modules["__main__"]
    borrowed.__spec__ = None  # CPython runs no script that `__main__` comes from already
    vars(borrowed).pop("__file__", None)
    try:
        if "name" in _main:
            spawn._fixup_main_from_name(_main["name"])  # type: ignore[attr-defined]  # CPython has it, typeshed does not
        else:
            spawn._fixup_main_from_path(_main["path"])  # type: ignore[attr-defined]  # CPython has it, typeshed does not
    finally:
        _say_where_from(borrowed)
    main_names.adopt_script(vars(sys.modules["__main__"]))


def _class_that_travelled(name: str) -> Any:
    """A class of `__main__` that was unpickled here by value."""
    from cloudpickle import cloudpickle

    for cls in list(getattr(cloudpickle, "_DYNAMIC_CLASS_TRACKER_BY_CLASS", ())):
        if cls.__module__ == "__main__" and cls.__qualname__ == name:
            return cls
    return None


def _adopt_main_of(process_obj: Any) -> None:
    """The names of `__main__` that came with the target are this process's, so that they can be pickled from here."""
    target = getattr(process_obj, "_target", None)
    target = getattr(target, "__func__", target)
    if not isinstance(target, FunctionType) or target.__module__ != "__main__":
        return
    main: ModuleType = sys.modules["__main__"]
    if target.__globals__ is vars(main):
        return
    for name, value in {**target.__globals__, target.__qualname__: target}.items():
        if not name.startswith("__") and name.isidentifier() and not hasattr(type(main), name):
            vars(main).setdefault(name, value)
