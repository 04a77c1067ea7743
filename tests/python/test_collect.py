"""shoal.Collector: batches of experience, whoever the policy is."""

from __future__ import annotations

import copy
import functools
import os
import pickle
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import shoal
import shoal.multiprocessing as mp
from collect_policies import CARTPOLE, MULTI, POLICIES, batches, coin, until, zeros
from same import assert_same
from sample_envs import CounterEnv, FaultyEnv, GatedEnv, TellingGatedEnv
from shoal import _core

# --- what a batch is


def test_a_batch_tells_what_happened_row_by_row() -> None:
    (batch,) = batches(CounterEnv, lambda obs: (obs[:, 1] % 3).astype(int), num_envs=2, frames_per_batch=14, total_frames=14,
                       num_workers=0, next_obs=True, seed=5)  # fmt: skip
    assert {name: (value.dtype, value.shape) for name, value in batch.items()} == {
        "obs": (np.float64, (7, 2, 2)),
        "next_obs": (np.float64, (7, 2, 2)),
        **dict.fromkeys(["terminated", "truncated", "valid", "is_first"], (np.bool_, (7, 2))),
        **dict.fromkeys(["action", "episode_id", "env_id", "policy_version", "staleness"], (np.int64, (7, 2))),
        "reward": (np.float32, (7, 2)),
    }
    for i in range(2):
        assert batch["obs"][:, i].tolist() == [[1, 0], [1, 1], [1, 2], [2, 0], [2, 1], [2, 2], [3, 0]]
        assert batch["next_obs"][:, i].tolist() == [[1, 1], [1, 2], [1, 3], [2, 1], [2, 2], [2, 3], [3, 1]]
        assert batch["action"][:, i].tolist() == batch["reward"][:, i].tolist() == [0, 1, 2, 0, 1, 2, 0]
        assert batch["terminated"][:, i].tolist() == [False, False, True] * 2 + [False]
        assert batch["is_first"][:, i].tolist() == [True, False, False] * 2 + [True]
        assert batch["episode_id"][:, i].tolist() == [i] * 3 + [2 + i] * 3 + [4 + i]
        assert (batch["env_id"][:, i] == i).all()
    assert batch["valid"].all() and not batch["truncated"].any()
    assert not batch["policy_version"].any() and not batch["staleness"].any()


def test_observations_keep_their_structure() -> None:
    class Env(CounterEnv):
        observation_space = spaces.Dict(
            {"image": spaces.Box(0, 255, (2, 2), np.uint8), "more": spaces.Tuple([spaces.Discrete(9)])}
        )

        def _observation(self) -> Any:
            return {"image": np.full((2, 2), self.steps, np.uint8), "more": (self.steps,)}

    seen = []

    def policy(obs: Any) -> np.ndarray:
        seen.append((obs["image"][0, 0, 0], obs["more"][0].tolist()))
        return np.zeros(3, np.int64)

    batch = batches(Env, policy, num_envs=3, frames_per_batch=12, total_frames=12, num_workers=0, next_obs=True)[0]
    assert batch["obs"]["image"].shape == (4, 3, 2, 2) and batch["obs"]["more"][0].shape == (4, 3)
    assert batch["next_obs"]["more"][0][:, 1].tolist() == [1, 2, 3, 1]
    assert seen == [(0, [0] * 3), (1, [1] * 3), (2, [2] * 3), (0, [0] * 3)]


def test_batches_are_the_callers_own_and_their_memory_is_used_again() -> None:
    with shoal.Collector(CARTPOLE, zeros, num_envs=4, frames_per_batch=4096, seed=1) as collector:
        first = next(collector)
        kept = {name: value.copy() for name, value in first.items()}
        second = next(collector)
        assert not np.shares_memory(first["obs"], second["obs"])
        assert_same(first, kept)
        view = first["obs"][3:5]
        blocks = _core.ipc.stats()["blocks"]
        del second
        assert _core.ipc.stats()["blocks"] == blocks - 1  # the collector keeps none
        del first
        for _ in range(20):
            next(collector)
        assert _core.ipc.stats()["blocks"] == blocks - 1
        assert np.array_equal(view, kept["obs"][3:5])
        del view
        assert _core.ipc.stats()["blocks"] == blocks - 2


def send_sum(queue: Any, answers: Any) -> None:
    batch = queue.get()
    answers.put((float(batch["obs"].sum()), os.getpid()))
    batch["reward"][:] = -1


