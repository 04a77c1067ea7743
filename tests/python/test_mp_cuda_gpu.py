"""What test_mp_cuda.py shows on a stand-in driver, on a real device."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import shoal.multiprocessing as mp  # noqa: E402
from mp_peer import Peer, peer  # noqa: E402
from shoal._core import ipc  # noqa: E402
from shoal.multiprocessing import queues  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.keeps_processes,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device, or a torch that was built without"),
]


@pytest.fixture(scope="module")
def other() -> Iterator[Peer]:
    ipc.open_broker()
    with peer() as made:
        yield made


@pytest.fixture
def queue() -> Iterator[Any]:
    made = queues.SimpleQueue()
    yield made
    made.close()


_kept: dict[str, Any] = {}


def keep(name: str, obj: Any) -> None:
    _kept[name] = obj


def make(name: str, shared: bool) -> None:
    t = torch.arange(4.0, device="cuda")
    _kept[name] = mp.share_memory_(t) if shared else t


def put(queue: Any, name: str) -> None:
    queue.put(_kept[name])


def take(queue: Any, name: str) -> None:
    _kept[name] = queue.get()


def read(name: str) -> Any:
    return _kept[name].tolist()


def forget(name: str) -> None:
    del _kept[name]
    mp.cuda_collect()


def form(t: Any) -> Any:
    return t.dtype, tuple(t.shape), t.stride(), t.requires_grad, type(t).__name__, t.detach().cpu()


def allocated() -> int:
    torch.cuda.synchronize()
    mp.cuda_collect()
    return torch.cuda.memory_allocated()


def test_both_processes_see_one_memory(other: Peer) -> None:
    t = torch.arange(6.0, device="cuda")
    other(keep, "t", t)
    assert other(read, "t") == [0, 1, 2, 3, 4, 5]
    other(torch.Tensor.fill_, t, 7)
    assert t.tolist() == [7] * 6
    other(forget, "t")


@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor([True, False]),
        torch.tensor([1.5], dtype=torch.bfloat16),
        torch.tensor([1 + 2j]),
        torch.arange(6).reshape(2, 3).t(),
        torch.nn.Parameter(torch.ones(3)),
        torch.ones(2, requires_grad=True),
        torch.empty(0, 3),
    ],
    ids=["bool", "bfloat16", "complex", "strides", "parameter", "leaf", "empty"],
)
def test_the_form_is_kept(other: Peer, tensor: Any) -> None:
    with torch.no_grad():
        there = tensor.cuda()
    if isinstance(tensor, torch.nn.Parameter):
        there = torch.nn.Parameter(there)
    there.requires_grad_(tensor.requires_grad)
    seen = other(form, there)
    assert seen[:5] == (there.dtype, tuple(there.shape), there.stride(), there.requires_grad, type(there).__name__)
    assert torch.equal(seen[5], tensor.detach())


@pytest.mark.parametrize("end", ["exits", "is killed"])
def test_shared_memory_outlives_its_maker_and_is_forwarded(other: Peer, queue: Any, end: str) -> None:
    with peer() as maker:
        maker(make, "t", True)
        maker(put, queue, "t")
        if end == "is killed":
            maker(torch.cuda.synchronize)
            os.kill(maker.process.pid, signal.SIGKILL)
            maker.process.wait()
    ipc.sweep()
    with peer() as between:
        between(take, queue, "t")
        between(put, queue, "t")
    other(take, queue, "t")
    assert other(read, "t") == [0, 1, 2, 3]
    other(forget, "t")


def test_a_killed_receiver_holds_nothing(queue: Any) -> None:
    before = allocated()
    queue.put(torch.ones(1 << 20, device="cuda"))
    with peer() as victim:
        victim(take, queue, "t")
        assert allocated() > before
        os.kill(victim.process.pid, signal.SIGKILL)
        victim.process.wait()
    assert allocated() == before


def test_results_are_whole_however_late_the_work_is(other: Peer, queue: Any) -> None:
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        t = torch.zeros(1 << 22, device="cuda")
        for _ in range(200):
            t += 1
        queue.put(t)
    other(take, queue, "t")
    assert set(other(read, "t")) == {200.0}
    other(forget, "t")


def drain(queue: Any, count: int, figures: Any) -> None:
    total = 0.0
    for _ in range(count):
        total += queue.get().sum()
    figures.put((float(total), torch.cuda.memory_allocated()))


def test_a_hundred_thousand_sends_leave_the_memory_as_it_was(queue: Any) -> None:
    sends = 100_000
    figures = queues.SimpleQueue()
    before = allocated()
    taker = mp.get_context("spawn").Process(target=drain, args=(queue, sends, figures))
    taker.start()
    for _ in range(sends):
        queue.put(torch.ones(10, device="cuda"))
    total, there = figures.get()
    taker.join()
    assert total == 10.0 * sends and there < 1 << 20
    assert allocated() == before
