"""`make_vec(wrappers=…)`: what is put around every environment, as callables or by import path."""

from __future__ import annotations

import ast
import difflib
import functools
import importlib
import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["Wrapper", "import_path", "wrapped", "wrapper_of", "wrappers_of"]

Wrapper = str | Callable[[Any], Any]


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
    path, arguments = _parsed(wrapper)
    found = _imported(path)
    try:
        inspect.signature(found).bind(None, **arguments)
    except TypeError as error:
        raise ValueError(f"the wrapper {wrapper!r}: {error}") from None
    except ValueError:  # nobody knows what it takes
        pass
    return functools.partial(found, **arguments) if arguments else found


def import_path(wrapper: Wrapper) -> str | None:
    """What wrapper_of() finds the wrapper by; None where no path leads to it."""
    if isinstance(wrapper, str):
        return wrapper
    arguments = ""
    if isinstance(wrapper, functools.partial):
        if wrapper.args:
            return None
        arguments = ", ".join(f"{name}={value!r}" for name, value in wrapper.keywords.items())
        wrapper = wrapper.func
    path = f"{getattr(wrapper, '__module__', '')}:{getattr(wrapper, '__qualname__', '')}"
    text = f"{path}({arguments})" if arguments else path
    try:
        again = wrapper_of(text)
    except ValueError:
        return None
    same = again.func if isinstance(again, functools.partial) else again
    return text if same is wrapper and not path.startswith("__main__:") else None


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


def _parsed(text: str) -> tuple[str, dict[str, Any]]:
    wrong = ValueError(
        f"a wrapper is written package.module:Name, or package.module:Name(key=value, …) with plain values; got {text!r}"
    )
    match = re.fullmatch(r"\s*([\w.]+:[\w.]+)\s*(\(.*\))?\s*", text, re.DOTALL)
    if match is None:
        raise wrong
    path, call = match.groups()
    if call is None:
        return path, {}
    try:
        parsed = ast.parse(f"wrapper{call}", mode="eval").body
        if not isinstance(parsed, ast.Call) or parsed.args or any(word.arg is None for word in parsed.keywords):
            raise wrong
        return path, {word.arg: ast.literal_eval(word.value) for word in parsed.keywords}  # type: ignore[misc]  # None was refused above
    except (SyntaxError, ValueError):
        raise wrong from None


def _imported(path: str) -> Callable[[Any], Any]:
    module_name, _, name = path.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and not (module_name == error.name or module_name.startswith(error.name + ".")):
            raise ValueError(f"the wrapper {path!r}: importing {module_name} failed: {error}") from None
        raise ValueError(f"the wrapper {path!r}: there is no module {error.name!r}") from None
    except Exception as error:
        raise ValueError(
            f"the wrapper {path!r}: importing {module_name} failed: {type(error).__name__}: {error}"
        ) from None
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            near = difflib.get_close_matches(part, dir(found), n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"the wrapper {path!r}: {module_name} has no {name!r}{hint}") from None
    if not callable(found):
        raise ValueError(
            f"the wrapper {path!r} is a {type(found).__name__}, which cannot be called with an environment"
        )
    wrapper: Callable[[Any], Any] = found
    return wrapper