def test_a_batch_crosses_to_another_process_without_a_copy() -> None:
    queue, answers = mp.Queue(), mp.Queue()
    process = mp.Process(target=send_sum, args=(queue, answers))
    process.start()
    (batch,) = batches(CARTPOLE, zeros, num_envs=8, frames_per_batch=4096, total_frames=4096, seed=1)
    queue.put(batch)
    total, pid = answers.get(timeout=60)
    process.join()
    assert total == pytest.approx(float(batch["obs"].sum())) and pid == process.pid != os.getpid()
    assert (batch["reward"] == -1).all()


# --- how many


def test_the_last_batch_is_shorter_and_then_the_iteration_ends() -> None:
    with shoal.Collector(CARTPOLE, zeros, num_envs=4, frames_per_batch=32, total_frames=72) as collector:
        assert [batch["reward"].size for batch in collector] == [32, 32, 8]
        assert collector.frames == 72
        assert list(collector) == []
        stats = collector.stats()
    assert (stats["frames"], stats["batches"], stats["total_frames"]) == (72, 3, 72)
    assert stats["episodes"] > 0 and stats["mean_length"] == stats["mean_return"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"frames_per_batch": 30}, "frames_per_batch=30 is no multiple of num_envs=4.*: try 28 or 32"),
        ({"frames_per_batch": 0}, "frames_per_batch= takes"),
        ({"total_frames": 3}, "total_frames=3 is no multiple of num_envs=4.*: try 4"),
        ({"frames_per_batch": 2**40}, f"frames_per_batch={2**40} is {2**38} steps .* 2147483647 at most"),
        *(({"num_envs": wrong}, "num_envs= takes a number.* 1 or more, got") for wrong in (0, -1, 2.0, "4", True)),
        *(({"init_random_frames": wrong}, "init_random_frames= takes a number") for wrong in (-1, "x", 1.5)),
        ({"env": []}, "env= is an empty list"),
        ({"env": [CounterEnv] * 3}, "env= is a list of 3 factories, and num_envs=4: leave num_envs out"),
        *(({"seed": wrong}, "seed= takes a number from 0") for wrong in (-1, 1.5, True, 2**63)),
        ({"next_obs": 1}, "next_obs= takes True or False, got 1"),
        ({"split_trajectories": "yes"}, "split_trajectories= takes True or False, got 'yes'"),
        ({"worker": {}}, r"worker= takes shoal.WorkerOptions\(…\), got {}"),
        ({"worker": {}, "mode": "multi_sync"}, "worker= takes shoal.WorkerOptions"),
        ({"output": "jax"}, "output= takes 'auto', 'numpy', 'torch' or 'tensordict', got 'jax'"),
        ({"policy": "CartPole"}, "neither the directory of a run nor one of the presets.*CartPole-v1"),
        ({"policy": 3}, "policy= takes the directory of a run.* got 3"),
        ({"policy": dict}, "policy= takes"),
    ],
)
def test_what_does_not_fit_is_one_clear_error(wrong: dict[str, Any], message: str) -> None:
    arguments = {"env": CARTPOLE, "policy": zeros, "num_envs": 4, "frames_per_batch": 32, **wrong}
    with pytest.raises((ValueError, TypeError), match=message):
        shoal.Collector(**arguments)


def test_numbers_may_be_numpys() -> None:
    (batch,) = batches(CARTPOLE, coin, num_envs=np.int64(2), frames_per_batch=np.int32(8), total_frames=np.int64(8),
                       init_random_frames=np.uint8(2), seed=np.int64(3))  # fmt: skip
    (same,) = batches(CARTPOLE, coin, num_envs=2, frames_per_batch=8, total_frames=8, init_random_frames=2, seed=3)
    assert_same(batch, same)


@pytest.mark.parametrize("device", ["cuda:99", "nowhere"])
def test_a_device_that_is_not_there_is_refused_before_anything_is_collected(device: str) -> None:
    pytest.importorskip("torch")
    with pytest.raises(ValueError, match=f"device=.*'{device}'"):
        shoal.Collector(CARTPOLE, zeros, frames_per_batch=4, device=device)


