"""What classes of vectorised environments are given, checked before anything is built."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterable
from typing import Any

from shoal.vector.faults import FaultPolicy
from shoal.vector.options import WorkerOptions

__all__ = ["factories_of", "factory_of", "policy_of", "positive", "rows_of", "worker_options"]

_PATIENT = WorkerOptions(start_timeout=600.0)
"""The peers wait for ever for environments to be built."""


def factories_of(env_fns: Any, who: str, instead: str = "") -> list[Callable[[], Any]]:
    """One function an environment.

    Args:
        who: the class, for the message.
        instead: what else may be written where there are no functions.

    Raises:
        TypeError: for what is no list of functions; the message says what to write.
        ValueError: for an empty one.
    """
    if _is_environment(env_fns):
        raise TypeError(
            f"{who}() takes a list of functions that make environments, got {_one(env_fns)}. {_fix(env_fns)}"
        )
    if callable(env_fns) or isinstance(env_fns, str) or not isinstance(env_fns, Iterable):
        raise TypeError(
            f"{who}() takes a list of functions that make environments, one for each, got {env_fns!r}. "
            f"Write {who}([make_env] * 4){instead and f', or {instead}'}"
        )
    factories = list(env_fns)
    if not factories:
        raise ValueError(f"{who}() got an empty list: it takes a function for each environment")
    return [factory_of(factory, who, f"env_fns[{i}]") for i, factory in enumerate(factories)]


def factory_of(given: Any, who: str, name: str) -> Callable[[], Any]:
    """A function that makes an environment.

    Args:
        who, name: the class or function and its argument, for the message.

    Raises:
        TypeError: for what is none; the message says what to write.
    """
    if _is_environment(given):
        raise TypeError(f"{who}() takes functions that make environments, {name} is {_one(given)}. {_fix(given)}")
    if not callable(given):
        raise TypeError(f"{who}() takes functions that make environments, {name} is {given!r}")
    factory: Callable[[], Any] = given
    return factory


def rows_of(indices: Any, num_envs: int, who: str) -> list[int]:
    """The environments that `indices` means: None for all, a number, or numbers in any order; negative ones count from the
    end.

    Raises:
        IndexError: for an environment that does not exist.
        TypeError: for what is no number.
    """
    if indices is None:
        return list(range(num_envs))
    numbers = indices if isinstance(indices, Iterable) and not isinstance(indices, str) else [indices]
    rows = []
    for number in numbers:
        try:
            row = operator.index(number)
        except TypeError:
            raise TypeError(f"{who}: indices are None, an int, or ints, got {indices!r}") from None
        if not -num_envs <= row < num_envs:
            raise IndexError(f"{who}: there is no environment {row}, they are 0 to {num_envs - 1}")
        rows.append(row % num_envs)
    return rows


def policy_of(on_fault: str | FaultPolicy, who: str, why: str) -> FaultPolicy:
    """Of classes whose callers need every environment.

    Args:
        who: the class, for the message.
        why: none can be dropped.

    Raises:
        ValueError: for another word than "raise" and "restart", and for a policy that drops.
    """
    if isinstance(on_fault, FaultPolicy):
        if on_fault.on_fault != "drop":
            return on_fault
    elif on_fault in ("raise", "restart"):
        return FaultPolicy(on_fault)
    raise ValueError(
        f"{who}(on_fault=…) takes 'raise', 'restart', or a shoal.FaultPolicy of these, got {on_fault!r}: {why}, so none can be "
        "dropped"
    )


def worker_options(worker: WorkerOptions | None, who: str, why: str) -> WorkerOptions:
    """`worker`, or by default patient ones.

    Args:
        who: the class, for the message.
        why: none can be without its worker for some steps.

    Raises:
        TypeError: for what are no WorkerOptions.
        ValueError: for a memory_limit, which replaces workers between episodes.
    """
    if worker is None:
        return _PATIENT
    if not isinstance(worker, WorkerOptions):
        raise TypeError(f"{who}(worker=…) takes shoal.WorkerOptions(…), got {worker!r}")
    if worker.memory_limit is not None:
        raise ValueError(
            f"{who}(worker=WorkerOptions(memory_limit=…)): replacing a worker between episodes takes steps without it, and {why}. "
            "Set memory_hard_limit, with on_fault='restart'"
        )
    return worker


def positive(value: Any, who: str) -> int:
    """`who`: class and argument, as the caller wrote them.

    Raises:
        ValueError: for less than 1.
        TypeError: for what is no integer.
    """
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{who} takes an int, 1 or more, got {value!r}") from None
    if number < 1:
        raise ValueError(f"{who} takes 1 or more, got {value}")
    return number


def _is_environment(given: Any) -> bool:
    return (
        not inspect.isclass(given)
        and not inspect.isroutine(given)
        and hasattr(given, "reset")
        and hasattr(given, "step")
    )


def _one(env: Any) -> str:
    return f"an environment (a {type(getattr(env, 'unwrapped', env)).__name__})"


def _fix(env: Any) -> str:
    spec = getattr(env, "spec", None)
    make = f"gymnasium.make({spec.id!r})" if spec is not None else f"{type(getattr(env, 'unwrapped', env)).__name__}(…)"
    return f"Each environment is made where it runs: write  lambda: {make}"
