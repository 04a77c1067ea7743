"""How the arrays of a package's call are nested, as torch's pytrees in JSON say it; what errors say of a call."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Nest", "described", "flatten", "listed", "nest_of", "nested"]


class Nest(NamedTuple):
    """How arrays are nested.

    Attributes:
        kind: "array", "tuple", "list" or "dict".
        keys: of a dict.
        parts: of all but an array.
    """

    kind: str
    keys: tuple[str, ...]
    parts: tuple[Nest, ...]


_KINDS = {
    None: "array",
    "builtins.tuple": "tuple",
    "builtins.list": "list",
    "builtins.dict": "dict",
    "collections.OrderedDict": "dict",
    "collections.namedtuple": "tuple",
}


def nest_of(spec: Mapping[str, Any]) -> Nest:
    """Of a level of torch's pytrees in JSON: "type", "context" (of a dict: its keys) and "children_spec"."""
    kind = _KINDS.get(spec["type"])
    if kind is None:
        raise ValueError(f"has a {spec['type']} where rows are arrays, tuples, lists and dicts of them")
    keys = tuple(json.loads(spec["context"])) if kind == "dict" else ()
    return Nest(kind, keys, tuple(map(nest_of, spec["children_spec"])))


def flatten(tree: Any, nest: Nest, where: str, leaves: list[np.ndarray[Any, Any]]) -> None:
    """Appends the arrays of a call in their order. Raises TypeError where it is nested otherwise."""
    kind, keys, parts = nest
    if kind == "array":
        if not isinstance(tree, np.ndarray):
            raise TypeError(f"{where}: the package takes an array, got {described(tree)}")
        leaves.append(tree)
    elif kind == "dict":
        if not isinstance(tree, Mapping) or tree.keys() != set(keys):
            raise TypeError(f"{where}: the package takes {listed(keys)}, got {described(tree)}")
        for key, part in zip(keys, parts, strict=True):
            flatten(tree[key], part, f"{where}[{key!r}]", leaves)
    else:
        if not isinstance(tree, Sequence) or len(tree) != len(parts):
            raise TypeError(f"{where}: the package takes {len(parts)}, got {described(tree)}")
        for given, part in zip(tree, parts, strict=True):
            flatten(given, part, where, leaves)


def nested(leaves: Iterator[np.ndarray[Any, Any]], nest: Nest) -> Any:
    kind, keys, parts = nest
    if kind == "array":
        return next(leaves)
    made = [nested(leaves, part) for part in parts]
    if kind == "dict":
        return dict(zip(keys, made, strict=True))
    return made if kind == "list" else tuple(made)


def listed(names: Any) -> str:
    return ", ".join(map(repr, names)) or "nothing"


def described(tree: Any) -> str:
    if isinstance(tree, Mapping):
        return listed(tree)
    return str(len(tree)) if isinstance(tree, Sequence) else "an array"
