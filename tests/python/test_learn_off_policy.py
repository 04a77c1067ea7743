"""DQN and SAC from Python: what every run has, exact resume with the replay, policies in NumPy and as torch modules."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces

import shoal
from learn_envs import Drift, Spot
from learn_runs import PRECISIONS, arrays, lines

SMALL = {
    "num_envs": 4,
    "total_steps": 1600,
    "num_steps": 20,
    "log_interval": 3,
    "buffer_size": 800,
    "learning_starts": 100,
    "batch_size": 16,
    "prioritized": True,
    "n_step": 2,
    "policy_hidden": [9, 8],
    "normalize_obs": True,
    "normalize_reward": True,
    "eval_every": 500,
    "eval_episodes": 3,
    "eval_envs": 2,
    "final_episodes": 4,
    "target_return": None,
}
OF = {
    "dqn": ("shoal/CartPole-v1", {"dueling": True, "target_update_interval": 100}),
    "sac": ("shoal/Pendulum-v1", {"value_hidden": [7]}),
}


@pytest.fixture(params=OF)
def small(request):
    env, more = OF[request.param]
    return request.param, env, {**SMALL, **more}


def test_a_run_says_what_it_measured(tmp_path, small):
    algorithm, env, options = small
    result = shoal.learn.train(env, algorithm, run_dir=tmp_path / "run", **options)
    assert result.steps == 1600 and result.evaluated_episodes == 4
    measured = [line for line in lines(tmp_path / "run") if "train/loss" in line]
    last = measured[-1]
    updates = (1600 - 100) * (1 if algorithm == "sac" else 0.5)  # by the presets of their tasks
    assert last["train/n_updates"] == updates and last["train/updates_per_step"] == updates / 1600
    assert {"train/q_value", "losses/td_loss", "losses/q_values", "train/grad_norm"} <= set(last)
    assert ("rollout/exploration_rate" in last) == (algorithm == "dqn")
    assert ("train/ent_coef" in last) == (algorithm == "sac")
    run = json.loads((tmp_path / "run/config.json").read_text())
    assert (run["algorithm"], run["config"]["algorithm"]) == (algorithm, algorithm)


def test_a_stopped_run_resumes_to_the_same_bits_with_its_replay(tmp_path, small):
    algorithm, env, options = small
    shoal.learn.train(env, algorithm, run_dir=tmp_path / "whole", **options)
    shoal.learn.train(env, algorithm, run_dir=tmp_path / "parts", pause_at_step=900, **options)
    shoal.learn.train(run_dir=tmp_path / "parts", resume=True, pause_at_step=None)
    assert arrays(tmp_path / "parts") == arrays(tmp_path / "whole")


def test_the_number_of_workers_does_not_change_a_bit(tmp_path, small):
    algorithm, env, options = small
    for workers in (0, 2):
        shoal.learn.train(
            env,
            algorithm,
            run_dir=tmp_path / str(workers),
            num_workers=workers,
            backend="process" if workers else "auto",
            **options,
        )
    assert arrays(tmp_path / "0") == arrays(tmp_path / "2")


@pytest.mark.parametrize("precision", PRECISIONS)
def test_pictures_give_the_same_bits_for_any_number_of_workers_and_threads_and_across_a_resume(
    tmp_path, monkeypatch, precision
):
    options = {**SMALL, **OF["dqn"][1], "num_envs": 3, "total_steps": 240, "buffer_size": 150, "normalize_obs": False}
    options |= {"eval_every": 0, "precision": precision}
    del options["policy_hidden"]
    for workers, threads in ((0, 1), (2, 3)):
        monkeypatch.setenv("OMP_NUM_THREADS", str(threads))
        run_dir = tmp_path / str(workers)
        shoal.learn.train(Spot, "dqn", run_dir=run_dir, num_workers=workers, **options)
    shoal.learn.train(Spot, "dqn", run_dir=tmp_path / "parts", num_workers=0, pause_at_step=150, **options)
    shoal.learn.train(Spot, run_dir=tmp_path / "parts", resume=True, pause_at_step=None)
    assert arrays(tmp_path / "0") == arrays(tmp_path / "2") == arrays(tmp_path / "parts")


def test_its_policy_acts_alike_in_numpy_and_as_a_torch_module(tmp_path, small):
    torch = pytest.importorskip("torch")
    algorithm, env, options = small
    run = shoal.learn.train(env, algorithm, run_dir=tmp_path / "run", **options).run_dir
    policy = shoal.learn.load_policy(run, "last")
    module = shoal.learn.torch_policy(run, "last")
    policy.observation_space.seed(3)
    batch = np.stack([np.clip(policy.observation_space.sample(), -3, 3) for _ in range(50)])
    chosen = policy.predict(batch)
    theirs = module.predict(torch.as_tensor(batch)).numpy()
    if algorithm == "dqn":
        assert np.array_equal(chosen, theirs)
        q, best = module(torch.as_tensor(batch))
        assert q.shape == (50, 2) and torch.equal(q.max(-1).values, best)
    else:
        np.testing.assert_allclose(chosen, theirs, atol=1e-5)
        assert np.abs(chosen).max() <= 2
    drawn = np.stack([policy.predict(batch, deterministic=False) for _ in range(200)])
    assert (drawn != drawn[0]).any(), "it explores"
    if algorithm == "dqn":
        share = (drawn != chosen).mean()
        assert 0.01 < share < 0.05, "half of the random ones are the best: 0.05 / 2"
    else:
        distribution = module.distribution(torch.as_tensor(batch))
        expected = distribution.log_prob(distribution.sample())
        assert expected.shape == (50,) and torch.isfinite(expected).all()


def test_spaces_that_it_cannot_learn_are_refused_with_what_can(tmp_path):
    with pytest.raises(ValueError, match="sac learns actions of a Box.*dqn"):
        shoal.learn.train("shoal/CartPole-v1", "sac", run_dir=tmp_path / "a", total_steps=200, buffer_size=1000)
    with pytest.raises(ValueError, match="dqn learns the value of each action of a Discrete space.*sac"):
        shoal.learn.train("shoal/Pendulum-v1", "dqn", run_dir=tmp_path / "b", total_steps=200, buffer_size=1000)


def test_a_box_without_elements_is_refused(tmp_path):
    class Empty(Drift):
        action_space = spaces.Box(-1, 1, (0,), np.float32)

    with pytest.raises(ValueError, match="a Box that has elements"):
        shoal.learn.train(Empty, "sac", run_dir=tmp_path, num_workers=0)


def test_a_replay_without_priorities_says_so_to_one_that_has_them(tmp_path):
    options = SMALL | {"prioritized": False, "pause_at_step": 400}
    shoal.learn.train("shoal/CartPole-v1", "dqn", run_dir=tmp_path, **options)
    with pytest.raises(shoal.Error, match="resume with prioritized = false"):
        shoal.learn.train(run_dir=tmp_path, resume=True, prioritized=True)


@pytest.mark.parametrize(
    ("algorithm", "first", "then", "message"),
    [
        ("dqn", {"buffer_size": 300}, {"buffer_size": 200}, "; its run had buffer_size = 300, not 200$"),
        ("appo", {"num_steps": 16}, {"num_steps": 32}, "; its run had num_steps = 16, not 32$"),
    ],
)
def test_a_resume_that_does_not_fit_names_the_option(tmp_path, algorithm, first, then, message):
    small = {
        "num_envs": 2,
        "num_workers": 0,
        "policy_hidden": [8],
        "batch_size": 16,
        "eval_every": 0,
        "final_episodes": 0,
    }
    if algorithm == "dqn":
        small |= {"num_steps": 16, "learning_starts": 50}
    else:
        small |= {"deterministic": True}
    options = {**small, **first, "total_steps": 2000, "pause_at_step": 800}
    shoal.learn.train("shoal/CartPole-v1", algorithm, run_dir=tmp_path, **options)
    with pytest.raises(shoal.Error, match=message):
        shoal.learn.train(run_dir=tmp_path, resume=True, **then)


MEMORY = """
import os, re, shoal, sys, threading, time
from learn_envs import Wide
def taken():
    own = int(re.search(r"RssAnon:\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024
    shared = {}
    for fd in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{fd}").startswith("/memfd:"):
                file = os.fstat(int(fd))
                shared[file.st_ino] = file.st_blocks * 512
        except OSError:
            pass
    return (own + sum(shared.values())) / 2**20
most = 0
def watch():
    global most
    while True:
        most = max(most, taken())
        time.sleep(0.001)
options = {
    "num_envs": 1, "num_workers": 0, "num_steps": 1000, "total_steps": 2000, "buffer_size": 1000, "learning_starts": 1990,
    "batch_size": 2, "policy_hidden": [2], "eval_episodes": 1, "eval_envs": 1, "final_episodes": 0, "run_dir": sys.argv[1],
}
small = {**options, "buffer_size": 10, "num_steps": 20, "total_steps": 40, "learning_starts": 30}
shoal.learn.train(Wide, "dqn", **{**small, "run_dir": sys.argv[1] + "-small-" + sys.argv[2]})
before = taken()
threading.Thread(target=watch, daemon=True).start()
if sys.argv[2] == "save":
    shoal.learn.train(Wide, "dqn", **options)
else:
    shoal.learn.train(Wide, run_dir=sys.argv[1], resume=True, num_workers=0, total_steps=2100)
print(most - before)
"""


def test_a_checkpoint_and_a_resume_take_the_memory_of_the_replay_once_more(tmp_path):
    """Of 60 MB; each further copy would be 60 more."""
    for what in ("save", "resume"):
        command = [sys.executable, "-c", MEMORY, str(tmp_path / "run"), what]
        printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent)
        assert 60 < float(printed.stdout.split()[-1]) < 2.5 * 60, (what, printed.stdout)


@pytest.mark.parametrize(
    ("algorithm", "options", "message"),
    [
        ("dqn", {"adam_eps": 1e-50}, "adam_eps = 1e-50; it must be at least 1.2e-38"),
        ("dqn", {"gae_lambda": 0.9}, 'dqn has no option "gae_lambda", which is one of ppo'),
        ("dqn", {"td_loss": "l1"}, 'td_loss = "l1"; it takes one of huber, mse'),
        ("dqn", {"gradient_steps": 0}, "gradient_steps = 0; it must be at least 1, or -1"),
        ("dqn", {"buffer_size": 3, "n_step": 3}, "buffer_size of 3"),
        (
            "dqn",
            {"learning_starts": 900, "total_steps": 900},
            "learning_starts = 900 and total_steps = 900: the run would end",
        ),
        ("sac", {"double_dqn": True}, 'sac has no option "double_dqn", which is one of dqn'),
        ("sac", {"tau": 0}, "tau = 0"),
        ("sac", {"entropy_coef": 0}, "entropy_coef = 0"),
    ],
)
def test_a_bad_option_is_one_clear_error(tmp_path, algorithm, options, message):
    with pytest.raises(ValueError, match=message):
        shoal.learn.train(OF[algorithm][0], algorithm, run_dir=tmp_path, **options)


def test_the_command_line_trains_them(tmp_path, capsys):
    from shoal.cli import main

    for algorithm, (env, _) in OF.items():
        run = tmp_path / algorithm
        settings = [
            f"--set={option}"
            for option in ("buffer_size=1000", "learning_starts=100", "final_episodes=2", "eval_every=0")
        ]
        command = [
            "train",
            env,
            "--algorithm",
            algorithm,
            "--total-steps",
            "400",
            "--quiet",
            "--run-dir",
            str(run),
            *settings,
        ]
        assert main(command) == 0, capsys.readouterr().err
        assert json.loads((run / "result.json").read_text())["steps"] >= 400
