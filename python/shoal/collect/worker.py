"""A collector's process: it does what it is ordered to, and reports it.

Orders come through its channel, reports go into one queue of all collectors; both are pickles of tuples. What is collected
goes into blocks of the family's heap, which the caller holds; weights come out of a WeightStore.
"""

from __future__ import annotations

import contextlib
import pickle
import sys
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import numpy as np

from shoal import _core
from shoal.collect.station import Counts, Rows, Setup, Station, snapshots_of
from shoal.collect.weights import Layout, layout_of
from shoal.identity.models import set_models_here
from shoal.process._importing import importing
from shoal.process.error_report import pack_exception
from shoal.serve.structure import tree_map
from shoal.vector.preparation import Preparation, become_as_asked

__all__ = [
    "Collect",
    "Connection",
    "End",
    "Forget",
    "Hello",
    "LoadState",
    "Report",
    "Reset",
    "SaveState",
    "Weights",
    "run",
]


class Connection(NamedTuple):
    """What a collector shares with its caller: places of blocks in the heap.

    Attributes:
        place: the number of the collector.
        generation: of the process in that place, from 1 on.
        heap: of the family.
        board, reports: offset and serial.
    """

    place: int
    generation: int
    heap: int
    board: tuple[int, int]
    reports: tuple[int, int]


class Hello(NamedTuple):
    """What the caller learns of a collector that is ready."""

    observation_space: Any
    action_space: Any
    wants_tensors: bool
    is_recurrent: bool
    layout: Layout | None
    version: int


class Collect(NamedTuple):
    """An order: to fill `steps` rows of the experience in a block."""

    number: int
    block: tuple[int, int]
    envs: int
    column: int
    steps: int
    random: int


class Reset(NamedTuple):
    """An order: environment i of all starts anew with seed + i, and with an episode of this number or a later one."""

    number: int
    seed: int | None
    episodes: Any


class SaveState(NamedTuple):
    number: int


class LoadState(NamedTuple):
    number: int
    state: Any
    seed: int


class Weights(NamedTuple):
    """From here on weights come out of this store, whose descriptor waits at the family's broker, and whose first version is
    `base` + 1."""

    number: int
    fd: Any
    base: int


class Forget(NamedTuple):
    """The caller holds no state any more that names these copies of environments."""

    number: int
    copies: list[bytes]


class Report(NamedTuple):
    """What came of an order.

    Attributes:
        rows: of environments, that were made.
        missing: rows that are not valid because the order was stopped.
        version: of the weights of its rows.
        episodes: of Collect and LoadState: the number of each environment's newest episode; -1: it has had none.
        answer: of Collect, the states of a recurrent policy, before the rows and after them.
        state: of SaveState, pickled; unpickled once the caller has taken it in.
        failure: of SaveState and LoadState: what was raised instead, as pack_exception() has it.
    """

    place: int
    generation: int
    number: int
    rows: int
    missing: int
    version: int
    outputs: tuple[str, ...]
    counts: Counts
    episodes: Any = None
    answer: Any = None
    state: Any = None
    failure: tuple[str, str, str, bytes] | None = None


class End(NamedTuple):
    """The last order."""

    number: int = 0


def run(context: Any, packed: bytes, preparation: Preparation, connection: Connection) -> None:
    """The life of the process, until its caller ends it, or has ended."""
    _core.trace.open(f"collector {connection.place}")
    become_as_asked(preparation.gpus, preparation.nested)
    if context.hide_gpu and not preparation.gpus:
        _core.process.forbid_gpu()
    np.random.seed()  # processes forked from one would all draw the same numbers from NumPy's global generator
    _core.process.keep_freed_memory()
    _core.ipc.join(connection.heap)
    preparation.register()
    with importing(f"{context.name} imported what it is to collect from"):
        if preparation.models is not None:
            set_models_here(pickle.loads(preparation.models))
        setup: Setup = pickle.loads(packed)
        if preparation.config is not None:
            from shoal.identity import snapshots

            setup.make["config"] = snapshots.restore(preparation.config)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)
    _Process(context, setup, connection).run()


