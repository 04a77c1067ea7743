"""shoal.compat.ray: collectors that are actors of Ray, placed by its options, killed, on nodes that vanish."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import shoal
from ray_envs import FailingEnv, SlowEnv, WhereEnv

ray: Any = pytest.importorskip("ray", reason="it is in an environment of its own: ./shoal test --only ray")
import shoal.compat.ray  # noqa: E402
from shoal.compat.ray import collector_actor  # noqa: E402

pytestmark = [pytest.mark.keeps_processes, pytest.mark.timeout(240)]

SMALL: dict[str, Any] = {
    "num_envs": 4,
    "num_steps": 32,
    "batch_size": 64,
    "policy_hidden": [8],
    "value_hidden": [8],
    "eval_every": 0,
    "eval_envs": 1,
    "final_episodes": 0,
    "target_return": None,
}


@contextmanager
def knowing_the_tests() -> Iterator[None]:
    """Processes that are started within find the modules of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
        yield


def quiet(**options: Any) -> dict[str, Any]:
    return {"log_to_driver": False, "logging_level": "ERROR", **options}


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    with knowing_the_tests():
        ray.init(**quiet(num_cpus=4, include_dashboard=False, object_store_memory=200 * 2**20))
    yield
    ray.shutdown()


@pytest.fixture
def until() -> Callable[..., None]:
    def wait(condition: Callable[[], Any], trainer: Any = None) -> None:
        deadline = time.monotonic() + 90
        while not condition():
            assert time.monotonic() < deadline, "it did not come to that"
            if trainer is None:
                time.sleep(0.05)
            else:
                assert not trainer.wait(0.05)

    return wait


def one(obs: np.ndarray) -> np.ndarray:
    """A policy: always action 1."""
    return np.ones(len(obs), np.int64)


# The learner here, its collectors actors


def test_cartpole_is_learned_from_collectors_that_are_actors(cluster: None, tmp_path: Path) -> None:
    seen: list[Any] = []
    result = shoal.compat.ray.train(
        "CartPole-v1",
        num_collectors=2,
        remote_configs={"num_cpus": 1, "scheduling_strategy": "SPREAD"},
        num_workers=0,
        seed=1,
        run_dir=tmp_path / "run",
        callback=lambda status: seen.append(status["collectors"] or 0),
    )
    assert result.mean_return is not None and result.mean_return >= 475
    assert result.evaluated_episodes > 0
    assert max(seen) == 2


def test_an_actor_that_is_killed_is_started_again(cluster: None, tmp_path: Path, until: Any) -> None:
    options = {**SMALL, "total_steps": 10**9, "num_workers": 0}
    with shoal.compat.ray.Trainer("CartPole-v1", num_collectors=2, run_dir=tmp_path / "run", **options) as trainer:
        trainer.start()
        until(lambda: len(trainer.collectors) == 2 and trainer.status()["step"] > 0, trainer)
        first = [each["pid"] for each in trainer.collectors]
        assert os.getpid() not in first
        os.kill(first[0], signal.SIGKILL)
        until(lambda: first[0] not in [each["pid"] for each in trainer.collectors], trainer)
        until(lambda: len(trainer.collectors) == 2, trainer)
        assert first[1] in [each["pid"] for each in trainer.collectors]
        before = trainer.status()["step"]
        until(lambda: trainer.status()["step"] > before + 1000, trainer)
        assert trainer.status()["lost_rollouts"] <= 1
        assert trainer.config["max_lag"] == 8


def test_without_restarts_the_run_goes_on_until_no_actor_is_left(cluster: None, tmp_path: Path, until: Any) -> None:
    options = {**SMALL, "total_steps": 10**9, "num_workers": 0, "remote_configs": {"num_cpus": 1, "max_restarts": 0}}
    with shoal.compat.ray.Trainer("CartPole-v1", num_collectors=2, run_dir=tmp_path / "run", **options) as trainer:
        trainer.start()
        until(lambda: len(trainer.collectors) == 2 and trainer.status()["step"] > 0, trainer)
        first, second = (each["pid"] for each in trainer.collectors)
        os.kill(first, signal.SIGKILL)
        with pytest.warns(RuntimeWarning, match=r"collector \d is gone, and Ray does not start it again"):
            until(lambda: len(trainer._collecting._at_work) == 1, trainer)
        before = trainer.status()["step"]
        until(lambda: trainer.status()["step"] > before, trainer)
        os.kill(second, signal.SIGKILL)
        with pytest.warns(RuntimeWarning), pytest.raises(shoal.Error, match="no collector is left"):
            trainer.wait(60)
    steps = trainer.result().steps
    resumed = {"num_collectors": 1, "num_workers": 0, "total_steps": steps + 1000, "run_dir": tmp_path / "run"}
    assert shoal.compat.ray.train(resume=True, **resumed).steps >= steps + 1000


