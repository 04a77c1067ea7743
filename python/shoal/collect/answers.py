"""What a policy in Python answers: its parts, and how they come into a batch."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["OUTPUTS", "array_of", "described", "parts_of", "refuse_what_is_no_answer", "store", "tensor_of"]

OUTPUTS = ("log_prob", "value")


def parts_of(answer: Any) -> dict[str, Any]:
    """What a policy returned, by name: "action", "log_prob", "value", …

    Raises:
        TypeError: for a tuple of another length.
    """
    if isinstance(answer, Mapping):
        return dict(answer)
    if isinstance(answer, tuple):
        names = ("action", *OUTPUTS)
        if not 1 <= len(answer) <= len(names):
            raise TypeError(
                f"a policy returns actions, or (action, log_prob), or (action, log_prob, value); got {len(answer)}"
            )
        return dict(zip(names, answer, strict=False))
    return {"action": answer}


def refuse_what_is_no_answer(answer: Any) -> None:
    """Raises TypeError for what a policy returns by mistake."""
    if isinstance(answer, Mapping | tuple | list | np.ndarray | np.generic) or hasattr(answer, "detach"):
        return
    what = "None" if answer is None else repr(type(answer).__name__)
    if callable(answer):
        raise TypeError(
            f"the policy gave no actions but {what}, which can be called itself: of a function that makes a policy, give "
            "policy= what it returns"
        )
    if inspect.iscoroutine(answer):
        answer.close()  # nobody is to be warned that it was not awaited
    if hasattr(answer, "__await__") or inspect.isgenerator(answer):
        raise TypeError(
            f"the policy gave no actions but {what}: give a function without async and yield, which returns them"
        )
    if not hasattr(answer, "__array__"):
        more = "; has it a return?" if answer is None else ""
        raise TypeError(
            f"the policy gave no actions but {what}: return an array or a tensor, with an action for each environment{more}"
        )


def store(name: str, value: Any, row: Any, columns: slice, first_env: int) -> None:
    """Writes a policy's output where it belongs. Raises ValueError where it does not fit: nothing is broadcast, no fraction
    cut off, and no integer wrapped around.

    Args:
        columns: those that count; copies of others are elsewhere.
        first_env: the number of their first.
    """
    if isinstance(row, np.ndarray):
        given = array_of(value)
        if given.shape == row.shape and (given.dtype == row.dtype or _may_become(given.dtype, row.dtype)):
            if given.dtype != row.dtype:
                _check_range(name, given, row.dtype, columns, first_env)
            row[...] = given
            return
    else:
        given = value if hasattr(value, "is_floating_point") else tensor_of(value)
        fits = given.shape == row.shape and (row.is_floating_point() or not given.is_floating_point())
        if fits and not given.is_complex():
            if given.dtype != row.dtype and not row.is_floating_point():
                _check_range(name, array_of(given), array_of(row).dtype, columns, first_env)
            row.copy_(given)
            return
    raise ValueError(
        f"the policy gave {name} of shape {tuple(given.shape)} and {given.dtype}; for these environments it is of shape "
        f"{tuple(row.shape)} and {row.dtype}" + ("" if name != "action" else f": {_what_actions_are(given, row)}")
    )


def _may_become(given: np.dtype[Any], wanted: np.dtype[Any]) -> bool:
    both = given.kind + wanted.kind
    return set(both) <= set("iu") or np.can_cast(given, wanted, "same_kind")


def _check_range(name: str, given: np.ndarray, wanted: np.dtype[Any], columns: slice, first_env: int) -> None:
    """Raises ValueError for an integer that the type has not."""
    if wanted.kind not in "iu" or given.dtype.kind not in "iu" or np.can_cast(given.dtype, wanted, "safe"):
        return
    own, bounds = given[columns], np.iinfo(wanted)
    wrong = np.argwhere((own < bounds.min) | (own > bounds.max))
    if len(wrong):
        at = tuple(wrong[0])
        raise ValueError(
            f"the policy gave {name} {own[at]} for environment {first_env + at[0]}, which {wanted}, the type of its action space, "
            f"cannot hold: give {bounds.min} to {bounds.max}"
        )


def _what_actions_are(given: Any, row: Any) -> str:
    count, *shape = row.shape
    if "int" in str(row.dtype) and given.ndim:
        return "return the actions themselves, not scores of them, one for each environment"
    return f"return an action for each of the {count} environments, each of the action space's shape {tuple(shape)}"


def array_of(value: Any) -> np.ndarray:
    if hasattr(value, "detach"):
        value = value.detach().cpu()
    return np.asarray(value)


def tensor_of(array: Any) -> Any:
    import torch

    return torch.as_tensor(array)


def described(answer: Any) -> str:
    return (
        f"{type(answer).__name__} of {sorted(answer)}" if isinstance(answer, Mapping) else repr(type(answer).__name__)
    )
