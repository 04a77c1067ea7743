"""Launchers in Python: cached, closed at exit, and aware of what has changed in this process since they were made."""

from __future__ import annotations

import atexit
import os
import pickle
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from shoal import _core
from shoal.errors import ForkRefused
from shoal.process import _attributes, _settings, _versions, _worker
from shoal.process._importing import refuse_to_start
from shoal.process._streams import flush_standard_streams
from shoal.process._variables import checked_variables
from shoal.reprs import never_raises

__all__ = ["Launcher", "close_launchers", "keep_idle_zygotes", "launcher", "zygotes"]

WorkerProcess = _core.process.WorkerProcess


@never_raises
def _describe(worker: WorkerProcess) -> str:
    ended = worker.ended_with
    state = "started" if ended is None else f"ended: {ended.splitlines()[0]}"
    return f"<WorkerProcess name={worker.name!r} pid={worker.pid} {state}>"


WorkerProcess.__repr__ = _describe  # type: ignore[method-assign]  # of a class in C++


class Launcher:
    """Starts Python workers with one start method. Use `launcher()`, which keeps one for each set of options.

    Attributes:
        method: "fork", "forkserver" or "spawn".

    Threads: any. Fork: a forked child gets an error from start(); the workers stay its parent's.
    """

    _handle: _core.process.Launcher | None = None

    def __init__(
        self,
        context: str = "auto",
        *,
        preload: Sequence[str] = (),
        threads: int = 1,
        hide_gpu: bool = True,
        env: Mapping[str, str] | None = None,
        start_timeout: float = 60.0,
        allow_unsafe_fork: bool = False,
        relay_output: bool = True,
        ahead: str = "",
        plain: bool = False,
    ) -> None:
        """As `launcher()` says. With "auto" or "forkserver" the zygote begins to import `preload` at once.

        Args:
            ahead: a module that the zygote imports already while the caller finds out what the rest of the preload is, and
                says so by begin().
            plain: for start_process() alone; what its processes inherit is in shoal.multiprocessing.process.
        """
        refuse_to_start()
        keep_idle_zygotes()  # reads the limits, the first time
        environment = checked_variables(env or {}, "env")
        self._variables = dict(_core.process.worker_variables(threads, hide_gpu, environment))
        self._is_fork = context == "fork"
        self._is_plain = plain
        self._has_zygote = context not in ("fork", "spawn")
        self._baseline = self._captured()
        self._modules = _versions.versions(preload)
        self._handle = _core.process.create_launcher(
            method=context,
            interpreter=_interpreter(ahead, plain),
            preload=list(preload),
            environment=environment,
            threads=threads,
            hide_gpu=hide_gpu,
            start_timeout=start_timeout,
            allow_unsafe_fork=allow_unsafe_fork,
            relay_output=relay_output,
            ahead=bool(ahead),
            plain=plain,
            zygotes=_zygotes,
            bootstrap=self._bootstrap(),
            run=_worker.run_forked,
        )
        self.method: str = self.handle.method

    def begin(self, preload: Sequence[str]) -> None:
        """What a zygote that was started ahead of time is to import. Once, before start()."""
        self._baseline = {**self._captured(), "environ": self._baseline["environ"]}
        self._modules = _versions.versions(preload)
        self.handle.begin(list(preload), self._bootstrap())

    def _captured(self) -> _settings.Settings:
        settings = _settings.capture(self._is_plain)
        if self._has_zygote:  # it serves threads that are confined to a few CPUs, and the others
            attributes = settings["attributes"]
            settings["attributes"] = {**attributes, "cpus": attributes["cpus"] | os.sched_getaffinity(os.getpid())}
        return settings

    def _bootstrap(self) -> bytes:
        return pickle.dumps(_settings.encode({**self._baseline, "environ": {}}))

    def is_current(self) -> bool:
        """Whether its workers would be as this process is: none of the program's modules has changed since it was made, and
        no more CPUs may be used, which workers cannot tell from those that they are placed on."""
        cpus = self._baseline["attributes"]["cpus"]
        return os.sched_getaffinity(0) <= cpus and _versions.is_current(self._modules)

    @property
    def handle(self) -> _core.process.Launcher:
        """The C++ Launcher, for what starts workers from C++."""
        if self._handle is None:
            raise RuntimeError("this launcher is closed")
        return self._handle

    def close(self) -> None:
        """Ends the zygote, as soon as the last worker is gone that needs it."""
        self._handle = None

    def __enter__(self) -> Launcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @never_raises
    def __repr__(self) -> str:
        return f"<Launcher with the method {self.method!r}{', closed' if self._handle is None else ''}>"

    @property
    def zygote_pid(self) -> int | None:
        """Process id of the zygote; None where there is none."""
        pid = self.handle.zygote_pid
        return pid if pid > 0 else None

    def pack(self, calls: Iterable[tuple[Any, ...]], name: str = "calls[{}]") -> list[bytes]:
        """The payloads of workers of this launcher, each of which calls `target(context, *arguments)`.

        With the method "fork" what cannot be pickled is inherited instead.

        Args:
            calls: a `(target, *arguments)` for each worker.
            name: what an error is to call element {} of them.

        Raises:
            PicklingError: naming the part that cannot be pickled.
        """
        from shoal.ipc.pickling import dumps  # not before it is needed: a zygote may import cloudpickle meanwhile

        settings = self._changed_settings()
        payloads = []
        for i, (target, *arguments) in enumerate(calls):
            try:
                payloads.append(_worker.pack_call(settings, dumps((target, tuple(arguments)), name.format(i))))
            except TypeError:
                if not self._is_fork:
                    raise
                number = len(_worker.inherited)
                _worker.inherited[number] = (target, tuple(arguments))
                payloads.append(_worker.pack_inherited(settings, number))
        return payloads

    def start(
        self, calls: Sequence[tuple[Any, ...]], name: str = "worker", numbers: Sequence[int] | None = None
    ) -> list[WorkerProcess]:
        """One worker for each `(target, *arguments)`, started side by side; each calls `target(context, *arguments)`.

        Args:
            name: what its lines and errors call a worker, before its number.
            numbers: one for each call; None: from 0 on.
        """
        refuse_to_start()
        payloads = self.pack(calls)
        flush_standard_streams()
        return self.handle.start(payloads, name, list(range(len(payloads)) if numbers is None else numbers))

    def start_process(self, name: str, payload: Any, fds: Sequence[int], sentinel: int) -> WorkerProcess:
        """One process of a plain launcher, for shoal.multiprocessing, whose `run_process()` gets `payload` and `fds`.

        Args:
            sentinel: an eventfd that becomes readable when it has ended; open for as long as the result is held.
        """
        refuse_to_start()
        return self.handle.start_process(name, pickle.dumps((self._changed_settings(), payload)), fds, sentinel)

    def _changed_settings(self) -> _settings.Settings:
        """What a worker has to take over that its interpreter does not have yet."""
        now = _settings.capture(self._is_plain)
        if self._is_fork:  # it has everything but the variables that are set and removed for workers
            left_out = filter(_core.process.is_launcher_variable, now["environ"])
            state = now["multiprocessing"] and {**now["multiprocessing"], "tracker": None}  # whose descriptor it has
            variables = dict.fromkeys(left_out) | self._variables
            return {"environ": variables, "multiprocessing": state, "attributes": now["attributes"]}
        changes = _settings.changes(self._baseline, now, fixed=self._variables)
        if self._is_plain and (own := _settings.own_launcher_variables()):
            changes["environ"] = {**changes.get("environ", {}), **own}
        return _settings.encode(changes)


