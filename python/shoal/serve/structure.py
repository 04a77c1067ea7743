"""What a model is given and what it answers, as a list of arrays and the bytes that put it together again.

Nothing (b"") stands for the one array alone: one positional argument, or an answer that is an array. Other structures are text,
which another host may read: nothing in it is called. Where keys of dicts have none, it is a pickle, and stays on its host.
"""

from __future__ import annotations

import ast
import functools
import pickle
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

__all__ = [
    "MAY_BE_BATCHED",
    "NOT_BATCHED",
    "WHETHER_BATCHED",
    "answer_from",
    "arguments_from",
    "arranged",
    "pack_answer",
    "pack_arguments",
    "pack_rows",
    "refusal_of",
    "tree_map",
]

WHETHER_BATCHED = b"(batched?)"
"""In the place of a structure: may rows of this model come in batches? It is refused in any case, with the answer."""
NOT_BATCHED = "rows of a Recurrent model come one by one"
MAY_BE_BATCHED = "rows of this model may come in batches"

_LEAF = "*"
_PLAIN = (str, int, bool, bytes, type(None))
_PICKLE = b"\x80"
"""What pickles begin with, and no text."""
Arguments = tuple[list[Any], dict[str, Any]]


def pack_arguments(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], bytes]:
    """The arrays of a call, and its structure."""
    if len(args) == 1 and not kwargs and not isinstance(args[0], tuple | dict):
        return [args[0]], b""
    leaves: list[Any] = []
    spec = (_flatten(tuple(args), leaves, _same), _flatten(dict(kwargs), leaves, _same))
    return leaves, _packed(spec)


def arguments_from(leaves: Sequence[Any], structure: bytes) -> Arguments:
    if not structure:
        return [leaves[0]], {}
    rest = iter(leaves)
    args, kwargs = _unpacked(structure)
    return list(_unflatten(args, rest)), _unflatten(kwargs, rest)


def refusal_of(leaves: Iterable[Any], name: str) -> TypeError | None:
    """What to raise where the model `name` was asked with a tensor of torch that NumPy cannot look at; None where it was not."""
    torch: Any = sys.modules.get("torch")
    for leaf in leaves:
        if torch is None or not isinstance(leaf, torch.Tensor):
            continue
        hindrances = [
            (leaf.requires_grad, "requires a gradient", ".detach()"),
            (leaf.device.type not in ("cpu", "meta"), f"is on {leaf.device}", ".cpu()"),
            (leaf.layout is not torch.strided, f"has the layout {leaf.layout}", ".to_dense()"),
            (leaf.is_conj(), "is a conjugate view", ".resolve_conj()"),
            (leaf.is_neg(), "is a negative view", ".resolve_neg()"),
            (leaf.is_quantized, "is quantized", ".dequantize()"),
            (not (leaf.is_quantized or _numpy_has(leaf.dtype)), f"is of {leaf.dtype}, which NumPy has not", ".float()"),
        ]
        found = [(what, call) for is_so, what, call in hindrances if is_so]
        if found:
            whats, calls = zip(*found, strict=True)
            return TypeError(
                f"the model {name!r} takes arrays, and tensors that NumPy can look at. It was given a tensor that "
                f"{' and '.join(whats)}: give tensor{''.join(calls)}"
            )
    return None


def _numpy_has(dtype: Any) -> bool:
    try:
        sys.modules["torch"].empty(0, dtype=dtype).numpy()
    except TypeError:
        return False
    return True


def pack_answer(answer: Any) -> tuple[list[np.ndarray[Any, Any]], bytes]:
    """The arrays of an answer, and its structure; tensors become arrays of this process's memory.

    Raises:
        TypeError: for what is no array, tensor, or tuple, list or dict of them.
    """
    array = _array_of(answer)
    if array is not None:
        return [array], b""
    leaves: list[Any] = []
    return leaves, _packed(_flatten(answer, leaves, _checked_array))


def pack_rows(answer: Any, rows: int, what: str = "an answer") -> tuple[list[np.ndarray[Any, Any]], bytes]:
    """pack_answer() of what a model made of so many rows.

    Raises:
        ValueError: for an array that has another number of rows.
    """
    arrays, structure = pack_answer(answer)
    for array in arrays:
        if array.ndim == 0 or len(array) != rows:
            raise ValueError(
                f"the model answered a batch of {rows} rows with an array of shape {array.shape}: the first dimension of "
                f"{what} is the rows"
            )
    return arrays, structure


def answer_from(leaves: Sequence[Any], structure: bytes) -> Any:
    return leaves[0] if not structure else _unflatten(_unpacked(structure), iter(leaves))


