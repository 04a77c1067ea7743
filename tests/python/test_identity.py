"""`shoal.worker()`: who it says it is, what it counts and shares, on every backend and under every start method."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import shoal

BACKENDS: dict[str, dict[str, Any]] = {
    "serial": {"backend": "serial"},
    "fork": {"context": "fork", "num_workers": 2, "worker": shoal.WorkerOptions(allow_unsafe_fork=True)},
    "forkserver": {"context": "forkserver", "num_workers": 2},
    "spawn": {"context": "spawn", "num_workers": 2},
}
Make = Callable[..., shoal.VectorEnv]


@pytest.fixture(params=BACKENDS)
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    made: list[shoal.VectorEnv] = []

    def make_and_keep(*args: Any, **kwargs: Any) -> shoal.VectorEnv:
        made.append(shoal.make_vec(*args, **{**BACKENDS[request.param], **kwargs}))
        return made[-1]

    yield make_and_keep
    for envs in made:
        envs.close()


class WhoAmI(gymnasium.Env):
    """Observes its worker: index, number of workers, environment, seed (-1: None), and the last two when it was built."""

    observation_space = spaces.Box(-1, 2.0**80, (6,), np.float64)
    action_space = spaces.Discrete(2)

    def __init__(self) -> None:
        self.worker = shoal.worker()
        self.built = (self.worker.env_index, self.worker.seed)
        self.worker.counter("built").add()

    def observe(self) -> np.ndarray:
        w = shoal.worker()
        assert w is self.worker
        numbers = [w.index, w.num_workers, w.env_index, w.seed, *self.built]
        return np.array([-1 if number is None else number for number in numbers], np.float64)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return self.observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.worker.counter("steps").add(int(action) + 1)
        return self.observe(), 0.0, False, False, {}

    def in_a_call(self) -> tuple[Any, ...]:
        w = shoal.worker()
        return w.env_index, w.pid == os.getpid(), w.is_worker, list(w.env_indices)

    def be_first(self, name: str) -> Any:
        return shoal.worker().shared.setdefault(name, os.getpid())

    def in_a_call_pid(self) -> int:
        return os.getpid()

    def add_to_shared(self, name: str, times: int) -> None:
        for _ in range(times):
            shoal.worker().shared.change(name, lambda sum: sum + 1, default=0)

    def in_a_thread(self) -> int | None:
        found = []
        thread = threading.Thread(target=lambda: found.append(shoal.worker().index))
        thread.start()
        thread.join()
        return found[0]


def test_a_plain_process_is_worker_zero_of_one() -> None:
    w = shoal.worker()
    assert (w.index, w.num_workers, w.num_envs, w.env_index, w.seed, w.pid) == (0, 1, 0, None, None, os.getpid())
    assert not w.is_worker and dict(w.config) == {} and w.context is None
    assert shoal.worker() is w
    before = w.counter("plain").value
    assert w.counter("plain").add(3) == before + 3
    w.shared["plain"] = {"a": 1}
    assert w.shared["plain"] == {"a": 1}
    with w.lease_port() as port:
        assert w.leases == (port,)
    assert w.leases == ()


def test_it_is_right_while_environments_are_built_reset_and_stepped(make: Make) -> None:
    envs = make(WhoAmI, 4, seed=100)
    expected = [[i // 2 if envs.num_workers == 2 else 0, envs.num_workers, i, 100 + i, i, 100 + i] for i in range(4)]
    assert envs.reset()[0].tolist() == expected
    assert envs.step([0] * 4)[0].tolist() == expected
    worker_envs = [[0, 1], [0, 1], [2, 3], [2, 3]] if envs.num_workers == 2 else [[0, 1, 2, 3]] * 4
    assert envs.call("in_a_call") == tuple((i, True, envs.num_workers == 2, worker_envs[i]) for i in range(4))
    assert shoal.worker().env_index is None and shoal.worker().num_envs == 0


def test_seeds_are_those_of_the_last_reset(make: Make) -> None:
    envs = make(WhoAmI, 4)
    assert envs.reset()[0][:, 3].tolist() == [-1] * 4
    assert envs.reset(seed=[5, None, 2**70, 7])[0][:, 3].tolist() == [5, -1, 2**70, 7]
    assert envs.reset()[0][:, 3].tolist() == [5, -1, 2**70, 7]
    assert envs.reset(seed=[None, 1, 2, 3])[0][:, 3].tolist() == [5, 1, 2, 3]
    assert envs.step([0] * 4)[0][:, 3].tolist() == [5, 1, 2, 3]


def test_counters_are_seen_by_the_parent(make: Make) -> None:
    envs = make(WhoAmI, 4)
    envs.reset()
    for _ in range(10):
        envs.step([0, 1, 0, 1])
    assert envs.counters() == {"built": 4, "steps": 60}
    envs.counter("steps").set(-1)
    envs.step([0] * 4)
    assert envs.counter("steps").value == 3
    envs.close()
    assert envs.counter("built").get() == 4


def test_counters_of_two_vector_environments_are_their_own(make: Make) -> None:
    first, second = make(WhoAmI, 2), make(WhoAmI, 3)
    assert (first.counter("built").value, second.counter("built").value) == (2, 3)
    assert "built" not in dict(shoal.worker()._identity.shared_state.counters())


def test_counter_names_that_cannot_be(make: Make) -> None:
    envs = make(WhoAmI, 1)
    for name in ("", "x" * 56):
        with pytest.raises(ValueError, match="a name has 1 to 55 bytes"):
            envs.counter(name)
    for i in range(255):
        envs.counter(f"counter {i}")
    with pytest.raises(ValueError, match=r"no room for a counter"):
        envs.counter("one more")


def test_the_first_of_all_setdefaults_holds_for_all(make: Make) -> None:
    envs = make(WhoAmI, 4)
    for name in map(str, range(20)):
        values = set(envs.call("be_first", name))
        assert values == {envs.shared[name]} and values <= set(envs.call("in_a_call_pid"))


def test_changes_of_all_workers_add_up(make: Make) -> None:
    envs = make(WhoAmI, 4)
    envs.call("add_to_shared", "sum", 50)
    assert envs.shared["sum"] == 200


def test_a_thread_of_an_environment_is_of_the_same_worker(make: Make) -> None:
    envs = make(WhoAmI, 2)
    if envs.num_workers == 2:
        assert envs.call("in_a_thread") == (0, 1)


def test_a_restarted_worker_is_the_same_worker_and_keeps_the_counters() -> None:
    envs = shoal.make_vec(WhoAmI, 2, num_workers=2, on_fault="restart", seed=3)
    envs.reset()
    os.kill(envs.stats()["workers"][1]["pid"], signal.SIGKILL)
    envs.step([0, 0])
    while envs.counter("built").value < 3:
        envs.step([0, 0])
    while not (observation := envs.step([0, 0])[0])[1].any():  # zeros until the new one is at work
        pass
    assert observation[1].tolist()[:3] == [1, 2, 1]
    envs.close()


@pytest.mark.parametrize("where", [{"backend": "serial"}, {"num_workers": 2}])
def test_vector_environments_leave_no_descriptor(where: dict[str, Any]) -> None:
    counts = []
    for _ in range(3):
        envs = shoal.make_vec(WhoAmI, 2, setup=lambda: shoal.worker().lease_port(), config={"a": 1}, **where)
        envs.shared["a"] = envs.counter("built").value
        envs.close()
        del envs
        gc.collect()
        counts.append(len(os.listdir("/proc/self/fd")))
    assert counts[1] == counts[2]  # the first may have started a zygote


# The shared dict


def test_it_is_a_dict() -> None:
    envs = shoal.make_vec(WhoAmI, 1)
    shared = envs.shared
    shared["a"] = 1
    shared.update({"b": [1, 2]}, c=None)
    assert shared == {"a": 1, "b": [1, 2], "c": None} and list(shared) == ["a", "b", "c"] and len(shared) == 3
    assert "a" in shared and "x" not in shared and 3 not in shared
    assert shared.pop("a") == 1 and shared.pop("a", 5) == 5 and shared.get("a") is None
    assert shared.setdefault("b", 7) == [1, 2] and shared.setdefault("d") is None
    assert shared.change("b", lambda value: [*value, 3]) == [1, 2, 3]
    shared["function"] = lambda number: number + 1
    assert shared["function"](1) == 2
    del shared["function"]
    for lost in (lambda: shared["x"], lambda: shared.pop("x"), lambda: shared.change("x", str)):
        with pytest.raises(KeyError, match="x"):
            lost()
    with pytest.raises(KeyError, match="x"):
        del shared["x"]
    with pytest.raises(TypeError, match="names in a shared dict are str"):
        shared[3] = 4  # type: ignore[index]
    with pytest.raises(TypeError, match=r"shared\['lock'\]: cannot pickle"):
        shared["lock"] = threading.Lock()
    shared.clear()
    assert repr(shared) == "SharedDict({})"
    envs.close()


def test_what_does_not_fit_is_refused_and_nothing_is_lost() -> None:
    envs = shoal.make_vec(WhoAmI, 1, worker=shoal.WorkerOptions(shared_bytes=1000))
    envs.shared["a"] = b"a" * 500
    with pytest.raises(ValueError, match=r"shared_bytes=…"):
        envs.shared["b"] = b"b" * 500
    with pytest.raises(ValueError, match=r"takes \d+ bytes and all shared values together may take 1000"):
        envs.shared.update(b=b"b", c=b"c" * 2000)
    assert envs.shared == {"a": b"a" * 500}
    envs.close()


def test_a_worker_that_is_killed_while_it_writes_leaves_it_whole() -> None:
    class Writer(WhoAmI):
        def step(self, action: Any) -> Any:
            shared = shoal.worker().shared
            while True:
                for letter in "abcdef":
                    shared[letter] = letter * 1000

    for _ in range(5):
        envs = shoal.make_vec(Writer, 1, num_workers=1, backend="process")
        envs.reset()
        envs.step_async([0])
        while len(envs.shared) < 6:
            pass
        os.kill(envs.stats()["workers"][0]["pid"], signal.SIGKILL)
        with pytest.raises(shoal.WorkerDied):
            envs.step_wait()
        assert dict(envs.shared) == {letter: letter * 1000 for letter in "abcdef"}
        envs.shared["a"] = "after"
        assert envs.shared["a"] == "after"
        envs.close()


# Ports


class Server(WhoAmI):
    """Listens on a leased port, as a simulator does, without SO_REUSEADDR."""

    def __init__(self) -> None:
        super().__init__()
        self.port = shoal.worker().lease_port()
        self.socket = socket.create_server(("127.0.0.1", self.port), reuse_port=False)

    def close(self) -> None:
        self.socket.close()


def test_every_environment_has_a_port_of_its_own(make: Make) -> None:
    first, second = make(Server, 4), make(Server, 3)
    ports = [*first.get_attr("port"), *second.get_attr("port")]
    assert len(set(ports)) == 7 and all(type(port) in (int, shoal.PortLease) for port in ports)
    with shoal.worker().lease_port() as port:
        assert port not in ports


def test_ports_are_free_when_the_environments_are_closed_and_come_again_last(make: Make) -> None:
    envs = make(Server, 2)
    ports = set(envs.get_attr("port"))
    envs.close()
    again = make(Server, 2)
    assert not ports & set(again.get_attr("port"))
    for port in ports:
        lease = shoal.worker().lease_port(range=(port, port))
        assert lease == port and lease.held
        lease.release()


def test_ports_of_a_killed_worker_are_free() -> None:
    envs = shoal.make_vec(Server, 2, num_workers=2)
    port = int(envs.get_attr("port")[0])
    with pytest.raises(shoal.Error, match=rf"{port} by process {envs.stats()['workers'][0]['pid']} \("):
        shoal.worker().lease_port(range=(port, port))
    os.kill(envs.stats()["workers"][0]["pid"], signal.SIGKILL)
    with pytest.raises(shoal.WorkerDied):
        envs.reset()
    with shoal.worker().lease_port(range=(port, port)) as lease:
        assert lease == port
    envs.close()


def test_a_lease_is_an_int_that_lasts_until_it_is_released() -> None:
    w = shoal.worker()
    port = int(w.lease_port())  # the object is gone, the lease is not
    with pytest.raises(shoal.Error, match="1 leased"):
        w.lease_port(range=(port, port))
    (lease,) = (lease for lease in w.leases if lease == port)
    assert f"{lease}" == str(port) and repr(lease) == f"PortLease({port}, 'tcp')" and lease.port == port
    assert pickle.loads(pickle.dumps(lease)) == port and type(pickle.loads(pickle.dumps(lease))) is int
    udp = w.lease_port(range=range(port, port + 1), kind="udp")
    assert udp == port and udp.kind == "udp"
    with udp as number:
        assert type(number) is int and type(udp.port) is int
    assert not udp.held
    lease.release()
    lease.release()
    assert not lease.held and repr(lease) == f"PortLease({port}, 'tcp', released)"


def test_a_connection_that_lingers_keeps_nobody_waiting() -> None:
    w = shoal.worker()
    with w.lease_port() as port, socket.create_server(("127.0.0.1", port)) as server:
        client = socket.create_connection(("127.0.0.1", port))
        accepted, _ = server.accept()
        accepted.close()  # this side closes first: TIME_WAIT stays on the port
        client.close()
    with pytest.raises(shoal.Error, match="connections that linger"):
        w.lease_port(range=(port, port))
    with w.lease_port() as other:
        assert other != port
        socket.create_server(("127.0.0.1", other)).close()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"kind": "sctp"}, ValueError),
        ({"range": "20000-30000"}, TypeError),
        ({"range": range(20000, 21000, 2)}, TypeError),
        ({"range": (30000, 20000)}, ValueError),
        ({"range": (0, 10)}, ValueError),
        ({"range": (65000, 70000)}, ValueError),
    ],
)
def test_arguments_that_make_no_sense(arguments: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        shoal.worker().lease_port(**arguments)


# Where it is asked


class Outer(WhoAmI):
    """Has environments of its own, in its own process, and in processes that it forks."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = shoal.make_vec(WhoAmI, 2, backend="serial")
        self.inner.reset()

    def step(self, action: Any) -> Any:
        self.inner_envs = self.inner.step([0, 0])[0][:, 2].tolist()
        return super().step(action)

    def fork(self) -> int:
        port = shoal.worker().lease_port()
        pid = os.fork()
        if pid == 0:
            try:
                w = shoal.worker()
                w.counter("forked").add()
                os._exit(0 if w.leases == () and w.pid == os.getpid() and not port.held else 1)
            finally:
                os._exit(2)
        return os.waitpid(pid, 0)[1] if port in shoal.worker().leases else -1


