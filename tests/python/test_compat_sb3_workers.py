"""shoal.compat.sb3.SubprocVecEnv: its workers, and what its users meet where a worker or the peer is missing."""

from __future__ import annotations

import functools
import gc
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError, NoAsyncCallError

import shoal
from interrupting import Interrupted, interrupted_once_there
from sample_envs import TOLD_OF_DEATH, CounterEnv, FaultyEnv, GatedEnv, MortalEnv, SpaceEnv, TellingGatedEnv
from shoal.compat.sb3 import SubprocVecEnv


class TypedEnv(CounterEnv):
    """Says what its action was, and gives whole numbers as rewards."""

    def __init__(self, action_space: spaces.Space) -> None:
        super().__init__()
        self.action_space = action_space

    def step(self, action: Any) -> Any:
        said = f"{type(action).__name__} {getattr(action, 'dtype', '')} {np.asarray(action).tolist()}"
        return self._observation(), 3, False, False, {"action": said}


def test_actions_keep_the_types_that_they_are_given_with() -> None:
    for space, actions in [
        (spaces.Discrete(3), np.array([0, 2])),
        (spaces.Discrete(3), [0, 2]),
        (spaces.Box(-1, 1, (2,)), np.zeros((2, 2), np.float32)),
        (spaces.Box(-1, 1, (2,)), np.zeros((2, 2))),
        (spaces.MultiBinary(2), np.ones((2, 2), np.float32)),
    ]:
        envs = SubprocVecEnv([functools.partial(TypedEnv, space)] * 2)
        envs.reset()
        _, rewards, _, infos = envs.step(actions)
        expected = [f"{type(a).__name__} {getattr(a, 'dtype', '')} {np.asarray(a).tolist()}" for a in actions]
        assert [info["action"] for info in infos] == expected
        assert rewards.dtype == np.float64  # the peer's integers swallow what the value function adds to them
        envs.close()


def test_environments_are_in_processes_of_their_own_or_share_some() -> None:
    for arguments, count in (({}, 4), ({"num_workers": 2}, 2), ({"num_workers": 9}, 4)):
        envs = SubprocVecEnv([SpaceEnv] * 4, **arguments)
        pids = envs.env_method("pid")
        assert len(set(pids)) == count == len(envs.stats()["workers"]) == len(envs.health())
        assert [process.pid for process in envs.processes] == list(dict.fromkeys(pids))
        assert envs.get_attr("value", [3, 0, 2]) == [7, 7, 7] and envs.env_method("pid", indices=[3, 0]) == [
            pids[3],
            pids[0],
        ]
        processes = envs.processes
        envs.close()
        assert not any(process.is_alive() for process in processes)


@pytest.mark.parametrize("start_method", ["fork", "forkserver", "spawn"])
def test_every_start_method_starts(start_method: str) -> None:
    bonus = 3.0

    class Local(CounterEnv):
        def step(self, action: Any) -> Any:
            observation, reward, *rest = super().step(action)
            return (observation, reward + bonus, *rest)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fork may give way here
        envs = SubprocVecEnv([Local] * 2, start_method)
    assert envs.start_method == start_method
    envs.reset()
    assert envs.step(np.array([0, 1]))[1].tolist() == [3.0, 4.0]
    envs.close()


def test_a_fork_that_would_break_gives_way_and_says_why() -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        with pytest.warns(UserWarning, match="(?s)start_method='fork'.*fork server.*thread") as warned:
            envs = SubprocVecEnv([CounterEnv], start_method="fork")
    finally:
        done.set()
        thread.join()
    envs.close()
    (text,) = (str(each.message) for each in warned)
    assert "\nSubprocVecEnv(start_method='forkserver') does so without this warning; " in text
    assert "make_vec" not in text and "context=" not in text


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"start_method": "thread"}, ValueError, "cannot find context for 'thread'"),
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
        SubprocVecEnv([CounterEnv], **arguments)


def test_workers_are_set_up_as_asked() -> None:
    class Env(CounterEnv):
        def variable(self) -> str | None:
            return os.environ.get("OMP_NUM_THREADS")

    envs = SubprocVecEnv([Env], worker=shoal.WorkerOptions(threads=3))
    assert envs.env_method("variable") == ["3"]
    envs.close()


