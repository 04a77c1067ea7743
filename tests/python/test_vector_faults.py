"""What shoal.make_vec(on_fault=…) makes of environments that die, hang or fail."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import shoal
from sample_envs import CounterEnv
from shoal.compat import gymnasium as compat
from shoal.vector.faults import Backoff
from stopping import stop

STEP, RAISE, KILL, EXIT, SEGFAULT, HANG, HANG_IN_C, SYS_EXIT = range(8)

Make = Callable[..., shoal.VectorEnv]


class Troubled(gymnasium.Env):
    """Does what its action says; observes how many steps its episode has, and draws its rewards from its generator."""

    observation_space = spaces.Box(0, np.inf, (2,), np.float64)
    action_space = spaces.Discrete(8)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        if options and options.get("raise"):
            raise ValueError("no episode today")
        return np.array([self.steps, self.np_random.random()]), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if action == RAISE:
            raise ValueError("bad luck")
        if action == KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        if action == EXIT:
            os._exit(3)
        if action == SEGFAULT:
            os.kill(os.getpid(), signal.SIGSEGV)
        if action == HANG:
            self.wait_for_ever()
        if action == HANG_IN_C:
            sum(1 for _ in iter(int, 1))  # the GIL is given up now and then; never for good
        if action == SYS_EXIT:
            sys.exit("enough")
        self.steps += 1
        return np.array([self.steps, self.np_random.random()]), 1.0, False, False, {"steps": self.steps}

    def wait_for_ever(self) -> None:
        while True:
            time.sleep(1)


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[shoal.VectorEnv] = []

    def make_and_keep(*args: Any, **kwargs: Any) -> shoal.VectorEnv:
        made.append(shoal.make_vec(*args, **{"num_workers": 2, **kwargs}))
        return made[-1]

    yield make_and_keep
    for envs in made:
        envs.close()


def until_live(envs: shoal.VectorEnv) -> tuple[Any, ...]:
    """Steps until every environment that is to come back has."""
    while True:
        result = envs.step(np.zeros(envs.num_envs, np.int64))
        if "down" not in result[-1] and "fault" not in result[-1]:
            return result


@pytest.mark.parametrize(
    ("action", "kind", "lost"),
    [
        (RAISE, "exception", [2]),
        (SYS_EXIT, "exception", [2]),
        (KILL, "killed", [2, 3]),
        (SEGFAULT, "killed", [2, 3]),
        (EXIT, "exit", [2, 3]),
        (HANG, "hang", [2, 3]),
        (HANG_IN_C, "hang", [2, 3]),
    ],
)
def test_restart_ends_the_rows_as_truncated_with_a_record(make: Make, action: int, kind: str, lost: list[int]) -> None:
    envs = make(Troubled, 4, on_fault=shoal.FaultPolicy("restart", step_timeout=1))
    envs.reset(seed=5)
    envs.step([0, 0, 0, 0])
    observation, reward, terminated, truncated, infos = envs.step([0, 0, action, 0])
    assert np.flatnonzero(infos["_fault"]).tolist() == lost
    assert truncated.tolist() == [row in lost for row in range(4)] and not terminated.any()
    assert reward.tolist() == [float(row not in lost) for row in range(4)]
    assert observation[2, 0] == 1  # the last one
    fault = infos["fault"][2]
    assert isinstance(fault, shoal.Fault) and infos["fault"][0] is None
    assert (fault.kind, fault.worker, fault.env, fault.restarts, fault.number) == (kind, 1, 2, 0, 1)
    assert all(infos["fault"][row] is fault for row in lost)
    if kind == "exception":
        assert fault.seed == 7 and fault.episode_step == 1 and str(action) in fault.action
        assert "step" in fault.details and "Traceback" in fault.details
    if kind == "hang":
        assert "did not finish its step within 1 s" in fault.message
        assert "test_vector_faults.py" in fault.details, fault.details
        assert ("wait_for_ever" in fault.details) == (action == HANG)
    observation, *_ = until_live(envs)
    assert observation[2, 0] == 0 and observation[0, 0] > observation[3, 0] if 3 in lost else True
    health = envs.health()
    assert health[1]["faults"] == {**dict.fromkeys(("exception", "killed", "hang", "memory", "exit"), 0), kind: 1}
    assert health[1]["last_fault"] == fault and health[0]["last_fault"] is None


def test_the_neighbours_of_an_environment_that_raises_keep_their_episodes(make: Make) -> None:
    envs = make(Troubled, 4, num_workers=1, on_fault="restart")
    reference = make(Troubled, 4, num_workers=1)
    for each in (envs, reference):
        each.reset(seed=0)
    pid = envs.health()[0]["pid"]
    for t in range(6):
        ours = envs.step([0, RAISE if t == 2 else 0, 0, 0])
        theirs = reference.step([0, 0, 0, 0])
        for mine, other in zip(ours[:4], theirs[:4], strict=True):
            np.testing.assert_array_equal(mine[[0, 2, 3]], other[[0, 2, 3]])
        assert ours[0][1, 0] == (t + 1 if t < 2 else 2 if t == 2 else t - 3)
    assert envs.health()[0]["pid"] == pid


def test_new_environments_are_seeded_the_same_way_whenever_the_same_happens(make: Make) -> None:
    draws = []
    for num_workers in (1, 2):
        envs = make(Troubled, 2, num_workers=num_workers, on_fault="restart")
        envs.reset(seed=3)
        envs.step([0, RAISE])
        draws.append(envs.step([0, 0])[0][1])
    np.testing.assert_array_equal(draws[0], draws[1])


def test_drop_goes_on_without_the_lost(make: Make) -> None:
    envs = make(Troubled, 4, on_fault="drop")
    envs.reset(seed=0)
    infos = envs.step([0, RAISE, 0, 0])[-1]
    assert infos["fault"][1].kind == "exception" and "dropped" not in infos
    for _ in range(3):
        observation, reward, _, truncated, infos = envs.step([0, KILL, 0, 0])
        assert infos["dropped"].tolist() == infos["_dropped"].tolist() == [False, True, False, False]
        assert truncated.tolist() == [False, True, False, False] and reward[1] == 0
    envs.step([0, 0, KILL, 0])
    assert envs.step([0, 0, 0, 0])[-1]["dropped"].tolist() == [False, True, True, True]
    assert [worker["state"] for worker in envs.health()] == ["idle", "dropped"]
    envs.reset(seed=1)
    with pytest.raises(shoal.TooManyFaults, match="every environment has been dropped") as caught:
        envs.step([EXIT, 0, 0, 0])
    assert [fault.kind for fault in caught.value.faults] == ["exception", "killed", "exit"]
    with pytest.raises(RuntimeError, match="closed, because every environment has been dropped"):
        envs.reset()


class Naming(CounterEnv):
    """Its infos have values of its own by the names of Shoal's; action 2 is an exception."""

    def __init__(self, value: Any) -> None:
        super().__init__(length=99)
        self.value = value

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if action == 2:
            raise ValueError("bad luck")
        own = {"fault": self.value, "down": self.value, "dropped": self.value, "_fault": True, "own": 1, 3: 4}
        return (*super().step(action)[:4], own)


