"""A2C from Python and the command line: what PPO's runs have, its runs have."""

from __future__ import annotations

import json

import numpy as np
import pytest

import shoal
from learn_runs import arrays, lines

SMALL = {
    "num_envs": 4,
    "total_steps": 1600,
    "log_interval": 7,
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


def test_cartpole_is_learned_and_its_policy_acts(tmp_path):
    result = shoal.learn.train("shoal/CartPole-v1", "a2c", seed=3, run_dir=tmp_path / "run", target_return=475)
    assert result.ending == "target"
    assert result.mean_return >= 475 and result.evaluated_episodes == 100
    assert result.steps <= 500_000
    run = json.loads((tmp_path / "run/config.json").read_text())
    assert (run["algorithm"], run["preset"], run["config"]["algorithm"]) == ("a2c", "CartPole-v1", "a2c")
    again = shoal.learn.evaluate(result.run_dir, episodes=20, seed=12)
    assert again.mean_return >= 450
    policy = shoal.learn.load_policy(result.run_dir)
    assert policy.config["algorithm"] == "a2c"
    assert policy.predict(np.zeros((5, 4), np.float32)).shape == (5,)
    torch_policy = shoal.learn.torch_policy(result.run_dir)
    batch = np.random.default_rng(1).normal(size=(50, 4)).astype(np.float32)
    assert np.array_equal(torch_policy.predict(batch), policy.predict(batch))


def test_the_number_of_workers_does_not_change_a_bit(tmp_path):
    found = []
    for workers in (0, 1, 2, 4):
        run_dir = tmp_path / str(workers)
        shoal.learn.train("CartPole-v1", "a2c", seed=9, num_workers=workers, run_dir=run_dir, **SMALL)
        found.append((arrays(run_dir), lines(run_dir)))
    assert len(found[0][0]) == 3
    assert all(run == found[0] for run in found[1:])


def test_a_run_that_was_stopped_goes_on_as_if_it_never_was(tmp_path):
    shoal.learn.train("CartPole-v1", "a2c", seed=9, num_workers=1, run_dir=tmp_path / "whole", **SMALL)
    shoal.learn.train(
        "CartPole-v1", "a2c", seed=9, num_workers=2, run_dir=tmp_path / "parts", pause_at_step=700, **SMALL
    )
    assert arrays(tmp_path / "parts") != arrays(tmp_path / "whole")
    result = shoal.learn.train(resume=True, run_dir=tmp_path / "parts")
    assert result.steps == 1600
    assert arrays(tmp_path / "parts") == arrays(tmp_path / "whole")
    assert lines(tmp_path / "parts") == lines(tmp_path / "whole")


def test_records_have_what_a2c_has_and_nothing_of_ppo(tmp_path):
    shoal.learn.train("shoal/CartPole-v1", "a2c", run_dir=tmp_path / "run", **SMALL)
    records = [record for record in lines(tmp_path / "run") if "train/loss" in record]
    assert [record["time/iterations"] for record in records] == [*range(7, 80, 7), 80]
    names = set(records[-1])
    assert {"train/policy_gradient_loss", "train/value_loss", "train/entropy_loss", "train/learning_rate"} <= names
    assert not [name for name in names if "kl" in name or "clip" in name]


def test_its_status_says_none_where_it_has_no_number(tmp_path):
    with shoal.learn.Trainer("shoal/CartPole-v1", "a2c", run_dir=tmp_path / "run", **SMALL) as trainer:
        trainer.start()
        assert trainer.wait()
        status = trainer.status()
    assert status["approx_kl"] is None and status["clip_range"] is None
    assert status["learning_rate"] > 0 and status["step"] == 1600


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clip_range": 0.1}, 'a2c has no option "clip_range", which is one of ppo'),
        ({"preset": "cleanrl"}, 'a2c has no preset "cleanrl"'),
        ({"optimizer": "sgd"}, "adam, rmsprop, rmsprop_tf"),
        ({"rmsprop_alpha": 1}, "rmsprop_alpha"),
        ({"log_interval": 0}, "log_interval"),
    ],
)
def test_a_wrong_option_is_one_clear_error(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        shoal.learn.train("CartPole-v1", "a2c", run_dir=tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


def test_a_run_stays_one_of_its_algorithm(tmp_path):
    shoal.learn.train("shoal/CartPole-v1", "a2c", run_dir=tmp_path / "run", pause_at_step=500, **SMALL)
    with pytest.raises(ValueError, match="is a run of a2c, which does not become one of ppo"):
        shoal.learn.train(algorithm="ppo", run_dir=tmp_path / "run", resume=True)
    assert shoal.learn.train(algorithm="a2c", run_dir=tmp_path / "run", resume=True).steps == 1600


def test_presets_and_options_are_those_of_the_algorithm_that_is_named():
    assert shoal.learn.algorithm_names() == ["ppo", "a2c", "a3c", "impala", "appo", "dqn", "sac", "recurrent_ppo"]
    assert shoal.learn.preset_for("CartPole-v1", "a2c") == "CartPole-v1"
    assert set(shoal.learn.config_names("a2c")) == set(shoal.learn.preset("sb3", "a2c"))
    assert "clip_range" in shoal.learn.config_names() and "clip_range" not in shoal.learn.config_names("a2c")
    assert shoal.learn.preset_names("a2c")[0] == "sb3"
    with pytest.raises(ValueError, match="there is no algorithm 'a2d'"):
        shoal.learn.preset_names("a2d")
