"""shoal.Collector with collectors in processes: weights and their versions, and what a state has of them."""

from __future__ import annotations

import functools
import pickle
from typing import Any

import numpy as np
import pytest

import shoal
from collect_policies import (
    CARTPOLE,
    MULTI,
    POLICIES,
    Linear,
    coin,
    until,
    weighted,
    zeros,
)
from same import assert_same

pytestmark = pytest.mark.usefixtures("balanced_heap")

# --- weights


@pytest.mark.parametrize("mode", MULTI)
def test_weights_reach_every_collector_and_the_rows_say_which_they_had(mode: str) -> None:
    torch = pytest.importorskip("torch")
    policy = weighted(0)
    with shoal.Collector(CARTPOLE, policy, num_envs=4, frames_per_batch=16, mode=mode, num_collectors=2) as collector:
        batch = next(collector)
        assert not batch["policy_version"].any() and not batch["log_prob"].any()
        for version in range(1, 4):
            with torch.no_grad():
                policy.first.fill_(version)
                policy.last.fill_(version)
            assert collector.update_weights() == version == collector.policy_version
            collectors = set()
            while len(collectors) < (1 if mode == "multi_sync" else 2):
                batch = next(collector)
                assert (batch["log_prob"] == batch["policy_version"]).all() and not batch["value"].any()
                assert (batch["staleness"] == version - batch["policy_version"]).all()
                if (batch["policy_version"] == version).all():
                    collectors.add(int(batch["env_id"][0, 0]))
        assert collector.update_weights(weighted(9).state_dict()) == 4
        until(lambda: (next(collector)["log_prob"] == 9).all())
        wrong = {**weighted(1).state_dict(), "more": torch.zeros(1)}
        with pytest.raises(ValueError, match="weights with more, which the policy has not"):
            collector.update_weights(wrong)
        with pytest.raises(ValueError, match=r"weights 'first' are float32 of shape \(3,\); the policy's are"):
            collector.update_weights({**weighted(1).state_dict(), "first": torch.zeros(3)})
        assert collector.policy_version == 4


def test_no_row_has_weights_of_two_versions() -> None:
    torch = pytest.importorskip("torch")
    policy = weighted(0)
    versions = set()
    with shoal.Collector(
        CARTPOLE, policy, num_envs=2, frames_per_batch=4, mode="multi_async", num_collectors=2
    ) as collector:
        for version in range(1, 400):
            with torch.no_grad():
                policy.first.fill_(version)
                policy.last.fill_(version)
            collector.update_weights()
            batch = next(collector)
            versions.update(batch["policy_version"].flatten().tolist())
            assert not batch["value"].any() and (batch["log_prob"] == batch["policy_version"]).all()
    assert len(versions) > 20


def test_weights_of_c_networks_and_callables_reach_the_collectors() -> None:
    with shoal.Collector(
        CARTPOLE, "sb3", num_envs=4, frames_per_batch=16, mode="multi_sync", num_collectors=2, seed=1
    ) as collector:
        first = next(collector)
        weights = collector.state_dict()["source"]["collectors"][0]["groups"][0]["actor"]["weights"]
        weights["critic.4.bias"] = weights["critic.4.bias"] + np.float32(100)
        assert collector.update_weights(weights) == 1
        second = next(collector)
        assert first["value"].max() < 50 < second["value"].min() and (second["policy_version"] == 1).all()
        with pytest.raises(TypeError, match="takes its weights"):
            collector.update_weights()
    policy = Linear()
    with shoal.Collector(CARTPOLE, policy, num_envs=2, frames_per_batch=4, mode="multi_sync") as collector:
        assert not next(collector)["action"].any()
        policy.weight = np.array([0, 0, 0, 0.0]) + 1e9
        assert collector.update_weights() == 1
        batch = next(collector)
        assert np.array_equal(batch["action"], batch["obs"].sum(-1) > 0)
    with shoal.Collector(CARTPOLE, zeros, frames_per_batch=4, mode="multi_sync") as collector:
        with pytest.raises(TypeError, match=r"no state_dict\(\) and load_state_dict\(\)"):
            collector.update_weights()


@pytest.mark.parametrize("mode", MULTI)
def test_a_model_service_is_asked_by_all_collectors(mode: str) -> None:
    with shoal.ModelService({"policy": Linear}) as service:
        with shoal.Collector(
            CARTPOLE, service, num_envs=4, frames_per_batch=16, mode=mode, num_collectors=2
        ) as collector:
            first = next(collector)
            assert not first["action"].any() and (first["policy_version"] == 1).all()
            assert collector.update_weights({"weight": np.array([0, 0, 1.0, 0])}) == 2
            until(lambda: bool((next(collector)["policy_version"] == 2).all()))
            batch = next(collector)
            new = batch["policy_version"] == 2
            assert np.array_equal(batch["action"][new], batch["obs"][new][:, 2] > 0) and not batch["action"][~new].any()


