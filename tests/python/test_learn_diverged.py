"""Numbers that are not finite end a run with one error, and are in no checkpoint; those that do no harm are kept."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from safetensors.numpy import load_file

import shoal
from learn_modules import ActorCritic

TINY: dict[str, Any] = {"num_workers": 0, "eval_every": 0, "final_episodes": 0, "log_interval": 1}
ON_POLICY: dict[str, Any] = {
    **TINY,
    "preset": "sb3",
    "num_envs": 2,
    "num_steps": 16,
    "total_steps": 320,
    "policy_hidden": [16],
}
OFF_POLICY: dict[str, Any] = {
    **TINY,
    "num_envs": 1,
    "num_steps": 16,
    "total_steps": 320,
    "learning_starts": 20,
    "batch_size": 8,
    "policy_hidden": [16],
    "buffer_size": 400,
}


class Spoilt(gymnasium.Env):
    """Episodes of ten steps; one number of one step is another."""

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)

    def __init__(self, discrete: bool = True, observation: str = "0", reward: str = "1", at: int = 55) -> None:
        self.action_space = spaces.Discrete(2) if discrete else spaces.Box(-1, 1, (1,), np.float32)
        self._spoilt = (float(observation), float(reward))  # JSON has no such numbers
        self._at, self._steps = at, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        return self.np_random.normal(size=3).astype(np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        seen, reward = self.np_random.normal(size=3).astype(np.float32), 1.0
        if self._steps == self._at:
            observation, reward = self._spoilt
            seen[0] += observation
        return seen, reward, False, self._steps % 10 == 0, {}


ALGORITHMS = [
    ("ppo", {**ON_POLICY, "activation": "relu", "batch_size": 16}),
    ("ppo", {**ON_POLICY, "batch_size": 16, "normalize_obs": True}),
    ("a2c", {**ON_POLICY, "activation": "relu"}),
    ("a3c", {**ON_POLICY, "preset": "default", "num_envs": 1}),
    ("impala", {**ON_POLICY, "preset": "default", "deterministic": True}),
    ("appo", {**ON_POLICY, "preset": "default", "deterministic": True, "normalize_obs": True}),
    ("recurrent_ppo", {**ON_POLICY, "lstm_size": 8}),
    ("dqn", OFF_POLICY),
    ("dqn", {**OFF_POLICY, "prioritized": True, "buffer_size": 40, "normalize_obs": True}),
    ("sac", {**OFF_POLICY, "value_hidden": [16], "learning_starts": 200, "normalize_obs": True}),
]


@pytest.mark.parametrize(("algorithm", "options"), ALGORITHMS)
@pytest.mark.parametrize("spoilt", [{"observation": "nan"}, {"observation": "inf"}])
def test_an_observation_that_is_no_number_ends_the_run_and_no_checkpoint_has_it(
    tmp_path: Path, algorithm: str, options: dict[str, Any], spoilt: dict[str, str]
) -> None:
    env_kwargs = {"discrete": algorithm != "sac", **spoilt}
    given = {"run_dir": tmp_path, "env_kwargs": env_kwargs, "save_every_seconds": 0, **options}
    with pytest.raises(
        shoal.Error,
        match=f"environment 0 gave an observation that is not finite: .*element 0 is {spoilt['observation']}",
    ):
        shoal.learn.train(Spoilt, algorithm, **given)
    assert json.loads((tmp_path / "result.json").read_text())["ending"] == "failed"
    kept = load_file(tmp_path / "checkpoints/last/policy.safetensors")
    assert kept and all(np.isfinite(array).all() for array in kept.values())
    env_kwargs |= {"observation": "0"}
    assert (
        shoal.learn.train(Spoilt, run_dir=tmp_path, resume=True, num_workers=0, env_kwargs=env_kwargs).ending
        == "budget"
    )


@pytest.mark.parametrize("options", [{}, {"normalize_reward": True, "normalize_obs": True}])
@pytest.mark.parametrize(("what", "name"), [("observation", "an observation"), ("reward", "a reward")])
def test_the_environment_that_gave_it_is_named(tmp_path: Path, options: dict[str, Any], what: str, name: str) -> None:
    spoilt = functools.partial(Spoilt, **{what: "nan"})
    run = {**ON_POLICY, "batch_size": 16, "run_dir": tmp_path, **options}
    with pytest.raises(shoal.Error, match=f"environment 1 gave {name} that is not finite.*nan. No checkpoint has it"):
        shoal.learn.train([Spoilt, spoilt], eval_envs=2, eval_episodes=2, **run)


@pytest.mark.parametrize(
    ("what", "name", "number"),  # of an observation that is NaN most modules raise something of their own
    [("observation", "an observation", "-inf"), ("reward", "a reward", "-inf"), ("reward", "a reward", "nan")],
)
def test_so_it_is_with_a_network_of_ones_own(tmp_path: Path, what: str, name: str, number: str) -> None:
    spoilt = functools.partial(Spoilt, **{what: number})
    run = {**ON_POLICY, "batch_size": 16, "run_dir": tmp_path, "policy": ActorCritic, "normalize_obs": True}
    del run["policy_hidden"]
    with pytest.raises(shoal.Error, match=f"environment 1 gave {name} that is not finite: {number}. Nothing was"):
        shoal.learn.train([Spoilt, spoilt], eval_envs=2, eval_episodes=2, **run)


def test_where_forward_fails_for_it_the_observation_is_named(tmp_path: Path) -> None:
    spoilt = functools.partial(Spoilt, observation="nan")
    run = {**ON_POLICY, "batch_size": 16, "run_dir": tmp_path, "policy": ActorCritic}
    del run["policy_hidden"]
    with pytest.raises(ValueError, match=r"observation 1 of the batch is not finite, and forward\(\) failed: "):
        shoal.learn.train([Spoilt, spoilt], eval_envs=2, eval_episodes=2, **run)


class NoNumberAtTheEnd(Spoilt):
    """What a simulator shows that has failed, and says so."""

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        seen, reward, _, over, info = super().step(action)
        return seen + (np.nan if over else 0), reward, over, False, info


def test_an_episodes_last_observation_which_nothing_is_learned_from_may_be_no_number(tmp_path: Path) -> None:
    for number, options in enumerate(({}, {"normalize_obs": True})):
        run = {**ON_POLICY, "batch_size": 16, "run_dir": tmp_path / str(number), **options}
        assert shoal.learn.train(NoNumberAtTheEnd, **run).ending == "budget"
        kept = load_file(tmp_path / str(number) / "checkpoints/last/policy.safetensors")
        assert kept and all(np.isfinite(array).all() for array in kept.values())


@pytest.mark.parametrize("reward", ["nan", "inf", "1e39"])
def test_a_reward_that_is_no_number_is_in_no_replay(tmp_path: Path, reward: str) -> None:
    """It may be drawn thousands of updates later, and in each resume again."""
    options = {**OFF_POLICY, "buffer_size": 100_000, "batch_size": 1, "learning_starts": 300}
    env_kwargs = {"reward": reward}
    with pytest.raises(shoal.Error, match="environment 0 gave a reward that is not finite in float32: .*No checkpoint"):
        shoal.learn.train(Spoilt, "dqn", run_dir=tmp_path, env_kwargs=env_kwargs, save_every_seconds=0, **options)
    again = shoal.learn.train(Spoilt, run_dir=tmp_path, resume=True, num_workers=0, env_kwargs={"reward": "1"})
    assert again.ending == "budget"


@pytest.mark.parametrize(("rate", "network"), [(1e39, {}), (3e38, {}), (3e38, {"policy": ActorCritic})])
def test_so_does_a_last_step_that_was_too_large(tmp_path: Path, rate: float, network: dict[str, Any]) -> None:
    options = {**ON_POLICY, **network, "total_steps": 32, "learning_rate": rate, "run_dir": tmp_path}
    if network:
        del options["policy_hidden"]
    with pytest.raises(shoal.Error, match="There is no checkpoint from before"):
        shoal.learn.train(Spoilt, "a2c", **options)
    assert not list(tmp_path.rglob("*.safetensors"))


@pytest.mark.parametrize("reward", ["inf", "-inf", "nan"])
@pytest.mark.parametrize(("algorithm", "options"), [("ppo", {**ON_POLICY, "batch_size": 16}), ("dqn", OFF_POLICY)])
def test_returns_that_are_not_finite_are_in_a_checkpoint(
    tmp_path: Path, algorithm: str, options: dict[str, Any], reward: str
) -> None:
    env_kwargs = {"reward": reward, "at": 5}
    given = {"env_kwargs": env_kwargs, "sign_reward": True, "log_interval": 1000, **options}
    means = []
    for name, pauses in (("whole", [None]), ("parts", [160, None])):
        for number, pause in enumerate(pauses):
            more = {"resume": True} if number else given
            with shoal.learn.Trainer(
                Spoilt,
                None if number else algorithm,
                run_dir=tmp_path / name,
                **{**more, "pause_at_step": pause, "num_workers": 0},
            ) as trainer:
                trainer.start()
                trainer.wait()
                trainer.result()
                means.append(trainer.status()["ep_return_mean"])
    np.testing.assert_equal(means[2], means[0])
    assert means[0] in (None, np.inf, -np.inf)


@pytest.mark.parametrize("name", ["clip_obs", "max_grad_norm", "learning_rate"])
@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_an_option_that_is_not_finite_is_named(tmp_path: Path, name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{name} = {value} is no finite number"):
        shoal.learn.train("shoal/CartPole-v1", run_dir=tmp_path / "run", **{name: value})
