"""What several processes share, in the hands of environments: of multiprocessing, of torch, and Shoal's own."""

from __future__ import annotations

import importlib
import multiprocessing
import multiprocessing.connection
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from multiprocessing import shared_memory
from typing import Any

import gymnasium
import numpy as np
import pytest

import shoal
import shoal.multiprocessing as mp
from shoal.ipc.pickling import PicklingError

METHODS = ["forkserver", "spawn", pytest.param("fork", marks=pytest.mark.own_process)]
FORK = pytest.param("fork", True, marks=pytest.mark.own_process)
STEPS, ENVS = 3, 4


class Calls(gymnasium.Env):
    """Calls a function in each step."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        self.function()
        return np.zeros(2, np.float32), 0.0, False, False, {}

    def ask(self, what: str) -> Any:
        process, parent = multiprocessing.current_process(), multiprocessing.parent_process()
        answers = {
            "renewed": lambda: importlib.import_module("after_fork").one.pids,
            "process": lambda: (process.name, process.pid == os.getpid(), process.daemon),
            "parent": lambda: (parent.name, parent.pid, parent.is_alive()),
            "authkey": lambda: bytes(process.authkey),
            "method": lambda: multiprocessing.get_start_method(allow_none=True),
        }
        return answers[what]()


def play(method: str, function: Callable[[], Any], **options: Any) -> None:
    """STEPS steps of ENVS environments in two workers."""
    if "pool" not in options:
        options |= {"num_workers": 2, "context": method}
    with shoal.make_vec(lambda: Calls(function), ENVS, **options) as envs:
        envs.reset(seed=0)
        for _ in range(STEPS):
            envs.step(np.zeros(ENVS, np.int64))


@pytest.mark.parametrize("method", METHODS)
def test_a_managers_objects_are_shared(method: str) -> None:
    with multiprocessing.Manager() as manager:
        pids, lock, namespace = manager.list(), manager.Lock(), manager.Namespace()
        namespace.steps = 0
        pids.append(0)  # through this process's own connection, which no worker may use

        def count() -> None:
            with lock:
                namespace.steps += 1
            pids.append(os.getpid())

        play(method, count)
        assert namespace.steps == STEPS * ENVS
        assert len(set(pids)) == 3 and len(pids) == 1 + STEPS * ENVS


@pytest.mark.parametrize("method", METHODS)
def test_a_managers_key_reaches_a_worker_that_connects_by_itself(method: str) -> None:
    with multiprocessing.Manager() as manager:
        address = manager.address

        def connect() -> None:
            multiprocessing.connection.Client(address, authkey=multiprocessing.current_process().authkey).close()

        play(method, connect)


@pytest.mark.parametrize("method", METHODS)
def test_stock_locks_values_queues_and_pipes_are_shared(method: str) -> None:
    stock = multiprocessing.get_context("fork" if method == "fork" else "spawn")
    lock, value, array = stock.Lock(), stock.Value("i", 0), stock.Array("d", 2)
    queue, simple, event = stock.Queue(), stock.SimpleQueue(), stock.Event()
    reader, writer = stock.Pipe(duplex=False)

    def use() -> None:
        with lock, value:
            value.value += 1
            array[1] += 1
        queue.put(os.getpid())
        simple.put("simple")
        event.set()
        writer.send("through a pipe")

    play(method, use)
    total = STEPS * ENVS
    assert value.value == total and array[:] == [0.0, float(total)] and event.is_set()
    # The last of them are what feeder threads sent while the workers ended.
    assert len({queue.get(timeout=60) for _ in range(total)}) == 2
    assert [simple.get() for _ in range(total)] == ["simple"] * total
    assert [reader.recv() for _ in range(total)] == ["through a pipe"] * total
    reader.close()
    writer.close()


def test_what_was_put_last_arrives_though_the_feeder_is_slow() -> None:
    queue = multiprocessing.get_context("spawn").Queue()
    with shoal.make_vec(lambda: Calls(lambda: queue.put(bytes(100_000))), 2, num_workers=2) as envs:
        envs.reset()
        envs.step(np.zeros(2, np.int64))
        sizes: list[int] = []
        # More than a pipe holds: a worker has to wait for this reader before it may end.
        reader = threading.Thread(target=lambda: sizes.extend(len(queue.get(timeout=60)) for _ in range(2)))
        reader.start()
    reader.join()
    assert sizes == [100_000, 100_000]


@pytest.mark.parametrize("method", METHODS)
def test_shoals_own_objects_are_shared(method: str) -> None:
    lock, value, queue = mp.Lock(), mp.Value("i", 0), mp.Queue()
    array, event = mp.SharedArray((3,), "int64"), mp.Event()
    reader, writer = mp.Pipe(duplex=False)

    def use() -> None:
        with lock:
            value.value += 1
            array[1] += 1
        queue.put(os.getpid())
        event.set()
        writer.send(5)

    play(method, use)
    total = STEPS * ENVS
    assert value.value == total and array.tolist() == [0, total, 0] and event.is_set()
    assert len({queue.get() for _ in range(total)}) == 2 and queue.empty()
    assert sum(reader.recv() for _ in range(total)) == 5 * total


@pytest.mark.parametrize("method", METHODS)
def test_shared_tensors_stay_shared_and_others_are_copied(method: str) -> None:
    torch = pytest.importorskip("torch")
    ours, theirs, own = mp.SharedTensor(torch.zeros(2)), torch.zeros(2).share_memory_(), torch.zeros(2)
    array = np.zeros(2)
    module = mp.share_module(torch.nn.Linear(1, 1))

    def use() -> None:
        for data in (ours, theirs, own, array):
            data[1] = 3
        module.bias.data.fill_(4)

    play(method, use)
    assert ours.tolist() == theirs.tolist() == [0, 3]
    assert own.tolist() == array.tolist() == [0, 0]
    assert module.bias.item() == 4


@pytest.mark.parametrize("method", METHODS)
def test_shared_memory_outlives_the_workers_that_attached_it(method: str) -> None:
    """A tracker of their own would unlink it at their end (bpo-38119)."""
    memory = shared_memory.SharedMemory(create=True, size=8)
    try:
        name = memory.name

        def write() -> None:
            attached = shared_memory.SharedMemory(name)
            attached.buf[0] = 7
            attached.close()

        play(method, write)
        again = shared_memory.SharedMemory(name)
        assert again.buf[0] == 7
        again.close()
    finally:
        memory.close()
        memory.unlink()


def test_a_program_with_shared_memory_says_nothing_at_its_end() -> None:
    script = """
        from multiprocessing import shared_memory
        import gymnasium, shoal
        memory = shared_memory.SharedMemory(create=True, size=8)

        class Attaches(gymnasium.Wrapper):
            def __init__(self):
                super().__init__(gymnasium.make("CartPole-v1"))
                shared_memory.SharedMemory(memory.name).close()

        if __name__ == "__main__":
            envs = shoal.make_vec(Attaches, 2, num_workers=2)    # and left open
            envs.reset()
            memory.close()
            memory.unlink()
            print("end")
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


