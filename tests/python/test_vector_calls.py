"""Attributes, method calls, rendering and the state machine of shoal.make_vec."""

from __future__ import annotations

import copy
import functools
import gc
import os
import pickle
import subprocess
import sys
import time
import weakref
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError, NoAsyncCallError, ResetNeeded
from gymnasium.wrappers.vector import NormalizeObservation, RecordEpisodeStatistics, RescaleAction

import shoal
from sample_envs import CounterEnv, FaultyEnv, GatedEnv, SpaceEnv
from vector_backends import PYTHON_BACKENDS, Make, make_on

make = make_on(PYTHON_BACKENDS)


def test_call_gives_a_tuple_with_one_result_an_environment(make: Make) -> None:
    envs = make(functools.partial(SpaceEnv, "box"), 3)
    assert envs.call("double", 4) == (8, 8, 8)
    assert envs.call("double", 4, plus=1) == (9, 9, 9)
    assert envs.call("value") == (7, 7, 7)


def test_attributes_are_set_one_by_one_or_all_alike(make: Make) -> None:
    envs = make("CartPole-v1", 3)
    envs.set_attr("gravity", [1.0, 2.0, 3.0])
    assert envs.get_attr("gravity") == (1.0, 2.0, 3.0)
    envs.set_attr("gravity", 9.8)
    assert envs.get_attr("gravity") == (9.8, 9.8, 9.8)
    envs.set_attr("weights", np.arange(3))
    assert [weights.tolist() for weights in envs.get_attr("weights")] == [[0, 1, 2]] * 3
    with pytest.raises(ValueError, match="Got `2` values for 3 environments"):
        envs.set_attr("gravity", [1.0, 2.0])


def test_a_replaced_step_is_the_one_that_is_called(make: Make) -> None:
    envs = make(CounterEnv, 2)
    envs.reset()
    envs.set_attr("step", lambda action: (np.array([5.0, 5.0]), 9.0, False, False, {}))
    assert envs.step([0, 0])[1].tolist() == [9.0, 9.0]


def test_a_missing_attribute_is_an_attribute_error_and_harms_nothing(make: Make) -> None:
    envs = make(SpaceEnv, 2)
    with pytest.raises(AttributeError, match="no_such_thing"):
        envs.get_attr("no_such_thing")
    with pytest.raises(TypeError, match="double"):
        envs.call("double", 1, 2, 3, 4)
    envs.reset(seed=1)
    envs.step([0, 0])


@pytest.mark.parametrize("name", ["reset", "step", "close"])
def test_call_does_not_step_around_the_vector_environment(make: Make, name: str) -> None:
    with pytest.raises(ValueError, match=name):
        make(CounterEnv, 2).call(name)


def test_render_gives_a_frame_an_environment(make: Make) -> None:
    envs = make(functools.partial(SpaceEnv, "box", render_mode="rgb_array"), 3)
    envs.set_attr("value", [1, 2, 3])
    frames = envs.render()
    assert [frame[0, 0, 0] for frame in frames] == [1, 2, 3]


def test_np_random_is_one_generator_an_environment(make: Make) -> None:
    envs = make("CartPole-v1", 3)
    envs.reset(seed=4)
    assert envs.np_random_seed == (4, 5, 6)
    assert all(isinstance(generator, np.random.Generator) for generator in envs.np_random)


def test_the_environments_of_the_process_backend_are_in_other_processes() -> None:
    envs = shoal.make_vec(functools.partial(SpaceEnv, "box"), 4, num_workers=2)
    pids = envs.call("pid")
    assert pids[0] == pids[1] != pids[2] == pids[3] and os.getpid() not in pids
    assert [worker["pid"] for worker in envs.stats()["workers"]] == [pids[0], pids[2]]
    envs.close()


def test_stats_count_batches_and_name_the_workers_environments(make: Make) -> None:
    envs = make(CounterEnv, 3)
    envs.reset()
    for _ in range(4):
        envs.step([0, 0, 0])
    stats = envs.stats()
    assert (stats["steps"], stats["resets"]) == (4, 1)
    assert sum(worker["num_envs"] for worker in stats["workers"]) == 3
    assert all(worker["steps"] == 4 for worker in stats["workers"])


