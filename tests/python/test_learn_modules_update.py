"""What an update of a module computes: advantages and losses by their formulas in double precision, and the whole of it as the
C++ learner does it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

import shoal
from shoal.learn.modules.episodes import EpisodeLog, whole_episodes
from shoal.learn.modules.estimates import Worth, explained_variance, gae, normalized, vtrace
from shoal.learn.modules.learner import Learner
from shoal.learn.modules.losses import Minibatch, clipped_value_loss, ppo_loss
from shoal.learn.modules.moments import ObsNormalizer, RewardScaler
from shoal.learn.modules.network import Network
from shoal.learn.modules.sources import Source
from shoal.learn.modules.updates import scheduled
from shoal.learn.spaces import description_of, leaves
from shoal.learn.torch_module import TorchPolicy

CPU = torch.device("cpu")


def random_rows(seed: int, steps: int = 30, envs: int = 4) -> Worth:
    random = np.random.default_rng(seed)
    numbers = (torch.from_numpy(random.normal(size=(steps, envs)).astype(np.float32)) for _ in range(3))
    flags = (torch.from_numpy(random.random((steps, envs)) < share) for share in (0.1, 0.1, 0.9))
    return Worth(*numbers, *flags)


def gae_by_rows(rows: Worth, t: int, i: int, gamma: float, gae_lambda: float, bootstrap_truncated: bool) -> float:
    """The advantage of one row as the sum that defines it, in double precision."""
    total, weight = 0.0, 1.0
    for k in range(t, len(rows.reward)):
        if not rows.valid[k, i]:
            break
        ends = bool(rows.terminated[k, i]) or (bool(rows.truncated[k, i]) and not bootstrap_truncated)
        following = 0.0 if ends else float(rows.next_value[k, i])
        total += weight * (float(rows.reward[k, i]) + gamma * following - float(rows.value[k, i]))
        weight *= gamma * gae_lambda
        if rows.terminated[k, i] or rows.truncated[k, i]:
            break
    return total


@pytest.mark.parametrize("bootstrap_truncated", [True, False])
@pytest.mark.parametrize("gae_lambda", [0.0, 0.8, 1.0])
def test_advantages_are_the_sums_that_define_them(gae_lambda: float, bootstrap_truncated: bool) -> None:
    rows = random_rows(1)
    advantage, returns = gae(rows, 0.9, gae_lambda, bootstrap_truncated)
    wanted = [[gae_by_rows(rows, t, i, 0.9, gae_lambda, bootstrap_truncated) for i in range(4)] for t in range(30)]
    np.testing.assert_allclose(advantage.numpy(), wanted, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(returns.numpy(), advantage.numpy() + rows.value.numpy(), rtol=1e-6)


def four_rows(**ends: list[bool]) -> tuple[Worth, torch.Tensor]:
    """Four steps of one environment."""
    reward, value, following = [1, 0, -1, 2], [0.5, 1, -0.5, 2], [1, -0.5, 2, 3]
    if "truncated" in ends:
        following[1] = 0.7
    columns = [torch.tensor(column, dtype=torch.float32)[:, None] for column in (reward, value, following)]
    flags = [torch.tensor(ends.get(name, [False] * 4))[:, None] for name in ("terminated", "truncated")]
    ratio = torch.tensor([0.5, 1.5, 0.8, 2.0])[:, None]
    return Worth(*columns, *flags, torch.ones(4, 1, dtype=torch.bool)), ratio.log()


AT_ONE = [False, True, False, False]
# Worked out in double precision, outside this program; those of src/shoal/collect/vtrace_test.cc.
VTRACE = {
    "no end": ({}, {}, [1.75602, 2.2356, 2.484, 4.7], [1.25602, 1.2356, 2.984, 2.7]),
    "terminated": ({"terminated": AT_ONE}, {}, [0.75, 0, 2.484, 4.7], [0.25, -1, 2.984, 2.7]),
    "truncated": ({"truncated": AT_ONE}, {}, [1.0335, 0.63, 2.484, 4.7], [0.5335, -0.37, 2.984, 2.7]),
    "lambda": ({}, {"gae_lambda": 0.95}, [1.635286485, 2.018214, 2.3868, 4.7], [1.1581963, 1.14812, 2.984, 2.7]),
}


@pytest.mark.parametrize("case", VTRACE)
def test_vtrace_gives_the_numbers_that_were_worked_out(case: str) -> None:
    ends, options, target, advantage = VTRACE[case]
    rows, log_ratio = four_rows(**ends)
    ours = vtrace(rows, log_ratio, 0.9, **options)
    np.testing.assert_allclose(ours[0][:, 0], advantage, rtol=2e-6, atol=2e-6)
    np.testing.assert_allclose(ours[1][:, 0], target, rtol=2e-6, atol=2e-6)


def test_vtrace_of_the_newest_weights_is_gae_with_lambda_1() -> None:
    rows = random_rows(2)
    rows = rows._replace(valid=torch.ones_like(rows.valid))
    flows = ~(rows.terminated | rows.truncated)[:-1]
    rows.next_value[:-1] = torch.where(flows, rows.value[1:], rows.next_value[:-1])
    ours = vtrace(rows, torch.zeros_like(rows.reward), 0.9)
    for one, other in zip(ours, gae(rows, 0.9, 1.0), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_vtrace_of_rows_that_are_no_transition() -> None:
    rows = random_rows(3)
    advantage, target = vtrace(rows, torch.full_like(rows.reward, math.inf), 0.9)
    assert (advantage[~rows.valid] == 0).all()
    assert torch.equal(target[~rows.valid], rows.value[~rows.valid])
    assert bool(advantage.isfinite().all())


def test_losses_are_their_formulas_row_by_row() -> None:
    random = np.random.default_rng(4)
    log_prob, value, old_log_prob, old_value, advantage, returns = random.normal(size=(6, 50)) * 0.5
    rows = Minibatch(*map(torch.from_numpy, (old_log_prob, old_value, advantage, returns)))
    losses = ppo_loss(torch.from_numpy(log_prob), torch.from_numpy(value), rows, 0.2)
    ratios = [math.exp(a - b) for a, b in zip(log_prob, old_log_prob, strict=True)]
    clipped = [min(max(ratio, 0.8), 1.2) for ratio in ratios]
    policy = [max(-a * r, -a * c) for a, r, c in zip(advantage, ratios, clipped, strict=True)]
    assert float(losses.policy) == pytest.approx(sum(policy) / 50)
    assert float(losses.value) == pytest.approx(sum((value - returns) ** 2) / 50)
    assert losses.approx_kl is not None and losses.clip_fraction is not None
    assert float(losses.approx_kl) == pytest.approx(sum(r - 1 - math.log(r) for r in ratios) / 50)
    assert float(losses.clip_fraction) == pytest.approx(sum(abs(r - 1) > 0.2 for r in ratios) / 50)
    moved = [min(max(v, o - 0.1), o + 0.1) for v, o in zip(value, old_value, strict=True)]
    errors = [(m - r) ** 2 for m, r in zip(moved, returns, strict=True)]
    worse = [max(e, (v - r) ** 2) for e, v, r in zip(errors, value, returns, strict=True)]
    own = torch.from_numpy(value)
    assert float(clipped_value_loss(own, rows, 0.1, False)) == pytest.approx(sum(errors) / 50)
    assert float(clipped_value_loss(own, rows, 0.1, True)) == pytest.approx(sum(worse) / 50)


def test_what_is_normalised() -> None:
    values = torch.tensor([1.0, 2.0, 6.0])
    assert torch.allclose(normalized(values), (values - 3) / (math.sqrt(7) + 1e-8))
    assert torch.equal(normalized(values[:1]), values[:1])
    assert explained_variance(values, values) == 1
    assert math.isnan(explained_variance(torch.ones(3), values))
    assert scheduled(0.5, "linear", 0.25) == 0.125
    assert scheduled(0.5, "constant", 0.25) == 0.5


def test_rewards_are_scaled_by_the_spread_of_discounted_returns() -> None:
    reward = torch.from_numpy(np.random.default_rng(5).normal(size=(200, 3)).astype(np.float32)) * 7
    ended = torch.from_numpy(np.random.default_rng(6).random((200, 3)) < 0.1)
    options = {"sign_reward": False, "normalize_reward": True, "gamma": 0.9, "clip_reward": 10.0}
    scaled = RewardScaler(3, options).scale(reward, ended, torch.zeros_like(ended), torch.ones_like(ended))
    observed, running = [], np.zeros(3)
    for t in range(200):
        running = running * 0.9 + reward[t].numpy()
        observed += running.tolist()
        running[ended[t].numpy()] = 0
    assert scaled[-1].tolist() == pytest.approx((reward[-1] / np.std(observed)).tolist(), rel=1e-3)
    sign = RewardScaler(3, options | {"sign_reward": True})
    assert sign.scale(reward, ended, ended, torch.ones_like(ended)).unique().tolist() == [-1, 1]


def test_rows_of_dead_workers_teach_no_scale_of_rewards() -> None:
    reward = torch.from_numpy(np.random.default_rng(5).normal(size=(50, 3)).astype(np.float32))
    valid = torch.ones(50, 3, dtype=torch.bool)
    valid[10:, 1] = False
    options = {"sign_reward": False, "normalize_reward": True, "gamma": 0.9, "clip_reward": 10.0}
    never = torch.zeros_like(valid)
    given, zeroed = RewardScaler(3, options), RewardScaler(3, options)
    scaled = given.scale(torch.where(valid, reward, 1e6), never, never, valid)
    assert torch.equal(scaled, zeroed.scale(reward, never, never, valid))
    assert not scaled[10:, 1].any() and given.moments.count.item() == pytest.approx(110, abs=0.001)
    assert given.running[1] == 0


def test_observations_are_normalised_but_for_bytes() -> None:
    from gymnasium import spaces

    space = spaces.Dict({"a": spaces.Box(-9, 9, (2,), np.float64), "b": spaces.Box(0, 255, (3,), np.uint8)})
    normalizer = ObsNormalizer(list(leaves(description_of(space))), clip=1.5)
    random = np.random.default_rng(7)
    obs = {"a": torch.from_numpy(random.normal(3, 2, (500, 2))), "b": torch.full((500, 3), 7, dtype=torch.uint8)}
    normalizer.update({name: value[:300] for name, value in obs.items()})
    normalizer.update({name: value[300:] for name, value in obs.items()})
    seen = normalizer(obs)
    wanted = (obs["a"] - obs["a"].mean(0)) / obs["a"].std(0, unbiased=False)
    torch.testing.assert_close(seen["a"], wanted.clamp(-1.5, 1.5).float(), rtol=1e-4, atol=1e-4)
    assert torch.equal(seen["b"], obs["b"])


def test_episodes_are_counted_by_their_own_rewards() -> None:
    reward = np.array([[1, 10], [2, 20], [3, 30], [4, 40]], np.float32)
    ended = np.array([[0, 0], [1, 0], [0, 0], [0, 1]], bool)
    is_first = np.array([[1, 1], [0, 0], [1, 0], [0, 0]], bool)
    log = EpisodeLog(2)
    assert math.isnan(log.mean_return)
    log.add(reward, ended, np.ones_like(ended), is_first)
    assert log.finished == [(3.0, 2), (100.0, 4)]
    again = EpisodeLog(2)
    again.load(json.loads(json.dumps(log.state())), log.arrays())
    again.add(reward[:1], ~ended[:1], np.array([[True, False]]), np.array([[False, True]]))
    assert again.finished == [(8.0, 3)]  # what began before goes on; a row that is no transition ends nothing
    assert (again.count, again.mean_length) == (3, 3)


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_whole_episodes_are_those_that_evaluations_in_cpp_count(tmp_path: Path, mode: str) -> None:
    small = {"num_envs": 4, "num_steps": 32, "pause_at_step": 1, "preset": "sb3", "batch_size": 64}
    shoal.learn.train("shoal/CartPole-v1", run_dir=tmp_path, **small)
    policy = shoal.learn.load_policy(tmp_path)
    with shoal.make_vec("shoal/CartPole-v1", num_envs=3, autoreset_mode=mode, num_workers=0) as envs:
        firsts: list[np.ndarray] = []

        def act(obs: Any, is_first: np.ndarray) -> np.ndarray:
            firsts.append(is_first.copy())
            assert (np.abs(obs[is_first]) <= 0.05).all()  # where CartPole begins
            return policy.predict(obs)

        ours = whole_episodes(envs, act, 10, 5)
        theirs = policy.evaluate(envs, 10, 5, True)
    assert ours is not None
    assert list(ours) == [theirs["returns"], theirs["lengths"]]
    assert sum(first.sum() for first in firsts) >= 10


# --- as the C++ learner does it


class AsInCpp(TorchPolicy):
    """Shoal's own network, as a module that can be trained."""

    def evaluate_actions(self, obs: Any, action: Any) -> Any:
        distribution = self.distribution(obs)
        return distribution.log_prob(action), self(obs)[1], distribution.entropy()


