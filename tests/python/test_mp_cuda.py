"""Tensors on CUDA devices that cross to other processes, on a stand-in driver: no GPU, and a torch without CUDA.
The processes of the tests have the driver; the one that runs them has the queue between them."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cuda_stand_in
from mp_peer import Peer, peer
from shoal._core import ipc
from shoal.multiprocessing import queues

torch = pytest.importorskip("torch")

# Peers of the module's other tests go on living.
pytestmark = pytest.mark.keeps_processes

STATS = ("given", "left", "releasing", "mapped", "segments", "marks")


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cuda_stand_in.build(tmp_path_factory.mktemp("stand_in"))


@pytest.fixture(scope="module")
def environment(stand_in: Path) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in cuda_stand_in.environment(stand_in).items():
            patch.setenv(name, value)
        patch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        ipc.open_broker()  # here, where it outlives the peers
        yield


@pytest.fixture(scope="module")
def giver(environment: None) -> Iterator[Peer]:
    with peer() as made:
        yield made


@pytest.fixture(scope="module")
def taker(environment: None) -> Iterator[Peer]:
    with peer() as made:
        yield made


@pytest.fixture
def queue() -> Iterator[Any]:
    made = queues.SimpleQueue()
    yield made
    made.close()


# --- what runs in the peers ------------------------------------------------------------------------------------------

_kept: dict[str, Any] = {}


def make(name: str, like: Any) -> None:
    _kept[name] = cuda_stand_in.on_device(like)


def make_shared(name: str, like: Any) -> None:
    from shoal.ipc import tensors

    _kept[name] = tensors.share_memory_(cuda_stand_in.on_device(like))


def put(queue: Any, *names: str) -> None:
    objects = [_kept[name] for name in names]
    queue.put(objects[0] if len(objects) == 1 else objects)


def take(queue: Any, name: str) -> None:
    _kept[name] = queue.get()


def read(name: str) -> Any:
    return cuda_stand_in.to_cpu(_kept[name]).tolist()


def fill(name: str, value: float) -> None:
    cuda_stand_in.to_cpu(_kept[name]).fill_(value)


def forget(*names: str) -> None:
    for name in names:
        del _kept[name]
    gc.collect()


def run(name: str, function: Any) -> Any:
    return function(_kept[name])


def figures() -> dict[str, int]:
    from shoal._core import tensors as core
    from shoal.ipc import tensors

    tensors.cuda_collect()
    return {**core.device_stats(), "freed": cuda_stand_in.Allocation.freed}


def driver_count(name: str) -> int:
    return cuda_stand_in.count(name)


def hold_stream(held: bool) -> None:
    driver = cuda_stand_in.driver()
    (driver.stand_in_hold if held else driver.stand_in_go)(None)


def keep_first(several: str, name: str) -> None:
    _kept[name] = _kept[several][0]


def same_storage(first: str, second: str) -> bool:
    return _kept[first].untyped_storage()._cdata == _kept[second].untyped_storage()._cdata


def nothing_held(*peers: Peer) -> None:
    for each in peers:
        stats = each(figures)
        assert {name: stats[name] for name in STATS} == dict.fromkeys(STATS, 0)


# --- values and forms ------------------------------------------------------------------------------------------------


def test_both_processes_see_one_memory(giver: Peer, taker: Peer, queue: Any) -> None:
    giver(make, "t", torch.arange(6.0))
    giver(put, queue, "t")
    taker(take, queue, "t")
    assert taker(read, "t") == [0, 1, 2, 3, 4, 5]
    assert taker(run, "t", lambda t: (str(t.device), tuple(t.shape), t.dtype)) == ("cuda:0", (6,), torch.float32)
    taker(fill, "t", 7)
    assert giver(read, "t") == [7] * 6
    giver(fill, "t", 8)
    assert taker(read, "t") == [8] * 6
    taker(forget, "t")
    giver(forget, "t")
    nothing_held(giver, taker)


FORMS = {
    "bool": torch.tensor([True, False, True]),
    "bfloat16": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
    "complex64": torch.tensor([1 + 2j, 3 - 4j], dtype=torch.complex64),
    "int64": torch.tensor([[1, 2], [3, 4]]),
    "uint8": torch.tensor(5, dtype=torch.uint8),
    "transposed": torch.arange(6.0).reshape(2, 3).t(),
    "view": torch.arange(10)[3:9:2],
    "expanded": torch.tensor([3.0]).expand(4),
    "empty": torch.empty(0, 3),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_form_is_kept(giver: Peer, taker: Peer, queue: Any, form: str) -> None:
    like = FORMS[form]
    giver(make, "t", like)
    giver(put, queue, "t")
    taker(take, queue, "t")
    assert taker(read, "t") == like.tolist()
    seen = taker(run, "t", lambda t: (t.dtype, tuple(t.shape), t.stride(), t.storage_offset(), t.requires_grad))
    assert seen == (like.dtype, tuple(like.shape), like.stride(), like.storage_offset(), False)
    giver(forget, "t")
    taker(forget, "t")
    nothing_held(giver, taker)


def require_gradient(t: Any) -> None:
    t.requires_grad_(True)


def leaf(t: Any) -> Any:
    return t.is_leaf, t.requires_grad, type(t).__name__


def test_a_leaf_that_requires_a_gradient_stays_one(giver: Peer, taker: Peer, queue: Any) -> None:
    giver(make, "t", torch.ones(3))
    giver(run, "t", require_gradient)
    giver(put, queue, "t")
    taker(take, queue, "t")
    assert taker(run, "t", leaf) == (True, True, "Tensor")
    giver(forget, "t")
    taker(forget, "t")


def aliases(objects: Any) -> Any:
    first, second, third = objects
    return len({t.untyped_storage()._cdata for t in objects}), first is second, third.data_ptr() == first.data_ptr()


def test_what_is_sent_twice_is_one_storage(giver: Peer, taker: Peer, queue: Any) -> None:
    giver(make, "t", torch.ones(3))
    giver(put, queue, "t", "t", "t")
    giver(put, queue, "t")
    taker(take, queue, "several")
    taker(take, queue, "again")
    assert taker(run, "several", aliases) == (1, True, True)
    taker(keep_first, "several", "first")
    assert taker(same_storage, "first", "again")
    taker(put, queue, "again")
    giver(take, queue, "back")
    assert giver(same_storage, "t", "back")
    assert giver(driver_count, "opened_memory") == 0
    assert taker(driver_count, "opened_memory") == 1
    giver(forget, "t", "back")
    taker(forget, "several", "first", "again")
    nothing_held(giver, taker)
    assert taker(driver_count, "opened_memory") == 0


# --- who holds what --------------------------------------------------------------------------------------------------


def test_torchs_memory_is_freed_when_nobody_holds_it(giver: Peer, taker: Peer, queue: Any) -> None:
    before = giver(figures)["freed"]
    giver(make, "t", torch.ones(3))
    giver(put, queue, "t")
    giver(forget, "t")
    assert giver(figures)["freed"] == before, "a message holds it"
    taker(take, queue, "t")
    assert giver(figures)["freed"] == before, "another process holds it"
    assert taker(read, "t") == [1, 1, 1]
    taker(forget, "t")
    assert giver(figures)["freed"] == before + 1
    nothing_held(giver, taker)


def test_a_message_that_nobody_takes_holds_nothing_for_ever(giver: Peer) -> None:
    unread = queues.SimpleQueue()
    before = giver(figures)["freed"]
    giver(make, "t", torch.ones(3))
    giver(put, unread, "t")
    giver(forget, "t")
    unread.close()
    del unread
    gc.collect()
    giver(gc.collect)
    assert giver(figures)["freed"] == before + 1


def test_what_a_killed_process_had_and_gave(giver: Peer, taker: Peer, environment: None, queue: Any) -> None:
    """What it received is free; torch's memory goes with it, and the error says what to do."""
    before = giver(figures)["freed"]
    giver(make, "t", torch.ones(3))
    giver(put, queue, "t")
    with peer() as victim:
        victim(take, queue, "t")
        giver(forget, "t")
        assert giver(figures)["freed"] == before
        victim(make, "own", torch.ones(3))
        victim(put, queue, "own")
        os.kill(victim.process.pid, signal.SIGKILL)
        victim.process.wait()
    assert giver(figures)["freed"] == before + 1
    with pytest.raises(Exception, match=r"went with .*share_memory_\(\)"):
        taker(take, queue, "t")
    nothing_held(giver, taker)