def test_what_cannot_be_sent_is_named() -> None:
    lock = threading.Lock()
    with pytest.raises(TypeError, match="lock"):
        SubprocVecEnv([lambda: CounterEnv(lock)])  # type: ignore[arg-type]

    class Env(CounterEnv):
        def __init__(self) -> None:
            super().__init__()
            self.lock = threading.Lock()

        def give(self, anything: Any = None) -> Any:
            return self.lock

    envs = SubprocVecEnv([Env] * 2)
    assert envs.has_attr("lock")
    with pytest.raises(TypeError, match="environment 1: lock is a lock that cannot leave its worker process"):
        envs.get_attr("lock", indices=[1])
    with pytest.raises(TypeError, match=r"environment 0: give\(\) is a lock that cannot leave"):
        envs.env_method("give")
    with pytest.raises(TypeError, match=r"env_method\(\).*lock"):
        envs.env_method("give", lock)
    assert envs.get_attr("length") == [3, 3]
    with pytest.raises(TypeError, match="cannot pickle 'SubprocVecEnv' object"):
        pickle.dumps(envs)
    envs.close()


CALLS = [
    ("has_attr", "steps"),
    ("get_attr", "steps"),
    ("set_attr", "length", 3),
    ("env_method", "get_wrapper_attr", "steps"),
    ("env_is_wrapped", gymnasium.Wrapper),
]


def test_calls_out_of_order_are_named(tmp_path: Path) -> None:
    envs = SubprocVecEnv([functools.partial(GatedEnv, tmp_path / "gate")] * 2)
    with pytest.raises(NoAsyncCallError, match="step_wait"):
        envs.step_wait()
    envs.reset()
    envs.step_async(np.array([1, 0]))
    assert envs.waiting and not envs.closed
    with pytest.raises(AlreadyPendingCallError, match="step_async"):
        envs.step_async(np.array([0, 0]))
    for name, *arguments in CALLS:
        with pytest.raises(AlreadyPendingCallError, match=f"Calling `{name}` while"):
            getattr(envs, name)(*arguments)
    (tmp_path / "gate").touch()
    assert envs.reset().tolist() == [[2, 0], [2, 0]]  # the step is forgotten
    assert not envs.waiting and envs.step(np.array([0, 0]))[0].tolist() == [[2, 1], [2, 1]]
    envs.step_async(np.array([0, 0]))
    envs.close()
    envs.close()
    assert envs.closed
    for call in (envs.reset, functools.partial(envs.step, np.array([0, 0])), functools.partial(envs.get_attr, "steps")):
        with pytest.raises(ClosedEnvironmentError, match="this SubprocVecEnv is closed"):
            call()
    for name in ("remotes", "work_remotes"):
        with pytest.raises(AttributeError, match=f"has no {name}.*env_method"):
            getattr(envs, name)


def test_calls_after_a_failure_have_the_callers_names() -> None:
    envs = SubprocVecEnv([CounterEnv, functools.partial(FaultyEnv, result=(0, 1.0, False, {}))])
    envs.reset()
    with pytest.raises(ValueError):
        envs.step(np.array([0, 0]))
    for name, *arguments in CALLS:
        with pytest.raises(RuntimeError, match=f"^{name}: these environments are closed"):
            getattr(envs, name)(*arguments)
    envs.set_options({"a": 1})
    with pytest.raises(RuntimeError, match="^reset: these environments are closed"):
        envs.reset()
    envs.close()


def left_by_ctrl_c(envs: SubprocVecEnv, folder: Path) -> None:
    """A step of TellingGatedEnvs, which goes on."""
    envs.reset()
    with interrupted_once_there(folder / "begun"):
        envs.step(np.array([1, 0]))
    assert envs.waiting
    (folder / "gate").touch()


@pytest.mark.parametrize("call", CALLS, ids=[name for name, *_ in CALLS])
def test_every_call_waits_for_a_step_that_ctrl_c_has_left(call: tuple[Any, ...], tmp_path: Path) -> None:
    envs = SubprocVecEnv([functools.partial(TellingGatedEnv, tmp_path / "gate")] * 2)
    left_by_ctrl_c(envs, tmp_path)
    name, *arguments = call
    getattr(envs, name)(*arguments)
    assert not envs.waiting and envs.get_attr("steps") == [1, 1]
    assert envs.step(np.array([0, 0]))[0].tolist() == [[1, 2], [1, 2]]
    envs.close()


@pytest.mark.parametrize("actions", [np.array([0, 0]), [0, 0]], ids=["array", "list"])
def test_a_step_drops_the_one_that_ctrl_c_has_left(actions: Any, tmp_path: Path) -> None:
    envs = SubprocVecEnv([functools.partial(TellingGatedEnv, tmp_path / "gate")] * 2)
    left_by_ctrl_c(envs, tmp_path)
    assert envs.step(actions)[0].tolist() == [[1, 2], [1, 2]]
    envs.step_async(actions)
    with pytest.raises(AlreadyPendingCallError):  # this one nobody has left
        envs.get_attr("steps")
    assert envs.step_wait()[0].tolist() == [[2, 0], [2, 0]]
    envs.close()


