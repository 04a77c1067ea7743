"""Modules on a CUDA device: what is captured when, on a stand-in for torch.cuda that computes on the CPU."""

from __future__ import annotations

import contextlib
import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import shoal  # noqa: E402
from served_modules import AnswersOnHost, Drifts, Looks, Moves, MovesBuffer, Nested, Scale, Sparse  # noqa: E402
from shoal.serve.cuda import DeviceLost, OnCuda  # noqa: E402
from shoal.serve.in_python import InPython  # noqa: E402
from shoal.serve.structure import tree_map  # noqa: E402


class StandIn:
    """Of shoal.serve.cuda.Cuda. A captured run reads and writes the tensors that it was captured with, as a graph does; what
    is downloaded is there after wait() only."""

    def __init__(self) -> None:
        self.captures = self.replays = self.waits = self.pools = 0
        self.lost = False
        self._inside = self._capturing = False
        self._pending: list[tuple[Any, Any]] = []

    @contextlib.contextmanager
    def stream(self) -> Iterator[None]:
        assert not self._inside
        self._inside = True
        try:
            yield
        finally:
            self._inside = False

    def pinned(self, array: np.ndarray[Any, Any]) -> Any:
        assert self._inside
        return torch.from_numpy(array).clone()

    def upload(self, array: np.ndarray[Any, Any]) -> Any:
        return self.pinned(array)

    def download(self, tensor: Any) -> Any:
        assert self._inside and not self._capturing
        there = torch.full_like(tensor, 77)
        self._pending.append((there, tensor.clone()))
        return there

    def is_lost(self) -> bool:
        return self.lost

    def renew_pool(self) -> None:
        self.pools += 1

    def wait(self) -> None:
        self.waits += 1
        for there, tensor in self._pending:
            there.copy_(tensor)
        self._pending.clear()

    def capture(self, run: Callable[[], Any]) -> tuple[Callable[[], None], Any]:
        assert self._inside
        self.captures += 1
        self._capturing = True
        try:
            with Unseen():
                answer = run()
        finally:
            self._capturing = False

        def replay() -> None:
            assert self._inside
            self.replays += 1
            tree_map(lambda old, new: old.copy_(new), answer, run())

        return replay, answer


