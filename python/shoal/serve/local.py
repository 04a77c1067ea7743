"""Models in the process that asks them: the same calls as to a service, answered at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shoal.errors import Cancelled, ModelError
from shoal.serve.loading import Loaded, check, load
from shoal.serve.structure import answer_from, arguments_from, pack_answer, pack_arguments

__all__ = ["LocalModel", "LocalModels"]


class LocalModels:
    """Each is loaded in this process when it is first asked for. Pickled with what they are loaded from."""

    def __init__(self, models: Mapping[str, Any], what: str = "models") -> None:
        self._models = check(models, what)
        self._loaded: dict[str, LocalModel] = {}

    def find(self, name: str) -> LocalModel:
        if name not in self._models:
            raise ValueError(f"there is no model {name!r}; there are {', '.join(self._models)}")
        if name not in self._loaded:
            self._loaded[name] = LocalModel(name, load(self._models[name]))
        return self._loaded[name]

    def __reduce__(self) -> Any:
        return LocalModels, (self._models,)


class LocalModel:
    """A model of this process, with the interface of ServiceModel.

    Attributes:
        name: as it was given.
        version: of its weights.
    """

    def __init__(self, name: str, model: Loaded) -> None:
        self.name = name
        self._model = model

    @property
    def version(self) -> int:
        return self._model.version

    def __call__(self, *args: Any, timeout: float | None = None, **kwargs: Any) -> Any:
        """As ServiceModel; `timeout` has no effect: nobody else is waited for."""
        return self._ask(args, kwargs, batched=False)

    def batch(self, *args: Any, timeout: float | None = None, **kwargs: Any) -> Any:
        return self._ask(args, kwargs, batched=True)

    def submit(self, *args: Any, timeout: float | None = None, **kwargs: Any) -> LocalReply:
        return LocalReply(self, args, kwargs)

    def gather(self, replies: Sequence[LocalReply], timeout: float | None = None) -> list[Any]:
        return [reply.result() for reply in replies]

    def _ask(self, args: Sequence[Any], kwargs: Mapping[str, Any], *, batched: bool) -> Any:
        leaves, structure = pack_arguments(args, kwargs)
        arrays = [np.ascontiguousarray(leaf) for leaf in leaves]
        rows = [array if batched else array[None] for array in arrays]
        try:
            answer, shape = pack_answer(self._model(*arguments_from(rows, structure)))
        except Exception as error:
            raise ModelError(f"{type(error).__name__}: {error}") from error
        return answer_from([np.array(array if batched else array[0]) for array in answer], shape)


class LocalReply:
    """What ServiceModel.submit() returns, answered when it is first asked for."""

    def __init__(self, model: LocalModel, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        # The caller may write into its arrays after submit().
        leaves, self._structure = pack_arguments(args, kwargs)
        self._leaves = [np.array(leaf) for leaf in leaves]
        self._model = model
        self._open = True

    def done(self) -> bool:
        return self._open

    def cancel(self) -> None:
        self._open = False

    def result(self, timeout: float | None = None) -> Any:
        if not self._open:
            raise Cancelled("the request was cancelled, or its result has been taken")
        self._open = False
        args, kwargs = arguments_from(self._leaves, self._structure)
        return self._model(*args, **kwargs)