def test_shared_memory_outlives_its_maker_and_is_forwarded(environment: None, taker: Peer, queue: Any) -> None:
    with peer() as maker:
        maker(make_shared, "t", torch.arange(4.0))
        maker(put, queue, "t")
    ipc.sweep()
    with peer() as between:
        between(take, queue, "t")
        assert between(read, "t") == [0, 1, 2, 3]
        between(fill, "t", 5)
        between(put, queue, "t")
        os.kill(between.process.pid, signal.SIGKILL)
        between.process.wait()
    ipc.sweep()
    taker(take, queue, "t")
    assert taker(read, "t") == [5, 5, 5, 5]
    taker(forget, "t")
    nothing_held(taker)
    assert taker(driver_count, "mappings") == 0


def test_share_memory_moves_in_place_and_frees_torchs(giver: Peer) -> None:
    from_torch = giver(figures)["freed"]
    giver(make, "t", torch.arange(4.0))
    address = giver(run, "t", lambda t: t.data_ptr())
    giver(run, "t", _share)
    assert giver(run, "t", lambda t: t.data_ptr()) != address
    assert giver(read, "t") == [0, 1, 2, 3]
    assert giver(figures)["freed"] == from_torch + 1
    again = giver(run, "t", lambda t: t.data_ptr())
    giver(run, "t", _share)
    assert giver(run, "t", lambda t: t.data_ptr()) == again
    giver(forget, "t")
    nothing_held(giver)
    assert giver(driver_count, "allocations") == 0