def naming_envs(value: Any, way: str) -> Any:
    policy = shoal.FaultPolicy("restart", backoff=60.0, max_backoff=60.0)
    if way == "gymnasium":
        return compat.AsyncVectorEnv([lambda: Naming(value)] * 3, num_workers=1, on_fault=policy)
    batch = {"cohorts": 1} if way == "batches" else {}
    return shoal.make_vec(Naming, 3, num_workers=1, on_fault=policy, env_kwargs={"value": value}, **batch)


@pytest.mark.parametrize("way", ["together", "batches", "gymnasium"])
@pytest.mark.parametrize("value", [0.0, False, True, "none", {"code": 1}, np.zeros(2)], ids=repr)
def test_what_an_environment_itself_calls_a_fault_hides_none(way: str, value: Any) -> None:
    with contextlib.closing(naming_envs(value, way)) as envs:
        envs.reset(seed=0)
        for actions, lost, down in (
            ([0, 0, 0], [], []),
            ([0, 2, 0], [1], []),
            ([0, 0, 0], [], []),  # in the row of the new environment's reset
            ([0, 2, 0], [1], []),
            ([0, 0, 0], [], [1]),
        ):
            if way == "batches":
                envs.send(actions, np.arange(3))
                infos = envs.recv()[-1]
            else:
                infos = envs.step(np.array(actions))[-1]
            assert np.flatnonzero(infos.get("_fault", ())).tolist() == lost and ("fault" in infos) == bool(lost)
            for row in lost:
                assert [isinstance(fault, shoal.Fault) for fault in infos["fault"]] == [i == row for i in range(3)]
            assert np.flatnonzero(infos.get("down", ())).tolist() == down and "dropped" not in infos
            assert infos["own"][[0, 2]].tolist() == [1, 1]


