"""PPO and A2C that collect the next rollout beside the update: a lag of one that is told, and the same bits as ever."""

from __future__ import annotations

import json

import pytest

import learn_envs
import shoal
from learn_modules import ActorCritic
from learn_runs import arrays, lines

ALGORITHMS = ["ppo", "a2c"]
SMALL = {
    "overlap": True,
    "num_envs": 4,
    "total_steps": 1600,
    "num_steps": 20,
    "log_interval": 1,
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
PICTURES = SMALL | {"total_steps": 640, "eval_every": 0, "final_episodes": 0, "preset": "sb3"}


def lags(run_dir):
    return [record["train/policy_lag"] for record in lines(run_dir) if "train/loss" in record]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_cartpole_is_learned(tmp_path, algorithm):
    result = shoal.learn.train(
        "shoal/CartPole-v1", algorithm, seed=3, run_dir=tmp_path, target_return=475, overlap=True
    )
    assert result.ending == "target"
    assert result.mean_return >= 475 and result.evaluated_episodes == 100


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize(("env", "options"), [("CartPole-v1", SMALL), (learn_envs.Spot, PICTURES)])
def test_the_number_of_workers_and_a_resume_do_not_change_a_bit(tmp_path, algorithm, env, options):
    for workers in (0, 1, 2):
        shoal.learn.train(env, algorithm, seed=9, num_workers=workers, run_dir=tmp_path / str(workers), **options)
    for number, pause in enumerate([240, 400, None]):
        given = {"pause_at_step": pause, "num_workers": number, "run_dir": tmp_path / "parts"}
        if number == 0:
            shoal.learn.train(env, algorithm, seed=9, **given, **options)
            state = json.loads((tmp_path / "parts/checkpoints/last/state.json").read_text())["learner"]
            assert state["steps"] == 240 and len(state["waiting_rollouts"]) == 1
        else:
            shoal.learn.train(env, resume=True, **given)
    whole = arrays(tmp_path / "0"), lines(tmp_path / "0")
    assert len(whole[0]) == 3
    assert all((arrays(tmp_path / name), lines(tmp_path / name)) == whole for name in ("1", "2", "parts"))
    assert lags(tmp_path / "parts") == [0] + [1] * (options["total_steps"] // 80 - 1)


def test_the_best_policy_is_kept_without_what_waits(tmp_path):
    shoal.learn.train("shoal/CartPole-v1", run_dir=tmp_path, **SMALL)
    state = json.loads((tmp_path / "checkpoints/best/state.json").read_text())["learner"]
    assert "waiting_rollouts" not in state
    assert shoal.learn.evaluate(tmp_path, episodes=2).mean_return > 0


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_module_overlaps_too_in_a_process_beside(tmp_path, algorithm):
    options = {name: value for name, value in SMALL.items() if not name.endswith("_hidden")} | {"preset": "sb3"}
    for workers in (0, 2):
        run_dir = tmp_path / str(workers)
        shoal.learn.train(
            learn_envs.Drift, algorithm, policy=ActorCritic, num_workers=workers, run_dir=run_dir, **options
        )
        assert lags(run_dir) == [0] + [1] * 19
    given = {"policy": ActorCritic, "pause_at_step": 700, "num_workers": 0, **options}
    shoal.learn.train(learn_envs.Drift, algorithm, run_dir=tmp_path / "parts", **given)
    shoal.learn.train(learn_envs.Drift, resume=True, run_dir=tmp_path / "parts", pause_at_step=None, num_workers=0)
    assert all(arrays(tmp_path / name) == arrays(tmp_path / "0") for name in ("2", "parts"))


def test_a_run_that_began_without_does_not_go_on_with_it(tmp_path):
    shoal.learn.train("shoal/CartPole-v1", run_dir=tmp_path, pause_at_step=400, **SMALL | {"overlap": False})
    with pytest.raises(shoal.Error, match="go on with overlap = false"):
        shoal.learn.train(resume=True, run_dir=tmp_path, overlap=True)


def test_others_have_no_such_option(tmp_path):
    for algorithm in ("appo", "impala", "a3c", "dqn"):
        with pytest.raises(ValueError, match=f'{algorithm} has no option "overlap", which is one of ppo'):
            shoal.learn.train("CartPole-v1", algorithm, run_dir=tmp_path / "run", overlap=True)
    assert "overlap" not in shoal.learn.config_names("appo")