class Counting:
    """Modules of torch whose forward() puts another tensor in the place of a buffer."""

    @staticmethod
    def made() -> Any:
        torch = pytest.importorskip("torch")

        class Net(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.register_buffer("calls", torch.zeros(()))

            def forward(self, obs: Any) -> Any:
                self.calls = self.calls + 1
                return obs[:, 0].long() * 0, self.calls.expand(len(obs))

        return Net()


@pytest.mark.parametrize("mode", MULTI)
def test_a_module_that_replaces_its_buffers_takes_new_weights(mode: str) -> None:
    policy = Counting.made()
    with shoal.Collector(
        CARTPOLE, policy, num_envs=2, frames_per_batch=4, mode=mode, num_collectors=1, ahead=1
    ) as collector:
        assert next(collector)["log_prob"][:, 0].tolist() == [1, 2]
        policy.calls.fill_(100)
        collector.update_weights()
        until(lambda: next(collector)["log_prob"][:, 0].tolist() == [101, 102])


# --- going on


@pytest.mark.parametrize("policy", POLICIES)
def test_a_state_dict_goes_on_with_the_same_batches(policy: str) -> None:
    make = functools.partial(
        shoal.Collector, CARTPOLE, num_envs=10, frames_per_batch=60, total_frames=300, init_random_frames=100,
        output="numpy", mode="multi_sync", num_collectors=3,
    )  # fmt: skip
    with make(POLICIES[policy](), seed=7) as collector:
        for _ in range(2):
            next(collector)
        saved = pickle.loads(pickle.dumps(collector.state_dict()))
        expected = list(collector)
        stats = collector.stats()
    with make(POLICIES[policy](), seed=8) as other:
        other.load_state_dict(saved)
        assert (other.frames, other.seed) == (120, 7)
        assert_same(list(other), expected)
        same = ("frames", "batches", "episodes", "mean_return")
        assert {name: other.stats()[name] for name in same} == {name: stats[name] for name in same}
    with make(POLICIES[policy](), seed=8, num_collectors=2) as fewer:
        with pytest.raises(ValueError, match="give num_collectors=3"):
            fewer.load_state_dict(saved)


def test_weights_and_their_versions_are_in_the_state() -> None:
    policy = weighted(0)
    make = functools.partial(shoal.Collector, CARTPOLE, num_envs=2, frames_per_batch=4, mode="multi_sync")
    with make(policy) as collector:
        next(collector)
        collector.update_weights(weighted(1).state_dict())
        collector.update_weights(weighted(2).state_dict())
        saved = collector.state_dict()
    with make(policy) as other:
        other.load_state_dict(saved)
        batch = next(other)
        assert (batch["policy_version"] == 2).all() and (batch["log_prob"] == 2).all()
        assert other.update_weights(weighted(3).state_dict()) == 3
        assert (next(other)["log_prob"] == 3).all()


def test_weights_that_the_collectors_have_taken_are_in_the_state() -> None:
    """A collector whose state had the version of the weights beside it did not take them."""
    policy = weighted(0)
    make = functools.partial(shoal.Collector, CARTPOLE, num_envs=2, frames_per_batch=4, mode="multi_sync")
    with make(policy) as collector:
        collector.update_weights(weighted(1).state_dict())
        assert (next(collector)["log_prob"] == 1).all()
        saved = collector.state_dict()
    with make(policy) as other:
        other.load_state_dict(saved)
        batch = next(other)
        assert (batch["policy_version"] == 1).all() and (batch["log_prob"] == 1).all()


def test_an_older_state_has_its_own_weights() -> None:
    with shoal.Collector(
        CARTPOLE, "sb3", num_envs=2, frames_per_batch=4, mode="multi_sync", num_collectors=2, seed=1
    ) as collector:
        next(collector)
        saved = collector.state_dict()
        expected = next(collector)
        weights = saved["source"]["collectors"][0]["groups"][0]["actor"]["weights"]
        collector.update_weights({name: 3 * value for name, value in weights.items()})
        assert (next(collector)["policy_version"] == 1).all()
        collector.load_state_dict(saved)
        assert_same(next(collector), expected)
        assert collector.policy_version == 0


def test_what_multi_async_had_ready_is_in_its_state() -> None:
    make = functools.partial(
        shoal.Collector, CARTPOLE, coin, num_envs=4, frames_per_batch=20, total_frames=400, mode="multi_async",
        num_collectors=2,
    )  # fmt: skip

    def by_env(found: list[dict[str, Any]]) -> dict[int, np.ndarray]:
        return {
            first: np.concatenate([batch["obs"] for batch in found if batch["env_id"][0, 0] == first])
            for first in (0, 2)
        }

    with make(seed=7) as collector:
        for _ in range(4):
            next(collector)
        saved = pickle.loads(pickle.dumps(collector.state_dict()))
        assert len(saved["source"]["pending"]) == 4
        expected = by_env(list(collector))
    with make(seed=8) as other:
        other.load_state_dict(saved)
        found = by_env(list(other))
        assert other.frames == 400
    for first, obs in found.items():  # who collects the last batches is a matter of time
        least = min(len(obs), len(expected[first]))
        assert least >= 30 and np.array_equal(obs[:least], expected[first][:least])


def test_a_loaded_state_ends_with_the_total_frames_of_who_loads_it() -> None:
    make = functools.partial(
        shoal.Collector, CARTPOLE, zeros, num_envs=4, frames_per_batch=8, mode="multi_async", num_collectors=2
    )

    def rows(collector: shoal.Collector) -> int:
        return sum(batch["reward"].size for batch in collector)

    with make(total_frames=64) as collector:
        next(collector)
        halfway = collector.state_dict()
        assert rows(collector) == 56
        at_the_end = collector.state_dict()
    assert len(halfway["source"]["pending"]) == 4
    with make(total_frames=96) as longer:
        longer.load_state_dict(at_the_end)
        assert (longer.frames, rows(longer)) == (64, 32)
        longer.load_state_dict(halfway)
        assert (longer.frames, rows(longer)) == (8, 88)
    with make(total_frames=48) as shorter:
        shorter.load_state_dict(halfway)
        assert rows(shorter) == 40
        shorter.load_state_dict(at_the_end)
        assert rows(shorter) == 0
    with make(total_frames=32) as too_short:
        with pytest.raises(ValueError, match="32 more are ready.*total_frames=32: give it 40 or more"):
            too_short.load_state_dict(halfway)
        assert rows(too_short) == 32
    with make() as endless:
        endless.load_state_dict(at_the_end)
        assert next(endless)["valid"].all()