def test_names_of_faults_are_the_environments_where_none_is_told(make: Make) -> None:
    envs = make(Naming, 2, env_kwargs={"value": 7})
    envs.reset()
    infos = envs.step([0, 0])[-1]
    assert all(infos[name].tolist() == [7, 7] for name in ("fault", "down", "dropped"))
    limited = make(Naming, 2, env_kwargs={"value": 7}, worker=shoal.WorkerOptions(memory_limit=2**40))
    limited.reset()
    assert set(limited.step([0, 0])[-1]) == {"own", "_own", 3, "_3"}, "rows may be down there"


def test_calls_give_none_for_the_dropped(make: Make) -> None:
    envs = make(Troubled, 4, on_fault="drop")
    envs.reset(seed=0)
    envs.step([0, RAISE, KILL, 0])
    assert envs.get_attr("steps") == (1, None, None, None)
    envs.set_attr("steps", 7)
    assert envs.get_attr("steps") == (7, None, None, None)
    _, infos = envs.reset(seed=[1, 2, 3, 2**70], options={"more": 1})
    assert infos["dropped"].tolist() == [False, True, True, True]


def test_too_many_faults_tell_of_each_with_its_cause(make: Make) -> None:
    envs = make(Troubled, 2, num_workers=1, on_fault=shoal.FaultPolicy("restart", max_restarts=2, backoff=0.01))
    envs.reset(seed=0)
    envs.step([RAISE, 0])
    until_live(envs)
    envs.step([0, EXIT])
    until_live(envs)
    with pytest.raises(shoal.TooManyFaults) as caught:
        envs.step([0, KILL])
    assert [fault.kind for fault in caught.value.faults] == ["exception", "exit", "killed"]
    text = str(caught.value)
    assert "bad luck" in text and "Traceback" in text and "exit code 3" in text and "SIGKILL" in text


def test_a_place_that_fails_again_waits_while_the_others_go_on(make: Make) -> None:
    envs = make(Troubled, 2, on_fault=shoal.FaultPolicy("restart", backoff=60, max_backoff=60))
    envs.reset(seed=0)
    envs.step([0, RAISE])
    assert envs.step([0, 0])[0][1, 0] == 0
    envs.step([0, RAISE])
    for _ in range(10):
        *_, truncated, infos = envs.step([0, RAISE])
        assert infos["down"].tolist() == truncated.tolist() == [False, True]
    assert envs.reset(seed=1)[0].shape == (2, 2)  # an explicit reset does not wait
    assert "down" not in envs.step([0, 0])[-1]


def test_an_environment_that_raises_in_its_reset_is_a_fault_of_that_reset(make: Make) -> None:
    envs = make(Troubled, 2, on_fault="restart")
    _, infos = envs.reset(seed=0, options={"raise": True})
    assert [fault.kind for fault in infos["fault"]] == ["exception", "exception"]
    observation, *_, infos = until_live(envs)
    assert observation[:, 0].tolist() == [0, 0]


