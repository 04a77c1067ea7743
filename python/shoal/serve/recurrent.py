"""Models that carry a state from one row of an environment to its next: the service keeps it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shoal.reprs import never_raises
from shoal.serve.structure import answer_from, pack_rows, tree_map

__all__ = ["Recurrent", "States", "rows_of"]

Key = tuple[int, int]
"""A client, and an environment of that client."""


class Recurrent:
    """For ModelService: a model that is called as `answer, state = model(*inputs, state)`.

        shoal.ModelService({"policy": shoal.serve.Recurrent(load_policy, np.zeros(64, np.float32))})
        action = shoal.worker().model("policy")(obs, reset=first_of_the_episode)

    The service keeps a state for each environment of each client, as long as the client lives. It is asked for one row at a
    time.

    Args:
        model: as ModelService takes it.
        initial_state: of one environment, which has had no row yet or whose row says `reset`: an array, or a tuple or dict
            of arrays. The model gets and returns them stacked, the rows as the first dimension of each.
    """

    def __init__(self, model: Any, initial_state: Any) -> None:
        self.model = model
        self.initial_state = initial_state

    @never_raises
    def __repr__(self) -> str:
        model = self.model
        name = repr(model) if isinstance(model, str) else getattr(model, "__qualname__", type(model).__name__)
        return f"<Recurrent model {name}>"

    def __call__(self) -> Any:
        raise TypeError("a Recurrent is for shoal.ModelService, which keeps its states; call its model")


class States:
    """Those of one model. One thread."""

    def __init__(self, initial: Any) -> None:
        self._initial = initial
        self._of: dict[Key, Any] = {}

    def stacked(self, keys: Sequence[Key], resets: Sequence[bool], rows: int) -> Any:
        """The states of these rows, the first one's repeated up to `rows`. That of a row that says `reset` is initial from here
        on, whether it is answered or not."""
        for key, reset in zip(keys, resets, strict=True):
            if reset:
                self.begin_anew(key)
        states = [self._of.get(key, self._initial) for key in keys]
        return _stack([*states, *[states[0]] * (rows - len(states))])

    def begin_anew(self, key: Key) -> None:
        self._of.pop(key, None)

    def keep(self, keys: Sequence[Key], states: Any) -> None:
        """Those that the model has left, as rows_of() has checked them."""
        for row, key in enumerate(keys):
            self._of[key] = _row(states, row)

    def forget(self, client: int) -> None:
        for key in [key for key in self._of if key[0] == client]:
            del self._of[key]


def rows_of(states: Any, rows: int) -> Any:
    """The states that a model has returned with its answer, as arrays.

    Raises:
        ValueError: where they are not one for each row. torch's hidden states have the layers first, and the rows second.
    """
    return answer_from(*pack_rows(states, rows, "a state (torch's have it second: transpose them)"))


def _stack(states: list[Any]) -> Any:
    first = states[0]
    if isinstance(first, Mapping):
        return {name: _stack([state[name] for state in states]) for name in first}
    if isinstance(first, tuple | list):
        return tuple(_stack(list(parts)) for parts in zip(*states, strict=True))
    return np.stack([np.asarray(state) for state in states])


def _row(states: Any, row: int) -> Any:
    return tree_map(lambda array: np.array(array[row]), states)
