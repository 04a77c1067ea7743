"""The callables of Shoal that users give arguments to, by name: read off the modules' own lists of names."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from shoal import _core

STUBS = Path(__file__).parents[2] / "python"

MODULES = (
    "shoal",
    "shoal.vector",
    "shoal.collect",
    "shoal.multiprocessing",
    "shoal.multiprocessing.connection",
    "shoal.multiprocessing.pool",
    "shoal.multiprocessing.queues",
    "shoal.multiprocessing.synchronize",
    "shoal.process",
    "shoal.identity",
    "shoal.serve",
    "shoal.learn",
    "shoal.compat.gymnasium",
    "shoal.compat.sb3",
    "shoal.compat.envpool",
    "shoal.compat.cleanrl",
    "shoal.compat.pettingzoo",
    "shoal.compat.moolib",
    "shoal.atari",
    "shoal.envs",
    "shoal.doctor",
)

HANDED_OUT = frozenset(
    "Counter Fault PortLease SharedDict VectorEnv Worker doctor.Finding learn.Collected learn.Evaluation learn.ModulePolicy learn.Policy learn.Result learn.TorchPolicy"
    " compat.envpool.EnvPool compat.envpool.EnvSpec compat.moolib.EnvStepperFuture compat.pettingzoo.ParallelVectorEnv multiprocessing.ProcessContext multiprocessing.SpawnContext multiprocessing.connection.Connection"
    " multiprocessing.pool.ApplyResult multiprocessing.pool.IMapIterator multiprocessing.pool.IMapUnorderedIterator"
    " multiprocessing.pool.MapResult process.WorkerContext process.WorkerProcess serve.LocalModel serve.RemoteService serve.Reply"
    " serve.ServiceModel vector.AsyncVectorEnv".split()
)
"""Classes whose objects users get, and do not make."""

FOR_SHOAL = frozenset(
    "FaultPolicy.settings compat.pettingzoo.ParallelVectorEnv.reset_rows compat.pettingzoo.ParallelVectorEnv.said_by_row"
    " compat.pettingzoo.ParallelVectorEnv.step_rows learn.ModulePolicy.evaluate learn.Policy.evaluate learn.TorchPolicy.best_actions VectorEnv.finish_interrupted Worker.scope Worker.set_seed WorkerPool.open multiprocessing.connection.Connection.send_raw"
    " multiprocessing.pool.Pool.Process multiprocessing.synchronize.Barrier.complete process.Launcher.begin"
    " process.Launcher.pack process.Launcher.start_process".split()
)
"""What one part of Shoal has for another, as its documentation says, or CPython's class has for its own use."""


class Argument(NamedTuple):
    name: str
    position: int | None  # None: by keyword alone
    kind: inspect._ParameterKind


def surface() -> dict[str, tuple[Argument, ...]]:
    """What users give arguments to, with these."""
    return {
        name: arguments
        for name, arguments in _everything().items()
        if arguments and name not in HANDED_OUT and name not in FOR_SHOAL
    }


def names() -> frozenset[str]:
    """Of all that is public, with arguments and without, whoever it is for."""
    return frozenset(_everything())


@functools.cache
def _everything() -> dict[str, tuple[Argument, ...]]:
    classes: dict[type, str] = {_core.process.Counter: "Counter"}
    functions: dict[Any, str] = {}  # each under its first name
    for module_name in MODULES:
        module = importlib.import_module(module_name)
        prefix = module_name.removeprefix("shoal").removeprefix(".")
        for name in module.__all__:
            full = f"{prefix}.{name}" if prefix else name
            public = getattr(module, name)
            if isinstance(public, type):
                if public.__module__.startswith("shoal") and not issubclass(public, BaseException):
                    classes.setdefault(public, full)
            elif callable(public) and (getattr(public, "__module__", None) or "").startswith("shoal"):
                functions.setdefault(public, full)
    found = {name: arguments_of(function) for function, name in functions.items()}
    methods: dict[Any, str] = {}  # some classes share them
    for kind, full in classes.items():
        found[full] = () if full in HANDED_OUT else arguments_of(_constructor(kind))
        for name, method in _methods(kind, classes):
            methods.setdefault(method, f"{full}.{name}")
    return found | {name: arguments_of(method) for method, name in methods.items()}


def arguments_of(function: Callable[..., Any]) -> tuple[Argument, ...]:
    """Without `self`. An extension module's are in its stub."""
    native = function.__module__.startswith("shoal._core")
    parameters = _stub_parameters(function) if native else list(inspect.signature(function).parameters.values())
    if parameters and parameters[0].name in ("self", "cls"):
        del parameters[0]
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(
        Argument(each.name, at if each.kind in (*by_position, inspect.Parameter.VAR_POSITIONAL) else None, each.kind)
        for at, each in enumerate(parameters)
    )


def _constructor(kind: type) -> Callable[..., Any]:
    return kind.__init__ if "__init__" in vars(kind) and inspect.isfunction(kind.__init__) else kind


def _methods(kind: type, listed: dict[type, str]) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Those that no other listed class defines."""
    for name in dir(kind):
        if name.startswith("_") and name != "__call__":
            continue
        definer = next(base for base in kind.__mro__ if name in vars(base))
        if not definer.__module__.startswith("shoal") or (definer is not kind and definer in listed):
            continue
        member = vars(definer)[name]
        member = getattr(member, "__func__", member)
        if callable(member) and not isinstance(member, type):
            yield name, member


def _stub_parameters(function: Any) -> list[inspect.Parameter]:
    """Of the first definition in the stub."""
    stub = STUBS / f"{function.__module__.replace('.', '/')}.pyi"
    scope: list[ast.stmt] = ast.parse(stub.read_text()).body
    *outer, name = function.__qualname__.split(".")
    for part in outer:
        scope = next(node for node in scope if isinstance(node, ast.ClassDef) and node.name == part).body
    given = next(node for node in scope if isinstance(node, ast.FunctionDef) and node.name == name).args
    keyword, positional = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    return [
        *(inspect.Parameter(each.arg, positional) for each in [*given.posonlyargs, *given.args]),
        *(inspect.Parameter(each.arg, keyword) for each in given.kwonlyargs),
    ]
