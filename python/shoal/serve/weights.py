"""The weights of a served model: updated between two batches, with older ones kept for those who pinned them."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any

from shoal.serve.loaded import Loaded

__all__ = ["Weights", "pack_state", "unpack_state"]


def pack_state(state: Mapping[str, Any]) -> bytes:
    """A `state_dict` as bytes: its tensors as arrays, where NumPy has their dtype."""
    if not isinstance(state, Mapping):
        raise TypeError(
            f"weights are a state_dict, a dict from names to tensors or arrays; got a {type(state).__name__}"
        )
    return pickle.dumps({name: _plain(value) for name, value in state.items()}, protocol=pickle.HIGHEST_PROTOCOL)


def unpack_state(packed: bytes) -> dict[str, Any]:
    state: dict[str, Any] = pickle.loads(packed)
    return state


def _plain(value: Any) -> Any:
    if not (hasattr(value, "detach") and hasattr(value, "cpu")):
        return value
    tensor = value.detach().cpu()
    try:
        return tensor.numpy()
    except TypeError:  # bfloat16 and its kin
        return tensor.clone()


class Weights:
    """A model and the versions of its weights.

    Attributes:
        latest: the version that rows get which pinned none.
    """

    def __init__(self, model: Loaded, keep: int) -> None:
        self.model = model
        self.latest = model.version
        self._keep = keep
        self._kept: dict[int, dict[str, Any]] = {}  # oldest first, the latest included
        self._stay: set[int] = set()
        if keep and model.can_read:
            self._kept[self.latest] = model.state()

    def update(self, state: Mapping[str, Any], version: int) -> None:
        """Raises ValueError for weights that do not fit; the old ones stay."""
        self.model.set_state(state, version)
        self.latest = version
        if self._keep or self._stay:
            self._kept[version] = dict(state)
            old = [kept for kept in self._kept if kept not in self._stay and kept != version]
            for gone in old[: max(0, len(old) - self._keep)]:
                del self._kept[gone]

    def of(self, version: int, *, stay: bool = False) -> Loaded:
        """The model with the weights of `version` (0: the latest).

        Args:
            stay: it is kept for ever.

        Raises:
            ValueError: when they are not kept; the message names those that are.
        """
        wanted = version or self.latest
        if version and version != self.latest and version not in self._kept:
            raise ValueError(
                f"the weights of version {version} are not kept; there are {sorted({*self._kept, self.latest})}. "
                "ModelService(keep_versions=…) says how many older ones there are"
            )
        if version and stay:
            if version not in self._kept and self.model.can_change:  # the latest, which the model has
                self._kept[version] = self.model.state()
            self._stay.add(version)
        if self.model.version != wanted:
            self.model.set_state(self._kept[wanted], wanted)
        return self.model
