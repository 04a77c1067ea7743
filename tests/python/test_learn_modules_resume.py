"""Runs of networks of one's own that were stopped or killed: the same bits as without it, for any number of workers."""

from __future__ import annotations

import gc
import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import learn_envs
import learn_modules
import shoal
from learn_module_runs import PPO, digest, small
from learn_modules import ActorCritic
from learn_runs import killed
from shoal.learn.modules.run import rest_between_saves


@pytest.mark.parametrize(("algorithm", "ahead"), [("ppo", False), ("a2c", False), ("appo", True), ("a2c", True)])
def test_the_state_of_a_recurrent_module_is_in_the_checkpoint(tmp_path: Path, algorithm: str, ahead: bool) -> None:
    """Rollouts of 10 steps, of episodes of 4: each begins in the middle of one."""
    options = {**small(algorithm), "num_steps": 10, "total_steps": 1550, "eval_every": 500}
    if ahead:
        options |= (
            {"deterministic": True, "max_lag": 2, "preset": "default"} if algorithm == "appo" else {"overlap": True}
        )
    for name, pauses in (("whole", [None]), ("parts", [50, 550, None])):
        for number, pause in enumerate(pauses):
            given = {} if number else {**options, "policy": learn_modules.Remembering, "algorithm": algorithm}
            given |= {"pause_at_step": pause, "resume": number > 0, "num_workers": number}
            shoal.learn.train(learn_envs.Recall, run_dir=tmp_path / name, **given)
    assert digest(tmp_path / "parts") == digest(tmp_path / "whole")
    kept = load_file(tmp_path / "parts/checkpoints/last/envs.safetensors")
    assert set(kept["state.1"].tolist()) <= {1, 2, 3, 4, 5}  # steps of the episode under way
    assert ahead or kept["state.1"].tolist() == [2] * 5  # of 310 of each
    assert ("waiting.0.state.1" in kept) == ahead


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By algorithm, a run of Python environments in this process that nothing interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    for algorithm in ("ppo", "a2c"):
        shoal.learn.train(
            learn_envs.Drift,
            algorithm,
            policy=learn_modules.Dropping,
            run_dir=folder / algorithm,
            num_workers=0,
            **small(algorithm),
        )
    return {algorithm: folder / algorithm for algorithm in ("ppo", "a2c")}


@pytest.mark.parametrize("algorithm", ["ppo", "a2c"])
@pytest.mark.parametrize("workers", [1, 2])
def test_the_number_of_workers_changes_nothing(
    tmp_path: Path, whole: dict[str, Path], workers: int, algorithm: str
) -> None:
    torch.manual_seed(workers)  # nor what the process has drawn before
    shoal.learn.train(
        learn_envs.Drift,
        algorithm,
        policy=learn_modules.Dropping,
        run_dir=tmp_path,
        num_workers=workers,
        **small(algorithm),
    )
    assert digest(tmp_path) == digest(whole[algorithm])


@pytest.mark.parametrize("algorithm", ["ppo", "a2c"])
@pytest.mark.parametrize("pauses", [[1], [450, 1100]])
def test_stopped_and_resumed_equals_uninterrupted(
    tmp_path: Path, whole: dict[str, Path], pauses: list[int], algorithm: str
) -> None:
    for number, pause in enumerate([*pauses, None]):
        given = {} if number else {**small(algorithm), "policy": learn_modules.Dropping}
        result = shoal.learn.train(
            learn_envs.Drift,
            None if number else algorithm,
            run_dir=tmp_path,
            num_workers=number % 3,
            resume=number > 0,
            **{**given, "pause_at_step": pause},
        )
        assert result.ending == ("budget" if pause is None else "stopped")
    assert digest(tmp_path) == digest(whole[algorithm])


def test_so_it_does_with_draws_on_a_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = torch.Generator()  # what CUDA's does here, one of the CPU does as well
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "default_generators", (device,))

    class DrawsThere(ActorCritic):
        def forward(self, obs: torch.Tensor) -> Any:
            distribution = self.distribution(obs)
            mean = distribution.mean
            action = mean + torch.randn(mean.shape, generator=device)
            return action, distribution.log_prob(action), self.value(obs)

    outer = device.get_state()
    for name, pauses in (("whole", [None]), ("parts", [450, None])):
        for number, pause in enumerate(pauses):
            more: dict[str, Any] = {"resume": True} if number else PPO
            how = {"policy": DrawsThere, "run_dir": tmp_path / name, "num_workers": 0, "pause_at_step": pause}
            shoal.learn.train(learn_envs.Drift, **how, **more)
    assert digest(tmp_path / "parts") == digest(tmp_path / "whole")
    assert torch.equal(device.get_state(), outer)


KILLED = """
import sys, learn_envs, learn_modules, shoal
shoal.learn.train(
    learn_envs.Drift, policy=learn_modules.Dropping, run_dir=sys.argv[1], num_workers=2, save_every_seconds=0,
    env_kwargs={{"linger": 0.0005}}, **{options!r}
)
"""