def _interpreter(ahead: str, plain: bool) -> list[str]:
    """The command that makes a fresh interpreter like this one run `_program.main()`, at best with `ahead` imported."""
    executable = sys.executable
    if plain:  # multiprocessing.set_executable()
        from multiprocessing import spawn

        executable = os.fsdecode(spawn.get_executable() or "")
    if not executable:
        raise RuntimeError(
            "sys.executable is empty, so no fresh interpreter can be started (an embedded Python?): set it to the path of "
            "the python program"
        )
    package_folder = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    code = f"import sys; sys.path.insert(0, {package_folder!r}); from shoal.process._program import main; "
    code += f"main({ahead!r}, {_settings.search_path()!r})" if ahead else "main()"
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # as multiprocessing does
    return [executable, *flags, "-c", code]


_launchers: dict[tuple[Any, ...], Launcher] = {}
_ahead: dict[tuple[Any, ...], Launcher] = {}  # those that start_ahead() made and nobody has asked for yet
_launchers_pid = os.getpid()

IDLE_ZYGOTES = 4
IDLE_SECONDS = 120.0


def _limits_from_environment() -> tuple[int, float]:
    """As `keep_idle_zygotes()` takes them."""
    found: list[Any] = [IDLE_ZYGOTES, IDLE_SECONDS]
    for at, (name, kind, what) in enumerate(
        (("SHOAL_IDLE_ZYGOTES", int, "a number of processes"), ("SHOAL_IDLE_ZYGOTE_SECONDS", float, "seconds"))
    ):
        text = os.environ.get(name, "")
        try:
            found[at] = kind(text) if text else found[at]
        except ValueError:
            raise ValueError(f"the environment variable {name} takes {what}, 0 or more, got {text!r}") from None
        if not found[at] >= 0:
            raise ValueError(f"the environment variable {name} takes {what}, 0 or more, got {text!r}")
    return found[0], found[1]