class BreakingEnv(TellingGatedEnv):
    """Fails at action 1, behind the gate."""

    def step(self, action: Any) -> Any:
        result = super().step(action)
        if action == 1:
            raise OSError("broken")
        return result


def test_what_a_step_that_ctrl_c_has_left_raises_is_raised_by_the_next_call(tmp_path: Path) -> None:
    envs = SubprocVecEnv([functools.partial(BreakingEnv, tmp_path / "gate")] * 2)
    left_by_ctrl_c(envs, tmp_path)
    with pytest.raises(OSError, match="broken"):
        envs.get_attr("steps")
    envs.close()


def test_an_environment_lost_in_a_step_that_ctrl_c_has_left_begins_anew(tmp_path: Path) -> None:
    envs = SubprocVecEnv([functools.partial(BreakingEnv, tmp_path / "gate")] * 2, on_fault="restart")
    left_by_ctrl_c(envs, tmp_path)
    assert envs.get_attr("resets") == [1, 1]
    assert envs.step(np.array([0, 0]))[0].tolist() == [[1, 1], [1, 2]]
    envs.close()


def test_an_environment_that_fails_to_close_is_a_warning() -> None:
    class Env(CounterEnv):
        def close(self) -> None:
            raise OSError("still busy")

    envs = SubprocVecEnv([CounterEnv, Env])
    with pytest.warns(UserWarning, match="environment 1.*OSError: still busy"):
        envs.close()


@pytest.mark.parametrize("num_workers", [1, 2])
def test_options_of_a_reset_that_failed_are_nobodys(num_workers: int) -> None:
    envs = SubprocVecEnv([CounterEnv] * 2, num_workers=num_workers)
    envs.set_options([{"a": 1}])
    with pytest.raises(ValueError, match="got 1 dicts for 2 environments"):
        envs.reset()
    envs.set_options(None)
    envs.reset()
    assert envs.reset_infos == [{}, {}]
    envs.set_options([{}, {"b": 2}])
    envs.seed(1.5)
    with pytest.raises(TypeError):
        envs.reset()
    envs.seed(1)
    envs.set_options(None)
    envs.reset()
    assert envs.reset_infos == [{"seed": 1}, {"seed": 2}]
    envs.close()


def test_a_killed_worker_is_told_with_its_last_words() -> None:
    envs = SubprocVecEnv([functools.partial(MortalEnv, 9)] * 2)
    envs.reset()
    with pytest.raises(shoal.WorkerDied, match=TOLD_OF_DEATH) as died:
        envs.step(np.array([0, 2]))
    assert list(died.value.env_indices) == [1] and died.value.exitcode == -signal.SIGKILL
    envs.close()


@pytest.mark.parametrize("on_fault", ["restart", shoal.FaultPolicy("restart", max_restarts=5)])
def test_a_killed_worker_is_replaced_where_that_is_asked(on_fault: Any) -> None:
    envs = SubprocVecEnv([functools.partial(MortalEnv, 9)] * 2, on_fault=on_fault)
    envs.seed(1)
    envs.reset()
    envs.step(np.array([0, 0]))
    for steps in (2, 3):
        observations, rewards, dones, infos = envs.step(np.array([1, 2]))
        assert dones.tolist() == [False, True] and rewards.tolist() == [1.0, 0.0]
        assert observations.tolist() == [[1, steps], [1, 0]]  # of a new environment, at the begin of its episode
        assert infos[0] == {"TimeLimit.truncated": False} and infos[1]["TimeLimit.truncated"]
        assert infos[1]["fault"].signal == signal.SIGKILL and infos[1]["fault"].env == 1
        assert infos[1]["terminal_observation"].shape == (2,)
    assert envs.step(np.array([0, 0]))[0].tolist() == [[1, 4], [1, 1]]
    assert envs.get_attr("length") == [9, 9]
    envs.close()


