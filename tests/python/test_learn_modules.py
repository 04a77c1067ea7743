"""Training of networks of one's own: that they learn, what a run keeps of them, how it resumes."""

from __future__ import annotations

import gc
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from safetensors.torch import load_file
from torch import nn

import learn_envs
import learn_modules
import shoal
from learn_modules import ActorCritic
from own_programs import python
from shoal.learn.modules.run import rest_between_saves

SMALL: dict[str, Any] = {
    "num_envs": 5,
    "total_steps": 1500,
    "num_steps": 20,
    "learning_rate_schedule": "linear",
    "entropy_coef": 0.01,
    "normalize_obs": True,
    "normalize_reward": True,
    "eval_every": 500,
    "eval_episodes": 3,
    "eval_envs": 2,
    "final_episodes": 0,
}
OF_PPO = {"batch_size": 32, "epochs": 2, "preset": "sb3"}
PPO = {**SMALL, **OF_PPO}


def small(algorithm: str) -> dict[str, Any]:
    """Options of a short run."""
    return {**SMALL, "preset": "sb3"} if algorithm == "a2c" else PPO


def digest(run_dir: Path) -> dict[str, str]:
    """sha256 of all that training computes."""
    files = ("policy", "normalizer", "optim", "envs")
    names = [f"last/{name}.safetensors" for name in files] + ["best/policy.safetensors"]
    return {name: hashlib.sha256((run_dir / "checkpoints" / name).read_bytes()).hexdigest() for name in names}


# --- learning


@pytest.mark.parametrize("algorithm", ["ppo", "a2c", "appo"])
def test_cartpole_is_learned(tmp_path: Path, algorithm: str) -> None:
    options = {"deterministic": True} if algorithm == "appo" else {}  # the same run each time
    options |= {"seed": 1, "num_workers": 1, "target_return": 475}
    result = shoal.learn.train("CartPole-v1", algorithm, policy=ActorCritic, run_dir=tmp_path / "run", **options)
    assert result.ending == "target"
    assert result.mean_return is not None and result.mean_return >= 475
    assert result.evaluated_episodes == 100
    again = shoal.learn.evaluate(result.run_dir, episodes=20, seed=12)
    assert again.mean_return >= 450


OF_RECALL = {
    "num_envs": 16,
    "num_steps": 32,
    "total_steps": 25_600,
    "learning_rate": 3e-3,
    "entropy_coef": 0.01,
    "eval_every": 0,
    "final_episodes": 50,
    "gamma": 0.9,
    "num_workers": 0,
}


@pytest.mark.parametrize(("algorithm", "overlap"), [("ppo", False), ("a2c", False), ("appo", False), ("ppo", True)])
def test_a_recurrent_module_learns_to_remember(tmp_path: Path, algorithm: str, overlap: bool) -> None:
    options = OF_RECALL | {
        "ppo": {"batch_size": 128, "preset": "sb3"},
        "a2c": {"num_steps": 8, "total_steps": 51_200, "preset": "sb3"},
        "appo": {"batch_size": 128, "epochs": 10, "clip_range": 0.2, "deterministic": True},
    }[algorithm]  # fmt: skip
    if overlap:
        options |= {"overlap": True}
    result = shoal.learn.train(
        learn_envs.Recall, algorithm, policy=learn_modules.Remembering, run_dir=tmp_path / "run", seed=2, **options
    )
    assert result.mean_return is not None and result.mean_return >= 0.95
    policy = shoal.learn.load_policy(result.run_dir)
    for sign in (0, 1, 1, 0):
        policy.predict(np.array([2 * sign - 1], np.float32), is_first=True)
        actions = [int(policy.predict(np.zeros(1, np.float32))) for _ in range(3)]
        assert actions[-1] == sign
    batch = np.array([[1], [-1], [1]], np.float32)
    policy.predict(batch)  # another number of observations: anew
    for _ in range(3):
        actions = policy.predict(0 * batch)
    assert actions.tolist() == [1, 0, 1]


def test_a_module_without_memory_does_not(tmp_path: Path) -> None:
    options = OF_RECALL | {"total_steps": 5120, "preset": "sb3"}
    result = shoal.learn.train(learn_envs.Recall, policy=learn_modules.Amnesic, run_dir=tmp_path, **options)
    assert result.mean_return is not None and result.mean_return < 0.8


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


# --- what a run keeps


