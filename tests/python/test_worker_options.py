"""Options of worker processes: what each changes, for Python and native environments, and where each is refused."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import os
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import shoal
from sample_envs import CounterEnv

NATIVE = "shoal/CartPole-v1"
CPUS = sorted(os.sched_getaffinity(0))


class Starting(CounterEnv):
    """Starts a process in each step."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    def step(self, action: Any) -> Any:
        if self.how == "popen":
            subprocess.run(["true"], check=True)
        elif self.how == "fork":
            if (pid := os.fork()) == 0:
                os._exit(0)
            os.waitpid(pid, 0)
        elif self.how == "make_vec":
            shoal.make_vec(CounterEnv, 2).close()
        elif self.how == "C":
            if ctypes.CDLL(None).system(b"true") != 0:
                raise PermissionError("from the kernel")
        return super().step(action)


def pids(envs: shoal.VectorEnv) -> list[int]:
    return [worker["pid"] for worker in envs.stats()["workers"]]


def variables(pid: int) -> dict[str, str]:
    """Of a process, as they were when its program started."""
    entries = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


def filters(pid: int | str) -> int:
    """How many seccomp filters a process has."""
    return int(re.search(r"Seccomp_filters:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1])


def native(kind: str, **arguments: Any) -> shoal.VectorEnv:
    """Native environments in two worker processes, stepped together or in order of arrival."""
    asynchronous = {"batch_size": 2} if kind == "asynchronous" else {}
    return shoal.make_vec(NATIVE, 4, num_workers=2, **asynchronous, **arguments)


KINDS = pytest.mark.parametrize("kind", ["synchronous", "asynchronous"])


# --- native environments in worker processes


@KINDS
def test_native_workers_have_the_variables_and_threads_they_were_given(kind: str) -> None:
    envs = native(kind, worker=shoal.WorkerOptions(threads=3, env={"SHOAL_TEST_VARIABLE": "yes"}))
    for pid in pids(envs):
        seen = variables(pid)
        assert (seen["OMP_NUM_THREADS"], seen["SHOAL_TEST_VARIABLE"], seen["CUDA_VISIBLE_DEVICES"]) == ("3", "yes", "")
    envs.close()


@KINDS
def test_native_workers_see_the_gpus_that_were_asked_for(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    envs = native(kind, backend="process", worker=shoal.WorkerOptions(gpu="own"))
    assert [variables(pid)["CUDA_VISIBLE_DEVICES"] for pid in pids(envs)] == ["0", "0"]
    envs.close()


@pytest.mark.parametrize("where", ["synchronous", "asynchronous", "pool"])
def test_native_workers_lease_gpus(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"GPU-{os.getpid()}-{where}-{i}" for i in range(2)]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", ",".join(names))
    options = shoal.WorkerOptions(gpu="lease")
    if where == "pool":
        with shoal.WorkerPool(2, worker=options) as pool:
            shoal.make_vec(NATIVE, 4, pool=pool).close()
            held = Path("/proc/net/unix").read_text()
    else:
        envs = native(where, worker=options)
        held = Path("/proc/net/unix").read_text()
        envs.close()
    for name in names:
        assert held.count(f"@shoal/lease/gpu/{name}/0") == 1


@KINDS
def test_native_workers_over_their_memory_limit_are_replaced(kind: str) -> None:
    envs = native(
        kind,
        max_episode_steps=3,
        worker=shoal.WorkerOptions(memory_limit=1, memory_hard_limit=2**40),
    )
    envs.reset(seed=0)
    if kind == "asynchronous":
        envs.async_reset(seed=0)
    while not all(worker["recycles"] for worker in envs.health()):
        if kind == "asynchronous":
            envs.send(np.zeros(2, np.int64), envs.recv()[-1]["env_id"])
        else:
            envs.step(np.zeros(4, np.int64))
    envs.close()


def test_native_workers_over_their_hard_limit_are_killed() -> None:
    envs = native("synchronous", worker=shoal.WorkerOptions(memory_hard_limit=1))
    with pytest.raises(shoal.WorkerDied, match="memory"):
        envs.reset(seed=0)
        while True:
            envs.step(np.zeros(4, np.int64))
    envs.close()


@KINDS
@pytest.mark.parametrize("context", ["spawn", "forkserver", "fork"])
def test_native_workers_start_as_asked(kind: str, context: str) -> None:
    """By their parents: a forked or spawned worker is a child of this process, others are the zygote's."""
    unsafe = shoal.WorkerOptions(allow_unsafe_fork=context == "fork")
    envs = native(kind, context=context, worker=unsafe)
    for pid in pids(envs):
        status = Path(f"/proc/{pid}/status").read_text()
        parent = int(re.search(r"PPid:\s+(\d+)", status)[1])
        assert (parent == os.getpid()) == (context != "forkserver")
        program = Path(f"/proc/{pid}/cmdline").read_bytes()
        assert program.split(b"\0")[0].endswith(b"shoal-worker") == (context != "fork")
    envs.reset(seed=0)
    envs.close()


@pytest.mark.parametrize("option", ["preload", "models"])
def test_native_environments_refuse_what_only_python_could_use(option: str) -> None:
    options = shoal.WorkerOptions(**{option: ["json"] if option == "preload" else {"a": abs}})
    with pytest.raises(ValueError, match=rf"WorkerOptions\({option}=…\) is for Python environments"):
        shoal.make_vec(NATIVE, 2, worker=options)


@pytest.mark.parametrize("models", [3, len, [abs]])
def test_what_are_no_models_is_refused_at_once(models: Any) -> None:
    with pytest.raises(TypeError, match=r"WorkerOptions\(models=…\) takes a shoal\.ModelService, or a dict from names"):
        shoal.WorkerOptions(models=models)


# --- CPUs


@pytest.mark.parametrize("where", ["python", "synchronous", "asynchronous", "pool"])
def test_a_list_of_cpus_is_dealt_out_to_the_workers(where: str) -> None:
    affinity = [CPUS[-1], CPUS] if len(CPUS) > 1 else [CPUS[0]]
    options = shoal.WorkerOptions(affinity=affinity, threads=2)
    expected = [set(part) if isinstance(part, list) else {part} for part in affinity]
    if where == "pool":
        with shoal.WorkerPool(3, worker=options) as pool:
            seen = [os.sched_getaffinity(pid) for pid in pool.pids]
    else:
        env = CounterEnv if where == "python" else NATIVE
        batch = {"batch_size": 2} if where == "asynchronous" else {}
        envs = shoal.make_vec(env, 3, num_workers=3, worker=options, **batch)
        seen = [os.sched_getaffinity(pid) for pid in pids(envs)]
        envs.close()
    assert seen == [expected[i % len(expected)] for i in range(3)]


def test_environments_are_built_on_their_workers_cpus() -> None:
    class Env(CounterEnv):
        def __init__(self) -> None:
            super().__init__()
            self.cpus = os.sched_getaffinity(0)

    envs = shoal.make_vec(Env, 1, worker=shoal.WorkerOptions(affinity=[CPUS[-1]]))
    assert envs.get_attr("cpus") == ({CPUS[-1]},)
    envs.close()


@pytest.mark.parametrize("affinity", ["some", [], [[]], [10**6], [0.5], 3, [True]])
def test_cpus_that_cannot_be_are_refused(affinity: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"WorkerOptions\(affinity=…\)"):
        shoal.WorkerOptions(affinity=affinity)


# --- processes of workers


@pytest.mark.parametrize("how", ["popen", "fork", "make_vec", "C"])
@pytest.mark.parametrize("where", ["workers", "pool"])
def test_workers_without_nested_start_no_processes(how: str, where: str) -> None:
    options = shoal.WorkerOptions(nested=False)
    env = functools.partial(Starting, how)
    pool = shoal.WorkerPool(1, worker=options) if where == "pool" else None
    envs = shoal.make_vec(env, 1, pool=pool) if pool else shoal.make_vec(env, 1, worker=options)
    envs.reset()
    with pytest.raises(PermissionError, match="from the kernel" if how == "C" else r"WorkerOptions\(nested=False\)"):
        envs.step([0])
    envs.close()
    if pool:
        pool.close()


@pytest.mark.parametrize("how", ["popen", "fork", "C"])
def test_workers_start_processes_by_default(how: str) -> None:
    envs = shoal.make_vec(functools.partial(Starting, how), 2, num_workers=1)
    envs.reset()
    envs.step([0, 0])
    envs.close()


@KINDS
def test_native_workers_without_nested_have_the_kernels_filter(kind: str) -> None:
    for nested, more in ((True, 0), (False, 1)):
        envs = native(kind, backend="process", worker=shoal.WorkerOptions(nested=nested))
        assert [filters(pid) for pid in pids(envs)] == [filters("self") + more] * 2
        envs.close()


# --- which backend

ONLY_PROCESSES: dict[str, dict[str, Any]] = {
    "context": {"context": "spawn"},
    "timeout": {"timeout": 60.0},
    "threads": {"threads": 2},
    "gpu": {"gpu": "lease"},
    "affinity": {"affinity": [CPUS[0]]},
    "preload": {"preload": ["json"]},
    "env": {"env": {"A": "b"}},
    "memory_limit": {"memory_limit": 2**40},
    "memory_hard_limit": {"memory_hard_limit": 2**40},
    "start_timeout": {"start_timeout": 30.0},
    "nested": {"nested": False},
}
IN_ANY_PROCESS = {"config", "models", "model_device", "shared_bytes", "allow_unsafe_fork"}


def of_make_vec(name: str) -> dict[str, Any]:
    given = ONLY_PROCESSES[name]
    return given if name in ("context", "timeout") else {"worker": shoal.WorkerOptions(**given)}


def test_every_option_of_workers_is_in_the_tables() -> None:
    names = {field.name for field in dataclasses.fields(shoal.WorkerOptions)}
    assert names | {"context", "timeout"} == set(ONLY_PROCESSES) | IN_ANY_PROCESS


@pytest.mark.parametrize("name", ONLY_PROCESSES)
@pytest.mark.parametrize("how", [{"backend": "serial"}, {"num_workers": 0}, {"batch_size": 1, "backend": "serial"}])
def test_what_only_a_worker_process_can_honour_is_refused_without_one(name: str, how: dict[str, Any]) -> None:
    shown = f"{name}=…" if name in ("context", "timeout") else rf"WorkerOptions\({name}=…\)"
    with pytest.raises(ValueError, match=f"{shown} would change nothing"):
        shoal.make_vec(CounterEnv, 1, **how, **of_make_vec(name))


@pytest.mark.parametrize(
    ("how", "advice"),
    [
        ({"num_workers": 0}, "For worker processes give num_workers=1 or more"),
        ({"backend": "serial"}, 'For worker processes give backend="process"'),
        (
            {"num_workers": 0, "backend": "serial"},
            'For worker processes give num_workers=1 or more and backend="process"',
        ),
    ],
)
@pytest.mark.parametrize("asked", [{"context": "forkserver"}, {"on_fault": "restart"}])
def test_the_way_to_workers_that_is_named_leads_there(how: dict[str, Any], advice: str, asked: dict[str, Any]) -> None:
    with pytest.raises(ValueError) as refused:
        shoal.make_vec(CounterEnv, 1, **how, **asked)
    assert str(refused.value).endswith(advice)
    followed = {
        "num_workers": 1 if "num_workers" in how else None,
        "backend": "process" if "backend" in how else "auto",
    }
    envs = shoal.make_vec(CounterEnv, 1, **followed, **asked)
    assert pids(envs) != [os.getpid()] and pids(envs)[0] > 0
    envs.close()


def test_several_options_without_workers_are_left_out_together() -> None:
    options = shoal.WorkerOptions(env={"A": "b"})
    with pytest.raises(
        ValueError, match=r"context=… and WorkerOptions\(env=…\) would change nothing: leave them out\."
    ):
        shoal.make_vec(CounterEnv, 1, num_workers=0, context="spawn", worker=options)


@pytest.mark.parametrize("name", [name for name in ONLY_PROCESSES if name != "preload"])
def test_threads_refuse_it_too(name: str) -> None:
    with pytest.raises(ValueError, match=r"make_vec\(backend='thread'\).*would change nothing"):
        shoal.make_vec(NATIVE, 2, backend="thread", **of_make_vec(name))


@pytest.mark.parametrize("name", [name for name in ONLY_PROCESSES if name not in ("gpu", "preload")])
@pytest.mark.parametrize("env", [CounterEnv, NATIVE])
def test_it_makes_auto_take_a_worker_process(name: str, env: Any) -> None:
    envs = shoal.make_vec(env, 1, **of_make_vec(name))
    assert pids(envs) != [os.getpid()] and pids(envs)[0] > 0
    envs.close()


@pytest.mark.parametrize("options", [{"gpu": "own"}, {"affinity": "none"}, {"preload": []}, {"shared_bytes": 4096}])
def test_what_holds_here_as_well_does_not(options: dict[str, Any]) -> None:
    envs = shoal.make_vec(CounterEnv, 1, worker=shoal.WorkerOptions(**options))
    assert pids(envs) == [0]
    envs.close()


def test_one_environment_that_hangs_is_late() -> None:
    class Env(CounterEnv):
        def step(self, action: Any) -> Any:
            time.sleep(3600)

    envs = shoal.make_vec(Env, 1, timeout=0.2)
    envs.reset()
    with pytest.raises(TimeoutError):
        envs.step([0])
    envs.close(terminate=True)


# --- wrappers


class Doubled(gymnasium.RewardWrapper):
    def __init__(self, env: gymnasium.Env, by: float = 2.0) -> None:
        super().__init__(env)
        self.by = by

    def reward(self, reward: Any) -> float:
        return float(reward) * self.by


@pytest.mark.parametrize("backend", ["serial", "process"])
@pytest.mark.parametrize(
    ("wrappers", "reward"),
    [
        ([Doubled], 2.0),
        ([Doubled, "gymnasium.wrappers:ClipReward(max_reward=0.5)"], 0.5),
        (["gymnasium.wrappers:ClipReward(max_reward=0.5)", functools.partial(Doubled, by=3.0)], 1.5),
    ],
)
def test_wrappers_are_put_around_every_environment_the_first_innermost(
    backend: str, wrappers: Any, reward: float
) -> None:
    envs = shoal.make_vec("CartPole-v1", 2, backend=backend, wrappers=wrappers)
    envs.reset(seed=0)
    assert envs.step([0, 1])[1].tolist() == [reward] * 2
    envs.close()


@pytest.mark.parametrize(
    ("wrapper", "error", "text"),
    [
        ("gymnasium.wrappers:ClipRewards", ValueError, "did you mean 'ClipReward'"),
        ("no_such_module:Wrapper", ValueError, "there is no module 'no_such_module'"),
        ("gymnasium.wrappers.ClipReward", ValueError, "is written package.module:Name"),
        ("gymnasium.wrappers:ClipReward(max_reward=)", ValueError, "is written package.module:Name"),
        ("gymnasium.wrappers:ClipReward(open('x'))", ValueError, "is written package.module:Name"),
        ("gymnasium.wrappers:ClipReward(most=1)", ValueError, "unexpected keyword argument 'most'"),
        ("gymnasium:__name__", ValueError, "cannot be called with an environment"),
        (3, TypeError, "takes an environment, or its path"),
    ],
)
def test_a_wrapper_that_cannot_be_is_one_clear_error(wrapper: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=re.escape(text)):
        shoal.make_vec("CartPole-v1", 2, wrappers=[wrapper])


def test_wrappers_are_a_list_of_python_environments() -> None:
    with pytest.raises(TypeError, match="takes a list of wrappers"):
        shoal.make_vec("CartPole-v1", 2, wrappers="gymnasium.wrappers:ClipReward")
    with pytest.raises(ValueError, match="is stepped in C\\+\\+"):
        shoal.make_vec(NATIVE, 2, wrappers=[Doubled])


def test_a_wrapper_that_returns_nothing_is_named_and_its_environment_closed() -> None:
    closed = []

    class Env(CounterEnv):
        def close(self) -> None:
            closed.append(True)

    with pytest.raises(TypeError, match="made no environment"):
        shoal.make_vec(Env, 1, backend="serial", wrappers=[lambda env: None])
    assert closed == [True]