def test_an_environment_that_raises_is_replaced_where_that_is_asked() -> None:
    class Env(CounterEnv):
        def step(self, action: Any) -> Any:
            if action == 2:
                raise LookupError("bad luck")
            return super().step(action)

    envs = SubprocVecEnv([Env] * 3, num_workers=1, on_fault="restart")
    envs.reset()
    observations, _, dones, infos = envs.step(np.array([0, 2, 0]))
    assert dones.tolist() == [False, True, False] and observations.tolist() == [[1, 1], [1, 0], [1, 1]]
    assert infos[1]["fault"].kind == "exception" and "bad luck" in infos[1]["fault"].message
    assert envs.step(np.array([0, 0, 0]))[0].tolist() == [[1, 2], [1, 1], [1, 2]]
    envs.close()


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_new_environment_is_seeded_the_same_way_whenever_the_same_happens(is_killed: bool) -> None:
    class Env(CounterEnv):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            observation, info = super().reset(seed=seed, options=options)
            return observation, {**info, "seed": seed}

        def step(self, action: Any) -> Any:
            if action == 2:
                if is_killed:
                    os.kill(os.getpid(), signal.SIGKILL)
                raise LookupError("bad luck")
            return super().step(action)

    seeds = []
    for _ in range(2):
        envs = SubprocVecEnv([Env] * 2, on_fault=shoal.FaultPolicy("restart", backoff=0.0))
        envs.seed(7)
        envs.reset()
        assert [info["seed"] for info in envs.reset_infos] == [7, 8]
        for _ in range(2):
            envs.step(np.array([0, 2]))
            seeds.append(envs.reset_infos[1]["seed"])
        assert envs.reset_infos[0]["seed"] == 7
        envs.close()
    assert seeds[:2] == seeds[2:] and len({8, *seeds}) == 3, "it follows from the last one that the row was given"


def test_an_environment_dropped_without_close_ends_its_workers() -> None:
    envs = SubprocVecEnv([CounterEnv] * 2)
    (process, _) = envs.processes
    envs.reset()
    envs.step_async(np.array([0, 0]))
    del envs
    gc.collect()
    process.join(30)
    assert not process.is_alive()


def test_spaces_may_differ_in_their_bounds_and_not_in_their_shapes() -> None:
    class Env(CounterEnv):
        def __init__(self, space: spaces.Space) -> None:
            super().__init__()
            self.observation_space = space

    envs = SubprocVecEnv([functools.partial(Env, spaces.Box(0, high, (2,), np.float64)) for high in (50, 60)])
    assert envs.observation_space == spaces.Box(0, 50, (2,), np.float64)
    assert envs.reset().tolist() == [[1, 0], [1, 0]]
    envs.close()
    with pytest.raises(shoal.errors.SpacesDiffer, match="observation space"):
        SubprocVecEnv([functools.partial(Env, spaces.Box(0, 50, shape, np.float64)) for shape in ((2,), (3,))])


def run(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_peer_is_imported_when_it_is_needed_and_in_no_worker_that_does_not_need_it() -> None:
    program = """
import sys
import shoal.compat.sb3
assert not {"stable_baselines3", "torch"} & set(sys.modules)
assert shoal.compat.sb3.SubprocVecEnv.__module__ == "shoal.compat.sb3.subproc_vec_env"

import gymnasium

class Env(gymnasium.Env):
    observation_space = gymnasium.spaces.Discrete(2)
    action_space = gymnasium.spaces.Discrete(2)
    def modules(self):
        import sys
        return sorted({"stable_baselines3", "torch"} & set(sys.modules))

class Mine(gymnasium.Wrapper):
    pass

envs = shoal.compat.sb3.SubprocVecEnv([Env, lambda: Mine(Env())])
print(envs.env_method("modules"), envs.env_is_wrapped(Mine))
envs.close()
"""
    assert run(program) == "[[], []] [False, True]\n"


def test_without_the_peer_the_error_says_what_to_install() -> None:
    program = """
import sys
sys.modules["stable_baselines3"] = None
import shoal.compat.sb3
try:
    from shoal.compat.sb3 import SubprocVecEnv
except ModuleNotFoundError as error:
    print(error)
"""
    assert "pip install 'shoal[sb3]'" in run(program)


def build_in_a_daemon(answers: Any) -> None:
    envs = SubprocVecEnv([CounterEnv] * 2)
    envs.reset()
    answers.put(envs.step(np.array([0, 1]))[1].tolist())
    envs.close()


def test_a_daemonic_process_may_have_one() -> None:
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    process = context.Process(target=build_in_a_daemon, args=(answers,), daemon=True)
    process.start()
    assert answers.get(timeout=90) == [0.0, 1.0]
    process.join(30)


@pytest.mark.parametrize("begin", ["request_async", "request_wait"])
def test_ctrl_c_as_the_answers_come_leaves_the_environments_whole(begin: str) -> None:
    envs = SubprocVecEnv([CounterEnv] * 2, num_workers=2)
    engine: Any = envs._envs._engine
    envs._envs._engine = Interrupted(engine, begin)  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        envs.get_attr("action_space")
    assert envs.get_attr("action_space", [1]) == [CounterEnv().action_space]
    envs.reset()
    assert envs.step([envs.action_space.sample()] * 2)[1].shape == (2,)
    envs.close()
