"""Single environments' info dicts, batched by Gymnasium's own rules."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from typing import Any

import gymnasium
import numpy as np

__all__ = ["Entry", "batch", "decode", "encode"]

Entry = tuple[int, bool, dict[str, Any]]
"""Row, whether it is the info of an episode's last step in same-step mode, and the info."""


def encode(entries: list[Entry]) -> bytes:
    """For another process; what pickle cannot handle (local classes, lambdas) goes by cloudpickle."""
    try:
        return pickle.dumps(entries, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception:
        import cloudpickle

        try:
            return cloudpickle.dumps(entries, protocol=pickle.HIGHEST_PROTOCOL)
        except Exception as error:
            raise _unpicklable(entries, error) from error


def decode(messages: Iterable[bytes]) -> list[Entry]:
    return [entry for message in messages for entry in pickle.loads(message)]


def batch(
    envs: gymnasium.vector.VectorEnv,
    entries: Iterable[Entry],
    final_observations: dict[int, Any],
) -> dict[str, Any]:
    """One dict of arrays with masks, as `gymnasium.vector.VectorEnv._add_info` makes it.

    Args:
        final_observations: by row, for the environments that this step ended and reset.
    """
    ended: dict[int, dict[str, Any]] = {row: {} for row in final_observations}
    infos: dict[int, dict[str, Any]] = {}
    for row, is_final, info in entries:
        (ended if is_final else infos)[row] = info
    batched: dict[str, Any] = {}
    for row in sorted(ended.keys() | infos.keys()):
        if row in ended:
            final = {"final_obs": final_observations[row], "final_info": ended[row]}
            batched = envs._add_info(batched, final, row)
        if row in infos:
            batched = envs._add_info(batched, infos[row], row)
    return batched


def add_faults(envs: gymnasium.vector.VectorEnv, infos: dict[str, Any], faults: np.ndarray) -> dict[str, Any]:
    """`infos["fault"]` is True for the environments whose worker died in this step."""
    for row in np.flatnonzero(faults):
        infos = envs._add_info(infos, {"fault": True}, int(row))
    return infos


def _unpicklable(entries: list[Entry], error: Exception) -> Exception:
    import cloudpickle

    for row, _, info in entries:
        for key, value in info.items():
            try:
                cloudpickle.dumps(value)
            except Exception as cause:
                return TypeError(
                    f"environment {row}: info[{key!r}] is a {type(value).__name__} that cannot leave its worker process: "
                    f"{cause}. Put what you need of it into the info instead."
                )
    return error
