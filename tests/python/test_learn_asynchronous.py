"""IMPALA and APPO from Python: what every run has, the lag of their weights, and the same bits where they are told."""

from __future__ import annotations

import json

import numpy as np
import pytest

import shoal
from learn_runs import arrays, lines

ALGORITHMS = ["impala", "appo"]
SMALL = {
    "num_envs": 4,
    "total_steps": 1600,
    "num_steps": 20,
    "log_interval": 3,
    "policy_hidden": [8],
    "value_hidden": [8],
    "normalize_obs": True,
    "normalize_reward": True,
    "eval_every": 500,
    "eval_episodes": 3,
    "eval_envs": 2,
    "final_episodes": 4,
    "target_return": None,
}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_cartpole_is_learned_and_its_policy_acts(tmp_path, algorithm):
    result = shoal.learn.train(
        "shoal/CartPole-v1", algorithm, seed=3, run_dir=tmp_path / "run", target_return=475, deterministic=True
    )
    assert result.ending == "target"
    assert result.mean_return >= 475 and result.evaluated_episodes == 100
    run = json.loads((tmp_path / "run/config.json").read_text())
    assert (run["algorithm"], run["preset"], run["config"]["algorithm"]) == (algorithm, "CartPole-v1", algorithm)
    assert shoal.learn.evaluate(result.run_dir, episodes=20, seed=12).mean_return >= 450
    policy = shoal.learn.load_policy(result.run_dir)
    assert policy.config["algorithm"] == algorithm
    batch = np.random.default_rng(1).normal(size=(50, 4)).astype(np.float32)
    assert np.array_equal(shoal.learn.torch_policy(result.run_dir).predict(batch), policy.predict(batch))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_told_so_the_number_of_workers_does_not_change_a_bit(tmp_path, algorithm):
    found = []
    for workers in (0, 1, 2, 4):
        run_dir = tmp_path / str(workers)
        shoal.learn.train(
            "CartPole-v1", algorithm, seed=9, num_workers=workers, run_dir=run_dir, deterministic=True, **SMALL
        )
        found.append((arrays(run_dir), lines(run_dir)))
    assert len(found[0][0]) == 3
    assert all(run == found[0] for run in found[1:])


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_told_so_a_run_that_was_stopped_goes_on_as_if_it_never_was(tmp_path, algorithm):
    options = SMALL | {"deterministic": True, "max_lag": 2}
    shoal.learn.train("CartPole-v1", algorithm, seed=9, num_workers=1, run_dir=tmp_path / "whole", **options)
    shoal.learn.train(
        "CartPole-v1", algorithm, seed=9, num_workers=2, run_dir=tmp_path / "parts", pause_at_step=700, **options
    )
    assert arrays(tmp_path / "parts") != arrays(tmp_path / "whole")
    result = shoal.learn.train(resume=True, run_dir=tmp_path / "parts")
    assert result.steps == 1600
    assert arrays(tmp_path / "parts") == arrays(tmp_path / "whole")
    assert lines(tmp_path / "parts") == lines(tmp_path / "whole")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_run_that_is_not_told_so_is_stopped_and_goes_on_as_well(tmp_path, algorithm):
    shoal.learn.train("CartPole-v1", algorithm, num_workers=2, run_dir=tmp_path, pause_at_step=700, **SMALL)
    state = json.loads((tmp_path / "checkpoints/last/state.json").read_text())["learner"]
    assert state["steps"] == 720 and len(state["waiting_rollouts"]) <= 2
    with shoal.learn.Trainer(run_dir=tmp_path, resume=True) as trainer:
        trainer.start()
        trainer.wait()
        assert trainer.status()["resume"] == "exact"
        assert trainer.result().steps == 1600


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("max_lag", [1, 4])
def test_the_lag_is_bounded_and_shown(tmp_path, algorithm, max_lag):
    options = SMALL | {"log_interval": 1, "max_lag": max_lag}
    with shoal.learn.Trainer("shoal/CartPole-v1", algorithm, run_dir=tmp_path, **options) as trainer:
        trainer.start()
        trainer.wait()
        assert 0 <= trainer.status()["policy_lag"] <= max_lag
    lags = [record["train/policy_lag"] for record in lines(tmp_path) if "train/loss" in record]
    assert len(lags) == 20
    assert lags[0] == 0 and set(lags) <= set(range(max_lag + 1))


def test_fixed_order_means_a_fixed_lag(tmp_path):
    options = SMALL | {"log_interval": 1, "max_lag": 3, "deterministic": True}
    shoal.learn.train("shoal/CartPole-v1", "impala", run_dir=tmp_path, **options)
    lags = [record["train/policy_lag"] for record in lines(tmp_path) if "train/loss" in record]
    assert lags == [0, 1, 2] + [3] * 17


def test_others_have_no_lag(tmp_path):
    with shoal.learn.Trainer("shoal/CartPole-v1", "a2c", run_dir=tmp_path, **SMALL) as trainer:
        trainer.start()
        trainer.wait()
        assert trainer.status()["policy_lag"] is None
    assert not [record for record in lines(tmp_path) if "train/policy_lag" in record]


@pytest.mark.parametrize(
    ("algorithm", "options", "message"),
    [
        ("impala", {"max_lag": 0}, "max_lag"),
        ("impala", {"clip_range": 0.1}, 'impala has no option "clip_range", which is one of ppo'),
        ("appo", {"rho_bar": -1}, "rho_bar"),
        ("appo", {"deterministic": "yes"}, "deterministic"),
        ("appo", {"preset": "sb3"}, 'appo has no preset "sb3"'),
        ("ppo", {"max_lag": 1}, 'ppo has no option "max_lag", which is one of impala'),
    ],
)
def test_a_wrong_option_is_one_clear_error(tmp_path, algorithm, options, message):
    with pytest.raises(ValueError, match=message):
        shoal.learn.train("CartPole-v1", algorithm, run_dir=tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


def test_a_task_without_a_preset_takes_the_first():
    for algorithm in ALGORITHMS:
        assert shoal.learn.preset_for("Mine-v0", algorithm) == shoal.learn.preset_names(algorithm)[0] == "default"
