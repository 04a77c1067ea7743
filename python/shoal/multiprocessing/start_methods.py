"""Start methods as objects. There is no global one that a library could fix for everybody: a context is asked for, used,
and passed on.

What a context makes is in context.py; here is how one is found. It needs nothing of what processes, pools and queues are
made of, so that all of them can ask for one.
"""

from __future__ import annotations

import dataclasses
import os
import threading
from multiprocessing import context as _cpython
from typing import Any

from shoal.multiprocessing.settings import thread_count
from shoal.process import default_method
from shoal.process._variables import checked_modules, checked_variables
from shoal.unknown_arguments import no_such_argument

__all__ = ["METHODS", "Options", "StartMethod", "add_context", "context_of", "default_context", "options_of"]

METHODS = ("forkserver", "spawn", "fork")  # the default first


@dataclasses.dataclass(frozen=True)
class Options:
    """What the processes of a context get on top of what they inherit. Hashable.

    Attributes:
        threads: of OpenMP, MKL, OpenBLAS and NumExpr in each process; None: as inherited.
        gpu: False hides all GPUs from them, and a preload that opens one is an error.
        env: variables on top of this process's own.
        preload: modules that the zygote of "forkserver", or a spawned process, imports first.
        allow_unsafe_fork: "fork" does so although it is known to break here.
    """

    threads: int | None = None
    gpu: bool = True
    env: tuple[tuple[str, str], ...] = ()
    preload: tuple[str, ...] = ()
    allow_unsafe_fork: bool = False


def options_of(**options: Any) -> Options:
    """Options as get_context() takes them.

    Raises:
        TypeError, ValueError: an option that there is not, or that means nothing.
    """
    what = "get_context({}=…)".format
    known = [field.name for field in dataclasses.fields(Options)]
    for name in options:
        if name not in known:
            raise no_such_argument("get_context", name, ["method", *known])
    options["threads"] = thread_count(options.get("threads"), what("threads"))
    options["env"] = tuple(sorted(checked_variables(options.get("env", {}), what("env"))))
    options["preload"] = checked_modules(options.get("preload", ()), what("preload"))
    options["gpu"] = _shows_gpus(options.get("gpu", True))
    if not isinstance(unsafe := options.get("allow_unsafe_fork", False), bool):
        raise TypeError(f"{what('allow_unsafe_fork')} takes True or False, got {unsafe!r}")
    return Options(**options)


def _shows_gpus(gpu: Any) -> bool:
    if isinstance(gpu, bool):
        return gpu
    if isinstance(gpu, str) and gpu in ("own", "none"):
        return gpu == "own"
    raise ValueError(f"get_context(gpu=…) takes 'own' or True, 'none' or False, got {gpu!r}")


class StartMethod(_cpython.BaseContext):
    """What a context is, whatever it makes: one of CPython's, with a name and options of its own."""

    _name = "forkserver"

    def get_context(self, method: str | None = None, **options: Any) -> Any:
        """The context of `method`: "auto" (the same as "forkserver"), "forkserver", "spawn", "fork"; None: this one.

        Args:
            options: fields of `Options`, where `env` is a mapping, `preload` any sequence, and `gpu` may be "own" or "none", as of
                `shoal.WorkerOptions`.

        Raises:
            ValueError: there is no such method; an option of a value that cannot be.
            TypeError: there is no such option, or it is of another type.
        """
        if method is None and not options:
            return self
        return context_of(self._name if method is None else method, options_of(**options))

    def get_start_method(self, allow_none: bool = False) -> Any:
        return self._name

    def set_start_method(self, method: str | None, force: bool = False) -> None:
        raise ValueError("cannot set the start method of a concrete context; ask for another one by get_context()")

    def get_all_start_methods(self) -> list[str]:
        """The start methods there are, the default first."""
        return list(METHODS)


_classes: dict[str, type[Any]] = {}
_lock = threading.Lock()
_contexts: dict[tuple[type[Any], Options], Any] = {}


def add_context(kind: type[Any], *names: str) -> None:
    """The start methods `names` are contexts of class `kind`, which is made from its Options, or None for the default ones."""
    _classes.update(dict.fromkeys(names, kind))


def context_of(method: str, options: Options = Options()) -> Any:
    """The context of a start method: one object for each method and set of options."""
    if method not in _classes:
        raise ValueError(f"cannot find context for {method!r}; there are {', '.join(map(repr, ('auto', *METHODS)))}")
    key = (_classes[method], options)
    with _lock:
        if key not in _contexts:
            _contexts[key] = key[0](None if options == Options() else options)
        return _contexts[key]


def default_context() -> Any:
    """The context of set_start_method(), or else "forkserver"'s."""
    return context_of(default_method.here.name or "auto")


def _renew_lock() -> None:
    """In a forked child: another thread may have held it."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)