@pytest.mark.parametrize("copied", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_collector_can_be_neither_pickled_nor_copied(copied: Any) -> None:
    with shoal.Collector(CARTPOLE, zeros, frames_per_batch=4) as collector:
        with pytest.raises(TypeError, match=r"cannot pickle or copy 'Collector'.*state_dict\(\)"):
            copied(collector)


def test_spaces_that_cannot_be_collected_are_refused_with_the_fix() -> None:
    class Env(CounterEnv):
        action_space = spaces.Dict({"a": spaces.Discrete(2)})

    with pytest.raises(ValueError, match="flatten it with a wrapper"):
        shoal.Collector(Env, zeros, frames_per_batch=4, num_workers=0)


# --- random frames, limits, trajectories


def test_the_first_frames_are_random_where_asked_for() -> None:
    def policy(obs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.full(len(obs), 2), np.zeros(len(obs))

    with shoal.Collector(
        CounterEnv, policy, num_envs=4, frames_per_batch=40, init_random_frames=57, num_workers=0, seed=1
    ) as collector:
        first, second = next(collector), next(collector)
    assert set(first["action"].flat) == {0, 1, 2} and np.isnan(first["log_prob"]).all()
    # 57 of rows of 4: 15 steps, of which 10 were in the first batch
    assert set(second["action"][:5].flat) == {0, 1, 2} and (second["action"][5:] == 2).all()
    assert np.isnan(second["log_prob"][:5]).all() and not second["log_prob"][5:].any()


@pytest.mark.parametrize("mode", ["sync", *MULTI])
def test_with_random_frames_every_batch_has_the_same_entries(mode: str) -> None:
    arguments = {"num_envs": 4, "frames_per_batch": 16, "total_frames": 64, "init_random_frames": 32, "seed": 1}
    more = {} if mode == "sync" else {"num_collectors": 1}
    first, *others = batches(CARTPOLE, zeros, mode=mode, policy_batch=4, **more, **arguments)
    assert all(list(batch) == list(first) for batch in others)
    for batch in (first, *others):
        assert np.isnan(batch["log_prob"]).all() and np.isnan(batch["value"]).all()
    assert not {"log_prob", "value"} & batches(CARTPOLE, zeros, frames_per_batch=4, total_frames=4)[0].keys()


def test_episodes_are_cut_at_max_frames_per_traj() -> None:
    (batch,) = batches(functools.partial(CounterEnv, 100), zeros, frames_per_batch=9, total_frames=9, num_workers=0,
                       max_frames_per_traj=4, next_obs=True)  # fmt: skip
    assert np.flatnonzero(batch["truncated"]).tolist() == [3, 7] and not batch["terminated"].any()
    assert batch["next_obs"][3, 0].tolist() == [1, 4]
    # An id's own limit stays where it is shorter.
    for env in ("MountainCar-v0", "shoal/MountainCar-v0"):
        for limit, expected in ((1000, [199]), (150, [149])):
            (batch,) = batches(
                env, zeros, frames_per_batch=250, total_frames=250, max_frames_per_traj=limit, num_workers=0
            )
            assert np.flatnonzero(batch["truncated"]).tolist() == expected


def test_split_trajectories_are_padded_rows_of_the_same_frames() -> None:
    arguments = {"num_envs": 3, "frames_per_batch": 300, "total_frames": 300, "seed": 1, "next_obs": True}
    (whole,) = batches(CARTPOLE, coin, **arguments)
    (parts,) = batches(CARTPOLE, coin, split_trajectories=True, **arguments)
    assert parts["valid"].sum() == 300
    lengths = parts["valid"].sum(1)
    assert parts["obs"].shape == (len(lengths), lengths.max(), 4)
    for row, length in enumerate(lengths):
        assert len(set(parts["episode_id"][row, :length])) == 1 and not parts["valid"][row, length:].any()
        assert not parts["obs"][row, length:].any()
        env = parts["env_id"][row, 0]
        own = whole["episode_id"][:, env] == parts["episode_id"][row, 0]
        for name in whole:
            assert np.array_equal(parts[name][row, :length], whole[name][own, env])
    ends = (parts["terminated"] | parts["truncated"]).argmax(1)
    assert all(end in (0, length - 1) for end, length in zip(ends, lengths, strict=True))


# --- going on


@pytest.mark.parametrize("policy", POLICIES)
def test_a_state_dict_goes_on_with_the_same_batches(policy: str) -> None:
    make = functools.partial(
        shoal.Collector,
        CARTPOLE,
        num_envs=4,
        frames_per_batch=64,
        total_frames=320,
        init_random_frames=100,
        output="numpy",
    )
    with make(POLICIES[policy](), seed=7) as collector:
        for _ in range(2):
            next(collector)
        saved = pickle.loads(pickle.dumps(collector.state_dict()))
        expected = list(collector)
        stats = collector.stats()
    assert len(expected) == 3
    with make(POLICIES[policy](), seed=8, num_workers=2) as other:
        other.load_state_dict(saved)
        assert (other.frames, other.seed) == (128, 7)
        assert_same(list(other), expected)
        same = ("frames", "batches", "episodes", "mean_return")
        assert {name: other.stats()[name] for name in same} == {name: stats[name] for name in same}
    with make(POLICIES[policy](), seed=8) as fresh:
        begun = fresh.state_dict()
    with make(POLICIES[policy](), seed=9) as another:
        another.load_state_dict(begun)
        first = next(another)
    assert_same(first, batches(CARTPOLE, POLICIES[policy](), num_envs=4, frames_per_batch=64, total_frames=64, seed=8,
                               init_random_frames=100, output="numpy")[0])  # fmt: skip


@pytest.mark.parametrize("policy", ["preset", "callable"])
@pytest.mark.parametrize("mode", ["sync", "multi_sync"])
def test_a_state_from_before_the_first_batch_begins_anew_wherever_it_is_loaded(policy: str, mode: str) -> None:
    with shoal.Collector(
        CARTPOLE, POLICIES[policy](), num_envs=4, frames_per_batch=64, init_random_frames=32, mode=mode, seed=7
    ) as collector:
        begun = collector.state_dict()
        expected = [next(collector) for _ in range(2)]
        episodes = collector.stats()["episodes"]
        collector.load_state_dict(begun)
        assert collector.stats()["episodes"] == 0
        assert_same([next(collector) for _ in range(2)], expected)
        assert collector.stats()["episodes"] == episodes > 0


class OnlyCopied(CounterEnv):
    """Cannot be pickled. Observes how many there are in its process, copies included."""

    alive = 0

    def __init__(self) -> None:
        super().__init__(length=100)
        self.lock = threading.Lock()
        OnlyCopied.alive += 1

    def __del__(self) -> None:
        OnlyCopied.alive -= 1

    def __deepcopy__(self, memo: dict[int, Any]) -> OnlyCopied:
        twin = OnlyCopied()
        twin.steps = self.steps
        return twin

    def _observation(self) -> Any:
        return np.array([OnlyCopied.alive, self.steps], np.float64)


WHERE: dict[str, dict[str, Any]] = {
    "this process": {"num_workers": 0},
    "a worker": {"num_workers": 1},
    **{mode: {"mode": mode, "num_collectors": 1} for mode in MULTI},
}


@pytest.mark.parametrize("where", WHERE)
def test_a_state_holds_copies_of_environments_for_as_long_as_it_is_held(where: str) -> None:
    def observed(collector: shoal.Collector) -> list[Any]:
        """The last row of the second batch: with "multi_async" the first may be from before."""
        rows: list[Any] = [next(collector)["obs"][-1].tolist() for _ in range(2)]
        return rows[-1]

    with shoal.Collector(OnlyCopied, zeros, num_envs=2, frames_per_batch=8, ahead=1, **WHERE[where]) as collector:
        next(collector)
        held = copy.deepcopy(collector.state_dict())
        for _ in range(5):
            collector.state_dict()
            next(collector)
        collector.load_state_dict(held)
        expected = [[4, 11]] * 2  # two environments, two copies
        assert observed(collector) == expected
        pickled = pickle.dumps(held)
        collector.load_state_dict(pickle.loads(pickled))
        assert observed(collector) == expected
        del held
        collector.state_dict()
        with pytest.raises(ValueError, match=r"a collector's state_dict\(\), returned is held"):
            collector.load_state_dict(pickle.loads(pickled))
        collector.reset()
        assert [alive for alive, _ in observed(collector)] == [2, 2]


def test_after_a_failure_a_reset_makes_it_usable_again() -> None:
    calls = []

    def policy(obs: np.ndarray) -> np.ndarray:
        calls.append(1)
        if len(calls) == 3:
            raise LookupError("no action")
        return zeros(obs)

    with shoal.Collector(CounterEnv, policy, num_envs=2, frames_per_batch=8, num_workers=0) as collector:
        with pytest.raises(LookupError, match="no action"):
            next(collector)
        with pytest.raises(RuntimeError, match=r"call reset\(\) first"):
            next(collector)
        collector.reset(seed=3)
        batch = next(collector)
        assert collector.frames == 8
    assert batch["is_first"][0].all() and batch["episode_id"][0].tolist() == [2, 3]


def test_a_state_of_others_is_refused_before_anything_is_reset() -> None:
    make = functools.partial(shoal.Collector, functools.partial(CounterEnv, 100), num_workers=0)
    with make(zeros, num_envs=2, frames_per_batch=4) as collector:
        next(collector)
        states = [collector.state_dict()]
    for more in ({"policy": "sb3"}, {"policy": zeros, "policy_batch": 1}):
        with make(num_envs=1, frames_per_batch=2, **more) as collector:
            next(collector)
            states.append(collector.state_dict())
    with make(zeros, num_envs=1, frames_per_batch=2) as collector:
        next(collector)
        own = collector.state_dict()
        assert next(collector)["obs"][:, 0, 1].tolist() == [2, 3]
        for state, message in (
            (states[0], "not of 1 environments"),
            (states[1], "a policy of another kind"),
            ({}, "this has no 'seed', 'mode'"),
            (own | {"source": {}}, "this has no 'version', 'groups'"),
            (own | {"source": None}, "this has no 'version', 'groups'"),
        ):
            with pytest.raises(ValueError, match=message):
                collector.load_state_dict(state)
        with pytest.raises(TypeError, match=r"takes what state_dict\(\) gave, got None"):
            collector.load_state_dict(None)  # type: ignore[arg-type]
        assert next(collector)["obs"][:, 0, 1].tolist() == [4, 5]


class UnreadOnce(CounterEnv):
    """Its state cannot be read."""

    def __setstate__(self, state: Any) -> None:
        raise LookupError("unreadable")


def test_a_state_that_environments_cannot_load_asks_for_a_reset() -> None:
    with shoal.Collector(UnreadOnce, zeros, frames_per_batch=4, num_workers=0) as collector:
        next(collector)
        saved = collector.state_dict()
        with pytest.raises(LookupError, match="unreadable"):
            collector.load_state_dict(saved)
        for use in (lambda: next(collector), collector.state_dict):
            with pytest.raises(RuntimeError, match=r"could not be loaded \(unreadable.*call reset\(\) first"):
                use()
        collector.reset()
        assert next(collector)["is_first"][0].all()


# --- faults


class DiesOnce(CounterEnv):
    """Environment 1 dies at its fifth step, once."""

    def __init__(self, flag: Path) -> None:
        super().__init__(length=4)
        self.flag = flag
        self.taken = 0

    def step(self, action: Any) -> Any:
        self.taken += 1
        if shoal.worker().env_index == 1 and self.taken == 5 and not self.flag.exists():
            self.flag.touch()
            os._exit(9)
        return super().step(action)


def test_a_dead_worker_is_an_error_or_rows_that_are_counted_as_lost(tmp_path: Path) -> None:
    arguments = {"num_envs": 2, "frames_per_batch": 40, "total_frames": 40, "num_workers": 2, "seed": 1}
    with pytest.raises(shoal.WorkerDied):
        batches(functools.partial(DiesOnce, tmp_path / "first"), zeros, **arguments)
    with shoal.Collector(
        functools.partial(DiesOnce, tmp_path / "second"),
        zeros,
        on_fault=shoal.FaultPolicy("restart", backoff=0.0),
        **arguments,
    ) as collector:
        (batch,) = collector
        stats = collector.stats()
    lost = int((~batch["valid"]).sum())
    assert lost == stats["lost_to_faults"] + stats["lost_to_resets"] > 0
    assert batch["valid"][:, 0].all() and not batch["reward"][~batch["valid"]].any()
    at = int(np.flatnonzero(~batch["valid"][:, 1])[0])
    assert batch["truncated"][at, 1] and at == 4


def test_what_an_environment_raises_is_raised() -> None:
    with pytest.raises(LookupError, match="in the environment"):
        batches(
            functools.partial(FaultyEnv, step=LookupError("in the environment")),
            zeros,
            frames_per_batch=2,
            num_workers=1,
        )


def test_a_step_that_takes_too_long_is_an_error(tmp_path: Path) -> None:
    with shoal.Collector(
        functools.partial(GatedEnv, tmp_path / "gate"),
        lambda obs: np.ones(len(obs), np.int64),
        frames_per_batch=2,
        timeout=0.2,
    ) as collector:
        for late in (lambda: next(collector), collector.reset):
            with pytest.raises(TimeoutError, match=r"stays under way: reset\(\) waits for it"):
                late()
        (tmp_path / "gate").touch()
        until(lambda: reset_in_time(collector))
        assert next(collector)["is_first"][0].all()


def reset_in_time(collector: shoal.Collector) -> bool:
    try:
        collector.reset()
    except TimeoutError:
        return False
    return True


class Interrupted(Exception):
    """As KeyboardInterrupt, but none that pytest takes for its own."""


@pytest.mark.parametrize("more", [{}, {"policy_batch": 2}, {"cohorts": 2}])
def test_after_what_a_handler_raises_a_reset_makes_workers_usable_again(more: dict[str, Any], tmp_path: Path) -> None:
    """The step that was left under way was in the way of the reset."""

    def handler(*_: Any) -> None:
        if more:  # they wait for the others' steps before
            (tmp_path / "gate").touch()
        raise Interrupted

    def send() -> None:
        until((tmp_path / "begun").exists)
        os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, handler)
    thread = threading.Thread(target=send)
    try:
        with shoal.Collector(
            functools.partial(TellingGatedEnv, tmp_path / "gate"), lambda obs: np.ones(len(obs), np.int64), num_envs=4,
            frames_per_batch=16, num_workers=2, **more,
        ) as collector:  # fmt: skip
            thread.start()
            with pytest.raises(Interrupted):
                next(collector)
            (tmp_path / "gate").touch()
            with pytest.raises(RuntimeError, match=r"call reset\(\) first"):
                next(collector)
            collector.reset()
            batch = next(collector)
            assert batch["is_first"][0].all() and batch["valid"].all()
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, before)