_zygotes = _core.process.Zygotes(IDLE_ZYGOTES, IDLE_SECONDS)
_limits: tuple[int, float] | None = None  # what this process has set, or read from the environment


def keep_idle_zygotes(count: int | None = None, seconds: float | None = None) -> tuple[int, float]:
    """Says how many idle zygotes of this process stay, and for how long; returns both as they are from then on.

    A zygote, from which workers are forked, holds some 20 MiB and the modules that it has imported. It is idle when none of
    its workers lives; kept, it starts the next ones in milliseconds. One that has ended is followed by a fresh one when it
    is needed again, which takes as long as those imports.

    Args:
        count: so many stay (4, or what the environment variable SHOAL_IDLE_ZYGOTES says); of more, those that have been idle
            longest end. None leaves it as it is.
        seconds: an idle one ends after so many (120, or SHOAL_IDLE_ZYGOTE_SECONDS). None leaves it as it is.

    Raises:
        ValueError: a limit below 0.
    """
    global _limits
    _forget_inherited_launchers()
    now = _limits or _limits_from_environment()
    count = now[0] if count is None else count
    seconds = now[1] if seconds is None else seconds
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        raise ValueError(f"keep_idle_zygotes(count=…) takes an int of 0 or more, got {count!r}")
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not seconds >= 0:
        raise ValueError(f"keep_idle_zygotes(seconds=…) takes seconds, 0 or more, got {seconds!r}")
    if _limits != (count, float(seconds)):
        _limits = (count, float(seconds))
        _zygotes.set_limits(*_limits)
    return _limits


def zygotes() -> list[dict[str, Any]]:
    """The zygotes of this process, in the order in which they were started.

    A dict each: `pid`; `age` in seconds; `idle`, for how many seconds it has had no worker, or None where it has some;
    `workers`, how many; `memory` that is its own, in bytes (0 where it has just ended); `preload`, the modules that it was
    asked to import.
    """
    _forget_inherited_launchers()
    return _zygotes.list()


