"""Training of networks of one's own: that they learn, what a run keeps of them, how it ends."""

from __future__ import annotations

import gc
import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

import learn_envs
import learn_modules
import shoal
from learn_module_runs import PPO, small
from learn_modules import ActorCritic
from own_programs import python


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


def test_episodes_that_evaluations_cut_are_told_of_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for module in ("environments", "modules.episodes"):
        monkeypatch.setattr(f"shoal.learn.{module}.LONGEST_EPISODE", 40)
    shoal.learn.train(learn_envs.Endless, policy=ActorCritic, run_dir=tmp_path, num_workers=0, **PPO)
    (told,) = (record.getMessage() for record in caplog.records if record.name == "shoal.learn")
    assert told.startswith("3 of 3 episodes of an evaluation were cut after 40 steps")


def test_episodes_of_shoals_own_networks_that_are_cut_are_told_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = {**PPO, "eval_episodes": 1, "eval_envs": 1, "eval_every": 0, "final_episodes": 1}
    env = {"env_kwargs": {"max_episode_steps": -1}}
    shoal.learn.train("shoal/Pendulum-v1", run_dir=tmp_path, num_workers=0, **options, **env)
    told = [record.getMessage() for record in caplog.records if "evaluation were cut" in record.getMessage()]
    assert len(told) == 1 and told[0].startswith("1 of 1 episodes of an evaluation were cut after 200000 steps")


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
