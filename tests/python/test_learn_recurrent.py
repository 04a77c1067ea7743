"""Recurrent PPO from Python: exact resume, policies that remember in NumPy and as torch modules, collectors, evaluation."""

from __future__ import annotations

import numpy as np
import pytest

import shoal
from learn_runs import arrays

ENV = "shoal/CartPoleNoVel-v1"
SMALL = {
    "num_envs": 4,
    "total_steps": 1600,
    "num_steps": 32,
    "batch_size": 64,
    "epochs": 2,
    "lstm_size": 12,
    "policy_hidden": [9],
    "value_hidden": [7],
    "eval_every": 500,
    "eval_episodes": 3,
    "eval_envs": 2,
    "final_episodes": 4,
    "target_return": None,
}


def train(run_dir, **options):
    return shoal.learn.train(ENV, "recurrent_ppo", run_dir=run_dir, **{**SMALL, **options})


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return train(tmp_path_factory.mktemp("recurrent") / "run").run_dir


def test_a_stopped_run_resumes_to_the_same_bits(tmp_path, run):
    train(tmp_path / "parts", pause_at_step=900)
    shoal.learn.train(run_dir=tmp_path / "parts", resume=True, pause_at_step=None)
    assert arrays(tmp_path / "parts") == arrays(run)


def test_the_number_of_workers_does_not_change_a_bit(tmp_path, run):
    for workers in (1, 2, 4):
        train(tmp_path / str(workers), num_workers=workers, backend="process")
        assert arrays(tmp_path / str(workers)) == arrays(run)


def episode(seed: int, length: int = 12) -> np.ndarray:
    """Observations of three environments, [length, 3, 4]."""
    return np.random.default_rng(seed).normal(0, 0.1, (length, 3, 4)).astype(np.float32)


def test_a_policy_remembers_its_episode_until_another_begins(run):
    policy = shoal.learn.load_policy(run, "last")
    drawn = [policy.predict(obs, deterministic=False) for obs in episode(1)]
    assert np.any(np.diff(drawn, axis=0))
    torch = pytest.importorskip("torch")
    module = shoal.learn.torch_policy(run, "last")
    policy, memory = shoal.learn.load_policy(run, "last"), None
    begins = np.array([True, False, True])
    for step, obs in enumerate([*episode(2), *episode(3, 40)]):
        other_begins = step == len(episode(2))
        if other_begins:
            memory[torch.as_tensor(begins)] = 0
        expected, memory = module.predict(torch.as_tensor(obs), memory)
        chosen = policy.predict(obs, is_first=begins if other_begins else None)
        np.testing.assert_array_equal(chosen, expected.numpy())
    assert policy.predict(episode(1)[0][0]).shape == (), "one observation alone begins an episode of its own"


def test_the_torch_module_has_the_distribution_of_what_it_remembers(run):
    torch = pytest.importorskip("torch")
    module = shoal.learn.torch_policy(run, "last")
    obs = torch.as_tensor(episode(4)[0])
    head, value, memory = module(obs)
    assert head.shape == (3, 2) and value.shape == (3,) and memory.shape == (3, 48)
    (fresh,), (later,) = module.distribution(obs), module.distribution(obs, memory)
    assert torch.allclose(fresh.logits, head - head.logsumexp(-1, keepdim=True), atol=1e-6)
    assert not torch.equal(fresh.logits, later.logits)


def test_evaluations_are_of_policies_that_remember(run):
    one = shoal.learn.evaluate(run, episodes=6, seed=2, num_envs=3)
    assert shoal.learn.evaluate(run, episodes=6, seed=2, num_envs=3, num_workers=2) == one
    # The same by hand: an environment alone, one episode after the other.
    policy = shoal.learn.load_policy(run)
    lengths = [0, 0, 0]
    with shoal.make_vec(ENV, 3) as envs:
        obs, _ = envs.reset(seed=2)
        running = np.ones(3, bool)
        while running.any():
            obs, _, terminated, truncated, _ = envs.step(policy.predict(obs))
            lengths += running
            running &= ~(terminated | truncated)
    assert [one.lengths[2 * env] for env in range(3)] == list(lengths)


def test_a_collector_acts_with_what_the_policy_remembers(run):
    torch = pytest.importorskip("torch")
    with shoal.Collector(ENV, policy=str(run), num_envs=3, frames_per_batch=90, total_frames=90, seed=1) as collector:
        (batch,) = list(collector)
    module = shoal.learn.torch_policy(run)
    obs = torch.as_tensor(np.asarray(batch["obs"]))
    memory = torch.zeros(3, 48)
    for t in range(obs.shape[0]):
        memory[torch.as_tensor(np.asarray(batch["is_first"][t]).astype(bool))] = 0
        _, value, memory = module.forward(obs[t], memory)
        np.testing.assert_allclose(np.asarray(batch["value"][t]), value.detach().numpy(), atol=1e-5)


def test_flags_of_episodes_are_one_for_all_or_one_for_each(run):
    policy = shoal.learn.load_policy(run)
    batch = np.zeros((3, *policy.observation_space.shape), np.float32)
    for flags in (True, np.True_, [True, False, True], np.zeros(3, bool)):
        assert policy.predict(batch, is_first=flags).shape == (3,)
    with pytest.raises(ValueError, match=r"is_first has shape \(2,\), and there are 3 observations"):
        policy.predict(batch, is_first=[True, False])
    with pytest.raises(
        TypeError, match="is_first takes True or False, one for all observations or one for each; got 'no'"
    ):
        policy.predict(batch, is_first="no")


def test_what_remembers_nothing_refuses_to_be_told_of_episodes(tmp_path):
    options = {"total_steps": 256, "num_envs": 2, "num_steps": 64, "eval_every": 0, "final_episodes": 0}
    plain = shoal.learn.train("shoal/CartPole-v1", run_dir=tmp_path / "run", **options).run_dir
    with pytest.raises(TypeError, match="is_first= is of recurrent_ppo"):
        shoal.learn.load_policy(plain, "last").predict(np.zeros(4, np.float32), is_first=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lstm_size": 0}, "lstm_size = 0; it must be from 1 to 65536"),
        ({"shared_hidden": True}, "shared_lstm is what it can share"),
        ({"gradient_steps": 1}, 'recurrent_ppo has no option "gradient_steps"'),
    ],
)
def test_a_bad_option_is_one_clear_error(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        train(tmp_path, **options)