def arranged(leaves: Sequence[Any], structure: bytes, wanted: bytes) -> list[Any]:
    """The arrays of an answer in the order of another one, whose dicts may have their keys in another order.

    Raises:
        ValueError: where it is nested otherwise.
    """
    found: list[Any] = []
    spec = _unpacked(wanted) if wanted else _LEAF
    if not _collect(answer_from(leaves, structure), spec, found):
        raise ValueError(
            f"the model's answer is {_described(_unpacked(structure) if structure else _LEAF)}, where its first answer to such "
            f"rows was {_described(spec)}"
        )
    return found


def _collect(tree: Any, spec: Any, found: list[Any]) -> bool:
    """Appends the arrays of `tree` in the order of `spec`. Returns whether it is nested so."""
    if spec == _LEAF:
        found.append(tree)
        return not isinstance(tree, Mapping | tuple | list)
    kind, parts = spec
    if kind == "d":
        if not isinstance(tree, Mapping) or tree.keys() != {key for key, _ in parts}:
            return False
        return all(_collect(tree[key], part, found) for key, part in parts)
    if not isinstance(tree, tuple if kind == "t" else list) or len(tree) != len(parts):
        return False
    return all(_collect(item, part, found) for item, part in zip(tree, parts, strict=True))


def _described(spec: Any) -> str:
    if spec == _LEAF:
        return "an array"
    kind, parts = spec
    if kind == "d":
        return f"a dict of {{{', '.join(f'{key!r}: {_described(part)}' for key, part in parts)}}}"
    return f"a {'tuple' if kind == 't' else 'list'} of ({', '.join(map(_described, parts))})"


def tree_map(function: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """function() of each leaf of a tuple, list or dict of them, nested, and of those at its place in the others."""
    if isinstance(tree, Mapping):
        return {key: tree_map(function, value, *(other[key] for other in others)) for key, value in tree.items()}
    if isinstance(tree, tuple | list):
        items = [tree_map(function, *parts) for parts in zip(tree, *others, strict=True)]
        return items if isinstance(tree, list) else tuple(items)
    return function(tree, *others)


def _packed(spec: Any) -> bytes:
    return repr(spec).encode() if _is_plain(spec) else pickle.dumps(spec)


def _is_plain(spec: Any) -> bool:
    """Whether repr() says all of it; of what _flatten() makes, only the keys of dicts can be otherwise."""
    if type(spec) in (tuple, list):
        return all(map(_is_plain, spec))
    return type(spec) in _PLAIN or (type(spec) is float and spec - spec == 0.0)


@functools.lru_cache(maxsize=256)
def _unpacked(structure: bytes) -> Any:
    """Not to be changed: those who ask next get the same."""
    return pickle.loads(structure) if structure.startswith(_PICKLE) else ast.literal_eval(structure.decode())


def _flatten(tree: Any, leaves: list[Any], leaf: Callable[[Any], Any]) -> Any:
    if isinstance(tree, Mapping):
        return "d", [(key, _flatten(value, leaves, leaf)) for key, value in tree.items()]
    if isinstance(tree, tuple) or (isinstance(tree, list) and leaf is _checked_array):
        return "t" if isinstance(tree, tuple) else "l", [_flatten(value, leaves, leaf) for value in tree]
    leaves.append(leaf(tree))
    return _LEAF


def _unflatten(spec: Any, leaves: Any) -> Any:
    if spec == _LEAF:
        return next(leaves)
    kind, parts = spec
    if kind == "d":
        return {key: _unflatten(part, leaves) for key, part in parts}
    items = [_unflatten(part, leaves) for part in parts]
    return tuple(items) if kind == "t" else items


def _same(value: Any) -> Any:
    return value


def _array_of(value: Any) -> np.ndarray[Any, Any] | None:
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(value)
    if hasattr(value, "detach") and hasattr(value, "cpu"):  # a tensor of torch, which need not be imported here
        tensor = value.detach().cpu()
        try:
            array: np.ndarray[Any, Any] = tensor.numpy()
        except (TypeError, RuntimeError):
            array = _resolved(tensor).numpy()
        return array
    return None


def _resolved(tensor: Any) -> Any:
    """What of a tensor of the CPU NumPy has: conjugates and negatives as values; float32 for other dtypes than its own."""
    plain = tensor.resolve_conj().resolve_neg()
    try:
        plain.numpy()
    except TypeError:
        return plain.cfloat() if plain.is_complex() else plain.float()
    return plain


def _checked_array(value: Any) -> np.ndarray[Any, Any]:
    array = _array_of(value)
    if array is None:
        raise TypeError(
            f"the model answered with a {type(value).__name__}: an answer is an array or tensor whose first dimension is "
            "the rows, or a tuple, list or dict of them"
        )
    return array
