"""shoal.compat.ding: states, retries, timeouts and deaths of environments.

`./shoal test --only ding` runs it in an environment of its own: DI-engine's requirements exclude ours.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

if importlib.util.find_spec("ding") is None:
    pytest.skip(
        "there is no DI-engine (./shoal test --only ding makes an environment that has it)", allow_module_level=True
    )

import ding.envs as peer
from ding.envs.env_manager.base_env_manager import EnvState

import shoal
from ding_calls import PROCESSES, counting, managers
from interrupting import interrupted_once_there
from same import assert_same
from shoal.compat import ding as ours
from timestep_envs import CountingEnv, GoodAtClosing, TellingEnv


@pytest.fixture
def manager() -> Iterator[Callable[..., Any]]:
    with managers() as make:
        yield make


# States, retries, timeouts


@pytest.mark.parametrize("kind", PROCESSES)
def test_nothing_is_built_in_this_process(manager: Any, kind: Any) -> None:
    here = os.getpid()

    def elsewhere() -> Any:
        assert os.getpid() != here, "it was built in the caller's process"
        return CountingEnv()

    envs = manager(kind, [elsewhere] * 2, launched=False)
    assert envs.closed and envs.action_space.n == 3 and envs.observation_space.shape == (3,)
    assert envs.reward_space.shape == (1,) and envs.closed
    envs.launch()
    assert len(envs.ready_obs) == 2


def test_the_reference_is_built_on_request(manager: Any) -> None:
    envs = manager(ours.SyncSubprocessEnvManager, counting(1), launched=False)
    assert isinstance(envs.env_ref, CountingEnv) and envs.env_ref is envs._env_ref


@pytest.mark.parametrize("kind", PROCESSES)
def test_a_configuration_of_another_class_will_do(kind: Any) -> None:
    envs = kind(counting(2), peer.BaseEnvManagerV2.default_config())
    envs.launch()
    assert len(envs.ready_obs) == 2
    envs.close()
    assert kind.default_config().cfg_type == f"{kind.__name__}Dict"


def test_attributes_are_lists_over_the_environments(manager: Any) -> None:
    envs = manager(ours.SyncSubprocessEnvManager, counting(3))
    assert envs.number == [0, 1, 2]
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = envs.nothing
    with pytest.raises(RuntimeError, match="method_name_list"):
        envs.method()
    assert not hasattr(envs, "nothing")
    assert envs.reward_shaping(2, [7]) == [7, 2]
    envs.close()
    with pytest.raises(AssertionError, match="closed"):
        _ = envs.number


def test_calls_of_a_closed_manager_are_refused_and_it_can_be_launched_again(manager: Any, tmp_path: Path) -> None:
    envs = manager(ours.SyncSubprocessEnvManager, counting(2, GoodAtClosing, folder=tmp_path))
    with pytest.raises(AssertionError, match="first close"):
        envs.launch()
    envs.close()
    envs.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["closed-0", "closed-1"]
    assert set(envs._env_states.values()) == {EnvState.VOID}
    for call in (envs.reset, lambda: envs.step({}), lambda: envs.ready_obs):
        with pytest.raises(AssertionError, match="closed"):
            call()
    envs.launch()
    assert len(envs.ready_obs) == 2


def test_parameters_of_a_reset_last(manager: Any) -> None:
    envs = manager(ours.SyncSubprocessEnvManager, counting(2, length=3), launched=False)
    envs.launch({0: {"start": 1}, 1: None})
    for _ in range(3):
        while len(envs.ready_obs) < 2:
            pass
        envs.step({0: 0, 1: 0})
    assert envs.arguments[0][0] == (1, 0, "") and len(set(envs.arguments[0])) == 1
    with pytest.raises(AssertionError, match="all 2 environments"):
        envs.close() or envs.launch({0: {}})
    with pytest.raises(TypeError, match="a dict or None"):
        envs.launch() or envs.reset({0: 3})
    with pytest.raises(ValueError, match="no environment 5"):
        envs.reset({5: {}})


def test_episodes_are_counted(manager: Any) -> None:
    envs = manager(ours.SyncSubprocessEnvManager, counting(2, length=2), episode_num=2)
    while not envs.done:
        envs.step(dict.fromkeys(envs.ready_obs, 0))
    assert envs._env_episode_count == {0: 2, 1: 2} and envs.env_state_done(1)
    assert envs.ready_obs == {} and envs.ready_obs_id == []


def test_without_auto_reset_the_caller_resets(manager: Any) -> None:
    envs = manager(ours.SubprocessEnvManagerV2, counting(2, length=2), auto_reset=False)
    envs.step([0, 0])
    envs.step([0, 0])
    assert set(envs._env_states.values()) == {EnvState.NEED_RESET}
    with pytest.raises(RuntimeError, match="reset\\(\\) those that are to go on"):
        _ = envs.ready_obs
    envs.reset({1: None})
    assert envs.ready_obs.shape == (1, 3) and envs.ready_obs_id == [1]


def test_seeds_are_used_once_and_stay_the_callers(manager: Any) -> None:
    envs = manager(ours.SyncSubprocessEnvManager, counting(2), launched=False)
    mine = [3, 8]
    envs.seed(mine, dynamic_seed=False)
    envs.launch()
    assert envs.seeds == [3, 8] and mine == [3, 8] and envs.dynamic_seed == [False, False]
    envs.seed({1: 5})
    envs.reset()
    assert envs.seeds == [3, 5]
    envs.seed(20)
    envs.reset({1: {}})
    assert envs.seeds == [3, 21]
    with pytest.raises(AssertionError, match="env_num"):
        envs.seed([1])
    with pytest.raises(TypeError, match="invalid seed"):
        envs.seed("1")


@pytest.mark.parametrize("retry_type", ["reset", "renew"])
def test_a_failed_reset_is_tried_again(manager: Any, retry_type: str) -> None:
    envs = manager(
        ours.SyncSubprocessEnvManager, counting(2), max_retry=3, retry_type=retry_type, retry_waiting_time=0.0
    )
    built = envs.built
    if retry_type == "reset":
        envs.reset({0: {"failures": 2}})
        assert envs.built == built
    with pytest.raises(RuntimeError, match=r"Env 0 reset has exceeded max retries\(3\).*reset failure") as failed:
        envs.reset({0: {"failures": 4}})
    assert envs.closed and "in its worker" in str(failed.value.__cause__.__cause__)


def test_a_reset_in_the_background_that_fails_is_told_by_the_next_call(manager: Any) -> None:
    envs = manager(ours.SyncSubprocessEnvManager, counting(2, length=2), retry_waiting_time=0.0)
    envs._reset_param[0] = {"failures": 9}
    envs.step({0: 0, 1: 0})
    envs.step({0: 0, 1: 0})
    with pytest.raises(RuntimeError, match="Env 0 reset has exceeded"):
        for _ in range(1000):
            envs.step(dict.fromkeys(envs.ready_obs, 0))
    assert envs.closed


def test_an_exception_of_a_step_is_raised_as_it_was(manager: Any) -> None:
    envs = manager(ours.SyncSubprocessEnvManager, counting(2))
    with pytest.raises(KeyError, match="as it was told") as failed:
        envs.step({0: 1, 1: "raise"})
    assert "environment 1: step()" in str(failed.value.__cause__) and "obey" in str(failed.value.__cause__)
    assert envs.closed


def test_steps_and_resets_that_take_too_long_are_interrupted(manager: Any) -> None:
    envs = manager(ours.SyncSubprocessEnvManager, counting(1), step_timeout=0.2, reset_timeout=0.2, max_retry=2)
    with pytest.raises(TimeoutError, match=r"0\.2 seconds"):
        envs.step({0: "hang"})
    envs.launch()
    with pytest.raises(RuntimeError, match=r"max retries\(2\).*0\.2 seconds"):
        envs.reset({0: {"command": "hang"}})


@pytest.mark.parametrize("also", [{}, {1: 0}])
def test_a_reset_waits_for_a_step_that_ctrl_c_has_left(manager: Any, also: dict[int, Any], tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    envs = manager(ours.SyncSubprocessEnvManager, [functools.partial(TellingEnv, i, folder=tmp_path) for i in range(2)])
    with interrupted_once_there(tmp_path / "begun"):
        envs.step({0: f"wait for {gate}", **also})
    gate.touch()
    envs.reset()
    assert sorted(envs.ready_obs) == [0, 1]
    for steps in (1, 2):
        timesteps = envs.step({0: 0, 1: 0})
        assert [(timesteps[i].obs[2], timesteps[i].reward) for i in range(2)] == [(steps, steps)] * 2


class AlarmedEnv(CountingEnv):
    """Has an alarm of its own; its infos say whether that is still to come."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        signal.signal(signal.SIGALRM, self.on_alarm)
        signal.alarm(3600)

    def on_alarm(self, *_: object) -> None: ...

    def step(self, action: Any) -> Any:
        is_on = signal.getitimer(signal.ITIMER_REAL)[0] > 0 and signal.getsignal(signal.SIGALRM) == self.on_alarm
        return super().step(action)._replace(info={"is_on": is_on})


