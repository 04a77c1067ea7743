"""The executor of a service: loads the models, and answers batches until nobody wants it any more."""

from __future__ import annotations

import bisect
import pickle
import traceback
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from shoal import _core
from shoal.process._importing import importing
from shoal.serve.loading import Loaded, load
from shoal.serve.structure import arguments_from, pack_answer

__all__ = ["Executor", "Plan", "run"]


class Plan(NamedTuple):
    """What the servers of a service are to do, all the same.

    Attributes:
        names: of the models.
        max_batch, max_delay: rows and seconds.
        buckets: batch sizes that the models are to see, ascending, max_batch among them; empty: any.
        device: for torch's modules.
    """

    names: tuple[str, ...]
    max_batch: int
    max_delay: float
    buckets: tuple[int, ...]
    device: str


def run(context: Any, address: str, instance: int, packed: bytes, plan: Plan) -> None:
    """The life of a server process. `packed` are the models, pickled."""
    with importing(f"{context.name} imported what its models need"):
        models = pickle.loads(packed)
    loaded = []
    for name, model in zip(plan.names, models, strict=True):
        try:
            loaded.append(load(model, plan.device))
        except Exception as error:
            if hasattr(error, "add_note"):
                error.add_note(f"model {name!r} of a service: while it was loaded")
            raise
    Executor(address, instance, loaded, plan).run()


class Executor:
    """Answers what its server hands it. One thread, which alone calls the models."""

    def __init__(self, address: str, instance: int, models: Sequence[Loaded], plan: Plan) -> None:
        """Connects to the front desk: from here on clients come."""
        self._models = list(models)
        self._plan = plan
        described = [(name, plan.max_batch, plan.max_delay) for name in plan.names]
        self._server = _core.serve.Server(address, instance, described)
        for i, model in enumerate(self._models):
            self._server.set_version(i, model.version, False)

    def run(self) -> None:
        """Until the service is closed, or its maker has ended."""
        handlers = {
            _core.serve.Batch: self._answer,
            _core.serve.Probe: self._probe,
            _core.serve.Command: self._obey,
        }
        while True:
            work = self._server.next()
            handler = handlers.get(type(work))
            if handler is not None:
                handler(work)
            elif work.client == 0:
                return

    def _answer(self, batch: _core.serve.Batch) -> None:
        rows = batch.rows
        padded = self._bucket(rows)
        model = self._models[batch.model]
        try:
            self._ask(model, batch, batch.inputs(padded), 0, rows)
        except Exception:
            self._answer_singly(model, batch, traceback.format_exc())
        batch.finish(padded - rows)

    def _answer_singly(self, model: Loaded, batch: _core.serve.Batch, failure: str) -> None:
        """A row that the model fails on costs the others of its batch nothing but time."""
        if batch.rows == 1:
            batch.fail(0, failure.rstrip(), model.version)
            return
        size = self._bucket(1)
        for row in range(batch.rows):
            inputs = [np.repeat(array, size, axis=0) for array in batch.one_input(row)]
            try:
                self._ask(model, batch, inputs, row, 1)
            except Exception:
                batch.fail(row, traceback.format_exc().rstrip(), model.version)

    @staticmethod
    def _ask(model: Loaded, batch: _core.serve.Batch, inputs: list[Any], first: int, count: int) -> None:
        answer, _ = pack_answer(model(*arguments_from(inputs, batch.structure)))
        batch.reply(answer, model.version, first, count)

    def _bucket(self, rows: int) -> int:
        buckets = self._plan.buckets
        return buckets[bisect.bisect_left(buckets, rows)] if buckets else rows

    def _probe(self, probe: _core.serve.Probe) -> None:
        size = self._bucket(1)
        inputs = [np.repeat(array, size, axis=0) for array in probe.inputs()]
        try:
            answer, structure = pack_answer(self._models[probe.model](*arguments_from(inputs, probe.structure)))
            for array in answer:
                if array.ndim == 0 or array.shape[0] != size:
                    raise ValueError(
                        f"the model answered a batch of {size} rows with an array of shape {array.shape}: the first "
                        "dimension of an answer is the rows"
                    )
        except Exception as error:
            probe.refuse(f"{type(error).__name__}: {error}", traceback.format_exc())
            return
        probe.open(answer, structure)

    def _obey(self, command: _core.serve.Command) -> None:
        """The owner's commands are (method, arguments), pickled; so are the answers: (result, None) or (None, error)."""
        try:
            name, arguments = pickle.loads(command.bytes)
            answer: tuple[Any, Any] = (getattr(self, f"do_{name}")(*arguments), None)
        except Exception as error:
            answer = (None, (f"{type(error).__name__}: {error}", traceback.format_exc()))
        command.answer(pickle.dumps(answer))