class Unseen(torch.overrides.TorchFunctionMode):
    """Nobody looks at a value while a graph is captured."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(function, "__name__", "") == "item":
            raise RuntimeError("operation not permitted when stream is capturing\nmore about it")
        return function(*args, **(kwargs or {}))


def rows(count: int, start: float = 0.0) -> np.ndarray[Any, Any]:
    return np.arange(start, start + 3 * count, dtype=np.float32).reshape(count, 3)


def test_each_size_is_captured_once_and_replayed() -> None:
    cuda = StandIn()
    model = OnCuda(Scale(), "cpu", (2, 4), cuda)
    for count in (2, 4, 3):
        for start in (0.0, 5.0, 9.0):
            asked = rows(count, start)
            answer = model([asked.copy()], {})
            np.testing.assert_array_equal(answer.numpy(), 2 * asked)
    assert (cuda.captures, cuda.replays) == (2, 4)


def test_kinds_of_rows_have_graphs_of_their_own() -> None:
    cuda = StandIn()
    model = OnCuda(Scale(), "cpu", (2,), cuda)
    for dtype in (np.float32, np.float64):
        for length in (1, 5):
            for _ in range(2):
                asked = np.ones((2, length, 3), dtype)
                assert model([asked], {}).shape == (2, length, 3)
    assert (cuda.captures, cuda.replays) == (4, 4)


def test_arguments_and_answers_are_nested() -> None:
    cuda = StandIn()
    model = OnCuda(Nested(), "cpu", (2,), cuda)
    for start in (0.0, 1.0, 2.0):
        x, y = rows(2, start), rows(2, 10 * start)
        answer = model([x], {"more": {"y": y}})
        np.testing.assert_array_equal(answer["sum"].numpy(), x + y)
        np.testing.assert_array_equal(answer["both"][0].numpy(), x)
        np.testing.assert_array_equal(answer["both"][1][0].numpy(), y)
    assert (cuda.captures, cuda.replays) == (1, 2)


def test_an_answer_stays_as_it_was_when_the_next_batch_runs() -> None:
    model = OnCuda(Scale(), "cpu", (1,), StandIn())
    first, second, third = (model([rows(1, start)], {}) for start in (1.0, 2.0, 3.0))
    assert [answer[0, 0].item() for answer in (first, second, third)] == [2.0, 4.0, 6.0]


def test_graphs_outlive_new_weights() -> None:
    cuda = StandIn()
    model = OnCuda(Scale(), "cpu", (1,), cuda)
    model([rows(1, 1.0)], {})
    before = model.state()
    model.set_state({"by": np.full(3, 5.0, np.float32)}, 2)
    assert model([rows(1, 1.0)], {})[0, 0] == 5.0 and model.version == 2
    model.set_state(before, 1)
    assert model([rows(1, 1.0)], {})[0, 0] == 2.0
    assert (cuda.captures, cuda.replays) == (1, 2)


@pytest.mark.parametrize("module", [Moves, MovesBuffer, Sparse])
def test_weights_that_move_are_captured_anew(module: Any) -> None:
    cuda = StandIn()
    model = OnCuda(module(), "cpu", (1,), cuda)
    before = model([rows(1, 1.0)], {})[0, 0].item()
    model.set_state({**model.state(), "by": np.full(3, 5.0, np.float32)}, 2)
    assert model([rows(1, 1.0)], {})[0, 0] == before / 2 * 5
    assert (cuda.captures, cuda.replays, cuda.pools) == (2, 0, 1)


def test_runs_before_a_capture_get_their_inputs_as_they_came() -> None:
    cuda = StandIn()
    model = OnCuda(Drifts(), "cpu", (1,), cuda)
    for start in (0.0, 3.0):
        np.testing.assert_array_equal(model([rows(1, start)], {}).numpy(), rows(1, start) + 4)
    assert (cuda.captures, cuda.replays) == (1, 1)


def test_an_answer_of_the_host_is_made_anew(capfd: pytest.CaptureFixture[str]) -> None:
    cuda = StandIn()
    model = OnCuda(AnswersOnHost(), "cpu", (1,), cuda)
    model._device = torch.device("meta")  # not where the answer is
    for _ in range(2):
        assert model([rows(1)], {}).shape == (1, 1)
    assert cuda.captures == 0
    assert capfd.readouterr().err.count("AnswersOnHost cannot be captured as a CUDA graph") == 1


def fails_with(model: OnCuda, tensor: Any) -> None:
    model([rows(1)], {"more": {"y": tensor.numpy()}})


def test_a_lost_device_ends_the_server() -> None:
    cuda = StandIn()
    model = OnCuda(Nested(), "cpu", (1,), cuda)
    with pytest.raises(RuntimeError, match="size of tensor"):
        model([rows(1)], {"more": {"y": np.ones((1, 7), np.float32)}})
    cuda.lost = True
    tensor = torch.ones(1, 7)
    freed = weakref.ref(tensor)
    with pytest.raises(DeviceLost, match="size of tensor") as caught:
        fails_with(model, tensor)
    del caught, tensor
    gc.collect()
    assert freed() is not None  # torch would end the process
    assert not isinstance(DeviceLost(), Exception)


def test_an_answer_is_waited_for_once() -> None:
    cuda = StandIn()
    model = OnCuda(Scale(), "cpu", (1,), cuda)
    for _ in range(3):
        model([rows(1)], {})
    assert cuda.waits == 3


def test_what_cannot_be_captured_runs_as_it_is(capfd: pytest.CaptureFixture[str]) -> None:
    cuda = StandIn()
    model = OnCuda(Looks(), "cpu", (1, 2), cuda)
    for _ in range(3):
        np.testing.assert_array_equal(model([-rows(2, 1.0)], {}).numpy(), rows(2, 1.0))
        np.testing.assert_array_equal(model([rows(1, 1.0)], {}).numpy(), rows(1, 1.0))
    assert (cuda.captures, cuda.replays) == (1, 0)
    told = capfd.readouterr().err
    assert told.count("Looks cannot be captured as a CUDA graph") == 1 and "buckets=()" in told
    assert "more about it" not in told


def test_a_failing_row_leaves_no_graph() -> None:
    cuda = StandIn()
    model = OnCuda(Nested(), "cpu", (2,), cuda)
    with pytest.raises(TypeError, match="more"):
        model([rows(2)], {})
    assert cuda.captures == 0
    model([rows(2)], {"more": {"y": rows(2)}})
    assert cuda.captures == 1


def test_there_are_only_so_many_graphs() -> None:
    cuda = StandIn()
    model = OnCuda(Scale(), "cpu", (1,), cuda)
    for length in (*range(1, 101), 100, 1):
        assert model([np.ones((1, length, 3), np.float32)], {}).shape == (1, length, 3)
    assert (cuda.captures, cuda.replays) == (64, 1)


def test_sizes_of_batches_by_default() -> None:
    from shoal.serve.arguments import checked_buckets

    assert checked_buckets(None, 64, "cpu") == checked_buckets(None, 64, "xpu") == ()
    assert checked_buckets(None, 48, "cuda:1") == (1, 2, 4, 8, 16, 32, 48)
    assert checked_buckets(None, 1, "cuda") == (1,)
    assert checked_buckets((), 64, "cuda") == ()


def test_rows_go_to_a_device_of_another_kind() -> None:
    assert InPython(Scale(), "meta")([rows(2)], {}).device.type == "meta"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
@pytest.mark.parametrize("context", ["auto", "thread"])
def test_no_device_is_one_clear_error(context: str) -> None:
    with pytest.raises(ValueError, match=r"device='cuda:0': .*; device='cpu' is always there"):
        shoal.ModelService({"scale": Scale()}, device="cuda:0", context=context)