@pytest.mark.parametrize("step", [100, 700])
def test_killed_at_any_moment_and_resumed_equals_uninterrupted(
    tmp_path: Path, whole: dict[str, Path], step: int
) -> None:
    state = tmp_path / "run/checkpoints/last/state.json"
    killed(KILLED.format(options=PPO), tmp_path / "run", lambda: state.exists() and step_of(state) >= step)
    result = shoal.learn.train(
        learn_envs.Drift, run_dir=tmp_path / "run", resume=True, num_workers=0, env_kwargs={}, save_every_seconds=60
    )
    assert result.steps == 1500
    assert digest(tmp_path / "run") == digest(whole["ppo"])


def test_killed_while_a_checkpoint_is_replaced_the_older_one_counts(tmp_path: Path, whole: dict[str, Path]) -> None:
    shoal.learn.train(
        learn_envs.Drift, policy=learn_modules.Dropping, run_dir=tmp_path, num_workers=0, pause_at_step=700, **PPO
    )
    for name in ("last", "best"):
        (tmp_path / "checkpoints" / name).rename(tmp_path / "checkpoints" / f"{name}.old")
    half = tmp_path / "checkpoints/last.tmp-1"
    half.mkdir()
    (half / "policy.safetensors").write_bytes(b"half")
    assert shoal.learn.load_policy(tmp_path, "last").step == 700
    assert shoal.learn.load_policy(tmp_path).step == 500
    shoal.learn.train(learn_envs.Drift, run_dir=tmp_path, resume=True, num_workers=0)
    assert digest(tmp_path) == digest(whole["ppo"])
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["best", "last"]


def test_a_run_that_begins_in_the_folder_of_a_killed_one_has_nothing_of_it(tmp_path: Path) -> None:
    given = {"policy": ActorCritic, "run_dir": tmp_path, "num_workers": 0, **PPO}

    def leave() -> None:
        for name in ("best", "best.old", "best.tmp-1"):
            shutil.copytree(tmp_path / "of another" / name, tmp_path / "checkpoints" / name)
        (tmp_path / "result.json").write_text("{}")

    for name in ("best", "best.old", "best.tmp-1"):
        (tmp_path / "of another" / name).mkdir(parents=True)
        (tmp_path / "of another" / name / "state.json").write_text("{}")
    leave()
    begun_alone(given)
    assert (tmp_path / "checkpoints/best").exists(), "no run was in it"
    shutil.rmtree(tmp_path / "checkpoints")
    leave()
    begun_alone(given)
    assert list((tmp_path / "checkpoints").iterdir()) == []
    assert not (tmp_path / "result.json").exists()
    with pytest.raises(FileNotFoundError, match="holds no policy"):
        shoal.learn.load_policy(tmp_path)


def begun_alone(given: dict[str, Any]) -> None:
    """A run that has not made a step."""
    with shoal.learn.Trainer(learn_envs.Drift, **given):
        pass
    gc.collect()  # which gives the folder to the next


def step_of(state: Path) -> int:
    try:
        return json.loads(state.read_text())["step"]
    except FileNotFoundError:  # it is being replaced
        return 0


@pytest.mark.parametrize("damaged", [False, True])
def test_a_best_policy_that_is_lost_is_no_policys_standard(tmp_path: Path, damaged: bool) -> None:
    """The run could not be finished, after all of its training."""
    options = {**PPO, "num_workers": 0, "final_episodes": 2}
    shoal.learn.train(learn_envs.Drift, policy=ActorCritic, run_dir=tmp_path, pause_at_step=600, **options)
    if damaged:
        (tmp_path / "checkpoints/best/policy.safetensors").write_bytes(b"")
    else:
        shutil.rmtree(tmp_path / "checkpoints/best")
    state = tmp_path / "checkpoints/last/state.json"
    recorded = json.loads(state.read_text())
    recorded["evaluation"]["best_return"] = 1e9  # which no later evaluation reaches
    state.write_text(json.dumps(recorded))
    result = shoal.learn.train(run_dir=tmp_path, resume=True)
    assert (result.ending, result.evaluated_episodes) == ("budget", 2)
    assert result.best_return is not None and result.best_return < 1e9 and result.best_step > 600
    shutil.rmtree(tmp_path / "checkpoints/best")
    again = shoal.learn.train(run_dir=tmp_path, resume=True)
    assert (again.evaluated_episodes, again.best_return, again.best_step) == (2, None, 0), "of the last policy"


def test_an_option_that_does_not_fit_the_checkpoint_is_named(tmp_path: Path) -> None:
    options = {**PPO, "run_dir": tmp_path, "num_workers": 0}
    shoal.learn.train(learn_envs.Drift, policy=ActorCritic, pause_at_step=500, **options)
    with pytest.raises(ValueError, match="; its run had normalize_obs = true, not false$"):
        shoal.learn.train(run_dir=tmp_path, resume=True, num_workers=0, normalize_obs=False)
    assert shoal.learn.train(run_dir=tmp_path, resume=True, num_workers=0).steps == 1500