def test_a_run_leaves_its_directory_behind(tmp_path: Path) -> None:
    result = shoal.learn.train(
        learn_envs.Drift, policy=ActorCritic, run_dir=tmp_path / "run", num_workers=0, seed=9, **PPO
    )
    assert (result.ending, result.steps, result.env, result.seed) == ("budget", 1500, "Drift", 9)
    config = json.loads((tmp_path / "run/config.json").read_text())
    assert (config["policy"], config["device"]) == ("learn_modules:ActorCritic", "cpu")
    options = {name: value for name, value in PPO.items() if name != "preset"}
    assert config["config"] == {**shoal.learn.preset("sb3"), **options, "seed": 9}
    lines = [json.loads(line) for line in (tmp_path / "run/progress.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "train/loss" in line] == list(range(100, 1501, 100))
    assert [line["step"] for line in lines if "eval/mean_reward" in line] == [500, 1000, 1500]
    assert json.loads((tmp_path / "run/result.json").read_text())["mean_return"] == result.mean_return


@pytest.mark.parametrize("algorithm", ["ppo", "a2c", "appo"])
def test_what_is_measured_has_the_names_that_it_has_of_networks_in_cpp(tmp_path: Path, algorithm: str) -> None:
    options = small(algorithm) | {"log_interval": 1} | ({"preset": "default"} if algorithm == "appo" else {})
    given = {"in_cpp": {}, "module": {"policy": ActorCritic}}
    measured, statuses = [], []
    for name, more in given.items():
        with shoal.learn.Trainer(
            learn_envs.Drift, algorithm, run_dir=tmp_path / name, num_workers=0, **options, **more
        ) as trainer:
            trainer.start()
            assert trainer.wait()
            measured.append({name for _, values in trainer.poll() for name in values})
            statuses.append(trainer.status())
    assert measured[0] == measured[1]
    assert statuses[0].keys() == statuses[1].keys()
    kinds = [{name: type(value) for name, value in status.items()} for status in statuses]
    assert kinds[0] == kinds[1]


@pytest.mark.parametrize("more", [{}, {"policy": ActorCritic}], ids=["in_cpp", "module"])
@pytest.mark.parametrize("algorithm", ["ppo", "a2c", "appo"])
def test_the_weight_of_the_entropy_falls_to_zero_with_the_steps(
    tmp_path: Path, algorithm: str, more: dict[str, Any]
) -> None:
    options = small(algorithm) | {"total_steps": 400, "log_interval": 1, "final_episodes": 1, "eval_every": 400}
    options |= {"entropy_coef": 0.5, "entropy_coef_schedule": "linear", "normalize_reward": False}
    options |= {"preset": "default"} if algorithm == "appo" else {}
    shoal.learn.train(learn_envs.Drift, algorithm, run_dir=tmp_path / "run", num_workers=0, **options, **more)
    records = [json.loads(line) for line in (tmp_path / "run/progress.jsonl").read_text().splitlines()]
    measured = [record for record in records if "train/loss" in record]
    assert [record["step"] for record in measured] == [100, 200, 300, 400]
    for record, expected in zip(measured, [0.5, 0.375, 0.25, 0.125], strict=True):
        others = record["train/policy_gradient_loss"] + 0.5 * record["train/value_loss"]
        assert (others - record["train/loss"]) / record["losses/entropy"] == pytest.approx(expected, abs=1e-3)


def test_a_policy_is_loaded_by_its_import_path(tmp_path: Path) -> None:
    shoal.learn.train(
        "CartPole-v1", policy="learn_modules:ActorCritic(hidden=8)", run_dir=tmp_path, num_workers=0, **PPO
    )
    policy = shoal.learn.load_policy(tmp_path)
    assert isinstance(policy, shoal.learn.ModulePolicy)
    assert policy.module.actor[0].out_features == 8
    assert policy.action_space == spaces.Discrete(2)
    assert policy.config["num_steps"] == 20
    observations = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    actions = policy.predict(observations)
    assert actions.dtype == np.int64 and actions.shape == (50,) and set(actions) == {0, 1}
    assert policy.predict(observations[7]) == actions[7]
    samples = np.stack([policy.predict(observations, deterministic=False) for _ in range(20)])
    assert (samples != samples[0]).any()
    with pytest.raises(ValueError, match="has shape"):
        policy.predict(np.zeros(3, np.float32))
    last = shoal.learn.load_policy(tmp_path, "last")
    assert last.step == 1500
    with pytest.raises(ValueError, match="not of this ActorCritic"):
        shoal.learn.load_policy(tmp_path, policy=ActorCritic)


def test_a_module_is_trained_where_it_is_and_given_again_to_load(tmp_path: Path) -> None:
    environment = learn_envs.Drift()
    module = ActorCritic(environment.observation_space, environment.action_space, 8)
    before = [parameter.detach().clone() for parameter in module.parameters()]
    result = shoal.learn.train(learn_envs.Drift, policy=module, run_dir=tmp_path, num_workers=0, **PPO)
    assert all((old != new).any() for old, new in zip(before, module.parameters(), strict=True))
    with pytest.raises(ValueError, match="give it as policy="):
        shoal.learn.load_policy(tmp_path)
    again = ActorCritic(environment.observation_space, environment.action_space, 8)
    loaded = shoal.learn.load_policy(tmp_path, "last", policy=again)
    assert all(torch.equal(a, b) for a, b in zip(loaded.module.parameters(), module.parameters(), strict=True))
    given = {"env": learn_envs.Drift, "episodes": 3, "num_workers": 0}
    with pytest.raises(ValueError, match="give it as policy="):
        shoal.learn.evaluate(result.run_dir, **given)
    assert shoal.learn.evaluate(result.run_dir, policy=again, **given).episodes == 3


def test_a_part_that_torch_export_made_stays_in_its_mode_and_the_others_change_theirs(tmp_path: Path) -> None:
    modes: dict[str, set[bool]] = {"forward": set(), "evaluate_actions": set()}

    class Encoded(ActorCritic):
        def __init__(self, observation_space: Any, action_space: Any) -> None:
            super().__init__(observation_space, action_space, 8)
            rows = ({0: torch.export.Dim("rows")},)
            example = torch.zeros(3, *observation_space.shape)
            encoder = torch.export.export(torch.nn.Tanh(), (example,), dynamic_shapes=rows).module()
            self.encoder = torch.nn.Sequential(encoder, torch.nn.Identity())

        def forward(self, obs: Any) -> Any:
            modes["forward"].add(self.encoder[1].training)
            return super().forward(self.encoder(obs.float()))

        def evaluate_actions(self, obs: Any, action: Any) -> Any:
            if torch.is_grad_enabled():  # the first rollout is compared without
                modes["evaluate_actions"].add(self.encoder[1].training)
            return super().evaluate_actions(self.encoder(obs.float()), action)

    shoal.learn.train(learn_envs.Drift, "a2c", policy=Encoded, run_dir=tmp_path, num_workers=0, **small("a2c"))
    assert modes == {"forward": {False}, "evaluate_actions": {True}}
    assert not shoal.learn.load_policy(tmp_path, policy=Encoded).module.encoder[1].training


def test_observations_may_be_dicts(tmp_path: Path) -> None:
    shoal.learn.train(learn_envs.Pictures, policy=OfPictures, run_dir=tmp_path, num_workers=0, **PPO)
    policy = shoal.learn.load_policy(tmp_path, policy=OfPictures)
    with pytest.raises(TypeError, match="is_first= is of recurrent modules"):
        policy.predict(learn_envs.Pictures().reset(seed=1)[0], is_first=True)
    observation = learn_envs.Pictures().reset(seed=1)[0]
    assert policy.action_space.contains(policy.predict(observation))


class OfPictures(nn.Module):
    def __init__(self, observation_space: Any, action_space: Any) -> None:
        super().__init__()
        self.choices = action_space.nvec.tolist()
        self.body = nn.Linear(8, sum(self.choices) + 1)

    def parts(self, obs: Any) -> Any:
        features = [obs["numbers"], obs["bytes"] / 255, obs["lights"]]
        out = self.body(torch.cat([part.float() for part in features], -1))
        logits = out[..., 1:].split(self.choices, -1)
        return [torch.distributions.Categorical(logits=part) for part in logits], out[..., 0]

    def forward(self, obs: Any) -> Any:
        parts, value = self.parts(obs)
        action = torch.stack([part.sample() for part in parts], -1)
        return {"action": action, "log_prob": self.log_prob(parts, action), "value": value}

    def evaluate_actions(self, obs: Any, action: Any) -> Any:
        parts, value = self.parts(obs)
        entropy = sum(part.entropy() for part in parts)
        return {"log_prob": self.log_prob(parts, action), "value": value, "entropy": entropy}

    @staticmethod
    def log_prob(parts: Any, action: Any) -> Any:
        return sum(part.log_prob(action[..., i]) for i, part in enumerate(parts))


# --- the same bits


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
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED.format(options=PPO), str(tmp_path / "run")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        start_new_session=True,
    )
    try:
        while not (state.exists() and step_of(state) >= step):
            assert process.poll() is None
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
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


def test_a_run_that_was_never_started_leaves_its_directory_to_others(tmp_path: Path) -> None:
    given = {"policy": ActorCritic, "run_dir": tmp_path, "num_workers": 0, **PPO}
    with shoal.learn.Trainer(learn_envs.Drift, **given) as trainer:
        with pytest.raises(RuntimeError, match="another process is training"):
            shoal.learn.Trainer(learn_envs.Drift, **given)
    del trainer
    gc.collect()  # pytest.raises has kept frames
    assert shoal.learn.train(learn_envs.Drift, **given).steps == 1500


# --- looking on, stopping


def test_status_poll_and_stop_from_another_thread(tmp_path: Path) -> None:
    many = {**PPO, "total_steps": 10_000_000}
    threads = torch.get_num_threads()
    with shoal.learn.Trainer("CartPole-v1", policy=ActorCritic, run_dir=tmp_path, num_workers=1, **many) as trainer:
        assert trainer.status()["phase"] == "ready"
        with pytest.raises(RuntimeError, match="has not ended"):
            trainer.result()
        trainer.start()
        while trainer.status()["step"] == 0:
            assert not trainer.wait(0.01)
        stopper = threading.Thread(target=trainer.stop)
        stopper.start()
        assert trainer.wait(60)
        stopper.join()
        assert trainer.result().ending == "stopped"
        assert trainer.status()["phase"] == "ended"
        assert trainer.poll() and trainer.poll() == []
        with pytest.raises(RuntimeError, match="has been started"):
            trainer.start()
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize("algorithm", ["ppo", "appo"])
def test_an_environments_exception_arrives_as_it_was_raised(tmp_path: Path, algorithm: str) -> None:
    options = {**PPO, "preset": "default"} if algorithm == "appo" else PPO
    with pytest.raises(LookupError, match="step 25 is the one"):
        shoal.learn.train(
            learn_envs.Drift,
            algorithm,
            policy=ActorCritic,
            run_dir=tmp_path,
            env_kwargs={"fail_at": 25},
            num_workers=0,
            **{**options, "eval_every": 0},
        )


def test_a_killed_actor_of_appo_ends_the_run_with_one_error(tmp_path: Path, descendants: Any) -> None:
    options = {**PPO, "preset": "default", "total_steps": 10_000_000, "eval_every": 0, "save_every_seconds": 0}
    before = descendants()
    with shoal.learn.Trainer("CartPole-v1", "appo", policy=ActorCritic, run_dir=tmp_path, **options) as trainer:
        trainer.start()
        while trainer.status()["step"] < 1000:
            assert not trainer.wait(0.01)
        source = trainer._envs[1]
        (pid,) = source._collector._source.processes.pids
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(shoal.WorkerDied):
            trainer.wait(60)
    assert descendants() <= before
    assert json.loads((tmp_path / "checkpoints/last/state.json").read_text())["step"] >= 100


UNENDING = """
import sys, learn_envs, learn_modules, shoal
trainer = shoal.learn.Trainer(
    learn_envs.Drift, policy=learn_modules.ActorCritic, run_dir=sys.argv[1], num_workers=1, **{options!r}
)
trainer.start()
while trainer.status()["step"] == 0:
    trainer.wait(0.01)
{then}
"""
ENDINGS = {
    "the program ends": "print('end')",
    "nobody holds it": "del trainer; print('end')",
    "Ctrl-C": "import os, signal, threading\n"
    "threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
    "try: trainer.wait()\nexcept KeyboardInterrupt: trainer.close(); print('end')",
}


@pytest.mark.parametrize("then", ENDINGS.values(), ids=list(ENDINGS))
def test_a_run_ends_resumably_when(tmp_path: Path, then: str) -> None:
    code = UNENDING.format(options={**PPO, "total_steps": 10**8}, then=then)
    done = python(code, tmp_path / "run")
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")
    assert (tmp_path / "run/checkpoints/last/state.json").exists()


def test_a_module_without_mode_is_sampled_from_unless_that_is_asked_for(tmp_path: Path) -> None:
    shoal.learn.train("shoal/CartPole-v1", policy=learn_modules.WithoutMode, run_dir=tmp_path, pause_at_step=100, **PPO)
    policy = shoal.learn.load_policy(tmp_path)
    with pytest.raises(TypeError, match="has no mode"):
        policy.predict(np.zeros(4, np.float32), deterministic=True)
    assert len({int(policy.predict(np.zeros(4, np.float32))) for _ in range(60)}) == 2
    evaluations = [shoal.learn.evaluate(tmp_path, episodes=5, seed=3).returns for _ in range(2)]
    assert evaluations[0] == evaluations[1]


def test_import_shoal_and_training_in_cpp_stay_without_torch() -> None:
    code = "import shoal, sys; shoal.learn.train; shoal.learn.load_policy; shoal.learn.evaluate; print('torch' in sys.modules)"
    done = python(code, timeout=None)
    assert done.stdout.strip() == "False", done.stderr


def test_saving_takes_at_most_a_twentieth_of_a_run_unless_it_is_asked_for_after_each_iteration() -> None:
    assert rest_between_saves(60, 0) == rest_between_saves(60, 3) == 60
    assert rest_between_saves(60, 15) == 300
    assert rest_between_saves(0, 15) == 0
