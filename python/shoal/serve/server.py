"""The executor of a service: loads the models, and answers batches until nobody wants it any more."""

from __future__ import annotations

import bisect
import pickle
import resource
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from shoal import _core
from shoal.process._importing import importing
from shoal.serve.arguments import checked_version
from shoal.serve.failure import text_of, told, trace_of
from shoal.serve.loaded import Loaded, Shapes
from shoal.serve.loading import load
from shoal.serve.recurrent import States, rows_of
from shoal.serve.structure import MAY_BE_BATCHED, NOT_BATCHED, WHETHER_BATCHED, arguments_from, arranged, pack_rows
from shoal.serve.weights import Weights, unpack_state

__all__ = ["Executor", "Plan", "run"]


class Plan(NamedTuple):
    """What the servers of a service are to do, all the same.

    Attributes:
        names: of the models.
        max_batch, max_delay: rows and seconds.
        buckets: batch sizes that the models are to see, ascending, max_batch among them; empty: any.
        device: for torch's modules.
        keep_versions: of weights, beside the latest, that clients may pin.
    """

    names: tuple[str, ...]
    max_batch: int
    max_delay: float
    buckets: tuple[int, ...]
    device: str
    keep_versions: int


_OPEN_FILES = 65536
"""Descriptors that a server process may have, where the hard limit allows it."""
Update = tuple[int, int, bytes]
"""Number of the model, version, and pack_state()'s bytes."""
Answer = tuple[Any, tuple[str, str] | None]
"""To a command: what it returned, and None or what failed and its traceback."""


def run(context: Any, address: str, instance: int, packed: bytes, plan: Plan, updates: Sequence[Update] = ()) -> None:
    """The life of a server process.

    Args:
        packed: the models, pickled.
        updates: of their weights, since they were packed: of each model the newest that fits.
    """
    _core.process.keep_freed_memory()  # a batch's arrays are those of the one before
    _raise_open_files()
    with importing(f"{context.name} imported what its models need"):
        models = pickle.loads(packed)
    loaded = []
    for name, model in zip(plan.names, models, strict=True):
        try:
            loaded.append(load(model, plan.device, plan.buckets))
        except Exception as error:
            if hasattr(error, "add_note"):
                error.add_note(f"model {name!r} of a service: while it was loaded")
            raise
    Executor(address, instance, loaded, plan, updates).run()


