"""`make_vec(wrappers=…)`: what is put around every environment, as callables or by import path."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shoal.vector.import_paths import Kind

__all__ = ["Wrapper", "import_path", "wrapped", "wrapper_of", "wrappers_of"]

Wrapper = str | Callable[[Any], Any]
_KIND = Kind("wrapper", ("an environment",))


def wrappers_of(wrappers: Sequence[Wrapper] | None) -> list[Callable[[Any], Any]]:
    """The wrappers as callables, checked and imported.

    Raises:
        TypeError: for what is no sequence of wrappers.
        ValueError: for a path that is none, or whose module or name is not there; the message names the nearest.
    """
    if wrappers is None:
        return []
    if isinstance(wrappers, str) or not isinstance(wrappers, Sequence):
        raise TypeError(f"wrappers takes a list of wrappers, got {wrappers!r}; of one write [{wrappers!r}]")
    return [wrapper_of(wrapper) for wrapper in wrappers]


def wrapper_of(wrapper: Wrapper) -> Callable[[Any], Any]:
    """A callable as it is; "package.module:Name", or "package.module:Name(key=literal, …)", as what it names."""
    if not isinstance(wrapper, str):
        if not callable(wrapper):
            raise TypeError(
                f"a wrapper is a class or function that takes an environment, or its path, 'package.module:Name'; got {wrapper!r}"
            )
        return wrapper
    return _KIND.at(wrapper)


def import_path(wrapper: Wrapper) -> str | None:
    """What wrapper_of() finds the wrapper by; None where no path leads to it."""
    return _KIND.path_of(wrapper)


def wrapped(factory: Callable[[], Any], wrappers: Sequence[Callable[[Any], Any]]) -> Any:
    """An environment with all wrappers around it, the first one innermost."""
    env = factory()
    try:
        for wrapper in wrappers:
            inner, env = env, wrapper(env)
            if not (hasattr(env, "reset") and hasattr(env, "step")):
                got, env = env, inner
                raise TypeError(f"the wrapper {_name(wrapper)} made no environment of {inner!r}: it returned {got!r}")
    except BaseException:
        env.close()
        raise
    return env


def _name(wrapper: Any) -> str:
    wrapper = getattr(wrapper, "func", wrapper)
    return f"{getattr(wrapper, '__module__', '?')}:{getattr(wrapper, '__qualname__', repr(wrapper))}"
