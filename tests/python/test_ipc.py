"""The heap that a family of processes shares, as Python sees it: blocks as buffers, forks, children, deaths."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

import shoal
from shoal._core import ipc
from shoal.process import Launcher, WorkerContext


@pytest.fixture(autouse=True)
def balance() -> Iterator[None]:
    """What was in the heap before a test is what is in it afterwards."""
    ipc.fd()
    ipc.sweep()
    before = ipc.stats()
    yield
    gc.collect()
    ipc.sweep()
    assert ipc.check() == []
    after = ipc.stats()
    assert {key: after[key] for key in ("blocks", "references", "processes", "held_here")} == {
        key: before[key] for key in ("blocks", "references", "processes", "held_here")
    }


def run(program: str, *arguments: int) -> str:
    """The output of a fresh interpreter that attaches first; its `arguments` are sys.argv[1:], as numbers."""
    start = (
        f"import sys; sys.path[:0] = {[path for path in sys.path if path]!r}\n"
        "from shoal._core import ipc\n"
        f"ipc.attach({ipc.fd()})\n"
        "args = [int(text) for text in sys.argv[1:]]\n"
    )
    command = [sys.executable, "-c", start + program, *map(str, arguments)]
    done = subprocess.run(command, pass_fds=[ipc.fd()], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_block_is_a_writable_buffer() -> None:
    block = ipc.Block(12)
    assert (block.nbytes, len(block), block.address % 64) == (12, 12, 0)
    view = memoryview(block)
    view[:] = b"hello, world"
    assert bytes(block) == b"hello, world"
    array = np.frombuffer(block, dtype=np.uint8)
    array[0] = ord("J")
    assert bytes(view[:5]) == b"Jello" and array.flags.writeable


def test_an_array_keeps_its_block() -> None:
    before = ipc.stats()["blocks"]
    array = np.frombuffer(ipc.Block(800), dtype=np.float64)[10:]
    array[:] = 1.5
    gc.collect()
    assert ipc.stats()["blocks"] == before + 1
    assert array.sum() == 135.0
    del array
    assert ipc.stats()["blocks"] == before


def test_a_block_is_found_by_offset_and_by_address() -> None:
    block = ipc.Block(100)
    for again in (ipc.acquire(block.offset), ipc.acquire(block.offset, block.serial), ipc.block_at(block.address)):
        assert again.address == block.address
    assert ipc.contains(block.address) and not ipc.contains(id(block))
    with pytest.raises(ValueError, match="not in the shared heap"):
        ipc.block_at(id(block))
    with pytest.raises(shoal.Error, match="freed"):
        ipc.acquire(block.offset, block.serial + 1)
    offset, serial = block.offset, block.serial
    del block, again
    with pytest.raises(shoal.Error, match="nobody held it"):
        ipc.acquire(offset, serial)


def test_too_much_is_an_os_error() -> None:
    with pytest.raises(OSError, match="281474976710656 bytes") as raised:
        ipc.Block(1 << 48)
    assert raised.value.errno == 12
    with pytest.raises((TypeError, ValueError)):
        ipc.Block(-1)


@pytest.mark.own_process
def test_a_forked_child_holds_what_its_parent_held() -> None:
    block = ipc.Block(5)
    memoryview(block)[:] = b"hello"
    go, told = os.pipe()
    offset, slot = block.offset, ipc.self_slot()
    pid = os.fork()
    if pid == 0:
        os.close(told)
        os.read(go, 1)  # until the parent has let go
        memoryview(block)[0] = ord("J")
        own = ipc.Block(10)
        fine = ipc.self_slot() != slot and ipc.alive(slot) and own.offset != offset and ipc.check() == []
        os._exit(0 if fine and bytes(block) == b"Jello" else 1)
    del block
    assert ipc.stats()["blocks"] == 1
    holders = [entry["blocks"] for entry in ipc.holders()["processes"] if entry["pid"] == pid]
    assert holders == [1]
    os.close(told)
    assert os.waitpid(pid, 0)[1] == 0
    os.close(go)
    assert ipc.sweep() == 1


def test_another_program_attaches_by_descriptor() -> None:
    block = ipc.Block(5)
    memoryview(block)[:] = b"hello"
    program = (
        "block = ipc.acquire(*args); memoryview(block)[0] = ord('J'); print(ipc.heap_id(), ipc.stats()['held_here'])"
    )
    assert run(program, block.offset, block.serial) == f"{ipc.heap_id()} 1"
    assert bytes(block) == b"Jello"


def test_a_program_that_was_executed_by_a_holder_holds_nothing() -> None:
    """The process is the same, what it held is not needed any more."""
    command = [sys.executable, "-c", "import os; os.write(1, b'x'); os.read(0, 1)"]
    block = ipc.Block(1000)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=int) as child:
        assert child.stdout is not None
        assert child.stdout.read(1) == b"x"
        ipc.sweep()
        assert [entry["blocks"] for entry in ipc.holders()["processes"] if entry["pid"] == child.pid] == []
        child.communicate(b"x")
    assert block.nbytes == 1000


def test_foreign_descriptors_are_refused() -> None:
    reader, writer = os.pipe()
    os.close(writer)
    with pytest.raises(OSError, match="no memfd"):
        ipc.attach(reader)
    other = os.memfd_create("other", os.MFD_ALLOW_SEALING)
    os.truncate(other, 1 << 24)
    with pytest.raises(shoal.Error, match="not sealed"):
        ipc.attach(other)
    with pytest.raises(RuntimeError, match="already"):
        ipc.create()


def test_holders_tells_who_holds_how_much() -> None:
    blocks = [ipc.Block(1000) for _ in range(3)]
    holders = ipc.holders()
    mine = next(entry for entry in holders["processes"] if entry["pid"] == os.getpid())
    assert mine["slot"] == ipc.self_slot() and mine["blocks"] >= 3 and mine["bytes"] >= 3000
    assert holders["kinds"]["data"]["blocks"] >= len(blocks)


def _hold_and_wait(context: WorkerContext) -> None:
    held = [ipc.Block(1000) for _ in range(100)]
    context.send(b"ready")
    context.recv()
    assert held


@pytest.mark.own_process
def test_what_a_worker_held_is_back_when_its_end_is_known() -> None:
    kept = ipc.Block(1)
    with Launcher("fork", allow_unsafe_fork=True, relay_output=False) as launcher:
        [worker] = launcher.start([(_hold_and_wait,)])
        assert worker.recv(60.0) == b"ready"
        assert ipc.stats()["blocks"] == 101
        worker.kill()
        assert worker.join(60.0) and worker.exitcode == -signal.SIGKILL
        assert ipc.stats()["blocks"] == 1 and ipc.stats()["processes"] == 1
    assert kept.nbytes == 1