class Recorded(Source):
    """One batch, that was collected before."""

    def __init__(self, network: Network, config: dict[str, Any], batch: dict[str, Any]) -> None:
        super().__init__(network, config, 0)
        self.batch = batch

    def begin(self, iteration: int) -> None:
        pass

    def collect(self, iteration: int) -> tuple[dict[str, Any], float]:
        return self.batch, float("nan")

    def close(self) -> None:
        pass


OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "ppo": ("ppo", {"epochs": 3}),
    "ppo, all switches": (
        "ppo",
        {
            "epochs": 4,
            "clip_range_value": 0.02,
            "clip_range": 0.01,
            "entropy_coef": 0.1,
            "advantage_normalization": "rollout",
            "normalize_reward": True,
            "adam_beta1": 0.8,
            "adam_eps": 1e-3,
        },
    ),
    "ppo, the other clip": ("ppo", {"epochs": 3, "clip_range_value": 0.02, "pessimistic_value_clip": False}),
    "ppo, target_kl": ("ppo", {"epochs": 20, "target_kl": 1e-4, "learning_rate": 3e-3}),
    "a2c": ("a2c", {"gae_lambda": 0.9}),
    "a2c, rmsprop_tf": ("a2c", {"optimizer": "rmsprop_tf", "max_grad_norm": 0.0, "rmsprop_eps": 1e-2}),
    "a2c, minibatch": ("a2c", {"advantage_normalization": "minibatch", "entropy_coef": 0.05, "value_coef": 0.1}),
}