def test_environments_that_ignore_their_seed_are_restarted_with_a_warning(tmp_path: Path) -> None:
    given = {"run_dir": tmp_path, "num_workers": 0}
    shoal.learn.train(
        learn_envs.Drift, policy=ActorCritic, env_kwargs={"entropy": True}, pause_at_step=600, **PPO, **given
    )
    # An evaluation after the last checkpoint, which will not be made again.
    best = tmp_path / "checkpoints/best/state.json"
    state = json.loads(best.read_text())
    state["evaluation"] |= {"best_return": 1e6, "best_step": 590}
    best.write_text(json.dumps(state))
    with pytest.warns(RuntimeWarning, match="could not be brought back"):
        result = shoal.learn.train(learn_envs.Drift, resume=True, **given)
    assert (result.steps, result.best_return, result.best_step) == (1500, 1e6, 590)
    assert json.loads(best.read_text()) == state


def test_so_are_rollouts_of_another_length_and_their_weights_are_no_older_for_it(tmp_path: Path) -> None:
    options = {**PPO, "preset": "default", "deterministic": True, "log_interval": 1}
    shoal.learn.train(
        learn_envs.Drift, "appo", policy=ActorCritic, run_dir=tmp_path, num_workers=0, pause_at_step=600, **options
    )
    with shoal.learn.Trainer(learn_envs.Drift, run_dir=tmp_path, resume=True, num_workers=0, num_steps=25) as trainer:
        trainer.start()
        with pytest.warns(RuntimeWarning, match="or num_steps is another"):
            trainer.wait()
        lags = [values["train/policy_lag"] for _, values in trainer.poll() if "train/policy_lag" in values]
    assert lags == [0] + [1] * 7


@pytest.mark.parametrize("algorithm", ["ppo", "appo"])
def test_the_replay_is_bounded_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algorithm: str
) -> None:
    """All environments are reset once replay_limit steps were made, resumed or not; batches that wait stay."""
    monkeypatch.setattr("shoal.learn.modules.run.LEAST_REPLAY", 100)
    options = {**PPO, "replay_limit": 1} | ({"preset": "default", "deterministic": True} if algorithm == "appo" else {})
    for name, pauses in (("whole", [None]), ("parts", [500, 1200, None])):
        for number, pause in enumerate(pauses):
            given = {} if number else {"policy": learn_modules.Dropping, "algorithm": algorithm, **options}
            given |= {"pause_at_step": pause, "resume": number > 0, "num_workers": 0}
            shoal.learn.train(learn_envs.Drift, run_dir=tmp_path / name, **given)
    assert digest(tmp_path / "parts") == digest(tmp_path / "whole")
    kept = load_file(tmp_path / "parts/checkpoints/last/envs.safetensors")
    assert len(kept["actions"]) <= 120


def test_appo_in_a_fixed_order_gives_the_same_bits_for_any_number_of_workers_and_across_a_resume(
    tmp_path: Path,
) -> None:
    options = {**PPO, "preset": "default", "deterministic": True, "max_lag": 2, "log_interval": 1}
    lags = []
    for name, workers in (("a", 0), ("b", 2)):
        with shoal.learn.Trainer(
            learn_envs.Drift, "appo", policy=ActorCritic, run_dir=tmp_path / name, num_workers=workers, **options
        ) as trainer:
            trainer.start()
            trainer.wait()
            lags.append([values["train/policy_lag"] for _, values in trainer.poll() if "train/policy_lag" in values])
    assert lags[0] == lags[1] == [0, 1] + [2] * 13
    assert digest(tmp_path / "a") == digest(tmp_path / "b")
    for number, pause in enumerate([100, 700, None]):
        given = {} if number else {"policy": ActorCritic, "algorithm": "appo", **options}
        given |= {"pause_at_step": pause, "resume": number > 0, "num_workers": number % 2}
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert shoal.learn.train(learn_envs.Drift, run_dir=tmp_path / "c", **given).steps == (pause or 1500)
    assert digest(tmp_path / "c") == digest(tmp_path / "a")


def test_appo_as_it_comes_goes_on_with_its_environments_reset(tmp_path: Path) -> None:
    options = {**PPO, "preset": "default", "max_lag": 2, "pause_at_step": 500, "log_interval": 1}
    shoal.learn.train(learn_envs.Drift, "appo", policy=ActorCritic, run_dir=tmp_path, num_workers=0, **options)
    with pytest.warns(RuntimeWarning, match="goes on with its environments reset"):
        assert shoal.learn.train(learn_envs.Drift, resume=True, run_dir=tmp_path, num_workers=0).steps == 1500
    lines = [json.loads(line) for line in (tmp_path / "progress.jsonl").read_text().splitlines()]
    lags = [line["train/policy_lag"] for line in lines if "train/policy_lag" in line]
    assert len(lags) == 15 and set(lags) <= {0, 1, 2}


def test_saving_takes_at_most_a_twentieth_of_a_run_unless_it_is_asked_for_after_each_iteration() -> None:
    assert rest_between_saves(60, 0) == rest_between_saves(60, 3) == 60
    assert rest_between_saves(60, 15) == 300
    assert rest_between_saves(0, 15) == 0
