"""What docs/multiprocessing.md promises: that its tests exist, and those that belong nowhere else."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shoal
import shoal.multiprocessing as mp
from sample_envs import CounterEnv

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "multiprocessing.md"
METHODS = ["forkserver", "spawn", pytest.param("fork", marks=pytest.mark.own_process)]


def rows() -> list[list[str]]:
    lines = [line for line in PAGE.read_text().splitlines() if re.match(r"\| \d", line)]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_every_point_is_there_once() -> None:
    numbers: list[int] = []
    for numbered, *_ in rows():
        for part in numbered.split(","):
            first, _, last = part.partition("–")
            numbers += range(int(first), int(last or first) + 1)
    assert numbers[:18] == list(range(1, 19))
    assert sorted(numbers) == list(range(1, 73))


def test_every_test_of_the_page_exists() -> None:
    for numbered, _, _, shown_by in rows():
        named = re.findall(r"`([^`]+)`", shown_by)
        assert named, numbered
        for name in named:
            file, _, test = name.partition("::")
            path = ROOT / file if "/" in file else ROOT / "tests" / "python" / f"{file}.py"
            assert path.exists(), name
            assert not test or f"def {test}(" in path.read_text(), name


@pytest.mark.parametrize("method", METHODS)
def test_no_helper_is_counted_as_a_child(method: str) -> None:
    process = mp.get_context(method).Process(target=int)
    process.start()
    assert mp.active_children() == [process]
    process.join()
    assert mp.active_children() == []


@pytest.mark.parametrize("method", METHODS)
def test_start_does_not_wait_for_large_arguments_to_be_read(method: str) -> None:
    ctx = mp.get_context(method)
    go, reader_writer = ctx.Event(), ctx.Pipe(duplex=False)

    def check(data: bytes, array: np.ndarray, out: Any) -> None:
        out.send((len(data), int(array.sum())))

    class Slow:
        """Unpickled after the parent's start() has returned, or never."""

        def __reduce__(self) -> Any:
            return go.wait, ()

    large = (bytes(2**24), np.ones(2**20, np.uint8))
    arguments = (*large, reader_writer[1], Slow()) if method != "fork" else (*large, reader_writer[1], None)
    process = ctx.Process(target=lambda *args: check(*args[:3]), args=arguments)
    process.start()
    go.set()
    assert reader_writer[0].recv() == (2**24, 2**20)
    process.join()


@pytest.mark.parametrize("method", METHODS)
def test_a_thousand_tensors_are_arguments_of_a_process(method: str) -> None:
    torch = pytest.importorskip("torch")
    ctx = mp.get_context(method)
    tensors = [torch.full((3,), i) for i in range(1000)]

    def add_one(tensors: list[Any]) -> None:
        for tensor in tensors:
            tensor += 1

    mp.SharedTensor(tensors[0])
    for tensor in tensors:  # a fork shares what is in the heap before it
        mp.share_memory_(tensor)
    process = ctx.Process(target=add_one, args=(tensors,))
    process.start()
    process.join()
    assert process.exitcode == 0
    assert [int(tensor[2]) for tensor in tensors] == list(range(1, 1001))


def test_a_managers_list_takes_tensors() -> None:
    torch = pytest.importorskip("torch")
    with mp.Manager() as manager:
        shared = manager.list()
        shared.append(torch.arange(3))
        shared.append({"weights": torch.ones(2)})
        assert shared[0].tolist() == [0, 1, 2]
        assert shared[1]["weights"].tolist() == [1, 1]


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=90)


@pytest.mark.parametrize("method", ["forkserver", "fork"])
def test_few_descriptors_are_enough(method: str) -> None:
    pytest.importorskip("torch")
    done = run(f"""
        import resource, torch
        import shoal.multiprocessing as mp
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        torch.set_num_threads(1)
        ctx = mp.get_context({method!r})
        there, back = ctx.Queue(), ctx.SimpleQueue()
        process = ctx.Process(target=lambda: [back.put(there.get()) for _ in range(20)])
        process.start()
        kept = []
        for i in range(20):
            there.put([torch.full((4,), j) for j in range(500)])
            kept += back.get()
        process.join()
        print(len(kept), sum(int(tensor[0]) for tensor in kept))
    """)
    assert done.stdout.split() == ["10000", str(20 * sum(range(500)))], done.stderr


