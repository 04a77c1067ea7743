"""Workers whose memory grows: replaced between episodes, without a fault and without a change of trajectories."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import shoal

MIB = 2**20


class Leaking(gymnasium.Env):
    """Leaks `leak` bytes an episode; its observations and the lengths of its episodes come from its generator."""

    observation_space = spaces.Box(0, 1, (2,), np.float64)
    action_space = spaces.Discrete(2)
    leaked: list[bytearray] = []  # of the process

    def __init__(self, leak: int = 8 * MIB) -> None:
        self.leak = leak

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(2, 30))
        self.leaked.append(bytearray(b"x" * self.leak))
        return self.np_random.random(2), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.left -= 1
        if action == 1:
            self.leaked.append(bytearray(b"x" * (900 * MIB)))
        return self.np_random.random(2), float(self.left), self.left == 0, False, {}


WAYS: dict[str, dict[str, Any]] = {
    "all": {},
    "arrival": {"batch_size": 2},
    "one by one": {"batch_size": 1},
    "cohorts": {"cohorts": 3},
    "pool": {"pool": True},
    "arrival in a pool": {"pool": True, "batch_size": 2},
}
ways = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())


@contextlib.contextmanager
def made(
    way: dict[str, Any], leak: int, num_envs: int, mode: str = "next_step", **options: Any
) -> Iterator[shoal.VectorEnv]:
    """Environments in two workers with these WorkerOptions."""
    worker = shoal.WorkerOptions(**options)
    with contextlib.ExitStack() as stack:
        workers: dict[str, Any] = {"num_workers": 2, "worker": worker}
        if way.get("pool"):
            workers = {"pool": stack.enter_context(shoal.WorkerPool(2, worker=worker))}
        envs = shoal.make_vec(lambda: Leaking(leak), num_envs, autoreset_mode=mode, **{**way, **workers})
        stack.callback(envs.close)
        yield envs


def is_stepped(way: dict[str, Any]) -> bool:
    """Whether all are stepped at once, and none is sent."""
    return "batch_size" not in way and "cohorts" not in way


def next_result(envs: shoal.VectorEnv, way: dict[str, Any]) -> tuple[Any, ...]:
    """Environment numbers, which of their rows are transitions or resets, and the result."""
    result = envs.step(np.zeros(envs.num_envs, np.int64)) if is_stepped(way) else envs.recv()
    _, rewards, _, truncated, infos = result
    ids = np.arange(envs.num_envs) if is_stepped(way) else infos["env_id"].copy()
    assert "fault" not in infos
    down = infos.get("down", np.zeros(len(ids), bool))
    assert (truncated == down).all() and not rewards[down].any()
    return ids, np.flatnonzero(~down), result


def play(
    batches: int, mode: str, memory_limit: int | None, leak: int, way: dict[str, Any]
) -> tuple[list[list[Any]], dict[str, Any]]:
    """Of every environment the rows that are transitions or resets, until each has `batches` of them; and the health."""
    limits = {"memory_limit": memory_limit, "memory_hard_limit": 2**40 if memory_limit else None}
    with made(way, leak, 3, mode, **limits) as envs:
        observations, _ = envs.reset(seed=11)
        rows: list[list[Any]] = [[tuple(row)] for row in observations]
        if not is_stepped(way):
            envs.send(np.zeros(3, np.int64), range(3))
        while min(map(len, rows)) < batches:
            ids, there, (observations, rewards, terminated, _, infos) = next_result(envs, way)
            for i in there:
                final = tuple(infos["final_obs"][i]) if "final_obs" in infos and infos["_final_obs"][i] else None
                rows[ids[i]].append((tuple(observations[i]), rewards[i], terminated[i], final))
            if not is_stepped(way):
                envs.send(np.zeros(len(ids), np.int64), ids)
        return [row[:batches] for row in rows], envs.health()


@ways
def test_a_leaking_worker_is_replaced_and_the_trajectories_are_the_same(way: dict[str, Any]) -> None:
    plain, _ = play(400, "next_step", None, 0, {})
    recycled, health = play(400, "next_step", 150 * MIB, 8 * MIB, way)
    assert all(worker["recycles"] >= 1 and worker["restarts"] == 0 for worker in health)
    assert not any(sum(worker["faults"].values()) for worker in health)
    assert recycled == plain


@ways
def test_same_step_autoreset_gives_the_same_transitions(way: dict[str, Any]) -> None:
    plain, _ = play(200, "same_step", None, 0, {})
    recycled, health = play(200, "same_step", 120 * MIB, 8 * MIB, way)
    assert sum(worker["recycles"] for worker in health) >= 1
    for ours, theirs in zip(recycled, plain, strict=True):
        # Where the reset came a row later, it is a row of its own: without it, the same transitions.
        ended = [row for row in ours[1:] if row[3] is not None]
        assert [row[3] for row in ended] == [row[3] for row in theirs[1:] if row[3] is not None][: len(ended)]
        assert [row[1] for row in ended] == [row[1] for row in theirs[1:] if row[3] is not None][: len(ended)]


@ways
def test_restored_environments_go_on_from_there_while_their_workers_are_replaced(way: dict[str, Any]) -> None:
    """Every worker is over a limit of one byte, so that its environments rest whenever an episode has ended."""
    alone = shoal.make_vec(lambda: Leaking(0), 6, backend="serial")
    with made(way, 0, 6, memory_limit=1, memory_hard_limit=2**40) as envs, contextlib.closing(alone):
        assert (envs.reset(seed=5)[0] == alone.reset(seed=5)[0]).all()

        def transitions(least: int) -> list[list[Any]]:
            """Of every environment at least so many; nothing is under way afterwards."""
            rows: list[list[Any]] = [[] for _ in range(6)]
            if not is_stepped(way):
                envs.send(np.zeros(6, np.int64), range(6))
            while getattr(envs, "in_flight", 0) or min(map(len, rows)) < least:
                ids, there, step = next_result(envs, way)
                for i in there:
                    rows[ids[i]].append((tuple(step[0][i]), *(values[i].item() for values in step[1:4])))
                if not is_stepped(way) and min(map(len, rows)) < least:
                    envs.send(np.zeros(len(ids), np.int64), ids)
            return rows

        for least in itertools.count(1):
            transitions(least % 29)
            taken = envs.snapshot()
            first = transitions(40)
            envs.restore(taken)
            again = transitions(40)
            alone.restore(taken)
            plain = [alone.step(np.zeros(6, np.int64))[:4] for _ in range(40)]
            for i in range(6):
                alike = [(tuple(step[0][i]), *(values[i].item() for values in step[1:])) for step in plain]
                assert first[i][:40] == again[i][:40]
                assert first[i][:40] == alike
            recycles = min(worker["recycles"] for worker in envs.health())
            if least >= 29 and recycles >= 2:
                break
        assert not any(worker["restarts"] for worker in envs.health())


@pytest.mark.parametrize("way", [{}, {"batch_size": 2}], ids=["all", "arrival"])
def test_an_explicit_reset_replaces_at_once(way: dict[str, Any]) -> None:
    worker = shoal.WorkerOptions(memory_limit=100 * MIB, memory_hard_limit=2**40)
    envs = shoal.make_vec(Leaking, 2, num_workers=1, autoreset_mode="disabled", worker=worker, **way)
    first, _ = envs.reset(seed=3)
    pid = envs.health()[0]["pid"]
    while envs.health()[0]["recycles"] == 0:
        envs.step(*([[0, 0], [0, 1]] if way else [[0, 0]]))
        assert (envs.reset(seed=3)[0] == first).all()
    assert envs.health()[0]["pid"] != pid
    envs.close()


class Optional(Leaking):
    """Tells which options it was reset with."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        observation, _ = super().reset(seed=seed)
        return observation, {"options": str(options)}


