"""The life of the blocks that tensors and arrays cross on."""

from __future__ import annotations

import gc
import os
import signal
import threading

import numpy as np
import pytest

import shoal.multiprocessing as mp
import shoal.multiprocessing.reduction as reduction
from mp_peer import Peer, peer
from shoal._core import ipc

torch = pytest.importorskip("torch")

from mp_calls import echo, fill, forget, keep, same_process  # noqa: E402
from shoal.ipc import tensors  # noqa: E402


@pytest.fixture(scope="module")
def other():
    with peer() as made:
        yield made


# Peers of the module's other tests go on living.
pytestmark = pytest.mark.keeps_processes


def blocks_here():
    gc.collect()
    return ipc.stats()["blocks"]


def test_blocks_go_with_their_last_holder(other: Peer):
    other(echo, None)
    before = blocks_here()
    t = torch.ones(5)
    other(keep, "t", t)
    del t
    assert blocks_here() == before + 1
    other(forget, "t")
    other(echo, None)
    assert blocks_here() == before
    assert ipc.check() == []


def test_memory_is_flat_over_many_sends():
    """100,000 tensors to another process and back: each is a new one there, and one sum tells that all came."""
    ctx = mp.get_context("forkserver")
    there, back = ctx.Queue(maxsize=64), ctx.Queue(maxsize=64)
    process = ctx.Process(target=send_on, args=(there, back))
    process.start()
    assert settled(there, back) == 0.0
    before = ipc.stats()
    sender = threading.Thread(target=send, args=(there, 100_000))
    sender.start()
    pids, total = set(), 0.0
    for _ in range(100_000):
        pid, tensor = back.get()
        pids.add(pid)
        total += tensor[0].item()
    sender.join()
    del tensor
    assert settled(there, back) == 0.0
    while (after := ipc.stats())["blocks"] > before["blocks"]:  # it lets go of what it sent a moment after that is here
        assert settled(there, back) == 0.0
    there.put(None)
    process.join()
    assert pids == {process.pid} and process.exitcode == 0
    assert total == sum(range(100_000)) + 100_000
    assert after["used_bytes"] + after["cached_bytes"] <= before["used_bytes"] + before["cached_bytes"] + (1 << 20)
    assert ipc.check() == []


def send(queue, count):
    for i in range(count):
        queue.put(torch.full((64,), float(i), dtype=torch.float64))


def send_on(there, back):
    """In the other process: a tensor of its own for each that comes."""
    while (tensor := there.get()) is not None:
        back.put((os.getpid(), tensor + 1))


def settled(there, back):
    """When the other process has let go of all that it had before; what it makes of a zero, less one."""
    there.put(torch.zeros(64, dtype=torch.float64))
    return back.get()[1][0].item() - 1


def test_a_hundred_thousand_tensors_live_at_once():
    before = blocks_here()
    descriptors = len(os.listdir("/proc/self/fd"))
    many = [tensors.share_memory_(torch.empty(2)) for _ in range(100_000)]
    assert ipc.stats()["blocks"] == before + 100_000
    assert len(os.listdir("/proc/self/fd")) <= descriptors + 1
    assert same_process(many[77_777]).data_ptr() == many[77_777].data_ptr()
    many.clear()
    assert blocks_here() == before


def test_a_killed_holder_gives_everything_back():
    before = blocks_here()
    t = torch.ones(7)
    with peer() as victim:
        victim(keep, "mine", t)
        held = victim(torch.ones, 1000)
        os.kill(victim.process.pid, signal.SIGKILL)
        victim.process.wait(timeout=60)
        assert ipc.sweep() >= 1
        assert held.sum() == 1000 and t.sum() == 7
        del t, held
        assert blocks_here() == before
        assert ipc.check() == []


def test_a_message_of_another_family_is_refused_with_the_reason():
    data, blocks = reduction.dumps(torch.ones(3))
    at = data.index(ipc.heap_id().to_bytes(8, "little"))
    forged = data[:at] + (ipc.heap_id() ^ 1).to_bytes(8, "little") + data[at + 8 :]
    with pytest.raises(Exception, match="another family"):
        reduction.loads(forged)
    del blocks


def test_a_message_whose_block_is_gone_is_refused():
    data, blocks = reduction.dumps(torch.ones(3))
    blocks.clear()
    gc.collect()
    other = torch.ones(3)
    tensors.share_memory_(other)
    with pytest.raises(Exception, match="block"):
        reduction.loads(data)


# --- NumPy -----------------------------------------------------------------------------------------------------------


def test_a_tensor_of_a_shared_array_shares_it(other: Peer):
    from shoal.ipc.arrays import SharedArray

    array = SharedArray((4,), "float32")
    t = torch.from_numpy(array)
    assert tensors.is_shared(t)
    other(fill, t[1:], 6)
    assert array.tolist() == [0, 6, 6, 6]


def test_an_array_of_a_shared_tensor_shares_it(other: Peer):
    t = tensors.SharedTensor(torch.zeros(4))
    other(np.ndarray.fill, t.numpy()[2:], 8)
    assert t.tolist() == [0, 0, 8, 8]
