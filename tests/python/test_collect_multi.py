"""shoal.Collector with collectors in processes of their own: mode="multi_sync" and mode="multi_async"."""

from __future__ import annotations

import functools
import gc
import os
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import shoal
from collect_policies import (
    CARTPOLE,
    MULTI,
    POLICIES,
    Remembers,
    batches,
    coin,
    torch_policy,
    weighted,
    zeros,
)
from same import assert_same
from sample_envs import CounterEnv, GatedEnv
from shoal import _core
from stopping import stop

pytestmark = pytest.mark.usefixtures("balanced_heap")

# --- the same batches


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("env", [CARTPOLE, "CartPole-v1"])
def test_the_same_seed_gives_the_same_batches_for_any_number_of_collectors(policy: str, env: str) -> None:
    collect = functools.partial(
        batches,
        env,
        num_envs=10,
        frames_per_batch=300,
        total_frames=800,
        next_obs=True,
        output="numpy",
        init_random_frames=95,
    )
    expected = collect(POLICIES[policy](), seed=3, policy_batch=8)
    for collectors in (1, 2, 3, 10):
        same = collect(POLICIES[policy](), seed=3, mode="multi_sync", num_collectors=collectors)
        assert_same(same, expected)
    assert_same(collect(POLICIES[policy](), seed=3, mode="multi_sync", num_collectors=2, num_workers=2), expected)
    whole = collect(POLICIES[policy](), seed=3)
    assert_same(collect(POLICIES[policy](), seed=3, mode="multi_sync", num_collectors=4, policy_batch=10), whole)
    other = collect(POLICIES[policy](), seed=4, mode="multi_sync", num_collectors=2)
    assert not np.array_equal(other[0]["action"], expected[0]["action"])


class Shaped:
    """A recurrent policy whose state has the environments first."""

    def __init__(self, dimension: int = 0) -> None:
        self.dimension = dimension

    def initial_state(self, num_envs: int) -> dict[str, np.ndarray]:
        return {"length": np.zeros((num_envs,) if self.dimension == 0 else (1, num_envs), np.int64)}

    def __call__(self, obs: Any, state: dict[str, np.ndarray], is_first: np.ndarray) -> dict[str, Any]:
        length = np.where(is_first, 0, state["length"] + 1)
        return {"action": length.reshape(-1) % 3, "state": {"length": length}}