def test_what_environments_raise_in_an_actor_is_raised_here(cluster: None, tmp_path: Path) -> None:
    gymnasium.register("Failing-v0", FailingEnv)  # which the actors are told
    options = {**SMALL, "total_steps": 10**9, "num_workers": 0, "run_dir": tmp_path / "run", "num_collectors": 1}
    with pytest.raises(LookupError, match="no license here"):
        shoal.compat.ray.train("Failing-v0", "impala", **{k: v for k, v in options.items() if k != "batch_size"})
    with pytest.raises(ValueError, match="'appo' and 'impala', not for 'ppo'"):
        shoal.compat.ray.train("CartPole-v1", "ppo", num_collectors=1)
    with pytest.raises(ValueError, match='no option "learning_rte"; the nearest is "learning_rate"'):
        shoal.compat.ray.train("CartPole-v1", num_collectors=1, learning_rte=1)


def test_the_learner_may_be_a_task_itself(cluster: None, tmp_path: Path) -> None:
    options = {**SMALL, "total_steps": 2_000, "num_collectors": 1, "run_dir": tmp_path / "run"}
    learner = ray.remote(num_cpus=1)(shoal.compat.ray.train)
    assert ray.get(learner.remote("CartPole-v1", "appo", **options)).steps >= 2_000


# Batches through the object store


def test_a_batch_of_all_is_what_one_collector_makes(cluster: None) -> None:
    options: dict[str, Any] = {"num_envs": 4, "frames_per_batch": 80, "seed": 3, "next_obs": True}
    with (
        shoal.Collector("CartPole-v1", one, total_frames=240, **options) as alone,
        shoal.compat.ray.RayCollector(
            "CartPole-v1", one, num_collectors=2, sync=True, total_frames=240, **options
        ) as collector,
    ):
        assert collector.single_action_space == alone.single_action_space
        assert collector.single_observation_space == alone.single_observation_space
        for expected, batch in zip(alone, collector, strict=True):
            assert batch.keys() == expected.keys()
            for name, array in expected.items():
                assert np.array_equal(batch[name], array, equal_nan=array.dtype.kind == "f"), name
                assert batch[name].dtype == array.dtype, name
        assert (collector.frames, collector.stats()["batches"]) == (240, 3)
        assert collector.stats()["episodes"] == alone.stats()["episodes"]
        assert collector.stats()["mean_length"] == pytest.approx(alone.stats()["mean_length"])


def test_batches_of_single_collectors_are_views_of_the_object_store(cluster: None) -> None:
    with shoal.compat.ray.RayCollector(
        WhereEnv, one, num_collectors=2, num_envs=4, frames_per_batch=20_000, total_frames=100_000, seed=1
    ) as collector:
        batches = list(collector)
    assert [batch["reward"].shape for batch in batches] == [(10_000, 2)] * 5
    for batch in batches:
        assert not batch["obs"].flags.writeable and not batch["reward"].flags.owndata
        first = batch["env_id"][0, 0]
        assert first in (0, 2) and (batch["env_id"] == [first, first + 1]).all()
        assert (batch["episode_id"] % 4 == batch["env_id"]).all()
        assert (np.diff(batch["episode_id"][:, 0]) >= 0).all()
        assert len(np.unique(batch["obs"][..., 0])) == 1
    pids = {int(batch["obs"][0, 0, 0]) for batch in batches}
    assert os.getpid() not in pids and {first["env_id"][0, 0] for first in batches} == {0, 2}


