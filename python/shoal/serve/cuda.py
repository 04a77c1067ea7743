"""A module of torch on a CUDA device: a stream of its own, page-locked staging, and a CUDA graph for each size of batch."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from shoal.serve.loading import InPython
from shoal.serve.structure import tree_map

__all__ = ["Cuda", "OnCuda"]

_MOST_GRAPHS = 64  # of one model: each holds memory of the device
_WARM_UP = 3  # runs before a capture: libraries choose algorithms and take workspaces in the first ones

Kind = tuple[int, Any]
"""Rows, and what the arguments are: their nesting, shapes and dtypes."""


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
        kind = _kind(args, kwargs)
        with self._torch.inference_mode(), self._cuda.stream():
            if graph := self._graphs.get(kind):
                tree_map(self._refill, graph.inputs, (args, kwargs))
                graph.replay()
                return self._fetched(graph.answer)
            inputs = tree_map(self._cuda.upload, (args, kwargs))
            fetched = self._fetched(self._run(inputs))
            if kind[0] in self._captured and len(self._graphs) < _MOST_GRAPHS:
                self._capture(kind, inputs)
            return fetched

    def state(self) -> dict[str, Any]:
        with self._cuda.stream():
            return super().state()

    def set_state(self, state: Mapping[str, Any], version: int) -> None:
        with self._cuda.stream():
            super().set_state(state, version)
        if (places := self._weights_at()) != self._places:  # a module's own way to load them
            self._graphs.clear()
            self._places = places

    def _run(self, inputs: Any) -> Any:
        args, kwargs = inputs
        return self.model(*args, **kwargs)

    def _capture(self, kind: Kind, inputs: Any) -> None:
        for _ in range(_WARM_UP):
            self._run(inputs)
        try:
            replay, answer = self._cuda.capture(lambda: self._run(inputs))
        except RuntimeError as error:
            self._captured = frozenset()
            print(
                f"model service: a {type(self.model).__name__} cannot be captured as a CUDA graph and runs without: "
                f"{str(error).splitlines()[0]}. ModelService(buckets=()) does not try",
                file=sys.stderr,
                flush=True,
            )
            return
        self._graphs[kind] = _Graph(replay, inputs, answer)

    def _refill(self, tensor: Any, array: np.ndarray[Any, Any]) -> None:
        tensor.copy_(self._cuda.pinned(array), non_blocking=True)

    def _fetched(self, answer: Any) -> Any:
        fetched = tree_map(self._fetch, answer)
        self._cuda.wait()
        return fetched

    def _fetch(self, value: Any) -> Any:
        return self._cuda.download(value) if isinstance(value, self._torch.Tensor) else value

    def _weights_at(self) -> list[int]:
        return [value.data_ptr() for value in self.model.state_dict().values() if isinstance(value, self._torch.Tensor)]


class Cuda:
    """What OnCuda asks of torch.cuda: one stream of one device."""

    def __init__(self, device: Any) -> None:
        import torch

        self._torch = torch
        self._device = device
        self._stream = torch.cuda.Stream(device)
        self._stream.wait_stream(torch.cuda.current_stream(device))  # where the model was made
        self._pool = torch.cuda.graph_pool_handle()
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

    def capture(self, run: Callable[[], Any]) -> tuple[Callable[[], None], Any]:
        """Of run(): what replays it, and its answer, which each replay writes anew.

        Graphs of one model share their memory: no two are under way at once, and an answer is fetched before the next replay.
        """
        graph = self._torch.cuda.CUDAGraph()
        with self._torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
            answer = run()
        return graph.replay, answer


class _Graph(NamedTuple):
    replay: Callable[[], None]
    inputs: Any
    answer: Any


def _kind(args: Any, kwargs: Any) -> Kind:
    rows: list[int] = []

    def describe(array: np.ndarray[Any, Any]) -> tuple[Any, str]:
        rows.append(len(array))
        return array.shape[1:], array.dtype.str

    described = repr(tree_map(describe, (args, kwargs)))
    return rows[0] if rows else 0, described