@pytest.mark.parametrize("way", [{}, {"num_workers": 0}, {"batch_size": 2}])
def test_options_of_a_reset_that_did_not_begin_are_not_the_next_ones(
    make: Make, way: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    envs = make(Troubled, 2, **way)
    envs.reset(seed=0)

    class Interrupted:
        def reset_async(self, *_: Any) -> None:
            raise KeyboardInterrupt

        def __getattr__(self, name: str) -> Any:
            return getattr(io, name)

    io = envs._io
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(envs, "_io", Interrupted())
        envs.reset(options={"raise": True})
    assert envs.reset()[0][:, 0].tolist() == [0, 0]


class Asked(Troubled):
    """Tells in its infos with which options it was reset."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        return super().reset(seed=seed)[0], {"options": str(options)}


def test_options_of_a_reset_without_a_dropped_environment_are_not_the_next_ones(make: Make) -> None:
    envs = make(Asked, 3, num_workers=1, batch_size=3, on_fault="drop")
    envs.reset(seed=0)
    envs.step(np.array([0, RAISE, 0]))
    for options in ({"x": 1}, None, None):
        assert set(envs.reset(options=options)[1]["options"][[0, 2]]) == {str(options)}


@pytest.mark.parametrize("way", [{}, {"num_workers": 0}, {"batch_size": 1}, {"batch_size": 2, "num_workers": 1}])
def test_after_a_failure_every_call_says_why_the_environments_are_closed(make: Make, way: dict[str, Any]) -> None:
    envs = make(Troubled, 2, **way)
    envs.reset(seed=0)
    envs.send(np.array([0, RAISE]), [0, 1])
    with pytest.raises(ValueError, match="bad luck"):
        for _ in range(2):
            envs.recv()
    sync = {"step": [np.array([0, 0])], "recv": [], "reset": [], "reset_wait": [], "step_wait": [], "call_wait": []}
    for name, arguments in sync.items():
        with pytest.raises(RuntimeError, match=r"these environments are closed, because .* failed") as caught:
            getattr(envs, name)(*arguments)
        said = str(caught.value).partition(":")[0]
        assert said == name or (name, said) == ("step", "send")


def test_a_hang_raises_with_the_python_stack(make: Make) -> None:
    envs = make(Troubled, 2, on_fault=shoal.FaultPolicy("raise", step_timeout=1))
    envs.reset(seed=0)
    with pytest.raises(shoal.WorkerDied, match=r"environment 1 did not finish its step within 1 s.*") as caught:
        envs.step([0, HANG])
    assert caught.value.kind == "hang" and caught.value.exitcode == -signal.SIGKILL
    assert "in wait_for_ever" in str(caught.value)


def test_the_timeout_of_a_call_leaves_it_under_way(make: Make) -> None:
    envs = make(Troubled, 2, on_fault=shoal.FaultPolicy("restart", step_timeout=1))
    envs.reset(seed=0)
    envs.step_async(np.array([0, HANG]))
    with pytest.raises(TimeoutError, match="in environment 1"):
        envs.step_wait(timeout=0.05)
    assert envs.step_wait()[-1]["fault"][1].kind == "hang"


def test_a_stopped_worker_is_a_hang_that_says_so(make: Make) -> None:
    envs = make(Troubled, 2, on_fault=shoal.FaultPolicy("restart", step_timeout=1))
    envs.reset(seed=0)
    stop(envs.health()[1]["pid"])
    fault = envs.step([0, 0])[-1]["fault"][1]
    assert fault.kind == "hang" and "stopped" in fault.details


def test_a_hung_reset_has_a_deadline_of_its_own(make: Make) -> None:
    class SlowReset(Troubled):
        def reset(self, **kwargs: Any) -> Any:
            result = super().reset(**kwargs)
            while (kwargs.get("options") or {}).get("hang"):
                time.sleep(1)
            return result

    envs = make(SlowReset, 2, on_fault=shoal.FaultPolicy("restart", reset_timeout=1))
    envs.reset(seed=0)
    _, infos = envs.reset(options={"hang": True, "reset_mask": np.array([False, True])})
    assert infos["fault"][1].kind == "hang" and "did not finish its reset" in infos["fault"][1].message
    until_live(envs)


def test_health_can_be_asked_by_any_thread_while_a_step_is_under_way(make: Make) -> None:
    envs = make(Troubled, 4)
    envs.reset(seed=0)
    envs.step_async(np.array([0, 0, 0, HANG]))
    found: list[Any] = []
    while not found or found[-1][1]["env"] != 3 or found[-1][1]["since"] < 0.02:
        thread = threading.Thread(target=lambda: found.append(envs.health()))
        thread.start()
        thread.join()
    worker = found[-1][1]
    assert worker["state"] == "stepping" and worker["rss"] > 1e6 and worker["restarts"] == 0
    os.kill(worker["pid"], signal.SIGKILL)
    with pytest.raises(shoal.WorkerDied):
        envs.step_wait()


def test_an_environment_that_hangs_while_it_is_built_is_an_error_with_its_stack() -> None:
    class Slow(Troubled):
        def __init__(self) -> None:
            self.wait_for_ever()

    with pytest.raises(TimeoutError, match="start_timeout=0.5 s") as caught:
        shoal.make_vec(Slow, 2, num_workers=2, on_fault=shoal.FaultPolicy("raise", start_timeout=0.5))
    assert "in wait_for_ever" in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"on_fault": "ignore"}, "'raise', 'restart' or 'drop'"),
        ({"max_restarts": -1}, "max_restarts"),
        ({"max_restarts": 1.5}, "max_restarts"),
        ({"backoff": -1}, "backoff"),
        ({"backoff": float("nan")}, "backoff"),
        ({"step_timeout": 0}, "step_timeout"),
        ({"reset_timeout": "1"}, "reset_timeout"),
    ],
)
def test_a_wrong_policy_names_the_argument(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        shoal.FaultPolicy(**arguments)


def test_policies_that_need_processes_say_so_and_choose_them(make: Make) -> None:
    with pytest.raises(ValueError, match="need worker processes"):
        make(Troubled, 2, backend="serial", on_fault="restart")
    envs = make(Troubled, 1, num_workers=None, on_fault="restart")
    assert envs.health()[0]["pid"] != os.getpid()
    with contextlib.closing(shoal.make_vec(Troubled, 2, backend="serial")) as serial:
        assert [worker["pid"] for worker in serial.health()] == [os.getpid()]


def play(envs: shoal.VectorEnv, actions: list[int]) -> dict[int, tuple[Any, ...]]:
    """One step of all: environment number to what came of it."""
    if not hasattr(envs, "send"):
        observations, *values, infos = envs.step(actions)
        ids = range(envs.num_envs)
    else:
        envs.send(actions, range(envs.num_envs))
        observations, *values, infos = envs.recv()
        ids = infos["env_id"]
    flags = [infos.get(key, [None] * len(ids)) for key in ("fault", "down")]
    return {
        int(i): (tuple(observations[at]), *(value[at].item() for value in values), *(flag[at] for flag in flags))
        for at, i in enumerate(ids)
    }


@pytest.mark.parametrize("way", [{}, {"batch_size": 4}, {"pool": True}], ids=["all", "arrival", "pool"])
@pytest.mark.parametrize("trouble", [RAISE, KILL], ids=["raise", "kill"])
def test_what_a_fault_took_can_be_restored(way: dict[str, Any], trouble: int) -> None:
    with contextlib.ExitStack() as stack:
        workers: dict[str, Any] = {"num_workers": 2}
        if way.get("pool"):
            workers = {"pool": stack.enter_context(shoal.WorkerPool(2))}
        forgiving = shoal.FaultPolicy("restart", max_restarts=100, backoff=0)
        envs = shoal.make_vec(Troubled, 4, on_fault=forgiving, **{**way, **workers})
        stack.callback(envs.close)
        envs.reset(seed=3)
        play(envs, [STEP] * 4)
        taken = envs.snapshot()
        steps = [play(envs, [STEP] * 4) for _ in range(5)]
        for _ in range(3):
            faulty = play(envs, [STEP, trouble, STEP, STEP])
            assert faulty[1][4] is not None
            with pytest.raises(RuntimeError, match="lost to a fault and ha(s|ve) not begun an episode since"):
                envs.snapshot()
            envs.restore(envs.snapshot([2, 3]))
            envs.restore(taken)
            assert [play(envs, [STEP] * 4) for _ in range(5)] == steps
        os.kill(envs.health()[0]["pid"], signal.SIGKILL)  # told by nobody, where all is put back
        with contextlib.suppress(shoal.WorkerDied):
            envs.restore(taken)
        envs.restore(taken)
        assert [play(envs, [STEP] * 4) for _ in range(5)] == steps


def test_what_was_dropped_is_not_restored() -> None:
    with contextlib.closing(shoal.make_vec(Troubled, 3, num_workers=1, on_fault="drop")) as envs:
        envs.reset(seed=3)
        taken = envs.snapshot()
        play(envs, [STEP, RAISE, STEP])
        for call in (envs.snapshot, lambda: envs.restore(taken)):
            with pytest.raises(RuntimeError, match="environment 1 has been dropped"):
                call()
        before = play(envs, [STEP] * 3)
        kept = envs.snapshot([0, 2])
        after = play(envs, [STEP] * 3)
        envs.restore(kept)
        assert play(envs, [STEP] * 3) == after != before


def test_a_place_waits_longer_after_each_fault_of_a_row_and_not_after_a_quiet_window() -> None:
    backoff = Backoff(shoal.FaultPolicy(backoff=0.5, max_backoff=3.0, restart_window=10.0))
    assert [backoff.after_fault(now) for now in (0.0, 1.0, 11.0, 12.0, 13.0, 14.0)] == [0.0, 0.5, 1.0, 2.0, 3.0, 3.0]
    assert [backoff.after_fault(now) for now in (24.1, 25.0)] == [0.0, 0.5]
    many = Backoff(shoal.FaultPolicy(backoff=0.001, max_backoff=20.0))
    assert [many.after_fault(0.0) for _ in range(2000)][-1] == 20.0