def test_weights_reach_the_batches_that_are_begun_after_them(cluster: None) -> None:
    torch = pytest.importorskip("torch")

    class Constant(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.action = torch.nn.Parameter(torch.zeros(1))

        def forward(self, obs: Any) -> Any:
            return self.action.round().long().expand(len(obs))

    policy = Constant()
    with shoal.compat.ray.RayCollector(WhereEnv, policy, num_collectors=2, frames_per_batch=10, seed=1) as collector:
        before = [next(collector) for _ in range(2)]
        with torch.no_grad():
            policy.action += 1
        assert collector.update_weights() == 1
        after = [next(collector) for _ in range(6)]
        stats = collector.stats()
        with pytest.raises(ValueError, match="weights without action"):
            collector.update_weights({})
    assert all((batch["action"] == 0).all() and (batch["staleness"] == 0).all() for batch in before)
    for batch in after:
        assert (batch["action"] == batch["policy_version"]).all()
        assert (batch["staleness"] == 1 - batch["policy_version"]).all()
    assert sum(int(batch["staleness"][0, 0]) for batch in after) <= 2  # those that were under way
    assert (after[-1]["policy_version"] == 1).all()
    assert 0 < stats["mean_staleness"] <= 2 / 8
    with shoal.compat.ray.RayCollector(
        WhereEnv, policy, num_collectors=2, frames_per_batch=10, sync=True, update_after_each_batch=True
    ) as collector:
        for version in range(3):
            assert (next(collector)["policy_version"] == version).all()


def test_no_more_is_under_way_than_may_be(cluster: None, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with shoal.compat.ray.RayCollector(
        lambda: SlowEnv(gate), one, num_collectors=3, frames_per_batch=5, max_in_flight=2, seed=1, total_frames=50
    ) as collector:
        gate.touch()
        next(collector)
        gate.unlink()
        assert collector.stats()["in_flight"] == 2
        gate.touch()
        assert len(list(collector)) == 9
        assert collector.stats()["in_flight"] == 0
        assert {each["number"] for each in collector.stats()["collectors"]} == {0, 1, 2}


def test_an_actor_with_cpus_steps_its_environments_in_as_many_processes(cluster: None) -> None:
    with shoal.compat.ray.RayCollector(
        WhereEnv, one, num_collectors=1, num_envs=2, frames_per_batch=20, remote_configs={"num_cpus": 2}
    ) as collector:
        batch = next(collector)
        (told,) = collector.stats()["collectors"]
    assert len(np.unique(batch["obs"][..., 0])) == 2
    assert told["pid"] not in batch["obs"][..., 0]


def test_a_collector_that_is_killed_is_started_again_with_other_episodes(cluster: None) -> None:
    with shoal.compat.ray.RayCollector(
        "CartPole-v1", one, num_collectors=1, num_envs=2, frames_per_batch=40, seed=1
    ) as collector:
        first = [next(collector) for _ in range(3)]
        (told,) = collector.stats()["collectors"]
        os.kill(told["pid"], signal.SIGKILL)
        later = [next(collector) for _ in range(5)]
        (again,) = collector.stats()["collectors"]
    assert again["pid"] != told["pid"]
    assert later[-1]["episode_id"].min() > first[-1]["episode_id"].max()
    assert later[-1]["env_id"].max() == 1 and (later[-1]["episode_id"] % 2 == later[-1]["env_id"]).all()
    assert not any(np.array_equal(batch["obs"], first[0]["obs"]) for batch in later)


def test_episodes_are_counted_over_the_actors_that_a_collector_has_had(cluster: None) -> None:
    with shoal.compat.ray.RayCollector(WhereEnv, one, num_collectors=1, frames_per_batch=10, seed=1) as collector:
        for batches in range(1, 4):
            next(collector)
            assert collector.stats()["episodes"] == 2 * batches
        (told,) = collector.stats()["collectors"]
        os.kill(told["pid"], signal.SIGKILL)
        counts = []
        while collector.stats()["collectors"][0]["pid"] == told["pid"]:
            next(collector)
            counts.append(collector.stats()["episodes"])
        counts.append(collector.stats()["collectors"][0]["episodes"])
    assert counts[:-1] == [6 + 2 * n for n in range(1, len(counts))] and counts[-1] == counts[-2]


def test_an_actor_that_is_started_again_acts_by_its_policy_where_the_random_frames_are_over(cluster: None) -> None:
    share = collector_actor.Share(WhereEnv, 0, 2, 2, 16, 1, {"init_random_frames": 20}, None)
    remote = ray.remote(collector_actor.CollectorActor)

    def random_rows(number: int) -> list[bool]:
        """Of a new actor's first batch, by step."""
        batch = ray.get(remote.remote(share, one).collect.remote(None, number)).batch
        assert np.isnan(batch["value"]).all(), "batches have the same arrays, whoever fills them"
        return [bool(rows.any()) for rows in batch["action"] == 0]

    assert any(random_rows(0)) and not any(random_rows(1)[2:]) and not any(random_rows(2))


def test_without_restarts_it_goes_on_with_the_others(cluster: None) -> None:
    options: dict[str, Any] = {"num_collectors": 2, "frames_per_batch": 10, "remote_configs": {"max_restarts": 0}}
    with shoal.compat.ray.RayCollector(WhereEnv, one, **options) as collector:
        while len(collector.stats()["collectors"]) < 2:
            next(collector)
        first, second = (each["pid"] for each in collector.stats()["collectors"])
        os.kill(first, signal.SIGKILL)
        with pytest.warns(RuntimeWarning, match="collector 0 is gone"):
            while len(collector.stats()["collectors"]) == 2:
                next(collector)
        assert int(next(collector)["obs"][0, 0, 0]) == second
        assert collector.stats()["lost_batches"] == 1
        os.kill(second, signal.SIGKILL)
        with pytest.warns(RuntimeWarning), pytest.raises(shoal.Error, match="no collector is left"):
            for _ in range(3):
                next(collector)
    with shoal.compat.ray.RayCollector(WhereEnv, one, sync=True, **options) as collector:
        next(collector)
        os.kill(collector.stats()["collectors"][1]["pid"], signal.SIGKILL)
        with pytest.warns(RuntimeWarning), pytest.raises(shoal.Error, match=r"collectors \[1\] are gone"):
            for _ in range(3):
                next(collector)


def test_what_does_not_fit_is_one_clear_error(cluster: None) -> None:
    def refused(error: type[Exception], match: str, env: Any = "CartPole-v1", **options: Any) -> None:
        with pytest.raises(error, match=match):
            shoal.compat.ray.RayCollector(
                env, one, **{"num_collectors": 2, "frames_per_batch": 10, "num_envs": 2, **options}
            )

    refused(TypeError, "no 'next_ob'; the nearest: next_obs", next_ob=True)
    refused(ValueError, "num_envs= takes a multiple of 2, the number of collectors, got 3", num_envs=3)
    refused(ValueError, "frames_per_batch= takes a multiple of 2", frames_per_batch=5, sync=True)
    refused(ValueError, "max_in_flight= is of sync=False", sync=True, max_in_flight=1)
    refused(ValueError, "total_frames=", total_frames=-1)
    refused(ValueError, "init_random_frames=", init_random_frames=-1)
    refused(ValueError, "num_cpu", remote_configs={"num_cpu": 1})  # as Ray says it
    refused(Exception, "NoSuchEnv", env="NoSuchEnv-v0")
    with shoal.compat.ray.RayCollector(FailingEnv, one, num_collectors=1, frames_per_batch=10) as collector:
        with pytest.raises(LookupError, match="no license here"):
            next(collector)
        with pytest.raises(TypeError, match=r"has no state_dict\(\)"):
            collector.update_weights()


def test_options_of_collectors_are_those_of_shoals(cluster: None) -> None:
    with shoal.compat.ray.RayCollector(
        [WhereEnv] * 2,
        one,
        num_collectors=2,
        frames_per_batch=24,
        init_random_frames=20,
        split_trajectories=True,
        max_episode_steps=3,
        total_frames=48,
        sync=True,
    ) as collector:
        first, second = collector
    for batch in (first, second):
        assert batch["valid"].shape == (8, 3) and batch["valid"].all()
        assert (batch["obs"][:, 0, 1] == 0).all()
    assert (first["action"] == 0).any() and (second["action"] == 1).all()