@pytest.mark.parametrize("reset_inplace", [False, True])
def test_an_environments_own_alarm_outlives_its_resets(manager: Any, reset_inplace: bool) -> None:
    envs = manager(ours.SyncSubprocessEnvManager, [functools.partial(AlarmedEnv, 0, 1)], reset_inplace=reset_inplace)
    for _ in range(2):
        assert envs.step(dict.fromkeys(envs.ready_obs, 0))[0].info == {"is_on": True}


def test_a_reset_that_outlasts_the_connection_is_ended_with_its_worker(manager: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("shoal.compat.ding.subprocess_managers._GRACE", 0.1)
    envs = manager(ours.SyncSubprocessEnvManager, counting(1), connect_timeout=2)
    with pytest.raises(shoal.WorkerDied, match="did not finish its reset within"):
        envs.reset({0: {"command": "hang"}})


def test_an_abnormal_timestep_waits_for_a_reset(manager: Any) -> None:
    envs = manager(ours.SyncSubprocessEnvManager, counting(2))
    timesteps = envs.step({0: "abnormal", 1: 1})
    assert timesteps[0].info == {"abnormal": True} and timesteps[0].obs is None
    assert envs._env_states == {0: EnvState.ERROR, 1: EnvState.RUN} and list(envs.ready_obs) == [1]
    envs.reset({0: None})
    assert list(envs.ready_obs) == [0, 1]


# Deaths


@pytest.mark.parametrize("kind", PROCESSES)
def test_a_killed_worker_is_named(manager: Any, kind: Any) -> None:
    envs = manager(kind, counting(2))
    with pytest.raises(shoal.WorkerDied) as died:
        envs.step({0: 1, 1: "die"})
        envs.step({1: 1})
    for part in ("worker 1", "environment 1", "signal 9 (SIGKILL)", "last words"):
        assert part in str(died.value)
    assert envs.closed


def test_a_worker_that_dies_in_a_reset_is_renewed_where_that_is_asked_for(manager: Any, tmp_path: Path) -> None:
    envs = manager(ours.SyncSubprocessEnvManager, counting(2), retry_type="renew", max_retry=2)
    with pytest.raises(RuntimeError, match=r"Env 0 reset has exceeded max retries\(2\).*SIGKILL"):
        envs.reset({0: {"command": "die"}})
    assert envs.closed
    envs.launch()
    with pytest.raises(shoal.WorkerDied, match="SIGKILL"):
        envs.step({0: "die", 1: 0})


@pytest.mark.parametrize("kind", [ours.SyncSubprocessEnvManager, ours.AsyncSubprocessEnvManager])
def test_a_killed_worker_is_started_anew_where_that_is_asked_for(manager: Any, kind: Any) -> None:
    envs = manager(kind, counting(3, length=100), on_fault="restart", launched=False)
    envs.launch({i: {"start": 10} for i in range(3)})
    pid = envs.stats()["workers"][1]["pid"]
    os.kill(pid, signal.SIGKILL)
    seen: dict[int, Any] = {}
    while 1 not in seen or not seen[1].info.get("abnormal"):
        seen |= envs.step(dict.fromkeys(envs.ready_obs, 0))
    assert "SIGKILL" in seen[1].info["fault"] and seen[1].done
    while 1 not in (obs := envs.ready_obs):
        envs.step(dict.fromkeys(obs, 0))
    assert_same(obs[1], np.array([1, -1, 10], np.float32))
    assert envs.stats()["workers"][1]["pid"] != pid