@pytest.mark.parametrize("case", OPTIONS)
def test_an_update_is_that_of_the_learner_in_cpp(tmp_path: Path, case: str) -> None:
    algorithm, more = OPTIONS[case]
    options = {"learning_rate": 1e-3, "num_envs": 3, "num_steps": 40, "log_interval": 1, "pause_at_step": 1, **more}
    options |= {"batch_size": 120} if algorithm == "ppo" else {}
    options |= {"log_std_init": -2.0}  # a record has actions as environments get them: none is to be clipped
    given = {"preset": "sb3", "seed": 5, "num_workers": 0}
    shoal.learn.train("shoal/Pendulum-v1", algorithm, run_dir=tmp_path / "updated", **options, **given)
    still = (
        {**options, "learning_rate": 0.0, "target_kl": None}
        if algorithm == "ppo"
        else {**options, "learning_rate": 0.0}
    )
    shoal.learn.train("shoal/Pendulum-v1", algorithm, run_dir=tmp_path / "before", **still, **given)
    kept = {name: tmp_path / name / "checkpoints/last" for name in ("updated", "before")}
    record = load_file(kept["updated"] / "envs.safetensors")
    assert np.abs(record["actions"]).max() < 2
    np.testing.assert_array_equal(record["actions"], load_file(kept["before"] / "envs.safetensors")["actions"])
    state = json.loads((kept["updated"] / "state.json").read_text())

    module = AsInCpp(state["observation_space"], state["action_space"], state["config"])
    weights = load_file(kept["before"] / "policy.safetensors")
    module.load_state_dict({name: torch.from_numpy(value) for name, value in weights.items()})
    config = state["config"] | {"normalize_obs": False}
    with shoal.make_vec("shoal/Pendulum-v1", num_envs=3, num_workers=0) as envs:
        batch = played(envs, module, record["seeds"], record["actions"])
        network = Acting(module, envs.single_observation_space, config, CPU)
    learner = Learner(network, Recorded(network, config, batch), config)
    measured = learner.iterate()

    after = load_file(kept["updated"] / "policy.safetensors")
    for name, value in module.state_dict().items():
        assert (after[name] != weights[name]).any()
        np.testing.assert_allclose(value.numpy(), after[name], rtol=1e-3, atol=3e-5, err_msg=name)
    line = json.loads((tmp_path / "updated/progress.jsonl").read_text().splitlines()[0])
    names = "loss value_loss approx_kl clip_fraction grad_norm explained_variance clip_range learning_rate".split()
    for name in names:
        theirs = line.get(f"train/{name}")
        assert (
            measured[name] == pytest.approx(theirs, rel=1e-3, abs=1e-6)
            if theirs
            else math.isnan(measured[name] or math.nan)
        ), name