def launcher(
    context: str = "auto",
    *,
    preload: Sequence[str] = (),
    threads: int = 1,
    hide_gpu: bool = True,
    env: Mapping[str, str] | None = None,
    start_timeout: float = 60.0,
    allow_unsafe_fork: bool = False,
    plain: bool = False,
) -> Launcher:
    """The launcher of this process with these options; made on first use and kept, so that its zygote stays warm.

    Another takes its place when this process has got other permissions (users, groups, capabilities) or more CPUs, and when
    `preload` has a module of the program and one of these was changed or reloaded. Modules of the program are those that
    lie neither in the standard library nor in site-packages.

    Args:
        context: the start method: "auto" (the same as "forkserver"), "fork", "forkserver", "spawn".
        preload: modules that the zygote (or a spawned worker) imports before anything else.
        threads: of OpenMP, MKL, OpenBLAS and NumExpr in each worker.
        hide_gpu: workers see no GPU.
        env: variables on top of this process's own; launcher variables (torchrun, MPI, Slurm ranks) are left out.
        start_timeout: seconds until the zygote must be ready, and the workers must exist.
        allow_unsafe_fork: with "fork": do so although it is known to break here.
        plain: for Launcher.start_process() alone.

    Raises:
        ForkRefused: `context="fork"`, and something stands against it; the message names all of it.
    """
    _forget_inherited_launchers()
    _forget_ended_zygotes()
    if context == "fork" and not allow_unsafe_fork:
        refuse_fork(
            _core.process.fork_hazards(),
            ". What forks all the same: worker=shoal.WorkerOptions(allow_unsafe_fork=True), of vector environments, pools and "
            "collectors; shoal.process.launcher('fork', allow_unsafe_fork=True).",
        )
    options: dict[str, Any] = {
        "threads": threads,
        "hide_gpu": hide_gpu,
        "env": env,
        "start_timeout": start_timeout,
        "allow_unsafe_fork": allow_unsafe_fork,
        "plain": plain,
    }
    kind = _kind(context, options)
    _forget_other_permissions(kind)
    key = (kind, tuple(preload))
    kept = _launchers.get(key)
    if kept is not None and kept.is_current():
        return kept
    # The zygote of one that is not stays for those that hold it, whose workers may be started anew.
    made = _ahead.pop(kind, None)
    if made is not None and made.is_current():
        made.begin(preload)
    else:
        made = Launcher(context, preload=preload, **options)
    _launchers[key] = made
    return made


def refuse_fork(hazards: Sequence[str], what_forks: str) -> None:
    """Raises ForkRefused where there are `hazards`, as C++ does, with `what_forks` all the same: the caller's own arguments."""
    if hazards:
        raise ForkRefused(
            "start method 'fork' is not safe in this process:\n  - " + "\n  - ".join(hazards) + "\nUse 'auto' (or "
            f"'forkserver', 'spawn'), which start from a fresh process{what_forks}"
        )


def start_ahead(context: str, ahead: str, **options: Any) -> None:
    """Starts the zygote of the next `launcher(context, **options)`, which has yet to learn what else it is to import.

    It imports the module `ahead` meanwhile. Does nothing where a launcher with these options is there.
    """
    _forget_inherited_launchers()
    kind = _kind(context, options)
    _forget_other_permissions(kind)
    if context in ("auto", "forkserver") and kind not in _ahead and all(kind != other for other, _ in _launchers):
        _ahead[kind] = Launcher(context, ahead=ahead, **options)


def _kind(context: str, options: Mapping[str, Any]) -> tuple[Any, ...]:
    """What launchers with the same options have in common, whatever they preload."""
    values = {**options, "env": tuple(sorted((options["env"] or {}).items()))}
    plain = values.setdefault("plain", False)
    return (_attributes.permissions(), context, tuple(_interpreter("", plain)), *sorted(values.items()))


def _forget_other_permissions(kind: tuple[Any, ...]) -> None:
    """A zygote with others than those of `kind`, which are this process's, would do for it what it may not do itself."""
    for key in [key for key in _launchers if key[0][0] != kind[0]]:
        _launchers.pop(key, None)
    for early in [early for early in _ahead if early[0] != kind[0]]:
        _ahead.pop(early, None)


def close_launchers() -> None:
    """Closes the launchers that launcher() keeps: their zygotes end as soon as no worker needs them. Called at exit."""
    _forget_inherited_launchers()
    for kept in (_launchers, _ahead):
        while kept:
            kept.popitem()[1].close()


def _forget_ended_zygotes() -> None:
    """A launcher has a thread and some descriptors: it goes with its zygote, unless somebody holds it who may start more."""
    for key, kept in list(_launchers.items()):
        if kept.method == "forkserver" and kept.zygote_pid is None:
            del _launchers[key]


def _forget_inherited_launchers() -> None:
    global _launchers_pid, _zygotes
    if _launchers_pid != os.getpid():  # a forked child: they are its parent's
        _launchers.clear()
        _ahead.clear()
        _zygotes = _core.process.Zygotes(*(_limits or (IDLE_ZYGOTES, IDLE_SECONDS)))
        _launchers_pid = os.getpid()


atexit.register(close_launchers)