@pytest.mark.parametrize("way", [{}, {"batch_size": 2}], ids=["all", "arrival"])
def test_the_options_of_a_reset_are_its_successors(way: dict[str, Any]) -> None:
    worker = shoal.WorkerOptions(memory_limit=1, memory_hard_limit=2**40)
    envs = shoal.make_vec(lambda: Optional(0), 2, num_workers=1, worker=worker, **way)
    envs.reset(seed=3)
    for number in range(10**6):
        infos = envs.reset(options={"number": number})[1]
        assert list(infos["options"]) == [str({"number": number})] * 2
        if envs.health()[0]["recycles"] >= 3:
            break
        envs.step(*([[0, 0], [0, 1]] if way else [[0, 0]]))
    envs.close()


def test_native_environments_go_on_with_their_streams() -> None:
    rows: list[list[Any]] = []
    for limit in (None, 1):
        worker = shoal.WorkerOptions(memory_limit=limit, memory_hard_limit=2**40 if limit else None)
        with shoal.WorkerPool(1, worker=worker) as pool:
            envs = shoal.make_vec("shoal/CartPole-v1", 2, pool=pool, max_episode_steps=5)
            observations, _ = envs.reset(seed=7)
            rows.append([observations.tolist()])
            while len(rows[-1]) < 300:
                observations, *_ = envs.step(np.array([0, 1]))
                rows[-1].append(observations.tolist())
            assert limit is None or envs.health()[0]["recycles"] > 0
            envs.close()
    assert rows[0] == rows[1]


