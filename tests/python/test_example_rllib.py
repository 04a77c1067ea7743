"""examples/rllib: RLlib's PPO over Shoal's vector environment, and over its own."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import shoal
from sample_envs import die

ray: Any = pytest.importorskip("ray", reason="it is in an environment of its own: ./shoal test --only ray")

EXAMPLE = Path(__file__).parents[2] / "examples" / "rllib" / "main.py"


def told(*arguments: str) -> list[str]:
    done = subprocess.run([sys.executable, str(EXAMPLE), *arguments], capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    return [line for line in done.stdout.splitlines() if re.match(r"\d+ steps, ", line)]


@pytest.mark.timeout(600)
def test_training_gives_the_same_as_with_rllibs_own_environments() -> None:
    expected = told("--envs", "rllib")
    assert len(expected) == 3 and all(re.search(r"[1-9]\d+ episodes", line) for line in expected)
    assert told("--num-workers", "2") == expected
    assert told("--num-workers", "0") == expected


DIED = r"(?s)worker \d .*environments \d to \d\) ended with .*SIGKILL.*the simulator says goodbye"


class DyingEnv(gymnasium.Env):
    """A step of one of them ends its process: of the first that comes there."""

    observation_space = gymnasium.spaces.Box(0, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        if self.steps == 5 and not self.marker.exists():
            self.marker.touch()
            die()
        return np.zeros(1, np.float32), 0.0, False, False, {}


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()


def dying(on_fault: str, marker: Path) -> Any:
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.tune import register_env

    register_env(
        "dying",
        lambda context: shoal.make_vec(lambda: DyingEnv(marker), context["num_envs"], num_workers=2, on_fault=on_fault),
    )
    config = PPOConfig().environment("dying").training(train_batch_size_per_learner=64, minibatch_size=64, num_epochs=1)
    config.env_runners(num_env_runners=0, num_envs_per_env_runner=4, gym_env_vectorize_mode="vector_entry_point")
    return config.build_algo()


@pytest.mark.keeps_processes
@pytest.mark.timeout(300)
def test_a_killed_worker_is_told_as_it_died(cluster: None, tmp_path: Path) -> None:
    algorithm = dying("raise", tmp_path / "died")
    with pytest.raises(RuntimeError) as raised:
        algorithm.train()
    told = raised.value.__cause__
    assert isinstance(told, shoal.WorkerDied) and re.search(DIED, str(told)), told
    algorithm.stop()


@pytest.mark.keeps_processes
@pytest.mark.timeout(300)
def test_training_goes_on_where_workers_are_replaced(cluster: None, tmp_path: Path) -> None:
    algorithm = dying("restart", tmp_path / "died")
    told = algorithm.train()["env_runners"]
    assert told["num_env_steps_sampled_lifetime"] >= 64 and (tmp_path / "died").exists()
    algorithm.stop()


@pytest.mark.timeout(300)
def test_runners_of_their_own_have_workers_of_their_own() -> None:
    assert len(told("--runners", "2", "--num-envs", "4", "--iterations", "1")) == 1