def test_states_of_a_recurrent_policy_are_those_of_all_environments() -> None:
    collect = functools.partial(batches, CounterEnv, num_envs=10, frames_per_batch=50, total_frames=150, num_workers=0)
    expected = collect(Shaped())
    assert expected[1]["state"]["length"].tolist() == [1] * 10
    assert_same([batch["next_state"] for batch in expected[:2]], [batch["state"] for batch in expected[1:]])
    for collectors in (1, 3):
        assert_same(collect(Shaped(), mode="multi_sync", num_collectors=collectors, seed=1), expected)
    (batch, *_) = collect(Remembers(), mode="multi_async", num_collectors=2)
    assert batch["state"].tolist() == [0] * 5
    with pytest.raises(ValueError, match=r"state has an array of shape \(1, 8\) for 8 environments"):
        collect(Shaped(1), mode="multi_sync", num_collectors=2)
    with pytest.raises(ValueError, match=r"state has an array of shape \(1, 5\) for 5 environments"):
        collect(Shaped(1), mode="multi_sync", num_collectors=2, policy_batch=5)
    for more in ({"mode": "multi_sync", "num_collectors": 1}, {"mode": "multi_async", "num_collectors": 2}):
        (batch, *_) = collect(Shaped(1), policy_batch=5 if more["num_collectors"] == 2 else 10, **more)
        assert batch["state"]["length"].shape == (1, 10 // more["num_collectors"])


def test_a_policy_is_asked_for_whole_groups_and_only_its_own_rows_count() -> None:
    def policy(obs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.arange(len(obs)) % 3, np.full(len(obs), float(len(obs)))

    (batch,) = batches(
        CounterEnv, policy, num_envs=6, frames_per_batch=6, total_frames=6, mode="multi_sync", num_collectors=3, policy_batch=4
    )  # fmt: skip
    assert batch["action"].tolist() == [[0, 1, 2, 0, 0, 1]]
    assert batch["log_prob"].tolist() == [[4, 4, 4, 4, 2, 2]]


def test_environments_know_which_of_all_they_are() -> None:
    class Told(CounterEnv):
        def reset(self, **arguments: Any) -> Any:
            super().reset(**arguments)
            return np.array([shoal.worker().env_index, shoal.worker().seed], np.float64), {}

    for mode in MULTI:
        found = batches(
            Told, zeros, num_envs=4, frames_per_batch=4, total_frames=8, mode=mode, num_collectors=2, seed=5, policy_batch=1
        )  # fmt: skip
        first = found[0]["obs"][0]
        assert first.tolist() == [[env, 5 + env] for env in found[0]["env_id"][0]]


# --- memory


@pytest.mark.parametrize("mode", MULTI)
def test_batches_are_the_callers_own_and_their_memory_is_used_again(mode: str) -> None:
    with shoal.Collector(
        CARTPOLE, zeros, num_envs=4, frames_per_batch=4096, mode=mode, num_collectors=2, ahead=1
    ) as collector:
        first = next(collector)
        kept = {name: value.copy() for name, value in first.items()}
        owners = {name: value.base for name, value in first.items() if name != "staleness"}
        assert len({id(owner) for owner in owners.values()}) == 1  # one block
        collector.pause()
        blocks = _core.ipc.stats()["blocks"]
        pending = collector.stats().get("pending", 0)
        view = first["obs"][3:5]
        del first, owners
        gc.collect()
        assert _core.ipc.stats()["blocks"] == blocks  # the view has it
        del view
        assert _core.ipc.stats()["blocks"] == blocks - 1
        collector.resume()
        for _ in range(20):
            next(collector)
        collector.pause()
        assert _core.ipc.stats()["blocks"] <= blocks + collector.stats().get("pending", 0) - pending
        assert kept["obs"].any()


# --- how many


def test_every_row_of_multi_async_is_handed_out_once() -> None:
    with shoal.Collector(
        CARTPOLE, coin, num_envs=6, frames_per_batch=30, total_frames=1212, mode="multi_async", num_collectors=3, seed=1,
        next_obs=True,
    ) as collector:  # fmt: skip
        found = list(collector)
        stats = collector.stats()
    assert sum(batch["reward"].size for batch in found) == 1212 == stats["frames"]
    assert sum(entry["frames"] for entry in stats["collectors"]) == 1212
    # The short one is ordered last, and may be there before the five that the collectors have then.
    assert sorted(batch["reward"].size for batch in found) == [12] + [30] * 40
    assert all(batch["reward"].size == 30 for batch in found[:-6])
    for env in range(6):
        own = [batch for batch in found if env in batch["env_id"][0]]
        column = [int(np.flatnonzero(batch["env_id"][0] == env)[0]) for batch in own]
        rows = {
            name: np.concatenate([batch[name][:, i] for batch, i in zip(own, column, strict=True)]) for name in found[0]
        }
        assert rows["is_first"][0] and rows["valid"].all()
        going_on = ~rows["is_first"][1:]
        assert np.array_equal(rows["obs"][1:][going_on], rows["next_obs"][:-1][going_on])  # no step is missing
        assert np.array_equal(rows["is_first"][1:], (rows["terminated"] | rows["truncated"])[:-1])
        assert (np.diff(rows["episode_id"]) == 6 * rows["is_first"][1:]).all()


def test_a_collector_is_never_further_ahead_than_it_may() -> None:
    with shoal.Collector(
        CARTPOLE, zeros, num_envs=4, frames_per_batch=32, mode="multi_async", num_collectors=2, ahead=3
    ) as collector:
        taken = Counter(int(next(collector)["env_id"][0, 0]) // 2 for _ in range(10))
        collector.pause()  # all that was ordered is done
        made = [entry["frames"] for entry in collector.stats()["collectors"]]
        assert made == [32 * (taken[i] + 3) for i in range(2)]
        assert collector.stats()["pending"] == 6
        waiting = [next(collector) for _ in range(6)]
        assert len(waiting) == 6
        with pytest.raises(RuntimeError, match=r"paused: call resume\(\) first"):
            next(collector)
        assert [entry["frames"] for entry in collector.stats()["collectors"]] == made
        collector.resume()
        assert [entry["orders"] for entry in collector.stats()["collectors"]] == [
            3,
            3,
        ]  # and nobody has asked for a batch
        assert next(collector)["reward"].size == 32


def test_a_collector_that_is_told_nothing_waits_for_nothing() -> None:
    with shoal.Collector(CounterEnv, zeros, frames_per_batch=2, total_frames=8, mode="multi_async") as collector:
        next(collector)
        collector.pause()
        collector.resume()
        source: Any = collector._source
        source._total = 0
        ready = source.pending
        for _ in range(ready):
            next(collector)
        with pytest.raises(RuntimeError, match="no batch is under way"):
            next(collector)


def test_a_collector_that_reads_nothing_for_long_gets_all_that_it_was_told() -> None:
    """What it had no room for was dropped after 5 s: batches never came, and weights did not reach it."""
    with shoal.Collector(
        CARTPOLE, weighted(0), num_envs=1, frames_per_batch=2, total_frames=62, mode="multi_async", num_collectors=1,
        ahead=10,
    ) as collector:  # fmt: skip
        found = [next(collector)]
        collector.pause()
        collector.resume()
        assert collector.stats()["pending"] == 10
        (entry,) = collector.stats()["collectors"]
        stop(entry["pid"])
        found += [next(collector) for _ in range(10)]
        assert collector.stats()["collectors"][0]["orders"] == 10
        collector.update_weights(weighted(1).state_dict())
        os.kill(entry["pid"], signal.SIGCONT)
        found += list(collector)
    assert [batch["reward"].numel() for batch in found] == [2] * 31
    assert all((batch["log_prob"] == batch["policy_version"]).all() for batch in found)
    assert (found[-1]["policy_version"] == 1).all()


def test_what_is_resumed_before_it_has_begun_begins_with_the_first_batch() -> None:
    with shoal.Collector(CounterEnv, zeros, frames_per_batch=2, mode="multi_async") as collector:
        collector.pause()
        collector.resume()
        assert next(collector)["obs"][0, 0].tolist() == [1, 0]


def test_a_paused_collector_of_any_mode_steps_nothing_until_it_is_resumed() -> None:
    for mode in ("sync", "multi_sync"):
        with shoal.Collector(CounterEnv, zeros, frames_per_batch=2, mode=mode) as collector:
            next(collector)
            collector.pause()
            with pytest.raises(RuntimeError, match="paused"):
                next(collector)
            collector.resume()
            assert next(collector)["obs"][0, 0].tolist() == [1, 2]


def test_who_waits_holds_up_nobody_else_in_multi_async(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    envs = [functools.partial(GatedEnv, gate), *[CounterEnv] * 3]
    with shoal.Collector(
        envs, lambda obs: np.ones(len(obs), np.int64), frames_per_batch=8, mode="multi_async", num_collectors=4
    ) as collector:
        assert all(next(collector)["env_id"][0, 0] != 0 for _ in range(50))
        gate.touch()
        while next(collector)["env_id"][0, 0] != 0:
            pass


class Straggler(CounterEnv):
    """Environment 1's steps end one after the other, and not before environment 0 has made 20."""

    def __init__(self, gate: Path) -> None:
        super().__init__(length=10**9)
        self.gate = gate

    def step(self, action: Any) -> Any:
        if shoal.worker().env_index == 0:
            if self.steps == 19:
                self.gate.touch()
        else:
            while not self.gate.exists():
                time.sleep(0.001)
            time.sleep(0.005)
        return super().step(action)


def test_with_a_preemptive_threshold_stragglers_stop_and_go_on_in_the_next_batch(tmp_path: Path) -> None:
    with shoal.Collector(
        functools.partial(Straggler, tmp_path / "gate"), zeros, num_envs=2, frames_per_batch=4000, mode="multi_sync",
        num_collectors=2, preemptive_threshold=0.5, policy_batch=1, seed=1,
    ) as collector:  # fmt: skip
        first, second = next(collector), next(collector)
        stats = collector.stats()
    made = [int(batch["valid"][:, 1].sum()) for batch in (first, second)]
    assert first["valid"][:, 0].all() and 1 <= made[0] < 2000
    assert first["valid"][: made[0], 1].all() and not first["valid"][made[0] :, 1].any()
    assert not first["obs"][made[0] :, 1].any() and not first["reward"][made[0] :, 1].any()
    assert (first["env_id"][:, 1] == 1).all() and (first["episode_id"][:, 1] == 1).all()
    assert second["obs"][0, 1].tolist() == [1, made[0]]
    assert stats["lost_to_preemption"] == 4000 - sum(made) and stats["frames"] == 8000


# --- how it is run


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"mode": "async"}, "mode= takes 'sync', 'multi_sync', 'multi_async', got 'async'"),
        ({"mode": "sync", "num_collectors": 2}, "num_collectors= is of mode=\"multi_sync\""),
        ({"num_collectors": 5}, "num_collectors= takes a number from 1 to num_envs=4, got 5"),
        ({"mode": "multi_async", "num_collectors": 3}, "num_collectors=3 does not divide num_envs=4.*: try 2"),
        ({"mode": "multi_async", "num_collectors": 2, "frames_per_batch": 7}, "no multiple of the 2 environments of each"),
        ({"policy_batch": 0}, "policy_batch= takes a number of environments"),
        ({"preemptive_threshold": 1.5}, "preemptive_threshold= takes a share"),
        ({"mode": "multi_async", "preemptive_threshold": 0.5}, "preemptive_threshold= is of mode=\"multi_sync\""),
        ({"ahead": 0}, "ahead= takes a number of batches, 1 or more, got 0"),
        ({"on_fault": "drop"}, 'on_fault= takes "raise" or "restart" of collectors'),
        ({"on_fault": 3}, "on_fault= takes 'raise' or 'restart', or a shoal.FaultPolicy, got 3"),
        ({"timeout": "a"}, r"Collector\(timeout=…\) takes None or a positive number of seconds, got 'a'"),
        ({"timeout": -1}, r"Collector\(timeout=…\) takes None or a positive number of seconds, got -1"),
        ({"timeout": float("nan")}, r"Collector\(timeout=…\) takes None or a positive number of seconds, got nan"),
        ({"preemptive_threshold": "a"}, "preemptive_threshold= takes a share of the collectors, from 0 to 1, got 'a'"),
        ({"env_kwargs": 3}, "env_kwargs= takes a dict of keyword arguments, got 3"),
        ({"output": "numpy", "device": "cpu"}, "output='numpy' gives arrays"),
        ({"policy": 3}, "policy= takes the directory of a run.* got 3"),
        ({"policy": "CartPole"}, "neither the directory of a run nor one of the presets"),
        ({"env": CounterEnv()}, "an environment .a CounterEnv. where it needs a way to build them"),
        ({"policy": threading.Lock().acquire}, "policy.*cannot pickle"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_one_clear_error(wrong: dict[str, Any], message: str) -> None:
    arguments = {"env": CARTPOLE, "policy": zeros, "num_envs": 4, "frames_per_batch": 32, "mode": "multi_sync", **wrong}
    with pytest.raises((ValueError, TypeError), match=message):
        shoal.Collector(**arguments)


def test_spaces_that_cannot_be_collected_are_refused_with_the_fix() -> None:
    class Env(CounterEnv):
        action_space = spaces.Dict({"a": spaces.Discrete(2)})

    with pytest.raises(ValueError, match="flatten it with a wrapper"):
        shoal.Collector(Env, zeros, frames_per_batch=4, mode="multi_sync")


def test_processes_are_set_up_as_asked() -> None:
    class Env(CounterEnv):
        def reset(self, **arguments: Any) -> Any:
            super().reset(**arguments)
            doubled = shoal.worker().model("double")(np.ones(1))
            return np.array([float(os.environ["MARK"]), doubled[0] + shoal.worker().config["extra"]]), {}

    options = shoal.WorkerOptions(env={"MARK": "3"}, models={"double": lambda: _double}, config={"extra": 5})
    for context in ("auto", "spawn"):
        (batch,) = batches(
            Env, zeros, frames_per_batch=1, total_frames=1, mode="multi_sync", worker=options, context=context,
            env_kwargs={"length": 1}, backend="serial",
        )  # fmt: skip
        assert batch["obs"].tolist() == [[[3, 7]]]


def _double(batch: np.ndarray) -> np.ndarray:
    return 2 * batch


class Masked(CounterEnv):
    """Allows action 1, and 2 as well in even steps."""

    observation_space = spaces.Dict({"at": spaces.Box(0, 99, (1,)), "mask": spaces.MultiBinary(3)})

    def _observation(self) -> Any:
        return {"at": np.array([self.steps], np.float32), "mask": np.array([0, 1, self.steps % 2 == 0], np.int8)}


def test_rows_that_a_threshold_left_out_are_no_forbidden_actions(tmp_path: Path) -> None:
    class Late(CounterEnv):
        observation_space = spaces.Dict({"mask": spaces.MultiBinary(3)})
        action_space = spaces.Discrete(3, start=5)

        def _observation(self) -> Any:
            return {"mask": np.array([0, 1, 0], np.int8)}

        def step(self, action: Any) -> Any:
            if shoal.worker().env_index == 1:
                time.sleep(0.01)
            return super().step(action)

    (batch,) = batches(
        Late, lambda obs: np.full(len(obs["mask"]), 6), num_envs=2, frames_per_batch=400, total_frames=400,
        action_mask="mask", mode="multi_sync", num_collectors=2, preemptive_threshold=0.5,
    )  # fmt: skip
    assert (batch["action"][batch["valid"]] == 6).all() and not batch["valid"].all()


def test_masked_actions_are_neither_drawn_nor_taken_from_a_policy() -> None:
    def best(obs: Any) -> np.ndarray:
        return 2 - obs["mask"][:, ::-1].argmax(1)

    arguments = {"num_envs": 4, "frames_per_batch": 240, "total_frames": 240, "action_mask": "mask", "seed": 1}
    expected = batches(Masked, best, init_random_frames=120, num_workers=0, policy_batch=8, **arguments)
    (batch,) = expected
    assert np.array_equal(batch["action_mask"], batch["obs"]["mask"])
    even = batch["obs"]["at"][..., 0] % 2 == 0
    assert set(batch["action"][:30][even[:30]]) == {1, 2} and (batch["action"][:30][~even[:30]] == 1).all()
    assert np.array_equal(batch["action"][30:], np.where(even, 2, 1)[30:])
    for collectors in (1, 2):
        assert_same(
            batches(Masked, best, init_random_frames=120, mode="multi_sync", num_collectors=collectors, **arguments),
            expected,
        )
    for mode in ("sync", *MULTI):
        with pytest.raises(ValueError, match=r"chose action 2 in environment \d, which the action mask obs\['mask'\]"):
            batches(Masked, lambda obs: np.full(len(obs["at"]), 2), mode=mode, **arguments)
    for env, policy, message in (
        (CARTPOLE, zeros, "names a part of shape"),
        ("shoal/Pendulum-v1", zeros, "is for Discrete actions"),
        (CARTPOLE, "CartPole-v1", "C.. networks know no masks"),
    ):
        with pytest.raises(ValueError, match=message):
            shoal.Collector(env, policy, frames_per_batch=1, action_mask="mask")


def test_tensors_lie_on_the_device_that_is_asked_for() -> None:
    torch = pytest.importorskip("torch")
    (batch,) = batches(CARTPOLE, zeros, frames_per_batch=4, total_frames=4, device="cpu")
    assert all(isinstance(value, torch.Tensor) and value.device.type == "cpu" for value in batch.values())
    (batch,) = batches(CARTPOLE, zeros, frames_per_batch=4, total_frames=4, device="meta", mode="multi_sync")
    assert all(value.device.type == "meta" for value in batch.values())


def test_a_tensordict_has_the_batchs_entries_where_it_is_installed() -> None:
    try:
        import tensordict  # noqa: F401
    except ImportError:
        with pytest.raises(ImportError, match="pip install tensordict"):
            batches(CARTPOLE, zeros, frames_per_batch=4, output="tensordict")
        return
    (batch,) = batches(CARTPOLE, zeros, num_envs=2, frames_per_batch=4, total_frames=4, output="tensordict")
    assert batch.batch_size == (2, 2) and batch["obs"].shape == (2, 2, 4)


def test_torch_policies_keep_to_one_thread_each() -> None:
    torch = pytest.importorskip("torch")

    class Net(torch.nn.Module):
        def forward(self, obs: Any) -> Any:
            return obs[:, 0].long() * 0, torch.full((len(obs),), float(torch.get_num_threads()))

    (batch,) = batches(CARTPOLE, Net(), frames_per_batch=2, total_frames=2, mode="multi_sync")
    assert (batch["log_prob"] == 1).all()
    assert isinstance(batch["obs"], torch.Tensor) and torch_policy() is not None


def test_an_id_that_this_program_has_registered_is_known_to_the_collectors() -> None:
    class OfThisProgram(CounterEnv):
        pass

    gymnasium.register("shoal-tests/OfThisProgram-v0", OfThisProgram)
    try:
        with shoal.Collector(
            lambda: gymnasium.make("shoal-tests/OfThisProgram-v0"),
            zeros,
            num_envs=2,
            frames_per_batch=4,
            total_frames=4,
            mode="multi_sync",
            num_collectors=1,
        ) as collector:
            assert [batch["reward"].shape for batch in collector] == [(2, 2)]
    finally:
        del gymnasium.registry["shoal-tests/OfThisProgram-v0"]


# --- what is made up for


class SlowEnv(CounterEnv):
    def step(self, action: Any) -> Any:
        time.sleep(0.001)
        return super().step(action)


@pytest.mark.parametrize("mode", ["sync", *MULTI])
def test_a_reset_takes_no_random_frames_away(mode: str) -> None:
    """Those of the batches that "multi_async" had ordered were lost."""

    def policy(obs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return zeros(obs), np.zeros(len(obs))

    more = {} if mode == "sync" else {"num_collectors": 2}
    with shoal.Collector(
        SlowEnv, policy, num_envs=4, frames_per_batch=40, total_frames=400, init_random_frames=160, mode=mode, **more
    ) as collector:
        found = [next(collector)]
        collector.reset(seed=2)
        found += list(collector)
    assert sum(batch["reward"].size for batch in found) == 400
    assert sum(int(np.isnan(batch["log_prob"]).sum()) for batch in found) == 160


class MaskedOnce(CounterEnv):
    """Its mask forbids action 1 at the fourth step."""

    observation_space = spaces.Dict({"steps": spaces.Box(0, np.inf, (1,)), "mask": spaces.MultiBinary(3)})

    def _observation(self) -> Any:
        return {"steps": np.full(1, self.steps, np.float32), "mask": np.array([1, self.steps != 4, 1], np.int8)}


@pytest.mark.parametrize("mode", ["sync", *MULTI])
@pytest.mark.parametrize("with_reset", [False, True])
def test_a_batch_that_was_refused_is_made_up_for(mode: str, with_reset: bool) -> None:
    """The iteration of "multi_async" ended with a RuntimeError."""
    more = {} if mode == "sync" else {"num_collectors": 2}
    with shoal.Collector(
        functools.partial(MaskedOnce, 100), lambda obs: np.ones(len(obs["mask"]), np.int64), num_envs=2, frames_per_batch=4,
        total_frames=40, action_mask="mask", mode=mode, **more,
    ) as collector:  # fmt: skip
        rows, refused = 0, 0
        while True:
            try:
                rows += next(collector)["reward"].size
            except StopIteration:
                break
            except ValueError as error:
                assert "the policy chose action 1 in environment" in str(error)
                refused += 1
                if with_reset and refused == 1:
                    collector.reset()
        assert rows == 40 == collector.frames and refused >= 1
