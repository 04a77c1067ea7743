"""A module of torch on a CUDA device: a stream of its own, page-locked staging, and a CUDA graph for each size of batch."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np

from shoal.process.error_report import first_line
from shoal.serve.in_python import InPython
from shoal.serve.structure import tree_map

__all__ = ["Cuda", "DeviceLost", "OnCuda"]

_MOST_GRAPHS = 64  # of one model: each holds memory of the device
_WARM_UP = 3  # runs before a capture: libraries choose algorithms and take workspaces in the first ones

_capturing = threading.Lock()  # a capture begins by waiting for the device, which would end another thread's

Kind = tuple[int, str]
"""Rows, and what the arguments are: their nesting, shapes and dtypes."""


class DeviceLost(BaseException):
    """Nothing more can be computed on the device in this process, which is to end: another one can.

    It is kept for ever, and with it the frames that it came through: torch aborts a process in which a tensor of a lost device is freed,
    before anybody has been told why it ends.
    """

    _kept: ClassVar[list[DeviceLost]] = []

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)
        self._kept.append(self)


class OnCuda(InPython):
    """Rows are copied to the device and answers from it by its own stream, while clients write the next batch.

    Batches of the sizes in `captured` are run as CUDA graphs, one for each size and kind of row: one launch in the place of one an
    operator. A module that cannot be captured, because it looks at values on the host in mid-run, runs as it is, and is
    told of once. New weights are copied to where the old ones are, so graphs outlive them.

    Args:
        captured: sizes of batches.
        cuda: what is asked of torch.cuda, for a test without a device.
    """

    def __init__(self, model: Any, device: str, captured: Collection[int], cuda: Any = None) -> None:
        super().__init__(model, device)
        self._cuda = Cuda(self._device) if cuda is None else cuda
        self._captured = frozenset(captured)
        self._graphs: dict[Kind, _Graph] = {}
        self._places = self._weights_at()

    def __call__(self, args: list[np.ndarray[Any, Any]], kwargs: dict[str, Any]) -> Any:
        try:
            with self._torch.inference_mode(), self._cuda.stream():
                return self._answered((args, kwargs))
        except Exception as error:
            if self._cuda.is_lost():
                raise DeviceLost(f"the device has failed: {error}") from error
            raise

    def state(self) -> dict[str, Any]:
        with self._cuda.stream():
            return super().state()

    def set_state(self, state: Mapping[str, Any], version: int) -> None:
        try:
            with self._cuda.stream():
                super().set_state(state, version)
        finally:
            if (places := self._weights_at()) != self._places:  # a module's own way to load them
                self._places = places
                self._graphs.clear()
                self._cuda.renew_pool()

    def lend(self, rows: list[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        return rows  # what it computes on are copies on the device

    def _answered(self, asked: Any) -> Any:
        kind = _kind(asked)
        if graph := self._graphs.get(kind):
            tree_map(self._refill, graph.inputs, asked)
            graph.replay()
            return self._fetched(graph.answer)
        inputs = tree_map(self._cuda.upload, asked)
        answer = self._run(inputs)
        fetched = self._fetched(answer)
        if kind[0] in self._captured and len(self._graphs) < _MOST_GRAPHS:
            self._capture(kind, asked, inputs, answer)
        return fetched

    def _run(self, inputs: Any) -> Any:
        args, kwargs = inputs
        return self.model(*args, **kwargs)

    def _capture(self, kind: Kind, asked: Any, inputs: Any, answer: Any) -> None:
        try:
            tree_map(self._check_on_device, answer)
            tree_map(self._refill, inputs, asked)  # a run may have written to them
            for _ in range(_WARM_UP):
                self._run(inputs)
                tree_map(self._refill, inputs, asked)
            replay, answer = self._cuda.capture(lambda: self._run(inputs))
        except Exception as error:
            if self._cuda.is_lost():
                raise
            self._captured = frozenset()
            print(
                f"model service: a {type(self.model).__name__} cannot be captured as a CUDA graph and runs without: "
                f"{first_line(error).rstrip('.')}. ModelService(buckets=()) does not try",
                file=sys.stderr,
                flush=True,
            )
            return
        self._graphs[kind] = _Graph(replay, inputs, answer)

    def _refill(self, tensor: Any, array: np.ndarray[Any, Any]) -> None:
        tensor.copy_(self._cuda.pinned(array), non_blocking=True)

    def _check_on_device(self, value: Any) -> None:
        if not isinstance(value, self._torch.Tensor) or value.device.type != self._device.type:
            raise ValueError("it answers with what is not on the device")

    def _fetched(self, answer: Any) -> Any:
        fetched = tree_map(self._fetch, answer)
        self._cuda.wait()
        return fetched

    def _fetch(self, value: Any) -> Any:
        return self._cuda.download(value) if isinstance(value, self._torch.Tensor) else value

    def _weights_at(self) -> Any:
        """Addresses, to be compared; equal to no others where there are none."""
        try:
            return [value.data_ptr() for value in (*self.model.parameters(), *self.model.buffers())]
        except (RuntimeError, ValueError):  # sparse ones, lazy ones
            return object()


class Cuda:
    """What OnCuda asks of torch.cuda: one stream of one device."""

    def __init__(self, device: Any) -> None:
        import torch

        self._torch = torch
        self._device = device
        self._stream = torch.cuda.Stream(device)
        self._stream.wait_stream(torch.cuda.current_stream(device))  # where the model was made
        self.renew_pool()
        # The executor sleeps while the device computes: the workers need the CPUs.
        self._done = torch.cuda.Event(blocking=True)

    @contextlib.contextmanager
    def stream(self) -> Iterator[None]:
        """What is asked within goes to the stream, in that order."""
        with self._torch.cuda.stream(self._stream):
            yield

    def pinned(self, array: np.ndarray[Any, Any]) -> Any:
        """A copy in page-locked memory, which torch keeps for the next one once the stream has read it."""
        return self._torch.from_numpy(array).pin_memory()

    def upload(self, array: np.ndarray[Any, Any]) -> Any:
        return self.pinned(array).to(self._device, non_blocking=True)

    def download(self, tensor: Any) -> Any:
        """There after wait(); in page-locked memory, as torch makes what is not waited for."""
        return tensor.to("cpu", non_blocking=True)

    def wait(self) -> None:
        self._done.record(self._stream)
        self._done.synchronize()

    def is_lost(self) -> bool:
        """Whether a failure was of the device's context, after which everything fails."""
        try:
            self.wait()
        except RuntimeError:
            return True
        return False

    def capture(self, run: Callable[[], Any]) -> tuple[Callable[[], None], Any]:
        """Of run(): what replays it, and its answer, which each replay writes anew. What run() raised, where it cannot be.

        Graphs of one model share their memory: no two are under way at once, and an answer is fetched before the next replay.
        """
        graph = self._torch.cuda.CUDAGraph()
        cause: list[Exception] = []
        try:
            with (
                _capturing,
                self._torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"),
            ):
                try:
                    answer = run()
                except Exception as error:
                    cause.append(error)
                    raise
        except Exception:
            self.renew_pool()
            if cause:  # the end of the capture raises something else, which says that there was an error
                raise cause[0] from None
            raise
        return graph.replay, answer

    def renew_pool(self) -> None:
        """For what is captured from now on: one whose graphs have gone may not be captured into again."""
        self._pool = self._torch.cuda.graph_pool_handle()


class _Graph(NamedTuple):
    replay: Callable[[], None]
    inputs: Any
    answer: Any


def _kind(asked: Any) -> Kind:
    rows: list[int] = []

    def describe(array: np.ndarray[Any, Any]) -> tuple[Any, str]:
        rows.append(len(array))
        return array.shape[1:], array.dtype.str

    described = repr(tree_map(describe, asked))
    return rows[0] if rows else 0, described