def test_calls_in_the_wrong_order_are_refused(make: Make) -> None:
    envs = make(CounterEnv, 2)
    with pytest.raises(ResetNeeded):
        envs.step([0, 0])
    with pytest.raises(NoAsyncCallError, match="step_wait"):
        envs.step_wait()
    envs.reset_async(seed=1)
    for pending in (lambda: envs.step([0, 0]), lambda: envs.reset(), lambda: envs.get_attr("steps"), envs.render):
        with pytest.raises(AlreadyPendingCallError, match="pending call to `reset`") as error:
            pending()
        assert error.value.name == "reset"
    with pytest.raises(NoAsyncCallError):
        envs.step_wait()
    assert envs.reset_wait()[0].tolist() == [[1, 0], [1, 0]]
    envs.step_async([1, 2])
    assert envs.step_wait()[1].tolist() == [1.0, 2.0]


def test_closing_is_final_and_may_be_repeated(make: Make) -> None:
    envs = make(CounterEnv, 2)
    envs.reset()
    envs.close()
    envs.close()
    assert envs.closed
    for call in (envs.reset, lambda: envs.step([0, 0]), envs.step_wait, envs.render, lambda: envs.get_attr("steps")):
        with pytest.raises(ClosedEnvironmentError):
            call()


def test_a_call_may_be_begun_and_waited_for(make: Make) -> None:
    envs = make(functools.partial(SpaceEnv, "box"), 3)
    with pytest.raises(NoAsyncCallError, match="`call_wait` without any prior call to `call_async`") as error:
        envs.call_wait()
    assert error.value.name == "call"
    envs.call_async("double", 4, plus=1)
    for pending in (lambda: envs.call("double", 1), envs.reset, lambda: envs.set_attr("value", 1), envs.render):
        with pytest.raises(AlreadyPendingCallError, match="pending call to `call`") as pending_error:
            pending()
        assert pending_error.value.name == "call"
    with pytest.raises(NoAsyncCallError):
        envs.step_wait()
    assert envs.call_wait() == (9, 9, 9)
    envs.call_async("no_such_thing")
    with pytest.raises(AttributeError, match="no_such_thing"):
        envs.call_wait()
    assert envs.call("value") == (7, 7, 7)


class Meeting(CounterEnv):
    def __init__(self, place: Path, number: int) -> None:
        super().__init__()
        self.place, self.number = place, number

    def meet(self, others: int) -> int:
        """Returns once all are here, which they are only if nobody waits for an earlier one's answer."""
        (self.place / str(self.number)).touch()
        deadline = time.monotonic() + 30
        while (here := len(list(self.place.iterdir()))) < others and time.monotonic() < deadline:
            time.sleep(0.001)
        return here


def test_all_workers_are_asked_at_the_same_time(tmp_path: Path) -> None:
    envs = shoal.make_vec([functools.partial(Meeting, tmp_path, i) for i in range(3)], num_workers=3)
    assert envs.call("meet", 3) == (3, 3, 3)
    envs.close()


