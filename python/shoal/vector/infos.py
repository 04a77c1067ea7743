"""Single environments' info dicts, batched by Gymnasium's own rules."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from typing import Any

import gymnasium
import numpy as np

__all__ = ["MARKS", "Entry", "Objects", "add_faults", "batch", "encode", "is_away", "without_marks"]

MARKS = ("fault", "down", "dropped")
"""What infos have of rows that are no transitions. Where there may be such rows, an environment's own are left out."""

_FAULT, _DOWN, _DROPPED = 1, 2, 3  # of src/shoal/vector/fault/fault_policy.h

Entry = tuple[int, bool, dict[str, Any]]
"""Row, whether it is the info of an episode's last step in same-step mode, and the info."""

Objects = tuple[int, tuple[Any, ...]]
"""Row, and what its observation has that is no array of fixed size."""


def encode(entries: list[Entry] | None, observed: list[Objects] | None, finals: list[Objects] | None) -> bytes:
    """For another process; what pickle cannot handle (local classes, lambdas) goes by cloudpickle."""
    message = (entries or [], observed or [], finals or [])
    try:
        return pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception:
        from shoal.ipc import cloudpickling

        try:
            return cloudpickling.dumps(message)
        except Exception as error:
            raise _unpicklable(*message, error=error) from error


def batch(
    envs: gymnasium.vector.VectorEnv[Any, Any, Any],
    entries: Iterable[Entry],
    final_observations: dict[int, Any],
    final_keys: Sequence[str] = ("final_obs", "final_info"),
) -> dict[str, Any]:
    """One dict of arrays with masks, as `gymnasium.vector.VectorEnv._add_info` makes it.

    Args:
        final_observations: by row, for the environments that this step ended and reset.
        final_keys: their order.
    """
    ended: dict[int, dict[str, Any]] = {row: {} for row in final_observations}
    infos: dict[int, dict[str, Any]] = {}
    for row, is_final, info in entries:
        (ended if is_final else infos)[row] = info
    batched: dict[str, Any] = {}
    for row in sorted(ended.keys() | infos.keys()):
        if row in ended:
            final = {"final_obs": final_observations[row], "final_info": ended[row]}
            batched = envs._add_info(batched, {key: final[key] for key in final_keys}, row)
        if row in infos:
            batched = envs._add_info(batched, infos[row], row)
    return batched


def without_marks(infos: dict[str, Any]) -> dict[str, Any]:
    """Batched infos without what environments themselves call as MARKS or their masks are called."""
    return {key: value for key, value in infos.items() if str(key).lstrip("_") not in MARKS}


def add_faults(infos: dict[str, Any], states: np.ndarray, faults: list[tuple[int, Any]]) -> None:
    """Says which rows are no transitions: `infos["fault"]` holds a `shoal.Fault` where this call lost the environment,
    `infos["down"]` is True where it is not back yet, `infos["dropped"]` where it will not come back.

    Args:
        states: of every row, as src/shoal/vector/fault/fault_policy.h numbers them.
        faults: of the rows that this call lost.
    """
    if faults:
        told, mask = np.full(len(states), None, object), np.zeros(len(states), np.bool_)
        for row, fault in faults:
            told[row], mask[row] = fault, True
        infos["fault"], infos["_fault"] = told, mask
    for state, key in ((_DOWN, "down"), (_DROPPED, "dropped")):
        mask = states == state
        if mask.any():
            infos[key], infos[f"_{key}"] = mask, mask.copy()


def is_away(states: np.ndarray) -> np.ndarray:
    """Of rows in these states those whose environment is lost, and is to come back."""
    return np.isin(states, (_FAULT, _DOWN))


def _unpicklable(entries: list[Entry], observed: list[Objects], finals: list[Objects], error: Exception) -> Exception:
    from shoal.ipc import cloudpickling

    parts = [(row, f"info[{key!r}]", value) for row, _, info in entries for key, value in info.items()]
    parts += [(row, "an observation", value) for row, values in [*finals, *observed] for value in values]
    for row, what, value in parts:
        try:
            cloudpickling.dumps(value)
        except Exception as cause:
            return TypeError(
                f"environment {row}: {what} is a {type(value).__name__} that cannot leave its worker process: "
                f"{cause}. Put what you need of it there instead."
            )
    return error