def test_nothing_has_a_name() -> None:
    if not os.path.isdir("/dev/shm"):
        pytest.skip("a machine without /dev/shm")
    before = set(os.listdir("/dev/shm"))
    queue, lock, value = mp.Queue(), mp.Lock(), mp.Value("i", 3)
    queue.put(np.zeros(10_000))
    with mp.Pool(1) as pool:
        assert pool.apply(lambda array: array.sum(), (mp.SharedArray(np.ones(10_000)),)) == 10_000
        made = set(os.listdir("/dev/shm")) - before
        assert not [name for name in made if str(os.getpid()) in name or "shoal" in name]
        assert lock.acquire(timeout=0) and value.value == 3
        lock.release()
        pool.terminate()
        pool.join()


def test_a_program_with_all_of_it_says_nothing_at_its_end() -> None:
    done = run("""
        import numpy as np
        import shoal.multiprocessing as mp
        things = [mp.Queue(), mp.JoinableQueue(), mp.Pipe(), mp.Lock(), mp.Semaphore(3), mp.Event(), mp.Condition(),
                  mp.Barrier(2), mp.Value("d", 1.0), mp.Array("i", 4), mp.SharedArray(np.zeros(9999))]
        things[0].put(bytes(10**6))  # which nobody reads
        process = mp.Process(target=lambda: things[1].put(np.ones(50_000)))
        process.start()
        process.join()
        daemon = mp.Process(target=things[5].wait, daemon=True)
        daemon.start()
        print(things[1].get().sum())
    """)
    assert (done.returncode, done.stdout, done.stderr) == (0, "50000.0\n", "")


@pytest.mark.own_process
def test_workers_of_a_zygote_import_nothing_by_themselves() -> None:
    """What takes the seconds that a worker needs to start is done once, before it exists."""

    class Asks(CounterEnv):
        def __init__(self) -> None:
            super().__init__()
            import fork_probe

            self.imported = sorted(set(sys.modules) - fork_probe.at_fork)
            self.had = len(fork_probe.at_fork)

    options = shoal.WorkerOptions(preload=["fork_probe", "sample_envs"])
    with shoal.make_vec(Asks, 4, num_workers=4, worker=options) as envs:
        assert envs.get_attr("imported") == ([],) * 4
        assert min(envs.get_attr("had")) > 300  # NumPy and Gymnasium are among them


def transfers(pids: list[int]) -> int:
    """How often these processes have called read() and write(), or their kin."""
    told = [Path(f"/proc/{pid}/io").read_text() for pid in pids]
    return sum(int(count) for text in told for count in re.findall(r"^sysc[rw]: (\d+)$", text, re.MULTILINE))


def test_a_step_of_many_environments_passes_through_no_pipe() -> None:
    """Serial stepping is faster than parallel stepping where each environment costs messages. A message to each of two
    workers and back would be eight of these calls a step; what there are look how busy the CPUs are, now and then."""
    steps, num_envs = 1000, 64
    with shoal.make_vec(CounterEnv, num_envs, num_workers=2) as envs:
        envs.reset(seed=0)
        actions = np.zeros(num_envs, np.int64)
        envs.step(actions)
        pids = [os.getpid(), *(worker["pid"] for worker in envs.stats()["workers"])]
        before = transfers(pids)
        looked = transfers(pids) - before  # what looking itself takes
        for _ in range(steps):
            envs.step(actions)
        assert transfers(pids) - before - 2 * looked < steps


@pytest.mark.parametrize("method", ["forkserver", "spawn", "fork"])
def test_what_was_printed_before_a_start_is_written_once(method: str) -> None:
    done = run(f"""
        import shoal.multiprocessing as mp
        print("before", end=" ")
        process = mp.get_context({method!r}).Process(target=print, args=("within",))
        process.start()
        process.join()
        print("after")
    """)
    assert (done.stdout, done.stderr) == ("before within\nafter\n", "")
