"""shoal.compat.tianshou: asynchronous stepping, and what is in processes."""

from __future__ import annotations

import functools
import gc
import multiprocessing
import os
import pickle
import signal
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

pytest.importorskip("tianshou", reason="it is in an environment of its own: ./shoal test --only tianshou")


import shoal
from interrupting import interrupted_once_there
from sample_envs import TOLD_OF_DEATH, CounterEnv, FaultyEnv, GatedEnv, MortalEnv, ShapedEnv, TellingGatedEnv
from shoal.compat.tianshou import ShmemVectorEnv, SubprocVectorEnv

IN_PROCESSES = {"subproc": SubprocVectorEnv, "shmem": ShmemVectorEnv}


@pytest.fixture(params=IN_PROCESSES)
def in_processes(request: pytest.FixtureRequest) -> Any:
    return IN_PROCESSES[request.param]


# Asynchronous stepping


def test_a_step_returns_those_that_are_ready(in_processes: Any, tmp_path: Path) -> None:
    gates = [tmp_path / f"gate{i}" for i in range(3)]
    envs = in_processes([functools.partial(GatedEnv, gate) for gate in gates], wait_num=1)
    assert envs.is_async
    envs.reset()
    _, rewards, _, _, infos = envs.step(np.array([1, 0, 1]), np.arange(3))
    assert [info["env_id"] for info in infos] == [1] and rewards.tolist() == [0.0]
    assert envs.ready_id == [1] and sorted(envs.waiting_id) == [0, 2]
    assert set(envs.waiting_conn) == {envs.workers[0], envs.workers[2]}
    told = "Cannot interact with environment 2 which is stepping now."
    for call in (
        lambda: envs.step(np.array([0]), [2]),
        lambda: envs.reset([2]),
        lambda: envs.get_env_attr("length", 2),
    ):
        with pytest.raises(AssertionError, match=told):
            call()
    for call in (envs.render, envs.seed):
        with pytest.raises(RuntimeError, match="still stepping"):
            call()
    assert envs.get_env_attr("length", 1) == [3] and envs.reset(1)[0].tolist() == [[2, 0]]
    gates[2].touch()
    observations, rewards, _, _, infos = envs.step(None)
    assert [info["env_id"] for info in infos] == [2] and (observations.tolist(), rewards.tolist()) == ([[1, 1]], [1.0])
    gates[0].touch()
    seen = {info["env_id"] for info in envs.step(np.array([0]), [1])[4]}
    while envs.waiting_id:
        seen |= {info["env_id"] for info in envs.step(None)[4]}
    assert seen == {0, 1} and sorted(envs.ready_id) == [0, 1, 2]
    with pytest.raises(RuntimeError, match="none is: give it actions"):
        envs.step(None)
    envs.close()


def test_a_timeout_never_returns_nothing(tmp_path: Path) -> None:
    gates = [tmp_path / "gate0", tmp_path / "gate1"]
    envs = SubprocVectorEnv([functools.partial(GatedEnv, gate) for gate in gates], timeout=0.01)
    assert envs.is_async and envs.wait_num == 2
    envs.reset()
    assert [info["env_id"] for info in envs.step(np.array([1, 0]))[4]] == [1]
    threading.Timer(0.2, gates[0].touch).start()  # when the time has been up several times
    assert [info["env_id"] for info in envs.step(None)[4]] == [0]
    envs.close()


def test_a_step_that_ends_while_another_is_reset_is_not_lost(tmp_path: Path) -> None:
    class Slow(GatedEnv):
        def reset(self, **arguments: Any) -> Any:
            if self.resets > 0:
                self.pass_gate()
            return super().reset(**arguments)

    gate = tmp_path / "gate"
    fast = functools.partial(CounterEnv, 9)
    envs = SubprocVectorEnv([functools.partial(Slow, gate), fast, fast], wait_num=1, timeout=5.0)
    envs.reset()
    collected = [info["env_id"] for info in envs.step(np.array([0]), [0])[4]]
    assert collected == [0]
    envs._begin(np.array([1, 2]), [1, 2])
    threading.Timer(0.2, gate.touch).start()
    assert envs.reset(0)[0].tolist() == [[2, 0]]
    seen = {}
    while envs.waiting_id:
        _, rewards, _, _, infos = envs.step(None)
        seen |= {info["env_id"]: reward for info, reward in zip(infos, rewards.tolist(), strict=True)}
    assert seen == {1: 1.0, 2: 2.0}
    envs.close()