@pytest.mark.parametrize("method", METHODS)
def test_a_worker_is_a_process_of_its_parents_program(method: str) -> None:
    with shoal.make_vec(lambda: Calls(int), 2, num_workers=2, context=method) as envs:
        assert envs.call("ask", "process") == (("worker 0", True, False), ("worker 1", True, False))
        own = multiprocessing.current_process()
        assert envs.call("ask", "parent") == ((own.name, os.getpid(), True),) * 2
        assert envs.call("ask", "authkey") == (bytes(own.authkey),) * 2


@pytest.mark.parametrize("method", METHODS)
def test_a_key_that_was_set_since_the_workers_zygote_began_counts(method: str) -> None:
    shoal.make_vec(lambda: Calls(int), 2, num_workers=2, context=method).close()
    before = multiprocessing.current_process().authkey
    multiprocessing.current_process().authkey = b"another key"  # type: ignore[attr-defined]
    try:
        with shoal.make_vec(lambda: Calls(int), 1, num_workers=1, context=method, backend="process") as envs:
            assert envs.call("ask", "authkey") == (b"another key",)
    finally:
        multiprocessing.current_process().authkey = before  # type: ignore[attr-defined]


@pytest.mark.own_process
def test_the_start_method_that_the_program_has_set_is_the_workers_too() -> None:
    multiprocessing.set_start_method("spawn")
    with shoal.make_vec(lambda: Calls(int), 2, num_workers=2) as envs:
        assert envs.call("ask", "method") == ("spawn", "spawn")


@pytest.mark.parametrize(("method", "forked"), [("forkserver", True), ("spawn", False), FORK])
def test_hooks_that_run_after_a_fork_run_in_forked_workers(method: str, forked: bool) -> None:
    """The object is the zygote's, or this process's, unless the worker has imported its module by itself."""
    if method == "fork":
        import after_fork  # noqa: F401
    preload = shoal.WorkerOptions(preload=["after_fork"])
    with shoal.make_vec(lambda: Calls(int), 2, num_workers=2, context=method, worker=preload) as envs:
        pids = [worker["pid"] for worker in envs.stats()["workers"]]
        assert envs.call("ask", "renewed") == tuple([pid] if forked else [] for pid in pids)


def test_workers_of_a_shared_pool_share_as_much() -> None:
    with shoal.WorkerPool(2) as pool, multiprocessing.Manager() as manager:
        shared, queue = manager.list(), mp.Queue()
        lock = multiprocessing.get_context("spawn").Lock()

        def use() -> None:
            with lock:
                shared.append(1)
            queue.put(1)

        play("", use, pool=pool)
        assert len(shared) == queue.qsize() == STEPS * ENVS


