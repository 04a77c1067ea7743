"""Values of rl-baselines3-zoo's files that are written as Python: read as data, never run."""

from __future__ import annotations

import ast
import re
from typing import Any

__all__ = ["Name", "NoSuchValue", "literal", "number", "schedule"]


class NoSuchValue(ValueError):
    """A key cannot have this value; the text names both."""


class Name(str):
    """A name that stands for an object of another library, such as "nn.ReLU"."""

    def __repr__(self) -> str:
        return str(self)


def literal(key: str, value: Any) -> Any:
    """The value of a text such as "dict(log_std_init=-2, activation_fn=nn.ReLU)"; anything but a text as it is.

    Raises:
        NoSuchValue: for a text that is more than literals, names, and calls of dict.
    """
    if not isinstance(value, str):
        return value
    try:
        return _value(ast.parse(value.strip(), mode="eval").body)
    except (SyntaxError, ValueError):
        raise NoSuchValue(
            f"{key}: {value!r} cannot be read: it may have numbers, texts, lists, dict(…) and names such as nn.ReLU, and is not run"
        ) from None


def number(key: str, value: Any) -> int | float:
    """A number; YAML reads 1e-3 as a text, which is one, too.

    Raises:
        NoSuchValue: for any other text or value.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    if not isinstance(value, str) or not re.fullmatch(r"[-+]?\d+\.?\d*[eE][-+]?\d+", value):
        raise NoSuchValue(f"{key}: {value!r} is no number")
    read = float(value)
    return int(read) if read.is_integer() else read


def schedule(key: str, value: Any) -> tuple[float, str]:
    """The initial value and the schedule, "constant" or "linear", of a number or of a text such as "lin_2.5e-4".

    Raises:
        NoSuchValue: for another text or value.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value), "constant"
    kind, _, initial = str(value).partition("_")
    try:
        if kind == "lin":
            return float(initial), "linear"
        if not isinstance(value, bool):
            return float(value), "constant"  # YAML reads 1e-3 as a text
    except (TypeError, ValueError):
        pass
    raise NoSuchValue(f"{key}: {value!r} is neither a number nor a schedule such as lin_2.5e-4")


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Constant():
            return node.value
        case ast.UnaryOp(op=ast.USub() | ast.UAdd()):
            value = _value(node.operand)
            return -value if isinstance(node.op, ast.USub) else value
        case ast.List() | ast.Tuple():
            return [_value(element) for element in node.elts]
        case ast.Dict() if None not in node.keys:
            return {_value(key): _value(value) for key, value in zip(node.keys, node.values, strict=True) if key}
        case ast.Call(func=ast.Name(id="dict"), args=[]) if all(word.arg for word in node.keywords):
            return {str(word.arg): _value(word.value) for word in node.keywords}
        case ast.Name() | ast.Attribute():
            return Name(ast.unparse(node))
    raise ValueError("no data")