class _Process:
    def __init__(self, context: Any, setup: Setup, connection: Connection) -> None:
        self._context = context
        self._place = connection.place
        self._generation = connection.generation
        self._board = _core.collect.ProgressBoard(_core.ipc.acquire(*connection.board))
        self._reports = _core.ipc.Queue(_core.ipc.acquire(*connection.reports))
        self._store: _core.collect.WeightStore | None = None
        self._base = 0
        self._taken = 0  # the version of the store that the policy has
        self._station = Station(setup, self._board, self._place)
        self._layouts: dict[int, Any] = {}
        self._newest = 0  # order
        self._held: dict[bytes, Any] = {}  # snapshots that the caller holds, by the copies in them
        weights = self._station.actor.weights()
        self._weights_layout = None if weights is None else layout_of(weights)
        hello = Hello(
            self._station.single_observation_space,
            self._station.single_action_space,
            self._station.wants_tensors,
            self._station.is_recurrent,
            self._weights_layout,
            self._station.version,
        )
        context.send(pickle.dumps(hello))

    def run(self) -> None:
        try:
            while (message := self._context.recv()) is not None:
                order = pickle.loads(message)
                if isinstance(order, End):
                    return
                if order.number and order.number <= self._newest:
                    continue  # sent again: a signal had interrupted who sent it
                self._newest = max(self._newest, order.number)
                self._board.give_sign(self._place)
                with _inference():
                    getattr(self, f"_{type(order).__name__.lower()}")(order)
        finally:
            self._station.close()

    def _collect(self, order: Collect) -> None:
        self._take_weights()
        layout = self._layouts.get(order.envs)
        if layout is None:
            layout = self._layouts[order.envs] = _core.collect.ExperienceLayout(
                self._station.single_observation_space,
                self._station.single_action_space,
                order.envs,
                self._station.setup.next_obs,
            )
        experience = layout.attach(_core.ipc.acquire(*order.block), order.steps)
        arrays = layout.arrays(experience)
        rows = Rows(experience, order.column, 0, order.steps, order.random, order.number)
        missing = self._station.collect(arrays, rows)
        if self._context.hide_gpu:
            _core.process.check_gpu()
        setup = self._station.setup
        last = arrays["episode_id"][order.steps - 1, order.column : order.column + setup.count]
        self._report(
            order.number,
            rows=order.steps * setup.count - missing,
            missing=missing,
            episodes=last // setup.total,
            answer=tree_map(_plain, self._station.states()),
        )

    def _reset(self, order: Reset) -> None:
        self._station.reset(order.seed)
        self._station.begin_at(order.episodes)
        self._report(order.number)

    def _savestate(self, order: SaveState) -> None:
        try:
            state = self._station.state()
            packed = pickle.dumps(state)
        except Exception as error:
            self._report(order.number, failure=pack_exception(error))
            return
        self._held |= {key: snapshot for snapshot in snapshots_of(state) for key in snapshot.copies}
        self._report(order.number, state=packed)

    def _forget(self, order: Forget) -> None:
        for key in order.copies:
            self._held.pop(key, None)

    def _loadstate(self, order: LoadState) -> None:
        try:
            self._station.check_state(order.state)
            self._station.load_state(order.state, order.seed)
        except Exception as error:
            self._report(order.number, failure=pack_exception(error))
            return
        self._store = None  # whose weights were newer than this state, or older
        self._report(order.number, episodes=self._station.episodes())

    def _weights(self, order: Weights) -> None:
        self._store = _core.collect.WeightStore.attach(order.fd.detach())
        self._base = order.base
        self._taken = 0

    def _take_weights(self) -> None:
        """The newest weights, for the rows that follow."""
        if self._store is None or self._store.version == self._taken:
            return
        assert self._weights_layout is not None
        flat = np.empty(self._store.nbytes, np.uint8)
        self._taken = self._store.read(flat)
        self._station.update_weights(self._weights_layout.unpack(flat))
        self._station.set_version(self._base + self._taken)

    def _report(self, number: int, rows: int = 0, missing: int = 0, **more: Any) -> None:
        station = self._station
        outputs = tuple(station.outputs)
        report = Report(
            self._place, self._generation, number, rows, missing, station.version, outputs, station.counts(), **more
        )
        self._reports.put_bytes(pickle.dumps(report))


def _inference() -> AbstractContextManager[Any]:
    """Torch computes without a record of what autograd would need. In the caller's process it does not go so far: a module may
    keep a tensor that was made there, and train with it later. What is here is a copy, which nobody trains.
    """
    torch = sys.modules.get("torch")
    return contextlib.nullcontext() if torch is None else torch.inference_mode()


def _plain(value: Any) -> Any:
    """An array in the place of a tensor: which of them it is to be, the caller knows."""
    return value.detach().cpu().numpy() if hasattr(value, "detach") else np.asarray(value)