def test_it_is_closed_in_the_middle_of_steps(tmp_path: Path) -> None:
    gates = [tmp_path / "gate0", tmp_path / "gate1"]
    envs = SubprocVectorEnv([functools.partial(GatedEnv, gate) for gate in gates], wait_num=1)
    envs.reset()
    envs.step(np.array([1, 0]))
    gates[0].touch()
    process = envs.workers[0].process
    envs.close()
    process.join(30)
    assert not process.is_alive()


# Ctrl-C


class Telling(TellingGatedEnv):
    """Makes the file `begun` in each reset but the first, too, which waits for the gate. Its rewards are ints."""

    def reset(self, **arguments: Any) -> Any:
        if self.resets > 0:
            self.gate.with_name("begun").touch()
            self.pass_gate()
        return super().reset(**arguments)

    def step(self, action: Any) -> Any:
        observation, reward, *rest = super().step(action)
        return observation, int(reward), *rest


INTERRUPTED = {
    "step": lambda envs: envs.step(np.array([1, 1, 1])),
    "step of some": lambda envs: envs.step(np.array([1, 1]), [2, 1]),
    "reset": lambda envs: envs.reset(),
    "reset of some": lambda envs: envs.reset([1]),
    "call": lambda envs: envs.render(),
}


@pytest.mark.parametrize("arguments", [{}, {"seed": 3}])
@pytest.mark.parametrize("name", INTERRUPTED)
def test_a_reset_waits_for_what_ctrl_c_has_left_under_way(
    in_processes: Any, name: str, arguments: dict[str, Any], tmp_path: Path
) -> None:
    class Env(Telling):
        def render(self) -> Any:
            self.gate.with_name("begun").touch()
            return self.pass_gate()

    gate = tmp_path / "gate"
    envs = in_processes([functools.partial(Env, gate)] * 3)
    envs.reset()
    with interrupted_once_there(tmp_path / "begun"):
        INTERRUPTED[name](envs)
    gate.touch()
    observations, infos = envs.reset(**arguments)
    assert observations[:, 1].tolist() == [0, 0, 0] and (observations[:, 0] >= 2).all()
    assert [info.get("seed") for info in infos] == [arguments.get("seed")] * 3
    for steps in (1, 2):
        observations, rewards, *_, infos = envs.step(np.array([0, 1, 2]))
        assert observations[:, 1].tolist() == [steps] * 3 and [info["env_id"] for info in infos] == [0, 1, 2]
        assert rewards.tolist() == [0, 1, 2] and rewards.dtype == np.int64, "which its first step had said"
    assert envs.step(np.array([2, 1]), [2, 0])[1].tolist() == [2, 1]
    envs.close()