class Acting(Network):
    """Of a module that is not asked to act, but for values."""

    def values(self, obs: Any, rows: int, seed: int) -> torch.Tensor:
        with torch.no_grad():
            return self.module(obs)[1]


def played(envs: Any, module: AsInCpp, seeds: np.ndarray, actions: np.ndarray) -> dict[str, Any]:
    """What comes of these actions; no episode ends."""
    steps, count = actions.shape[:2]
    obs, next_obs = np.zeros((2, steps, count, 3), np.float32)
    reward = np.zeros((steps, count), np.float32)
    ended = torch.zeros(steps, count, dtype=torch.bool)
    seen, _ = envs.reset(seed=[int(seed) for seed in seeds])
    for t in range(steps):
        obs[t] = seen
        seen, reward[t], terminated, truncated, _ = envs.step(actions[t])
        assert not (terminated | truncated).any()
        next_obs[t] = seen
    tensors = {"obs": obs, "next_obs": next_obs, "action": actions, "reward": reward}
    batch = {name: torch.from_numpy(value.copy()) for name, value in tensors.items()}
    with torch.no_grad():
        log_prob, value, _ = module.evaluate_actions(batch["obs"].flatten(0, 1), batch["action"].flatten(0, 1))
    batch |= {"log_prob": log_prob.reshape(steps, count), "value": value.reshape(steps, count)}
    flags = {"terminated": ended, "truncated": ended.clone(), "is_first": ended.clone(), "valid": ~ended}
    return batch | flags