def test_a_call_that_takes_too_long_stays_under_way(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    envs = shoal.make_vec(functools.partial(GatedEnv, gate), 2, num_workers=2)
    envs.call_async("pass_gate")
    with pytest.raises(TimeoutError):
        envs.call_wait(timeout=0.01)
    with pytest.raises(AlreadyPendingCallError):
        envs.reset()
    gate.touch()
    assert envs.call_wait() == ("passed", "passed")
    envs.close()


class Sleeper(CounterEnv):
    def step(self, action: Any) -> Any:
        time.sleep(3600 * int(action))
        return super().step(action)


@pytest.mark.parametrize("pending", ["reset", "step", "call"])
def test_closing_in_the_middle_of_a_call_is_said(make: Make, pending: str) -> None:
    envs = make(CounterEnv, 2)
    envs.reset()
    {
        "reset": envs.reset_async,
        "step": lambda: envs.step_async([0, 0]),
        "call": lambda: envs.call_async("steps"),
    }[pending]()
    with pytest.warns(UserWarning, match=f"Calling `close` while waiting for a pending call to `{pending}`"):
        envs.close(timeout=30)


@pytest.mark.parametrize("how", [{"terminate": True}, {"timeout": 0.05}, {}])
def test_closing_ends_a_worker_that_does_not_come_back(how: dict[str, Any]) -> None:
    envs = shoal.make_vec(Sleeper, 2, num_workers=2)
    envs.reset()
    envs.step_async([0, 1])
    with pytest.warns(UserWarning, match="pending call to `step`"):
        envs.close(**how)
    assert envs.closed


def test_closing_drops_what_the_call_under_way_raises(make: Make) -> None:
    envs = make(functools.partial(FaultyEnv, step=ValueError("bad luck")), 2)
    envs.reset()
    envs.step_async([0, 0])
    with pytest.warns(UserWarning, match="pending call to `step`"):
        envs.close(timeout=30)


def test_closing_closes_the_environments() -> None:
    made: list[Any] = []

    def factory() -> gymnasium.Env:
        made.append(SpaceEnv())
        return made[-1]

    shoal.make_vec(factory, 2, backend="serial").close()
    assert [env.closed for env in made] == [True, True]


def test_an_environment_dropped_without_close_cleans_up_after_itself(make: Make) -> None:
    envs = make(CounterEnv, 2)
    envs.reset()
    made = envs.close
    del envs, made  # the fixture still holds one; what this checks is that nothing complains at its end


def test_gymnasiums_vector_wrappers_run_on_top(make: Make) -> None:
    envs: Any = make("Pendulum-v1", 3)
    envs = RescaleAction(NormalizeObservation(RecordEpisodeStatistics(envs)), -1.0, 1.0)
    envs.reset(seed=0)
    for _ in range(201):
        *_, infos = envs.step(envs.action_space.sample())
        if "episode" in infos:
            break
    assert infos["episode"]["l"].tolist() == [200, 200, 200]
    assert envs.spec.id == "Pendulum-v1" and "Pendulum-v1" in repr(envs)


def test_gymnasium_environments_keep_their_time_limit_and_their_spec(make: Make) -> None:
    envs = make("CartPole-v1", 2, env_kwargs={"max_episode_steps": 3})
    envs.reset(seed=0)
    flags = [envs.step([i % 2] * 2)[3].tolist() for i in range(3)]
    assert flags == [[False, False], [False, False], [True, True]]
    assert envs.spec.max_episode_steps == 3


def test_a_list_of_factories_gives_one_environment_each(make: Make) -> None:
    envs = make([functools.partial(CounterEnv, length) for length in (1, 2, 3)], autoreset_mode="disabled")
    envs.reset()
    assert envs.step([0, 0, 0])[2].tolist() == [True, False, False]
    with pytest.raises(ValueError, match="leave num_envs out"):
        make([CounterEnv], 2)


def test_closures_and_local_classes_travel_to_the_workers(make: Make) -> None:
    bonus = 5.0

    class Local(CounterEnv):
        def step(self, action: Any) -> Any:
            observation, reward, *rest = super().step(action)
            return (observation, reward + bonus, *rest)

    envs = make(lambda: Local(4), 2)
    envs.reset()
    assert envs.step([1, 2])[1].tolist() == [6.0, 7.0]


def test_an_id_registered_by_the_caller_alone_works_in_the_workers(make: Make) -> None:
    class Mine(CounterEnv):
        pass

    gymnasium.register("ShoalTest/Mine-v0", lambda length=2: Mine(length))
    try:
        envs = make("ShoalTest/Mine-v0", 2, env_kwargs={"length": 5})
        assert envs.call("length") == (5, 5)
    finally:
        del gymnasium.registry["ShoalTest/Mine-v0"]


def test_the_collector_sees_through_environments_that_hold_their_vector_environment() -> None:
    envs: Any = shoal.make_vec(CounterEnv, 2, backend="serial")
    envs.set_attr("owner", [envs, envs])
    alive = weakref.ref(envs)
    del envs
    gc.collect()
    assert alive() is None


def test_nothing_is_reported_as_leaked_when_the_program_ends(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import gymnasium, numpy, shoal\n"
        "class Env(gymnasium.Env):\n"
        "    observation_space = gymnasium.spaces.Box(-1, 1, (2,), numpy.float32)\n"
        "    action_space = gymnasium.spaces.Discrete(2)\n"
        "    def reset(self, **kwargs): return numpy.zeros(2, numpy.float32), {}\n"
        "    def step(self, action): return numpy.zeros(2, numpy.float32), 1.0, False, False, {}\n"
        "envs = [shoal.make_vec(Env, 2, backend='serial'), shoal.make_vec(Env, 2, num_workers=2)]\n"
        "envs.append(shoal.make_vec('shoal/CartPole-v1', 2))\n"
        "views = [one.reset(seed=0)[0] for one in envs]\n"
        "def use(): return envs\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    ended = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=environment, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


@pytest.mark.parametrize("module", ["gymnasium", "numpy", "torch", "cloudpickle"])
def test_importing_shoal_imports_nothing_heavy(module: str) -> None:
    code = f"import sys, shoal; assert {module!r} not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize("name", sorted(set(shoal.__all__) - {"learn"}))
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(shoal, name) is not None and name in dir(shoal)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = shoal.no_such_name


@pytest.mark.parametrize("options", [{"num_workers": 2}, {"batch_size": 1}, {"backend": "serial"}])
def test_a_block_closes_the_environments(options: dict[str, Any]) -> None:
    with shoal.make_vec("CartPole-v1", 2, **options) as envs:
        assert isinstance(envs, shoal.VectorEnv)
        envs.reset(seed=0)
    assert envs.closed
    with pytest.raises(ZeroDivisionError), shoal.make_vec("CartPole-v1", 2, **options) as envs:
        raise ZeroDivisionError
    assert envs.closed


def test_what_can_be_closed_closes_at_the_end_of_a_block() -> None:
    """Of what a user holds; Process and Queue have no blocks in multiprocessing either."""
    from shoal.compat.gymnasium import AsyncVectorEnv, SyncVectorEnv
    from shoal.learn.trainer import Trainer
    from shoal.multiprocessing import LogRelay
    from shoal.multiprocessing.connection import Connection
    from shoal.multiprocessing.pool import Pool
    from shoal.process import Launcher
    from shoal.vector.async_env import AsyncVectorEnv as OneByOne

    kinds = [shoal.VectorEnv, OneByOne, AsyncVectorEnv, SyncVectorEnv, shoal.WorkerPool, shoal.ModelService, Launcher]
    for kind in [*kinds, Trainer, Pool, LogRelay, Connection]:
        assert callable(kind.close) and callable(kind.__enter__) and callable(kind.__exit__), kind


@pytest.mark.parametrize("options", [{"num_workers": 2}, {"batch_size": 1}, {"backend": "serial"}])
@pytest.mark.parametrize("copied", [pickle.dumps, copy.copy, copy.deepcopy])
def test_copying_the_environments_says_what_to_do_instead(copied: Any, options: dict[str, Any]) -> None:
    with shoal.make_vec("CartPole-v1", 2, **options) as envs:
        with pytest.raises(
            TypeError, match=r"cannot pickle '\w*VectorEnv' object.*a function that makes one.*snapshot\(\)"
        ):
            copied(envs)


def test_an_environment_that_has_a_vector_environment_is_told_so() -> None:
    with shoal.make_vec("CartPole-v1", 2, backend="serial") as envs:
        with pytest.raises(
            TypeError, match=r"env\.<closure>\.envs: cannot pickle 'VectorEnv' object.*a function that makes"
        ):
            shoal.make_vec(lambda: envs, 2, num_workers=2)
