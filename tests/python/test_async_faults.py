"""What shoal.make_vec(on_fault=…) makes of environments that die, hang or fail while they are stepped one by one."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import shoal
from stopping import stop
from test_vector_faults import EXIT, HANG, HANG_IN_C, KILL, RAISE, SEGFAULT, SYS_EXIT, Make, Troubled
from test_vector_memory import MIB, Leaking

WAYS: dict[str, dict[str, Any]] = {
    "arrival": {"batch_size": 2},
    "cohorts": {"cohorts": 2},
    "whole": {"pool": 2},
    "shared": {"pool": 2, "batch_size": 2},
}
ways = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[Any] = []

    def make_and_keep(env: Any, num_envs: int, *, pool: Any = None, **kwargs: Any) -> Any:
        if isinstance(pool, int):
            made.append(shoal.WorkerPool(pool))
            pool = made[-1]
        workers = {"pool": pool} if pool is not None else {"num_workers": 2}
        made.append(shoal.make_vec(env, num_envs, **{**workers, **kwargs}))
        return made[-1]

    yield make_and_keep
    for envs in reversed(made):
        envs.close()


Row = dict[str, Any]


def rows_of(result: Any) -> dict[int, Row]:
    observations, rewards, terminated, truncated, infos = result
    rows = {}
    for i, env in enumerate(infos["env_id"]):
        fault = infos["fault"][i] if "fault" in infos else None
        marks = {key for key in ("down", "dropped") if key in infos and infos[key][i]}
        rows[int(env)] = {
            "observation": observations[i].tolist(),
            "reward": float(rewards[i]),
            "over": (bool(terminated[i]), bool(truncated[i])),
            "fault": fault,
            "marks": marks,
        }
    return rows


def play(envs: Any, actions: dict[int, int]) -> dict[int, Row]:
    """One step of these environments, in as many batches as that takes."""
    order = sorted(actions)
    rows: dict[int, Row] = {}
    if envs._whole and not envs.in_flight and len(order) == envs.num_envs:
        result = envs.step(np.array([actions[i] for i in order]))
        return rows_of((*result[:4], {**result[4], "env_id": np.arange(envs.num_envs)}))
    envs.send(np.array([actions[i] for i in order]), order)
    while len(rows) < len(order):
        rows |= rows_of(envs.recv(timeout=60))
    return rows


def live(rows: dict[int, Row]) -> bool:
    return all(row["fault"] is None and not row["marks"] for row in rows.values())


@ways
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
def test_restart_ends_the_rows_as_truncated_with_a_record(
    make: Make, way: dict[str, Any], action: int, kind: str, lost: list[int]
) -> None:
    envs = make(Troubled, 4, on_fault=shoal.FaultPolicy("restart", step_timeout=1.0 if kind == "hang" else None), **way)
    envs.reset(seed=5)
    assert live(play(envs, dict.fromkeys(range(4), 0)))
    rows = play(envs, {0: 0, 1: 0, 2: action, 3: 0})
    fault = rows[2]["fault"]
    assert isinstance(fault, shoal.Fault)
    assert (fault.kind, fault.worker, fault.env, fault.restarts, fault.number) == (kind, 1, 2, 0, 1)
    assert rows[2]["observation"][0] == 1 and rows[2]["reward"] == 0 and rows[2]["over"] == (False, True)
    assert live({i: rows[i] for i in (0, 1)})
    if kind == "exception":
        assert fault.seed == 7 and fault.episode_step == 1 and str(action) in fault.action
        assert fault.message.startswith("environment 2 raised ") and "Traceback" in fault.details
        assert live({3: rows[3]})
    if kind == "hang":
        assert fault.message == "environment 2 did not finish its step within 1 s (step_timeout); its worker was killed"
        assert "test_vector_faults.py" in fault.details, fault.details
        assert ("wait_for_ever" in fault.details) == (action == HANG)
    if len(lost) == 2 and live({3: rows[3]}):  # it was done before: its next row tells
        rows = play(envs, dict.fromkeys(range(4), 0))
        assert rows[3]["fault"] is fault or rows[3]["fault"] == fault
    while not live(rows):
        rows = play(envs, dict.fromkeys(range(4), 0))
    health = envs.health()
    assert health[1]["faults"] == {**dict.fromkeys(("exception", "killed", "hang", "memory", "exit"), 0), kind: 1}
    assert health[1]["last_fault"] == fault and health[0]["last_fault"] is None
    assert health[1]["restarts"] == (0 if kind == "exception" else 1)


@pytest.mark.parametrize("action", [RAISE, KILL])
def test_a_new_environment_has_the_seed_that_it_would_have_in_synchronous_steps(make: Make, action: int) -> None:
    def draws(rows: Any) -> list[float]:
        return [row["observation"][1] for _, row in sorted(rows.items())]

    drawn = []
    for way in ({}, *WAYS.values()):
        envs = make(Troubled, 2, on_fault=shoal.FaultPolicy("restart", backoff=0.01), **way)
        envs.reset(seed=3)
        rows: dict[int, Row] = {}
        for _ in range(2):
            if way:
                rows = play(envs, {0: 0, 1: action})
                while not live(rows):
                    rows = play(envs, {0: 0, 1: 0})
            else:
                result = envs.step([0, action])
                while "fault" in result[4] or "down" in result[4]:
                    result = envs.step([0, 0])
                rows = rows_of((*result[:4], {"env_id": np.arange(2)}))
            drawn.append(draws(rows)[1])
    assert drawn == drawn[:2] * 5 and drawn[0] != drawn[1]


@ways
def test_the_neighbours_of_an_environment_that_raises_keep_their_episodes(make: Make, way: dict[str, Any]) -> None:
    envs = make(Troubled, 4, on_fault="restart", **way)
    envs.reset(seed=0)
    pids = [worker["pid"] for worker in envs.health()]
    for t in range(6):
        rows = play(envs, {0: 0, 1: RAISE if t == 2 else 0, 2: 0, 3: 0})
        assert [rows[i]["observation"][0] for i in (0, 2, 3)] == [t + 1] * 3
        assert rows[1]["observation"][0] == (t + 1 if t < 2 else 2 if t == 2 else t - 3)
    assert [worker["pid"] for worker in envs.health()] == pids


@pytest.mark.parametrize("way", [WAYS["cohorts"], WAYS["whole"]], ids=["cohorts", "whole"])
def test_where_places_are_given_nobody_waits_for_who_is_down(make: Make, way: dict[str, Any]) -> None:
    envs = make(Troubled, 4, on_fault=shoal.FaultPolicy("restart", backoff=60, max_backoff=60), **way)
    envs.reset(seed=0)
    everybody = dict.fromkeys(range(4), 0)
    play(envs, {**everybody, 1: RAISE})
    assert play(envs, everybody)[1]["observation"][0] == 0
    play(envs, {**everybody, 1: RAISE})
    for _ in range(10):
        rows = play(envs, {**everybody, 1: RAISE})
        assert rows[1]["marks"] == {"down"} and rows[1]["over"] == (False, True)
        assert live({i: rows[i] for i in (0, 2, 3)})
    assert envs.reset(seed=1)[0].shape == (4, 2)  # an explicit reset does not wait for a back-off
    assert live(play(envs, everybody))


def test_in_arrival_order_who_is_down_comes_later(make: Make) -> None:
    envs = make(Troubled, 4, batch_size=1, on_fault=shoal.FaultPolicy("restart", backoff=0.3))
    envs.reset(seed=0)
    play(envs, {1: RAISE})
    play(envs, {1: 0})
    play(envs, {1: RAISE})
    envs.send([0], [1])
    came = []
    while 1 not in came:
        envs.send([0], [0])
        came.append(int(envs.recv(timeout=30)[4]["env_id"][0]))
        if came[-1] == 1:
            envs.recv(timeout=30)
    assert 0 in came


DROPPING = {"arrival": {"batch_size": 1}, "cohorts": {"cohorts": 2}, "whole": {"pool": 2}}


@pytest.mark.parametrize("way", DROPPING)
def test_drop_goes_on_without_the_lost(make: Make, way: str) -> None:
    envs = make(Troubled, 4, on_fault="drop", **DROPPING[way])
    dropped = set[int]()

    def step(actions: dict[int, int]) -> dict[int, Row]:
        """In arrival order the dropped take no place; elsewhere theirs says so."""
        everybody = {i: actions.get(i, 0) for i in range(4) if i not in dropped or way != "arrival"}
        rows = play(envs, everybody)
        assert all(rows[i]["marks"] == {"dropped"} and rows[i]["over"] == (False, True) for i in dropped & set(rows))
        new = {i for i, row in rows.items() if row["fault"] is not None}
        assert live({i: rows[i] for i in set(rows) - new - dropped})
        dropped.update(new)
        return rows

    envs.reset(seed=0)
    assert step({1: RAISE})[1]["fault"].kind == "exception"
    assert envs.get_attr("steps") == (1, None, 1, 1)
    envs.set_attr("steps", 7)
    assert envs.get_attr("steps") == (7, None, 7, 7)
    assert step({2: KILL})[2]["fault"].kind == "killed"
    if 3 not in dropped:  # it was done before its worker died: its next row tells
        assert step({})[3]["fault"].kind == "killed"
    assert dropped == {1, 2, 3} and [worker["state"] for worker in envs.health()] == ["idle", "dropped"]
    assert envs.get_attr("steps")[1:] == (None, None, None)
    _, infos = envs.reset(seed=1)
    assert infos["dropped"].tolist() == [False, True, True, True]
    with pytest.raises(shoal.TooManyFaults, match="every environment has been dropped") as caught:
        step({0: EXIT})
    assert [fault.kind for fault in caught.value.faults] == ["exception", "killed", "exit"]
    with pytest.raises(RuntimeError, match="closed, because every environment has been dropped"):
        envs.reset()


@pytest.mark.parametrize("pool", [None, 2])
def test_a_worker_whose_environments_were_all_dropped_goes(make: Make, pool: int | None) -> None:
    envs = make(Troubled, 4, pool=pool, batch_size=1, on_fault="drop")
    envs.reset(seed=0)
    pid = envs.health()[1]["pid"]
    for env in (2, 3):
        assert play(envs, {env: RAISE})[env]["fault"].kind == "exception"
    health = envs.health()[1]
    assert health["state"] == "dropped"
    assert live(play(envs, {0: 0, 1: 0}))
    if pool is None:
        deadline = time.monotonic() + 30
        while os.path.exists(f"/proc/{pid}") and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not os.path.exists(f"/proc/{pid}")


@ways
def test_too_many_faults_tell_of_each_with_its_cause(make: Make, way: dict[str, Any]) -> None:
    envs = make(Troubled, 2, on_fault=shoal.FaultPolicy("restart", max_restarts=2, backoff=0.01), **way)
    envs.reset(seed=0)
    for env, action in ((0, RAISE), (1, EXIT)):
        rows = play(envs, {0: 0, 1: 0, env: action})
        while not live(rows):
            rows = play(envs, {0: 0, 1: 0})
    with pytest.raises(shoal.TooManyFaults) as caught:
        play(envs, {0: 0, 1: KILL})
    assert [fault.kind for fault in caught.value.faults] == ["exception", "exit", "killed"]
    text = str(caught.value)
    assert "bad luck" in text and "Traceback" in text and "exit code 3" in text and "SIGKILL" in text


@ways
def test_a_hang_raises_with_the_python_stack(make: Make, way: dict[str, Any]) -> None:
    envs = make(Troubled, 2, on_fault=shoal.FaultPolicy("raise", step_timeout=1.0), **way)
    envs.reset(seed=0)
    with pytest.raises(shoal.WorkerDied, match=r"environment 1 did not finish its step within 1 s.*") as caught:
        play(envs, {0: 0, 1: HANG})
    assert caught.value.kind == "hang" and caught.value.exitcode == -signal.SIGKILL
    assert "in wait_for_ever" in str(caught.value)


@ways
def test_a_stopped_worker_is_a_hang_that_says_so(make: Make, way: dict[str, Any]) -> None:
    envs = make(Troubled, 2, on_fault=shoal.FaultPolicy("restart", step_timeout=1.0), **way)
    envs.reset(seed=0)
    stop(envs.health()[1]["pid"])
    fault = play(envs, {0: 0, 1: 0})[1]["fault"]
    assert fault.kind == "hang" and "stopped" in fault.details


def test_a_hung_reset_has_a_deadline_of_its_own(make: Make) -> None:
    class SlowReset(Troubled):
        def reset(self, **kwargs: Any) -> Any:
            result = super().reset(**kwargs)
            while (kwargs.get("options") or {}).get("hang"):
                time.sleep(1)
            return result

    envs = make(SlowReset, 2, batch_size=1, on_fault=shoal.FaultPolicy("restart", reset_timeout=1.0))
    envs.reset(seed=0)
    envs.async_reset(options={"hang": True, "reset_mask": np.array([False, True])})
    fault = rows_of(envs.recv(timeout=60))[1]["fault"]
    assert fault.kind == "hang" and "did not finish its reset within 1 s (reset_timeout)" in fault.message
    assert live(play(envs, {1: 0}))


def test_health_can_be_asked_by_any_thread_while_environments_are_in_flight(make: Make) -> None:
    envs = make(Troubled, 4, batch_size=1)
    envs.reset(seed=0)
    envs.send([HANG], [3])
    found: list[Any] = []
    while not found or found[-1][1]["env"] != 3 or found[-1][1]["since"] < 0.02:
        thread = threading.Thread(target=lambda: found.append(envs.health()))
        thread.start()
        thread.join()
    worker = found[-1][1]
    assert worker["state"] == "stepping" and worker["rss"] > 1e6 and worker["restarts"] == 0
    os.kill(worker["pid"], signal.SIGKILL)
    with pytest.raises(shoal.WorkerDied):
        envs.recv(timeout=60)


class Slow(Troubled):
    """Is built slowly, for ever, in every process but the first `builders` ones."""

    def __init__(self, path: str, builders: int = 0) -> None:
        with open(path, "a") as file:
            file.write(f"{os.getpid()}\n")
        with open(path) as file:
            if len(set(file)) > builders:
                self.wait_for_ever()


@pytest.mark.parametrize("shared", [False, True])
def test_an_environment_that_hangs_while_it_is_built_is_an_error_with_its_stack(
    make: Make, tmp_path: Any, shared: bool
) -> None:
    pool = shoal.WorkerPool(1) if shared else None
    policy = shoal.FaultPolicy("raise", start_timeout=2.0)
    where = {"pool": pool} if pool else {"num_workers": 2, "batch_size": 1}
    with pytest.raises(TimeoutError, match="start_timeout=2 s") as caught:
        shoal.make_vec(Slow, 2, on_fault=policy, env_kwargs={"path": str(tmp_path / "pids")}, **where)
    assert "in wait_for_ever" in str(caught.value)
    if pool:
        pool.close()


def test_a_replacement_that_hangs_while_it_is_built_is_a_fault(make: Make, tmp_path: Any) -> None:
    policy = shoal.FaultPolicy("restart", max_restarts=2, start_timeout=3.0, backoff=0.0)
    arguments = {"path": str(tmp_path / "pids"), "builders": 1}
    envs = make(Slow, 1, num_workers=1, batch_size=1, on_fault=policy, env_kwargs=arguments)
    envs.reset(seed=0)
    assert play(envs, {0: KILL})[0]["fault"].kind == "killed"
    fault = play(envs, {0: 0})[0]["fault"]
    assert fault.kind == "hang" and "did not build its environments within 3 s (start_timeout)" in fault.message
    assert "in wait_for_ever" in fault.details
    with pytest.raises(shoal.TooManyFaults):
        play(envs, {0: 0})


def test_the_sessions_of_a_pool_are_told_of_each_others_hangs(make: Make) -> None:
    pool = shoal.WorkerPool(1)
    policy = shoal.FaultPolicy("restart", step_timeout=1.0)
    one = make(Troubled, 1, pool=pool, batch_size=1, on_fault=policy)
    other = make(Troubled, 1, pool=pool, batch_size=1, on_fault="restart")
    for envs in (one, other):
        envs.reset(seed=0)
    assert play(one, {0: HANG})[0]["fault"].env == 0
    fault = play(other, {0: 0})[0]["fault"]
    assert fault.kind == "hang" and fault.env is None
    assert fault.message.startswith("another vector environment of the pool: environment 0 did not finish its step")
    for envs in (one, other):
        assert live(play(envs, {0: 0}))
        envs.close()
    pool.close()


def test_calls_wait_for_a_worker_that_is_started_anew(make: Make) -> None:
    envs = make(Troubled, 2, batch_size=1, on_fault="restart")
    envs.reset(seed=0)
    assert play(envs, {1: KILL})[1]["fault"].kind == "killed"
    envs.set_attr("mark", [3, 4])
    assert envs.get_attr("mark") == (3, 4)


def test_nothing_stays_in_flight_when_what_is_down_is_thrown_away(make: Make) -> None:
    envs = make(Troubled, 2, batch_size=1, on_fault=shoal.FaultPolicy("restart", backoff=60, max_backoff=60))
    envs.reset(seed=0)
    play(envs, {1: RAISE})
    play(envs, {1: 0})
    play(envs, {1: RAISE})
    envs.send([0], [1])
    envs.discard(timeout=30)
    assert envs.in_flight == 0
    envs.reset(seed=0)
    assert live(play(envs, {0: 0, 1: 0}))


@pytest.mark.parametrize("shared", [False, True])
def test_more_than_the_hard_limit_of_memory_is_a_fault(make: Make, shared: bool) -> None:
    worker = shoal.WorkerOptions(memory_hard_limit=500 * MIB)
    pool = shoal.WorkerPool(2, worker=worker) if shared else None
    where: dict[str, Any] = {"pool": pool} if pool else {"worker": worker}
    envs = make(lambda: Leaking(1), 2, batch_size=1, on_fault="restart", **where)
    envs.reset(seed=0)
    rows: dict[int, Row] = {}
    while not rows or rows[1]["fault"] is None:
        rows = play(envs, {0: 0, 1: 1})
        assert rows[0]["fault"] is None
    fault = rows[1]["fault"]
    assert (
        fault.kind == "memory"
        and "and memory_hard_limit is 500.0 MiB (by default twice memory_limit); its worker was killed" in fault.message
    )
    while not live(rows):
        rows = play(envs, {0: 0, 1: 0})
    assert envs.health()[1]["restarts"] == 1
    if pool:
        envs.close()
        pool.close()
