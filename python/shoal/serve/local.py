"""Models in the process that asks them: the same calls as to a service, answered at once."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping, Sequence
from typing import Any

import numpy as np

from shoal import _core
from shoal.errors import Cancelled, DeadlineExceeded, ModelError
from shoal.reprs import never_raises
from shoal.serve.client import refuse_batch, refuse_reset
from shoal.serve.failure import told, trace_of
from shoal.serve.loaded import Loaded
from shoal.serve.loading import check, load
from shoal.serve.recurrent import States, rows_of
from shoal.serve.structure import answer_from, arguments_from, pack_arguments, pack_rows, refusal_of

__all__ = ["LocalModel", "LocalModels"]


class LocalModels:
    """Each is loaded in this process when it is first asked for. Pickled with what they are loaded from."""

    def __init__(self, models: Mapping[str, Any], what: str = "models", device: str = "cpu") -> None:
        self._models = check(models, what)
        self._device = device
        self._loaded: dict[str, LocalModel] = {}

    def find(self, name: str) -> LocalModel:
        if name not in self._models:
            raise ValueError(f"there is no model {name!r}; there are {', '.join(self._models)}")
        if name not in self._loaded:
            self._loaded[name] = LocalModel(name, load(self._models[name], self._device))
        return self._loaded[name]

    def __reduce__(self) -> Any:
        return LocalModels, (self._models, "models", self._device)


class LocalModel:
    """A model of this process, with the interface of ServiceModel.

    Attributes:
        name: as it was given.
        version: of its weights.
    """

    def __init__(self, name: str, model: Loaded) -> None:
        self.name = name
        self._model = model
        self._states = States(model.initial_state)

    @never_raises
    def __repr__(self) -> str:
        return f"<model {self.name!r} of this process, version {self.version}>"

    @property
    def version(self) -> int:
        return self._model.version

    def __call__(self, *args: Any, timeout: float | None = None, reset: bool = False, **kwargs: Any) -> Any:
        """As ServiceModel. A model of this thread cannot be interrupted: DeadlineExceeded comes when it has answered."""
        return self._ask(args, kwargs, False, timeout, reset)

    def batch(self, *args: Any, timeout: float | None = None, **kwargs: Any) -> Any:
        refuse_reset(kwargs)
        return self._ask(args, kwargs, True, timeout)

    def submit(
        self,
        *args: Any,
        timeout: float | None = None,
        reset: bool = False,
        wait: bool = True,
        batched: bool = False,
        **kwargs: Any,
    ) -> LocalReply:
        return LocalReply(self, self._ask(args, kwargs, batched, timeout, reset, keep_error=True))

    def gather(self, replies: Sequence[LocalReply], timeout: float | None = None) -> list[Any]:
        """The results of all of them, in their order. Where one has failed, that is raised, and the others may still be asked for."""
        answers: list[Any] = []
        try:
            for reply in replies:
                answers.append(reply.result())
        except BaseException:
            for reply in replies[: len(answers)]:
                reply._open = True  # it has kept its result
            raise
        return answers

    def pin(self, version: int) -> LocalModel:
        """It has one version."""
        if version != self.version:
            raise ValueError(f"the weights of version {version} are not kept; there are [{self.version}]")
        return self

    def _ask(
        self,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        batched: bool,
        timeout: float | None,
        reset: bool = False,
        keep_error: bool = False,
    ) -> Any:
        if batched and self._model.initial_state is not None:
            refuse_batch(self.name)
        start = time.monotonic()
        leaves, structure = pack_arguments(args, kwargs)
        try:
            arrays = [np.asarray(leaf).copy(order="C") for leaf in leaves]  # the model's own, to write to
        except (TypeError, RuntimeError) as error:
            if refusal := refusal_of(leaves, self.name):
                raise refusal from error
            raise
        if batched and (len({array.shape[:1] for array in arrays}) != 1 or not arrays[0].shape or not len(arrays[0])):
            raise ValueError(
                "a batch of rows is arrays with the rows as their first dimension, as many in each and at least one"
            )
        rows = [array if batched else array[None] for array in arrays]
        try:
            count = len(rows[0]) if rows else 1
            made, shape = self._call(*arguments_from(rows, structure), reset, count)
        except Exception as error:
            failure = ModelError(told(error), traceback=trace_of(error))
            failure.__cause__ = error
            if keep_error:
                return failure
            raise failure from error
        if timeout is not None and time.monotonic() - start >= timeout:
            late = DeadlineExceeded(f"the model {self.name!r} has taken more than the {timeout} s that it had")
            if keep_error:
                return late
            raise late
        return answer_from([np.array(array if batched else array[0]) for array in made], shape)

    def _call(
        self, args: list[Any], kwargs: dict[str, Any], reset: bool, rows: int
    ) -> tuple[list[np.ndarray[Any, Any]], bytes]:
        """What pack_rows() makes of the answer. A state is kept once all of it is good."""
        if self._model.initial_state is None:
            return pack_rows(self._model(args, kwargs), rows)
        keys = [(0, _core.process.this_worker_env())]
        made, after = self._model([*args, self._states.stacked(keys, [reset], rows)], kwargs)
        answer, kept = pack_rows(made, rows), rows_of(after, rows)
        self._states.keep(keys, kept)
        return answer


class LocalReply:
    """What LocalModel.submit() returns; it has been answered.

    Attributes:
        version: of the weights.
    """

    def __init__(self, model: LocalModel, result: Any) -> None:
        self.version = model.version
        self._result = result
        self._open = True

    def done(self) -> bool:
        return True

    def cancel(self) -> None:
        self._open = False

    def __await__(self) -> Generator[Any, None, Any]:
        yield from ()
        return self.result()

    def result(self, timeout: float | None = None) -> Any:
        if not self._open:
            raise Cancelled("the request was cancelled, or its result has been taken")
        self._open = False
        if isinstance(self._result, ModelError | DeadlineExceeded):
            raise self._result
        return self._result