def _share(t: Any) -> None:
    from shoal.ipc import tensors

    tensors.share_memory_(t)


# --- order -----------------------------------------------------------------------------------------------------------


def test_a_receivers_stream_waits_for_the_senders_and_no_host_does(giver: Peer, taker: Peer, queue: Any) -> None:
    waits = taker(driver_count, "stream_waits")
    giver(make, "t", torch.ones(3))
    giver(hold_stream, True)
    giver(put, queue, "t")
    taker(take, queue, "t")
    assert taker(driver_count, "stream_waits") == waits + 1
    taker(forget, "t")
    stats = taker(figures)
    assert stats["releasing"] == 1, "let go when the work before is done"
    giver(hold_stream, False)
    nothing_held(taker)
    giver(forget, "t")
    nothing_held(giver, taker)
    assert giver(driver_count, "host_waits") == taker(driver_count, "host_waits") == 0


def send_often(times: int, shared: bool) -> Any:
    from shoal._core import tensors as core
    from shoal.ipc import tensors
    from shoal.multiprocessing import reduction

    def once() -> None:
        t = cuda_stand_in.on_device(torch.ones(8))
        if shared:
            tensors.share_memory_(t)
        data, blocks = reduction.dumps([t])
        del t
        (back,) = reduction.loads(data)
        del blocks, back

    once()
    before = ipc.stats()["blocks"], cuda_stand_in.Allocation.freed, len(os.listdir("/proc/self/fd"))
    for _ in range(times):
        once()
    core.device_collect()
    return before, (ipc.stats()["blocks"], cuda_stand_in.Allocation.freed, len(os.listdir("/proc/self/fd")))


@pytest.mark.parametrize("shared", [False, True])
def test_nothing_grows_with_the_number_of_sends(giver: Peer, shared: bool) -> None:
    before, after = giver(send_often, 3000, shared)
    assert after[1] == before[1] + 3000
    assert after[2] <= before[2] + 8
    assert after[0] <= before[0] + 1
    nothing_held(giver)


# --- processes -------------------------------------------------------------------------------------------------------


def add(t: Any, value: float) -> Any:
    cuda_stand_in.to_cpu(t).add_(value)
    return t


def echo(end: Any) -> None:
    got = end.recv()
    add(got["t"], 3.0)
    end.send(got)


def launch(method: str) -> Any:
    import shoal.multiprocessing as mp

    context = mp.get_context(method)
    t = cuda_stand_in.on_device(torch.zeros(2))
    process = context.Process(target=add, args=(t, 2.0))
    process.start()
    process.join(60)
    here, there = context.Pipe()
    process = context.Process(target=echo, args=(there,))
    process.start()
    here.send({"t": t})
    back = here.recv()["t"]
    process.join(60)
    assert back.untyped_storage()._cdata == t.untyped_storage()._cdata
    return process.exitcode, cuda_stand_in.to_cpu(t).tolist()


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_arguments_of_processes_and_pipes(giver: Peer, method: str) -> None:
    assert giver(launch, method) == (0, [5.0, 5.0])
    nothing_held(giver)


def launch_fork() -> str:
    import shoal.multiprocessing as mp

    cuda_stand_in.driver()
    try:
        mp.get_context("fork").Process(target=print).start()
    except Exception as error:
        return str(error)
    return ""


def test_fork_is_refused_once_cuda_is_in_use(giver: Peer) -> None:
    assert "CUDA is initialised" in giver(launch_fork)