def _raise_open_files() -> None:
    """Each client takes two descriptors of its server."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < enough:
        resource.setrlimit(resource.RLIMIT_NOFILE, (enough, hard))


class Executor:
    """Answers what its server hands it. One thread, which alone calls the models."""

    def __init__(
        self, address: str, instance: int, models: Sequence[Loaded], plan: Plan, updates: Sequence[Update] = ()
    ) -> None:
        """Connects to the frontend: from here on clients come."""
        self._states = [None if model.initial_state is None else States(model.initial_state) for model in models]
        self._models = [Weights(model, plan.keep_versions) for model in models]
        self._plan = plan
        self._take_newest(updates)
        described = [(name, plan.max_batch, plan.max_delay) for name in plan.names]
        self._server = _core.serve.Server(address, instance, described)
        for i, model in enumerate(self._models):
            self._server.set_version(i, model.latest, False)

    def _take_newest(self, updates: Sequence[Update]) -> None:
        """Of each model's updates, which come with growing versions, the last that it takes."""
        taken: set[int] = set()
        for number, version, state in reversed(updates):
            if number in taken:
                continue
            try:
                self._models[number].update(unpack_state(state), version)
                taken.add(number)
            except Exception as error:
                print(
                    f"model service: the weights of version {version} of the model {self._plan.names[number]!r} cannot be "
                    f"loaded, so it gets older ones: {text_of(error)}",
                    file=sys.stderr,
                    flush=True,
                )

    def run(self) -> None:
        """Until the service is closed, or its maker has ended."""
        handlers: dict[type, Callable[[Any], None]] = {
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
            else:
                for states in self._states:
                    if states is not None:
                        states.forget(work.client)

    def _answer(self, batch: _core.serve.Batch) -> None:
        rows = batch.rows
        padded = self._bucket(rows)
        keys = batch.envs
        try:
            model = self._models[batch.model].of(batch.pinned)
        except Exception as error:  # also what the model says of loading its weights
            for row in range(rows):
                self._fail(batch, row, error, 0)
            batch.finish()
            return
        try:
            if self._states[batch.model] is not None and len(set(keys)) < rows:
                # An environment's second row needs the state that its first one leaves.
                padded = rows
                self._answer_singly(model, batch, None)
            else:
                inputs = batch.inputs(padded)
                self._ask(model, batch, model.lend(inputs) if rows > 1 else inputs, 0, rows)
        except Exception as error:
            model.gets_copies = True
            self._answer_singly(model, batch, error)
        batch.finish(padded - rows)

    def _answer_singly(self, model: Loaded, batch: _core.serve.Batch, failure: Exception | None) -> None:
        """A row that the model fails on costs the others of its batch nothing but time.

        Args:
            failure: of the whole batch.
        """
        if batch.rows == 1 and failure is not None:
            self._fail(batch, 0, failure, model.version)
            return
        size = self._bucket(1)
        for row in range(batch.rows):
            inputs = [np.repeat(array, size, axis=0) for array in batch.one_input(row)]
            try:
                self._ask(model, batch, inputs, row, 1)
            except Exception as error:
                self._fail(batch, row, error, model.version)

    def _fail(self, batch: _core.serve.Batch, row: int, failure: Exception, version: int) -> None:
        states = self._states[batch.model]
        if states is not None and batch.resets[row]:
            states.begin_anew(batch.envs[row])
        batch.fail(row, told(failure), trace_of(failure), version)

    def _ask(self, model: Loaded, batch: _core.serve.Batch, inputs: list[Any], first: int, count: int) -> None:
        args, kwargs = arguments_from(inputs, batch.structure)
        size = inputs[0].shape[0] if inputs else count
        states = self._states[batch.model]
        if states is None:
            batch.reply(_answer_of(batch, model(args, kwargs), size), model.version, first, count)
            return
        keys, resets = batch.envs[first : first + count], batch.resets[first : first + count]
        made, after = model([*args, states.stacked(keys, resets, size)], kwargs)
        answer = _answer_of(batch, made, size)
        kept = rows_of(after, size)
        batch.reply(answer, model.version, first, count)
        states.keep(keys, kept)

    def _bucket(self, rows: int) -> int:
        buckets = self._plan.buckets
        return buckets[bisect.bisect_left(buckets, rows)] if buckets else rows

    def _probe(self, probe: _core.serve.Probe) -> None:
        states = self._states[probe.model]
        if probe.structure == WHETHER_BATCHED:
            probe.refuse(MAY_BE_BATCHED if states is None else NOT_BATCHED, model_error=False)
            return
        size = self._bucket(1)
        inputs = [np.repeat(array, size, axis=0) for array in probe.inputs()]
        try:
            model = self._models[probe.model].of(probe.pinned, stay=True)
        except Exception as error:  # also what the model says of reading and loading its weights
            probe.refuse(text_of(error), model_error=False)
            return
        try:
            args, kwargs = arguments_from(inputs, probe.structure)
            if states is not None:
                args = [*args, states.stacked([(0, 0)], [True], size)]
            made = model(args, kwargs)
            if states is not None:
                made, after = made
                rows_of(after, size)
            probe.open(*pack_rows(made, size))
        except Exception as error:
            probe.refuse(told(error), trace_of(error))
        examples = [np.repeat(array, size, axis=0) for array in probe.inputs()]
        if any(given.tobytes() != sent.tobytes() for given, sent in zip(inputs, examples, strict=True)):
            model.gets_copies = True

    def do_shapes(self) -> list[Shapes | None]:
        """Of the models' weights, by number."""
        return [weights.model.shapes() for weights in self._models]

    def do_update(self, number: int, version: int, state: bytes) -> None:
        version = checked_version("update(version=…)", version)  # before the model has weights that nothing can name
        self._models[number].update(unpack_state(state), version)
        self._server.set_version(number, version, True)

    def _obey(self, command: _core.serve.Command) -> None:
        """The owner's commands are (name, arguments), pickled; so are the answers."""
        answer: Answer
        try:
            name, arguments = pickle.loads(command.bytes)
            answer = getattr(self, f"do_{name}")(*arguments), None
        except Exception as error:
            answer = None, (text_of(error), trace_of(error))
            print(f"model service: {name} failed: {text_of(error)}", file=sys.stderr, flush=True)
        command.answer(pickle.dumps(answer))


def _answer_of(batch: _core.serve.Batch, made: Any, size: int) -> list[np.ndarray[Any, Any]]:
    """The arrays of what a model made of so many rows, in the order of the queue's first answer."""
    answer, structure = pack_rows(made, size)
    wanted = batch.answer_structure
    return answer if structure == wanted else arranged(answer, structure, wanted)