def test_environments_inside_of_environments(make: Make) -> None:
    envs = make(Outer, 2)
    envs.reset()
    assert envs.step([0, 0])[0][:, 2].tolist() == [0, 1]
    assert envs.get_attr("inner_envs") == ([0, 1], [0, 1])
    assert envs.counters() == {"built": 2, "steps": 2}


def test_a_forked_child_shares_the_counters_and_holds_no_port(make: Make) -> None:
    envs = make(Outer, 2)
    assert envs.call("fork") == (0, 0)
    assert envs.counter("forked").value == 2


def test_an_exception_leaves_the_caller_who_it_was() -> None:
    class Raising(WhoAmI):
        def step(self, action: Any) -> Any:
            raise ValueError("as told")

    envs = shoal.make_vec(Raising, 2, backend="serial")
    envs.reset()
    with pytest.raises(ValueError, match="as told"):
        envs.step([0, 0])
    assert shoal.worker().env_index is None and shoal.worker().num_envs == 0
    envs.close()


def test_it_costs_no_import_of_anything_heavy() -> None:
    code = (
        "import sys, shoal; w = shoal.worker(); w.counter('a').add(); w.shared['a'] = 1; w.lease_port().release(); "
        "print([name for name in ('numpy', 'gymnasium', 'torch', 'cloudpickle') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
