"""shoal.compat.ray: ranks in Ray Train's process group, one of them killed; trials of Ray Tune."""

from __future__ import annotations

import json
import math
import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shoal
from test_compat_ray import knowing_the_tests, quiet

ray: Any = pytest.importorskip("ray", reason="it is in an environment of its own: ./shoal test --only ray")
import shoal.compat.ray  # noqa: E402

pytestmark = [pytest.mark.keeps_processes, pytest.mark.timeout(340)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    with knowing_the_tests():
        ray.init(**quiet(num_cpus=4, include_dashboard=False, object_store_memory=100 * 2**20))
    yield
    ray.shutdown()


def leftovers() -> set[Path]:
    """Folders of runs in the place for what is temporary."""
    return set(Path(tempfile.gettempdir()).glob("shoal-*/run"))


# Ray Train


def test_ranks_meet_where_torch_trainer_has_them_meet_and_not_where_an_outer_launcher_does() -> None:
    from shoal.compat.ray.rank_program import meeting_point

    mine = {"RANK": "0", "WORLD_SIZE": "2"}
    address = {"MASTER_ADDR": "there", "MASTER_PORT": "7000"}
    found = meeting_point({**mine, **address}, mine)
    assert {name: found[name] for name in address} == address and len(found["SHOAL_GROUP_SECRET"]) == 64
    other = meeting_point({"RANK": "0", "WORLD_SIZE": "8", **address, "SHOAL_GROUP_SECRET": "own"}, mine)
    assert other["MASTER_ADDR"] != "there" and other["SHOAL_GROUP_SECRET"] == "own"


def workers_of_train() -> list[int]:
    """The processes of this machine that are workers of Ray Train."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if b"RayTrainWorker" in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                pass
    return found


def known_to_ray(run: Path) -> str:
    """What Ray Train would go on from: it hears of a checkpoint within some seconds after that was reported."""
    snapshot = run / "checkpoint_manager_snapshot.json"
    return snapshot.read_text() if snapshot.exists() else ""


def progress(run: Path, until: float) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run / "progress.jsonl").read_text().splitlines()]
    return [line for line in lines if line["step"] <= until]


def test_ranks_learn_cartpole_and_go_on_after_one_was_killed(cluster: None, tmp_path: Path) -> None:
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    config = {
        "env": "CartPole-v1",
        "seed": 1,
        "total_steps": 100_000,
        "target_return": None,
        "report_every": 5_000,
        "save_every_seconds": 0.2,
    }
    trainer = TorchTrainer(
        shoal.compat.ray.train_loop,
        train_loop_config=config,
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(storage_path=str(tmp_path), name="run", failure_config=FailureConfig(max_failures=1)),
    )
    first: list[Path] = []
    killed: list[int] = []

    def kill_one() -> None:
        deadline = time.monotonic() + 120
        while not killed and time.monotonic() < deadline:
            time.sleep(0.05)
            first[:] = sorted(tmp_path.glob("run/checkpoint_*/progress.jsonl"))
            there = workers_of_train()
            if first and len(there) >= 2 and first[0].parent.name in known_to_ray(tmp_path / "run"):
                killed.append(max(there))
                os.kill(killed[0], signal.SIGKILL)

    killing = threading.Thread(target=kill_one)
    killing.start()
    result = trainer.fit()
    killing.join()
    assert killed and result.error is None
    assert result.metrics["steps"] >= 100_000
    assert result.metrics["eval_return_mean"] >= 475
    run = Path(result.checkpoint.path)
    assert shoal.learn.load_policy(run).predict(np.zeros(4, np.float32)) in (0, 1)
    # What was measured before the checkpoint was measured once: its seconds on the clock are the same.
    at = json.loads((first[0].parent / "checkpoints/last/state.json").read_text())["step"]
    assert 0 < at < 100_000
    assert progress(run, at) == progress(first[0].parent, at) != []


def test_ranks_need_no_process_group_of_torch(cluster: None, tmp_path: Path) -> None:
    from ray.train import RunConfig, ScalingConfig
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    before = leftovers()
    config = {"env": "CartPole-v1", "total_steps": 5_000, "num_envs": 8, "eval_every": 0, "final_episodes": 2}
    result = DataParallelTrainer(
        shoal.compat.ray.train_loop,
        train_loop_config=config,
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(storage_path=str(tmp_path), name="run"),
    ).fit()
    assert result.error is None and result.metrics["steps"] >= 5_000
    assert not math.isnan(result.metrics["eval_return_mean"])
    assert leftovers() == before


def test_an_option_that_there_is_not_fails_the_job_with_the_nearest(cluster: None, tmp_path: Path) -> None:
    from ray.train import RunConfig, ScalingConfig
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    trainer = DataParallelTrainer(
        shoal.compat.ray.train_loop,
        train_loop_config={"env": "CartPole-v1", "learning_rte": 1},
        scaling_config=ScalingConfig(num_workers=1),
        run_config=RunConfig(storage_path=str(tmp_path), name="run"),
    )
    with pytest.raises(Exception, match="no 'learning_rte'; the nearest: learning_rate"):
        trainer.fit()


# Ray Tune


def tuned(tmp_path: Path, trainable: Any, space: dict[str, Any], **config: Any) -> Any:
    from ray import tune

    return tune.Tuner(
        tune.with_resources(trainable, {"cpu": 1}),
        param_space=space,
        tune_config=tune.TuneConfig(metric="episode_return_mean", mode="max", **config),
        run_config=tune.RunConfig(storage_path=str(tmp_path), name="search", verbose=0),
    ).fit()


def test_asha_stops_what_is_hopeless(cluster: None, tmp_path: Path) -> None:
    from ray import tune
    from ray.tune.schedulers import ASHAScheduler

    before = leftovers()
    trainable = shoal.compat.ray.trainable(
        "CartPole-v1",
        seed=1,
        total_steps=100_000,
        eval_every=0,
        target_return=None,
        final_episodes=5,
        report_every=4_000,
    )
    scheduler = ASHAScheduler(time_attr="steps", max_t=200_000, grace_period=8_000, reduction_factor=2)
    space = {"learning_rate": tune.grid_search([1e-3, 3e-3, 1e-7, 1e-6])}
    results = tuned(tmp_path, trainable, space, scheduler=scheduler)
    assert not results.errors and len(results) == 4
    best = results.get_best_result()
    assert best.config["learning_rate"] >= 1e-3
    assert best.metrics["steps"] >= 100_000 and best.metrics["eval_return_mean"] >= 300
    assert shoal.learn.load_policy(best.checkpoint.path, which="last").predict(np.zeros(4, np.float32)) in (0, 1)
    stopped = [each for each in results if each.metrics["steps"] < 100_000]
    assert any(each.config["learning_rate"] < 1e-3 for each in stopped)
    assert best.metrics_dataframe["steps"].is_monotonic_increasing
    assert leftovers() == before


def test_population_based_training_goes_on_from_anothers_checkpoint(cluster: None, tmp_path: Path) -> None:
    from ray import tune
    from ray.tune.schedulers import PopulationBasedTraining

    trainable = shoal.compat.ray.trainable(
        "CartPole-v1",
        seed=1,
        total_steps=80_000,
        eval_every=0,
        target_return=None,
        final_episodes=5,
        report_every=4_000,
        save_every_seconds=0,
    )
    scheduler = PopulationBasedTraining(
        time_attr="training_iteration",
        perturbation_interval=2,
        hyperparam_mutations={"learning_rate": [1e-3, 2e-3]},
        quantile_fraction=0.5,
        resample_probability=0.5,
    )
    results = tuned(tmp_path, trainable, {"learning_rate": tune.grid_search([1e-3, 1e-7])}, scheduler=scheduler)
    assert not results.errors
    assert (tmp_path / "search" / "pbt_global.txt").read_text()
    rates = [each.config["learning_rate"] for each in results]
    assert all(rate >= 5e-4 for rate in rates), "the one that learned nothing was given the other's weights and options"
    for each in results:
        assert each.metrics["steps"] >= 80_000
        run = json.loads((Path(each.checkpoint.path) / "config.json").read_text())
        assert run["config"]["learning_rate"] >= 5e-4 and each.metrics["episode_return_mean"] >= 100


def test_what_tune_chooses_has_to_be_an_option(cluster: None, tmp_path: Path) -> None:
    from ray import tune

    with pytest.raises(ValueError, match="no 'learning_rte'; the nearest: learning_rate"):
        shoal.compat.ray.trainable("CartPole-v1", learning_rte=1)
    results = tuned(tmp_path, shoal.compat.ray.trainable("CartPole-v1"), {"num_step": tune.choice([1])})
    assert len(results.errors) == 1
    assert "no 'num_step'; the nearest: num_steps" in str(results.errors[0])


def test_an_algorithm_and_its_environment_may_be_searched_over(cluster: None, tmp_path: Path) -> None:
    from ray import tune

    space = {"algorithm": tune.grid_search(["a2c", "dqn"]), "env": "shoal/CartPole-v1", "num_envs": tune.choice([4])}
    trainable = shoal.compat.ray.trainable(total_steps=4_000, eval_every=0, target_return=None, final_episodes=1)
    results = tuned(tmp_path, trainable, space)
    assert not results.errors
    runs = [json.loads((Path(each.checkpoint.path) / "config.json").read_text()) for each in results]
    assert {(run["algorithm"], run["env"], run["config"]["num_envs"]) for run in runs} == {
        ("a2c", "shoal/CartPole-v1", 4),
        ("dqn", "shoal/CartPole-v1", 4),
    }
