"""Callables by import path: "package.module:Name", or "package.module:Name(key=literal, …)"."""

from __future__ import annotations

import ast
import difflib
import functools
import importlib
import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Kind"]


@dataclass(frozen=True)
class Kind:
    """What a path is to lead to.

    Attributes:
        name: what errors call it: "wrapper".
        takes: what it is called with; None: that is not known here.
    """

    name: str
    takes: Sequence[str] | None

    def at(self, text: str) -> Callable[..., Any]:
        """What the path names, with its arguments where it has some.

        Raises:
            ValueError: for a path that is none, or whose module or name is not there; the message names the nearest.
        """
        path, arguments = self._parsed(text)
        found = self._imported(path)
        if self.takes is None:
            return functools.partial(found, **arguments) if arguments else found
        try:
            inspect.signature(found).bind(*(None for _ in self.takes), **arguments)
        except TypeError as error:
            raise ValueError(f"the {self.name} {text!r}: {error}") from None
        except ValueError:  # nobody knows what it takes
            pass
        return functools.partial(found, **arguments) if arguments else found

    def path_of(self, thing: Any) -> str | None:
        """What at() finds it by; None where no path leads to it."""
        if isinstance(thing, str):
            return thing
        arguments = ""
        if isinstance(thing, functools.partial):
            if thing.args:
                return None
            arguments = ", ".join(f"{name}={value!r}" for name, value in thing.keywords.items())
            thing = thing.func
        path = f"{getattr(thing, '__module__', '')}:{getattr(thing, '__qualname__', '')}"
        text = f"{path}({arguments})" if arguments else path
        try:
            again = self.at(text)
        except ValueError:
            return None
        same = again.func if isinstance(again, functools.partial) else again
        return text if same is thing and not path.startswith("__main__:") else None

    def _parsed(self, text: str) -> tuple[str, dict[str, Any]]:
        wrong = ValueError(
            f"{'an' if self.name[0] in 'aeiou' else 'a'} {self.name} is written package.module:Name, or package.module:Name(key=value, …) with plain values; "
            f"got {text!r}"
        )
        match = re.fullmatch(r"\s*([\w.]+:[\w.]+)\s*(\(.*\))?\s*", text, re.DOTALL)
        if match is None:
            raise wrong
        path, call = match.groups()
        if call is None:
            return path, {}
        try:
            parsed = ast.parse(f"name{call}", mode="eval").body
            if not isinstance(parsed, ast.Call) or parsed.args or any(word.arg is None for word in parsed.keywords):
                raise wrong
            return path, {word.arg: ast.literal_eval(word.value) for word in parsed.keywords}  # type: ignore[misc]  # None was refused above
        except (SyntaxError, ValueError):
            raise wrong from None

    def _imported(self, path: str) -> Callable[..., Any]:
        module_name, _, name = path.partition(":")
        called = f"the {self.name} {path!r}"
        try:
            found: Any = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name and not (module_name == error.name or module_name.startswith(error.name + ".")):
                raise ValueError(f"{called}: importing {module_name} failed: {error}") from None
            raise ValueError(f"{called}: there is no module {error.name!r}") from None
        except Exception as error:
            raise ValueError(f"{called}: importing {module_name} failed: {type(error).__name__}: {error}") from None
        for part in name.split("."):
            try:
                found = getattr(found, part)
            except AttributeError:
                near = difflib.get_close_matches(part, dir(found), n=1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise ValueError(f"{called}: {module_name} has no {name!r}{hint}") from None
        if not callable(found):
            with_what = f" with {' and '.join(self.takes)}" if self.takes else ""
            raise ValueError(f"{called} is a {type(found).__name__}, which cannot be called{with_what}")
        made: Callable[..., Any] = found
        return made