# --- how it is run


def test_environments_are_built_as_asked() -> None:
    def told(env: gymnasium.Env) -> gymnasium.Env:
        return gymnasium.wrappers.TransformReward(env, lambda reward: reward + 100)

    arguments = {"frames_per_batch": 4, "total_frames": 4}
    (batch,) = batches(CounterEnv, zeros, env_kwargs={"length": 2}, wrappers=[told], num_workers=0, **arguments)
    assert batch["terminated"][:, 0].tolist() == [False, True] * 2 and (batch["reward"] == 100).all()
    (batch,) = batches([functools.partial(CounterEnv, n) for n in (1, 2)], zeros, num_workers=0, **arguments)
    assert batch["terminated"].tolist() == [[True, False], [True, True]]
    for more in ({"backend": "process"}, {"context": "spawn"}, {"worker": shoal.WorkerOptions(env={"X": "1"})}):
        with shoal.Collector(CounterEnv, zeros, **arguments, **more) as collector:
            next(collector)
            (worker,) = collector.stats()["envs"]["workers"]
            assert worker["pid"] not in (0, os.getpid())


def test_episodes_stacks_and_rewards_are_as_make_vec_has_them() -> None:
    arguments = {"frames_per_batch": 6, "total_frames": 6, "num_workers": 0}
    (batch,) = batches(CARTPOLE, zeros, max_episode_steps=3, frame_stack=2, reward_clip=(0, 0.5), **arguments)
    assert batch["truncated"][:, 0].tolist() == [False, False, True] * 2
    assert batch["obs"].shape == (6, 1, 2, 4) and (batch["reward"] == 0.5).all()
    (batch,) = batches(CARTPOLE, zeros, max_episode_steps=3, max_frames_per_traj=2, **arguments)
    assert batch["truncated"][:, 0].tolist() == [False, True] * 3


@pytest.mark.parametrize(
    "space", [spaces.MultiDiscrete([3, 2]), spaces.MultiBinary(2), spaces.Box(-1, 1, (2,)), spaces.Discrete(3, start=2)]
)
def test_actions_may_be_of_any_space_of_arrays(space: spaces.Space) -> None:
    """A space whose start is an array was taken for one whose start is a number."""

    def sample(obs: np.ndarray) -> np.ndarray:
        return np.stack([space.sample() for _ in obs])

    class Answering(CounterEnv):
        action_space = space

        def step(self, action: Any) -> Any:
            assert space.contains(np.asarray(action, space.dtype) if space.shape else np.int64(action))
            return super().step(0)

    (batch,) = batches(Answering, sample, frames_per_batch=8, total_frames=8, init_random_frames=4, num_workers=0)
    assert batch["action"].shape == (8, 1, *space.shape)


def test_with_a_network_nothing_imports_torch() -> None:
    program = f"""
import sys
import shoal
with shoal.Collector({CARTPOLE!r}, "CartPole-v1", num_envs=4, frames_per_batch=64, total_frames=128) as collector:
    assert sum(batch["reward"].size for batch in collector) == 128
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=100)
