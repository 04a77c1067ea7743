"""Workers whose memory grows: replaced between episodes, without a fault and without a change of trajectories."""

from __future__ import annotations

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


def play(batches: int, mode: str, memory_limit: int | None, leak: int) -> tuple[list[list[Any]], dict[str, Any]]:
    """Of every environment the rows that are transitions or resets, until each has `batches` of them; and the health."""
    worker = shoal.WorkerOptions(memory_limit=memory_limit, memory_hard_limit=2**40 if memory_limit else None)
    envs = shoal.make_vec(lambda: Leaking(leak), 3, num_workers=2, autoreset_mode=mode, worker=worker)
    observations, _ = envs.reset(seed=11)
    rows: list[list[Any]] = [[tuple(row)] for row in observations]
    while min(map(len, rows)) < batches:
        observations, rewards, terminated, truncated, infos = envs.step(np.zeros(3, np.int64))
        assert "fault" not in infos
        down = infos.get("down", np.zeros(3, bool))
        assert (truncated == down).all() and not rewards[down].any()
        for i in np.flatnonzero(~down):
            final = tuple(infos["final_obs"][i]) if "final_obs" in infos and infos["_final_obs"][i] else None
            rows[i].append((tuple(observations[i]), rewards[i], terminated[i], final))
    health = envs.health()
    envs.close()
    return [row[:batches] for row in rows], health


def test_a_leaking_worker_is_replaced_and_the_trajectories_are_the_same() -> None:
    plain, _ = play(400, "next_step", None, 0)
    recycled, health = play(400, "next_step", 150 * MIB, 8 * MIB)
    assert all(worker["recycles"] >= 1 and worker["restarts"] == 0 for worker in health)
    assert not any(sum(worker["faults"].values()) for worker in health)
    assert recycled == plain


def test_same_step_autoreset_gives_the_same_transitions() -> None:
    plain, _ = play(200, "same_step", None, 0)
    recycled, health = play(200, "same_step", 120 * MIB, 8 * MIB)
    assert sum(worker["recycles"] for worker in health) >= 1
    for ours, theirs in zip(recycled, plain, strict=True):
        # Where the reset came a row later, it is a row of its own: without it, the same transitions.
        ended = [row for row in ours[1:] if row[3] is not None]
        assert [row[3] for row in ended] == [row[3] for row in theirs[1:] if row[3] is not None][: len(ended)]
        assert [row[1] for row in ended] == [row[1] for row in theirs[1:] if row[3] is not None][: len(ended)]


def test_an_explicit_reset_replaces_at_once() -> None:
    worker = shoal.WorkerOptions(memory_limit=100 * MIB, memory_hard_limit=2**40)
    envs = shoal.make_vec(Leaking, 2, num_workers=1, autoreset_mode="disabled", worker=worker)
    first, _ = envs.reset(seed=3)
    pid = envs.health()[0]["pid"]
    while envs.health()[0]["recycles"] == 0:
        envs.step([0, 0])
        assert (envs.reset(seed=3)[0] == first).all()
    assert envs.health()[0]["pid"] != pid
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