def test_environments_that_are_stepped_one_by_one_share_as_much() -> None:
    value = mp.Value("i", 0)

    def use() -> None:
        with value:
            value.value += 1

    with shoal.make_vec(lambda: Calls(use), ENVS, num_workers=2, batch_size=2) as envs:
        envs.reset()
        envs.send(np.zeros(ENVS, np.int64), np.arange(ENVS))
        envs.recv()
        envs.recv()
    assert value.value == ENVS


def test_a_worker_that_is_started_anew_has_it_again() -> None:
    stock = multiprocessing.get_context("spawn")
    queue, value = mp.Queue(), stock.Value("i", 0)
    reader, writer = stock.Pipe(duplex=False)

    def use() -> None:
        with value:
            value.value += 1
            fatal = value.value == 2
        queue.put(os.getpid())
        writer.send(1)
        if fatal:
            os._exit(3)

    factory: Any = lambda: Calls(use)  # noqa: E731
    with shoal.make_vec(factory, 2, num_workers=2, on_fault="restart") as envs:
        del factory
        envs.reset(seed=0)
        pids: list[int] = []
        while len(set(pids)) < 3:
            envs.step(np.zeros(2, np.int64))
            while not queue.empty():
                pids.append(queue.get())
    assert value.value == len(pids) == sum(reader.recv() for _ in pids)


def test_setup_config_and_models_share_as_much() -> None:
    value, queue = mp.Value("i", 0), multiprocessing.get_context("spawn").Queue()

    def model(rows: Any) -> Any:
        queue.put("model")
        return rows

    class Asks(Calls):
        def __init__(self) -> None:
            super().__init__(lambda: shoal.worker().model("model")(np.zeros(1, np.float32)))
            with shoal.worker().config["value"].get_lock():
                shoal.worker().config["value"].value += 1

    def setup() -> None:
        queue.put("setup")

    models = shoal.WorkerOptions(models={"model": model})
    with shoal.make_vec(Asks, 2, num_workers=2, setup=setup, config={"value": value}, worker=models) as envs:
        envs.reset()
        envs.step(np.zeros(2, np.int64))
    assert value.value == 2
    assert sorted(queue.get(timeout=60) for _ in range(4)) == ["model", "model", "setup", "setup"]


def test_the_model_of_a_service_shares_as_much() -> None:
    with multiprocessing.Manager() as manager:
        shared, queue = manager.list(), mp.Queue()

        class Model:
            def __call__(self, rows: Any) -> Any:
                shared.append(multiprocessing.current_process().name)
                queue.put(len(rows))
                return rows

        with shoal.ModelService({"model": Model()}) as service:
            service.model("model")(np.zeros(2, np.float32))
        assert len(shared) >= 1 and {queue.get() for _ in shared} == {1}  # it is tried before it is asked


@pytest.mark.parametrize("kind", ["Lock", "RLock", "Semaphore", "Condition", "Event", "Queue", "Value", "Barrier"])
def test_what_was_made_for_forks_alone_is_an_error_that_shows_the_fix(kind: str) -> None:
    arguments = {"Value": ("i", 0), "Barrier": (2,)}.get(kind, ())
    shared = getattr(multiprocessing.get_context("fork"), kind)(*arguments)
    with pytest.raises(
        PicklingError, match=rf"cannot pickle '{kind}' object.*shoal\.multiprocessing\.{kind}\(\)"
    ) as error:
        shoal.make_vec(lambda: Calls(lambda: shared), 2, num_workers=2)
    assert error.value.path == "env.<closure>.shared"
    if kind == "Queue":
        shared.close()


@pytest.mark.own_process
def test_the_compat_class_forks_for_what_the_peers_forks_inherit() -> None:
    from shoal.compat.gymnasium import AsyncVectorEnv

    lock, value = multiprocessing.get_context("fork").Lock(), multiprocessing.get_context("fork").RawValue("i", 0)

    def use() -> None:
        with lock:
            value.value += 1

    with AsyncVectorEnv([lambda: Calls(use)] * 3) as envs:
        envs.reset()
        envs.step(np.zeros(3, np.int64))
    assert value.value == 3


def test_a_custom_worker_of_another_signature_is_told_so() -> None:
    from shoal.compat.gymnasium import AsyncVectorEnv

    def of_seven(index, env_fn, pipe, parent_pipe, shared_memory, error_queue, autoreset_mode):
        raise AssertionError

    built: list[int] = []
    with pytest.raises(ValueError, match=r"must accept 8 arguments.*\(index, env_fn, pipe.*semaphore") as refused:
        AsyncVectorEnv([lambda: built.append(1)], worker=of_seven)
    assert built == [] and refused.traceback[-1].path.name == "async_vector_env.py"
    assert "shoal" in str(refused.traceback[-1].path)