def test_a_session_that_is_not_stepped_keeps_its_process() -> None:
    """Its episodes are not cut; the others move on, and it follows when it can."""
    worker = shoal.WorkerOptions(memory_limit=100 * MIB, memory_hard_limit=2**40)
    with shoal.WorkerPool(1, worker=worker) as pool:
        idle = shoal.make_vec(lambda: Leaking(0), 1, pool=pool)
        busy = shoal.make_vec(Leaking, 2, pool=pool, batch_size=1)
        alone = shoal.make_vec(lambda: Leaking(0), 1, backend="serial")
        assert (idle.reset(seed=1)[0] == alone.reset(seed=1)[0]).all()
        pid = idle.health()[0]["pid"]
        busy.async_reset(seed=2)
        while busy.health()[0]["recycles"] < 2:
            infos = busy.recv()[-1]
            busy.send([0], infos["env_id"])
        assert idle.health()[0]["pid"] == pid
        while idle.health()[0]["recycles"] == 0:
            assert (idle.step([0])[0] == alone.step([0])[0]).all()
        assert idle.health()[0]["pid"] != pid
        for envs in (idle, busy, alone):
            envs.close()


@pytest.mark.parametrize("on_fault", ["restart", "raise"])
def test_more_than_the_hard_limit_is_a_fault(on_fault: str) -> None:
    worker = shoal.WorkerOptions(memory_hard_limit=500 * MIB)
    envs = shoal.make_vec(lambda: Leaking(1), 2, num_workers=2, on_fault=on_fault, worker=worker)
    envs.reset(seed=0)
    try:
        if on_fault == "raise":
            with pytest.raises(shoal.WorkerDied, match="memory_hard_limit is 500.0 MiB") as caught:
                while True:
                    envs.step([0, 1])
            assert caught.value.kind == "memory"
            return
        infos: dict[str, Any] = {}
        while "fault" not in infos:
            infos = envs.step([0, 1])[-1]
        assert infos["fault"][1].kind == "memory" and infos["fault"][0] is None
        while "down" in envs.step([0, 0])[-1]:
            pass
        assert envs.health()[1]["restarts"] == 1
    finally:
        envs.close()


@pytest.mark.parametrize(
    "arguments",
    [
        {"memory_limit": 0},
        {"memory_limit": 1.5},
        {"memory_hard_limit": -1},
        {"memory_limit": 10, "memory_hard_limit": 5},
    ],
)
def test_wrong_limits_are_named(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="memory_"):
        shoal.WorkerOptions(**arguments)
