"""A run that was stopped, or killed, and resumed is the same, bit for bit, as one that never was."""

from __future__ import annotations

import hashlib
import json
import warnings
from pathlib import Path

import pytest

import learn_envs
import shoal
from learn_runs import PRECISIONS, arrays, killed

SMALL = {
    "num_envs": 5,
    "total_steps": 3000,
    "num_steps": 30,
    "batch_size": 64,
    "epochs": 2,
    "policy_hidden": [8],
    "value_hidden": [8],
    "learning_rate_schedule": "linear",
    "normalize_obs": True,
    "normalize_reward": True,
    "eval_every": 1000,
    "eval_episodes": 3,
    "eval_envs": 2,
    "final_episodes": 0,
}


def digest(run_dir: Path) -> dict[str, str]:
    """sha256 of all that training computes."""
    files = ("last/policy.safetensors", "last/optim.safetensors", "last/envs.safetensors", "best/policy.safetensors")
    return {name: hashlib.sha256((run_dir / "checkpoints" / name).read_bytes()).hexdigest() for name in files}


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A run of Python environments in this process that nothing interrupted."""
    run_dir = tmp_path_factory.mktemp("whole") / "run"
    shoal.learn.train(learn_envs.Drift, run_dir=run_dir, num_workers=0, **SMALL)
    return run_dir


@pytest.mark.parametrize("workers", [1, 2])
def test_the_number_of_workers_changes_nothing(tmp_path, whole, workers):
    shoal.learn.train(learn_envs.Drift, run_dir=tmp_path, num_workers=workers, **SMALL)
    assert digest(tmp_path) == digest(whole)


@pytest.mark.parametrize("pauses", [[150], [1001, 1500], [2800]])
def test_stopped_and_resumed_in_workers_equals_uninterrupted(tmp_path, whole, pauses):
    for number, pause in enumerate([*pauses, None]):
        result = shoal.learn.train(
            learn_envs.Drift,
            run_dir=tmp_path,
            num_workers=number % 3,  # what ran in this process goes on in workers, and back
            resume=number > 0,
            **({"pause_at_step": pause} if number else {**SMALL, "pause_at_step": pause}),
        )
        assert result.ending == ("budget" if pause is None else "stopped")
    assert digest(tmp_path) == digest(whole)


def test_gymnasiums_cartpole_in_workers(tmp_path):
    options = {**SMALL, "num_envs": 8, "seed": 4}
    shoal.learn.train("CartPole-v1", run_dir=tmp_path / "whole", num_workers=2, **options)
    shoal.learn.train("CartPole-v1", run_dir=tmp_path / "parts", num_workers=1, pause_at_step=1234, **options)
    shoal.learn.train(run_dir=tmp_path / "parts", num_workers=2, resume=True)
    assert digest(tmp_path / "parts") == digest(tmp_path / "whole")


KILLED = """
import sys, learn_envs, shoal
options = {options!r}
shoal.learn.train(
    learn_envs.Drift, run_dir=sys.argv[1], num_workers=2, save_every_seconds=0, env_kwargs={{"linger": 0.0002}}, **options
)
"""


def test_killed_at_any_moment_and_resumed_equals_uninterrupted(tmp_path, whole):
    killed(KILLED.format(options=SMALL), tmp_path / "run", (tmp_path / "run/checkpoints/last").exists)
    result = shoal.learn.train(
        learn_envs.Drift, run_dir=tmp_path / "run", resume=True, num_workers=0, env_kwargs={}, save_every_seconds=60
    )
    assert result.steps == 3000
    assert digest(tmp_path / "run") == digest(whole)


def test_environments_that_ignore_their_seed_are_restarted_with_a_warning(tmp_path):
    env_kwargs = {"entropy": True}
    shoal.learn.train(
        learn_envs.Drift, run_dir=tmp_path, num_workers=0, env_kwargs=env_kwargs, pause_at_step=600, **SMALL
    )
    with pytest.warns(RuntimeWarning, match="could not be brought back"):
        result = shoal.learn.train(learn_envs.Drift, run_dir=tmp_path, num_workers=0, resume=True)
    assert result.steps == 3000


def test_environments_that_are_changed_on_resume_are_not_blamed(tmp_path):
    shoal.learn.train(learn_envs.Drift, run_dir=tmp_path, num_workers=0, pause_at_step=600, **SMALL)
    with pytest.warns(RuntimeWarning, match="so they were reset: env_kwargs changed. The run goes on with what"):
        result = shoal.learn.train(run_dir=tmp_path, num_workers=0, env_kwargs={"entropy": True}, resume=True)
    assert result.steps == 3000


def test_so_it_is_where_they_were_changed_in_a_session_that_made_no_step(tmp_path):
    shoal.learn.train("CartPole-v1", run_dir=tmp_path, num_workers=0, **SMALL)
    changed = {"run_dir": tmp_path, "resume": True, "max_episode_steps": 20}
    assert shoal.learn.train(**changed).steps == 3000
    assert shoal.learn.train(**changed).steps == 3000
    with pytest.warns(RuntimeWarning, match="so they were reset: max_episode_steps changed. The run goes on with what"):
        shoal.learn.train(run_dir=tmp_path, resume=True, total_steps=4500)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shoal.learn.train(run_dir=tmp_path, resume=True, total_steps=6000)
    assert "changed" not in json.loads((tmp_path / "config.json").read_text())


def test_the_seed_of_a_run_stays(tmp_path):
    shoal.learn.train(learn_envs.Drift, run_dir=tmp_path, num_workers=0, seed=3, pause_at_step=600, **SMALL)
    with pytest.raises(ValueError, match="seed=5: the run in .* began with seed=3, .*leave it out"):
        shoal.learn.train(run_dir=tmp_path, resume=True, seed=5)
    assert shoal.learn.train(run_dir=tmp_path, num_workers=0, resume=True, seed=3).steps == 3000


def test_what_is_best_stays_so_where_a_resumed_run_goes_another_way(tmp_path):
    """Of a run that was killed after its best evaluation, and before the next checkpoint."""
    options = {"num_envs": 4, "num_steps": 10, "eval_every": 400, "eval_episodes": 2, "final_episodes": 0}
    shoal.learn.train("shoal/CartPole-v1", "impala", run_dir=tmp_path, pause_at_step=400, **options)
    best = tmp_path / "checkpoints/best/state.json"
    state = json.loads(best.read_text())
    state["evaluation"] |= {"best_return": 499.0, "best_step": 430}
    best.write_text(json.dumps(state))
    with shoal.learn.Trainer(run_dir=tmp_path, resume=True, pause_at_step=840) as trainer:
        trainer.start()
        trainer.wait()
        assert trainer.status()["resume"] == "exact"
        assert trainer.result().best_return >= 499
    assert json.loads(best.read_text())["evaluation"]["best_return"] >= 499


OF_ALGORITHMS = {name: value for name, value in SMALL.items() if name not in ("batch_size", "epochs")}
OF_REPLAY = {"buffer_size": 500, "learning_starts": 50, "batch_size": 8, "total_steps": 900}
REPLAYED = {name: value for name, value in OF_ALGORITHMS.items() if name != "value_hidden"} | OF_REPLAY
BEGINNINGS = {
    "ppo": ("shoal/CartPole-v1", "ppo", SMALL),
    "shards": ("shoal/CartPole-v1", "ppo", {**SMALL, "num_envs": 4, "shards": 2}),
    "overlap": ("shoal/CartPole-v1", "ppo", {**SMALL, "overlap": True}),
    "a2c": ("shoal/CartPole-v1", "a2c", OF_ALGORITHMS),
    "impala": ("shoal/CartPole-v1", "impala", {**OF_ALGORITHMS, "deterministic": True}),
    "recurrent_ppo": ("shoal/CartPole-v1", "recurrent_ppo", {**SMALL, "batch_size": 30, "lstm_size": 4}),
    "dqn": ("shoal/CartPole-v1", "dqn", REPLAYED),
    "sac": ("shoal/Pendulum-v1", "sac", {**REPLAYED, "value_hidden": [8]}),
}


@pytest.mark.parametrize("case", BEGINNINGS)
def test_stopped_before_the_first_iteration_and_resumed_equals_uninterrupted(tmp_path, case):
    env, algorithm, options = BEGINNINGS[case]
    shoal.learn.train(env, algorithm, run_dir=tmp_path / "whole", **options)
    with shoal.learn.Trainer(env, algorithm, run_dir=tmp_path / "parts", **options) as trainer:
        trainer.stop()
        trainer.start()
        trainer.wait()
        assert trainer.result().steps == 0
    shoal.learn.train(run_dir=tmp_path / "parts", resume=True)
    assert digest(tmp_path / "parts") == digest(tmp_path / "whole")


def test_resume_says_what_is_wrong(tmp_path):
    with pytest.raises(TypeError, match="run_dir="):
        shoal.learn.train("CartPole-v1", resume=True)
    with pytest.raises(FileNotFoundError, match="no config.json"):
        shoal.learn.train("CartPole-v1", run_dir=tmp_path, resume=True)
    shoal.learn.train("shoal/CartPole-v1", run_dir=tmp_path, pause_at_step=150, **SMALL)
    with pytest.raises(shoal.Error, match="5 environments, not 6"):
        shoal.learn.train(run_dir=tmp_path, resume=True, num_envs=6)
    with pytest.raises(ValueError, match="leave out preset="):
        shoal.learn.train(run_dir=tmp_path, resume=True, preset="sb3")
    optimizer = tmp_path / "checkpoints/last/optim.safetensors"
    optimizer.write_bytes(optimizer.read_bytes()[:-1] + b"?")
    with pytest.raises(shoal.Error, match="optim.safetensors is damaged"):
        shoal.learn.train(run_dir=tmp_path, resume=True)


def test_a_run_with_an_option_that_is_no_more_resumes(tmp_path, whole):
    shoal.learn.train(learn_envs.Drift, run_dir=tmp_path, num_workers=0, **{**SMALL, "pause_at_step": 1000})
    for file in (tmp_path / "config.json", tmp_path / "checkpoints/last/state.json"):
        content = json.loads(file.read_text())
        content["config"]["fused"] = False
        file.write_text(json.dumps(content))
    assert "fused" not in shoal.learn.load_policy(tmp_path).config
    shoal.learn.train(learn_envs.Drift, run_dir=tmp_path, num_workers=0, resume=True)
    assert digest(tmp_path) == digest(whole)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("algorithm", ["ppo", "a2c"])
def test_pictures_give_the_same_bits_for_any_number_of_workers_and_threads(tmp_path, monkeypatch, algorithm, precision):
    options = {"num_envs": 6, "total_steps": 288, "num_steps": 16, "seed": 3, "precision": precision}
    options |= {"algorithm": algorithm} | ({"batch_size": 48, "epochs": 2} if algorithm == "ppo" else {})
    digests = []
    for workers, threads in ((0, 1), (2, 3), (3, 2)):
        monkeypatch.setenv("OMP_NUM_THREADS", str(threads))
        run_dir = tmp_path / f"{workers} workers"
        run = {**options, "eval_every": 0, "final_episodes": 0, "num_workers": workers}
        shoal.learn.train(learn_envs.Spot, run_dir=run_dir, **run)
        digests.append(hashlib.sha256((run_dir / "checkpoints/last/policy.safetensors").read_bytes()).hexdigest())
    assert len(set(digests)) == 1
    for pause in (100, None):  # and across a resume
        run = {"run_dir": tmp_path / "parts", "pause_at_step": pause, "num_workers": 0}
        run |= {"resume": True} if pause is None else {**options, "eval_every": 0, "final_episodes": 0}
        shoal.learn.train(learn_envs.Spot, **run)
    assert arrays(tmp_path / "parts") == arrays(tmp_path / "0 workers")