def test_a_step_that_ctrl_c_has_left_is_waited_for_by_the_next_call(in_processes: Any, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    envs = in_processes([functools.partial(TellingGatedEnv, gate)] * 3)
    envs.reset()
    with interrupted_once_there(tmp_path / "begun"):
        envs.step(np.array([1, 0, 0]))
    gate.touch()
    assert envs.get_env_attr("steps") == [1, 1, 1]
    assert envs.step(np.array([0, 1, 2]))[0][:, 1].tolist() == [2, 2, 2]
    gate.unlink()
    (tmp_path / "begun").unlink()
    with interrupted_once_there(tmp_path / "begun"):
        envs.step(np.array([1, 0]), [1, 2])
    gate.touch()
    assert envs.step(np.array([2]), [0])[0].tolist() == [[1, 3]]
    assert envs.get_env_attr("steps") == [3, 3, 3]
    envs.close()


def test_steps_that_are_asynchronous_are_there_after_ctrl_c(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    envs = SubprocVectorEnv([functools.partial(TellingGatedEnv, gate)] * 2, wait_num=1)
    envs.reset()
    with interrupted_once_there(tmp_path / "begun"):
        envs.step(np.array([1, 1]))
    assert sorted(envs.waiting_id) == [0, 1]
    with pytest.raises(AssertionError, match="which is stepping now"):
        envs.reset()
    gate.touch()
    seen = set()
    while envs.waiting_id:
        seen |= {info["env_id"] for info in envs.step(None)[4]}
    assert seen == {0, 1} and envs.reset()[0].tolist() == [[2, 0], [2, 0]]
    envs.close()


# What is in processes


def test_environments_are_in_processes_of_their_own_or_share_some() -> None:
    for workers, expected in ((None, 4), (2, 2), (9, 4)):
        envs = SubprocVectorEnv([CounterEnv] * 4, num_workers=workers)
        pids = {worker.process.pid for worker in envs.workers}
        assert len(pids) == expected and os.getpid() not in pids
        envs.reset()
        assert envs.step(np.array([0, 1, 2, 0]))[1].tolist() == [0.0, 1.0, 2.0, 0.0]
        assert envs.step(np.array([1, 2]), [3, 1])[1].tolist() == [1.0, 2.0]
        assert len(envs.stats()["workers"]) == len(envs.health()) == expected
        envs.close()


@pytest.mark.own_process
@pytest.mark.parametrize("context", [None, "spawn", "fork", "forkserver", "object"])
def test_every_start_method_starts(context: Any) -> None:
    if context == "object":
        context = multiprocessing.get_context("spawn")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fork may give way here
        envs = SubprocVectorEnv([lambda: CounterEnv(2)] * 2, context=context)
    envs.reset()
    assert envs.step(np.array([0, 1]))[1].tolist() == [0.0, 1.0]
    envs.close()


def test_a_fork_that_would_break_gives_way_and_says_why() -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        with pytest.warns(UserWarning, match="(?s)context='fork'.*fork server.*thread"):
            envs = SubprocVectorEnv([CounterEnv], context="fork")
    finally:
        done.set()
        thread.join()
    envs.close()


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"context": "thread"}, ValueError, "cannot find context for 'thread'"),
        ({"num_workers": 0}, ValueError, "num_workers=…\\) takes 1 or more"),
        ({"on_fault": "drop"}, ValueError, "on_fault=…\\) takes 'raise', 'restart'.*got 'drop'"),
        ({"on_fault": shoal.FaultPolicy("drop")}, ValueError, "none can be dropped"),
        ({"worker": shoal.WorkerOptions(memory_limit=2**30)}, ValueError, "Set memory_hard_limit, with on_fault"),
        ({"worker": {"threads": 2}}, TypeError, "worker=…\\) takes shoal.WorkerOptions"),
    ],
)
def test_wrong_arguments_are_named_before_anything_starts(
    arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        SubprocVectorEnv([CounterEnv], **arguments)


def test_shared_memory_gives_observations_the_dtype_of_their_space() -> None:
    factories = [functools.partial(FaultyEnv, observation=np.array([1, 2], np.int32))] * 2
    for envs, dtype in (
        (SubprocVectorEnv(factories), np.int32),
        (SubprocVectorEnv(factories, share_memory=True), np.float64),
        (ShmemVectorEnv(factories), np.float64),
    ):
        envs.reset()
        observations = envs.step(np.array([0, 0]))[0]
        assert observations.dtype == dtype and observations.tolist() == [[1, 2]] * 2
        envs.close()


def test_observations_are_the_callers_for_good(in_processes: Any) -> None:
    class Nested(CounterEnv):
        observation_space = spaces.Dict({"own": CounterEnv.observation_space})

        def _observation(self) -> Any:
            return {"own": super()._observation()}

    for kind in (CounterEnv, Nested):
        envs = in_processes([functools.partial(kind, 99)] * 2)
        first = envs.reset()[0]
        kept = pickle.dumps(first)
        results = [envs.step(np.array([0, 0]), ids)[0] for ids in (None, [1, 0], None)]
        stepped = [pickle.dumps(result) for result in results]
        for _ in range(20):
            envs.step(np.array([0, 0]))
            envs.step(np.array([0]), [1])
        assert pickle.dumps(first) == kept and [pickle.dumps(result) for result in results] == stepped
        envs.close()


@pytest.mark.parametrize("wait_num", [None, 1])
def test_a_killed_worker_is_told_with_its_last_words(in_processes: Any, wait_num: int | None) -> None:
    envs = in_processes([functools.partial(MortalEnv, 9)] * 2, wait_num)
    envs.reset()
    with pytest.raises(shoal.WorkerDied, match=TOLD_OF_DEATH) as died:
        envs.step(np.array([0, 2]))
        envs.step(None)
    assert list(died.value.env_indices) == [1] and died.value.exitcode == -signal.SIGKILL
    envs.close()


@pytest.mark.parametrize("on_fault", ["restart", shoal.FaultPolicy("restart", max_restarts=5)])
def test_a_killed_worker_is_replaced_where_that_is_asked(on_fault: Any) -> None:
    envs = SubprocVectorEnv([functools.partial(MortalEnv, 9)] * 2, on_fault=on_fault)
    envs.reset()
    envs.step(np.array([0, 0]))
    for steps in (2, 3):
        observations, rewards, terminated, truncated, infos = envs.step(np.array([1, 2]))
        assert (terminated.tolist(), truncated.tolist()) == ([False, False], [False, True])
        assert (
            rewards.tolist() == [1.0, 0.0] and observations[0].tolist() == [1, steps] and observations.shape == (2, 2)
        )
        assert infos[0] == {"env_id": 0} and sorted(infos[1]) == ["env_id", "fault"]
        assert infos[1]["fault"].signal == signal.SIGKILL and infos[1]["fault"].env == 1
        assert envs.reset([1])[0].tolist() == [[1, 0]]  # of a new environment
    assert envs.step(np.array([0, 0]))[0].tolist() == [[1, 4], [1, 1]]
    envs.close()


def test_an_environment_that_fails_in_its_reset_is_replaced_where_that_is_asked() -> None:
    class Env(CounterEnv):
        def reset(self, **arguments: Any) -> Any:
            if self.resets == 1:
                raise LookupError("bad luck")
            return super().reset(**arguments)

    envs = SubprocVectorEnv([Env] * 2, on_fault="restart")
    envs.reset(seed=1)
    observations, infos = envs.reset([1], seed=7)
    assert observations.tolist() == [[1, 0]] and infos[0]["seed"] == 7
    assert envs.reset()[0].tolist() == [[1, 0], [1, 0]]  # both have failed by now
    envs.close()


def test_environments_that_share_a_lost_process_begin_anew() -> None:
    envs = SubprocVectorEnv([functools.partial(MortalEnv, 9)] * 3, num_workers=1, on_fault="restart")
    envs.reset()
    truncated = envs.step(np.array([2]), [1])[3]
    assert truncated.tolist() == [True]
    observations, infos = envs.reset([0, 1], seed=5)
    assert observations.tolist() == [[1, 0], [1, 0]] and [info["seed"] for info in infos] == [5, 5]
    assert envs.step(np.array([0]), [2])[3].tolist() == [True] and envs.reset(2)[0].tolist() == [[1, 0]]
    assert envs.step(np.array([0, 0, 0]))[0].tolist() == [[1, 1]] * 3
    envs.close()


def test_an_environment_that_is_lost_says_so_when_it_is_asked() -> None:
    class Env(CounterEnv):
        def step(self, action: Any) -> Any:
            raise LookupError("bad luck")

    envs = SubprocVectorEnv([Env, CounterEnv], num_workers=1, on_fault="restart")
    envs.reset()
    assert envs.step(np.array([0, 0]))[4][0]["fault"].kind == "exception"
    with pytest.raises(RuntimeError, match="environment 0 was lost: reset it first"):
        envs.get_env_attr("length")
    envs.reset(0)
    assert envs.get_env_attr("length") == [3, 3]
    envs.close()


def test_objects_are_kept_through_a_fault() -> None:
    class Env(ShapedEnv):
        def step(self, action: Any) -> Any:
            if action == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().step(action)

    envs = SubprocVectorEnv([functools.partial(Env, observation="where it was")] * 2, on_fault="restart")
    envs.reset()
    observations, _, _, truncated, _ = envs.step(np.array([0, 2]))
    assert observations.tolist() == ["where it was"] * 2 and truncated.tolist() == [True, True]
    envs.close()


class TwoAgents(MortalEnv):
    """As tianshou's PettingZooEnv: dicts where its space has arrays, and a reward for each agent. Its seed() gives arrays from
    then on."""

    seeded = False

    def seed(self, seed: int | None = None) -> None:  # type: ignore[override]
        self.seeded = True

    def reset(self, **arguments: Any) -> Any:
        self.resets, self.steps = self.resets + 1, 0
        return self._observation(), {}

    def step(self, action: Any) -> Any:
        observation, _, *rest = super().step(action)
        return observation, [float(action), 5.0], *rest

    def _observation(self) -> Any:
        return super()._observation() if self.seeded else {"agent_id": self.steps, "obs": super()._observation()}


@pytest.mark.parametrize("wait_num", [None, 1])
def test_a_lost_environment_has_rows_as_the_others_whatever_they_are(wait_num: int | None) -> None:
    envs = SubprocVectorEnv([functools.partial(TwoAgents, 9)] * 2, wait_num, on_fault="restart")
    envs.reset()

    def stepped(actions: list[int]) -> list[Any]:
        """Observation, reward and whether it was cut short, by environment."""
        came: dict[int, Any] = {}
        given: Any = np.array(actions)
        while len(came) < 2:
            observations, rewards, _, truncated, infos = envs.step(given)
            rows = zip(observations, rewards, truncated, strict=True)
            came.update((info["env_id"], row) for info, row in zip(infos, rows, strict=True))
            given = None
        return [came[0], came[1]]

    stepped([0, 0])
    (seen, paid, cut), (last, nothing, is_lost) = stepped([1, 2])
    assert seen["agent_id"] == 2 and paid.tolist() == [1.0, 5.0] and not cut
    assert last["agent_id"] == 1 and last["obs"].tolist() == [1, 1] and nothing.tolist() == [0.0, 0.0] and is_lost
    assert envs.reset([1])[0][0]["agent_id"] == 0
    envs.seed(1)  # arrays from here on
    envs.reset()
    (seen, _, _), (last, nothing, is_lost) = stepped([1, 2])
    assert seen[1] == 1 and last.tolist() == [2, 0] and nothing.tolist() == [0.0, 0.0] and is_lost
    envs.close()


def test_what_cannot_be_sent_is_named() -> None:
    lock = threading.Lock()
    with pytest.raises(TypeError, match="lock"):
        SubprocVectorEnv([lambda: CounterEnv(lock)])  # type: ignore[arg-type]

    class Env(CounterEnv):
        def __init__(self) -> None:
            super().__init__()
            self.lock = threading.Lock()

    envs = SubprocVectorEnv([Env] * 2)
    with pytest.raises(TypeError, match="environment 1: the attribute 'lock' is a lock that cannot leave its worker"):
        envs.get_env_attr("lock", 1)
    assert envs.get_env_attr("length") == [3, 3]
    with pytest.raises(TypeError, match="cannot pickle 'SubprocVectorEnv' object"):
        pickle.dumps(envs)
    envs.close()


def test_steps_of_another_kind_are_named() -> None:
    envs = SubprocVectorEnv([CounterEnv, functools.partial(FaultyEnv, result=(0, 1.0, False, {}))])
    envs.reset()
    with pytest.raises(ValueError, match=r"environment 1: step\(\) returned 4 values"):
        envs.step(np.array([0, 0]))
    envs.close()


def test_an_environment_that_fails_to_close_is_a_warning() -> None:
    class Env(CounterEnv):
        def close(self) -> None:
            raise OSError("still busy")

    envs = SubprocVectorEnv([CounterEnv, Env])
    with pytest.warns(UserWarning, match="environment 1.*OSError: still busy"):
        envs.close()


def test_one_dropped_without_close_ends_its_workers(tmp_path: Path) -> None:
    envs = SubprocVectorEnv([functools.partial(CounterEnv, 9)] * 2, wait_num=1)
    process = envs.workers[0].process
    envs.reset()
    envs.step(np.array([0, 0]))
    del envs
    gc.collect()
    process.join(30)
    assert not process.is_alive()
