"""Policies out of runs: in NumPy, as torch modules, and evaluated."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings

import gymnasium
import numpy as np
import pytest

import learn_envs
import shoal
from sample_envs import SpaceEnv

SMALL = {
    "num_envs": 4,
    "total_steps": 320,
    "num_steps": 40,
    "batch_size": 64,
    "epochs": 2,
    "policy_hidden": [8, 7],
    "value_hidden": [6],
    "eval_every": 0,
    "eval_episodes": 2,
    "eval_envs": 2,
    "final_episodes": 0,
}


def trained(tmp_path, env, **options):
    options = {**SMALL, **options}
    return shoal.learn.train(env, run_dir=tmp_path / "run", num_workers=0, **options).run_dir


def batch_of(space, rows):
    """Samples of a space, stacked."""
    from gymnasium.vector.utils import batch_space

    space.seed(3)
    return batch_space(space, rows).sample()


SPACES = {
    "pictures": (learn_envs.Pictures, {"normalize_obs": True}),
    "stacked pictures": (learn_envs.Pictures, {"normalize_obs": True, "frame_stack": 2}),
    "drift": (learn_envs.Drift, {"normalize_obs": True, "activation": "relu"}),
    "plain": ("shoal/CartPole-v1", {}),
    "shared": ("shoal/Acrobot-v1", {"shared_hidden": True}),
    "linear": ("shoal/Pendulum-v1", {"policy_hidden": [], "value_hidden": []}),
    "start": (lambda: SpaceEnv("discrete_start", "discrete_start"), {}),
    "binary": (lambda: SpaceEnv("multi_discrete_2d", "multi_binary_2d"), {}),
    "multi": (lambda: SpaceEnv("tuple", "multi_discrete_2d"), {"normalize_obs": True}),
    "bounds": (lambda: SpaceEnv("nested", "box_bounds"), {}),
    "integers": (lambda: SpaceEnv("box", "box_integers"), {}),
}


@pytest.mark.parametrize("case", SPACES)
def test_the_torch_module_takes_the_names_and_gives_the_same_actions(tmp_path, case):
    import torch
    from safetensors.numpy import load_file

    env, options = SPACES[case]
    run_dir = trained(tmp_path, env, **options)
    policy = shoal.learn.load_policy(run_dir)
    module = shoal.learn.torch_policy(run_dir)  # load_state_dict is strict
    arrays = load_file(run_dir / "checkpoints/last/policy.safetensors")
    assert set(arrays) == set(module.state_dict())
    observations = batch_of(policy.observation_space, 50)
    as_tensors = tensors_of(observations)
    expected = policy.predict(observations)
    actual = module.predict(as_tensors).numpy()
    assert actual.shape == expected.shape
    if module.is_continuous and expected.dtype.kind == "f":
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)
    else:
        assert actual.dtype == expected.dtype or not module.is_continuous
        assert (actual == expected).mean() > 0.97  # near ties may fall either way
    _, values = module(as_tensors)
    assert values.shape == (50,)
    assert torch.isfinite(values).all()
    assert policy.action_space.contains(expected[0])


def test_layers_that_its_arrays_are_not_of_do_not_count(tmp_path):
    wide = {"policy_hidden": [8], "value_hidden": [1500, 1500], "final_episodes": 1}
    shared = {"num_steps": 16, "total_steps": 64, "batch_size": 16, "shared_hidden": True, **wide}
    replayed = {"total_steps": 120, "learning_starts": 110, "batch_size": 2, **wide}
    for algorithm, env, options in (("ppo", "shoal/CartPole-v1", shared), ("sac", "shoal/Pendulum-v1", replayed)):
        run_dir = tmp_path / algorithm
        result = shoal.learn.train(env, algorithm, run_dir=run_dir, num_workers=0, num_envs=1, eval_every=0, **options)
        assert result.evaluated_episodes == 1
        shoal.learn.load_policy(run_dir)


def test_pictures_that_would_have_one_name_are_an_error(tmp_path):
    class TwoCameras(learn_envs.Pictures):
        def __init__(self):
            super().__init__()
            picture = gymnasium.spaces.Box(0, 255, (36, 36, 1), np.uint8)
            self.observation_space = gymnasium.spaces.Dict({"cam.left": picture, "cam_left": picture})

    with pytest.raises(ValueError, match=r"'cam.left' and 'cam_left'.*give one of them another name"):
        shoal.learn.train(TwoCameras, run_dir=tmp_path, num_workers=0, **SMALL)


def test_pictures_may_be_called_as_attributes_of_a_torch_module(tmp_path):
    """A ModuleDict takes none of these names."""
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file

    class Cameras(learn_envs.Pictures):
        def __init__(self):
            super().__init__()
            picture = gymnasium.spaces.Box(0, 255, (36, 36, 1), np.uint8)
            names = ["type", "type_", "keys", "training", "front"]
            self.observation_space = gymnasium.spaces.Dict(dict.fromkeys(names, picture))

        def _observe(self):
            return {name: self.np_random.integers(0, 256, (36, 36, 1), np.uint8) for name in self.observation_space}

    run_dir = trained(tmp_path, Cameras, total_steps=64, num_steps=16)
    arrays = load_file(run_dir / "checkpoints/last/policy.safetensors")
    assert {"cnn.type.0.weight", "cnn.type_.0.weight", "cnn.training.0.weight"} < arrays.keys()
    module = shoal.learn.torch_policy(run_dir)
    state = json.loads((run_dir / "checkpoints/last/state.json").read_text())
    bare = shoal.learn.TorchPolicy(state["observation_space"], state["action_space"], state["config"])
    bare.load_state_dict(arrays)
    program = torch.export.load(shoal.learn.export(run_dir, "torch")).module()
    policy = shoal.learn.load_policy(run_dir)
    observations = batch_of(policy.observation_space, 50)
    expected = policy.predict(observations)
    for predict in (module.predict, bare.eval().predict, program):
        assert (predict(tensors_of(observations)).numpy() == expected).mean() > 0.97  # near ties may fall either way


def test_the_torch_class_does_not_hide_its_function():
    program = "import shoal.learn; shoal.learn.TorchPolicy; assert callable(shoal.learn.torch_policy)"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_torch_module_takes_rows_and_says_how_one_observation_is_a_row(tmp_path):
    import torch

    module = shoal.learn.torch_policy(trained(tmp_path, "shoal/CartPole-v1"))
    one = torch.zeros(4)
    for takes in (module, module.predict, module.distribution):
        with pytest.raises(ValueError) as refused:
            takes(one)
        assert "the observation has shape (4,); this module takes a batch, n rows of shape (n, 4)" in str(refused.value)
        assert "observation[None]" in str(refused.value)
    assert module.predict(one[None]).shape == (1,)
    with pytest.raises(ValueError, match=r"has shape \(2, 5\); .* of shape \(n, 4\)$"):
        module(torch.zeros(2, 5))


@pytest.mark.parametrize("case", ["pictures", "start", "multi"])
def test_one_observation_of_any_space_is_no_batch_for_the_torch_module(tmp_path, case):
    env, options = SPACES[case]
    run_dir = trained(tmp_path, env, **options)
    space = shoal.learn.load_policy(run_dir).observation_space
    space.seed(3)
    with pytest.raises(ValueError, match=r"takes a batch, n rows of shape \(n,.*\[None\]"):
        shoal.learn.torch_policy(run_dir)(tensors_of(space.sample()))


def tensors_of(observations):
    import torch

    if isinstance(observations, dict):
        return {name: tensors_of(part) for name, part in observations.items()}
    if isinstance(observations, tuple):
        return tuple(map(tensors_of, observations))
    return torch.from_numpy(np.asarray(observations))


def test_predict_takes_single_observations_and_batches(tmp_path):
    policy = shoal.learn.load_policy(trained(tmp_path, learn_envs.Pictures))
    batch = batch_of(policy.observation_space, 6)
    actions = policy.predict(batch)
    assert actions.shape == (6, 3)
    assert actions.dtype == policy.action_space.dtype
    for i in range(6):
        one = {name: part[i] for name, part in batch.items()}
        assert (policy.predict(one) == actions[i]).all()
    assert policy.predict({name: part[:0] for name, part in batch.items()}).shape == (0, 3)


def test_predict_deterministically_and_by_chance(tmp_path):
    policy = shoal.learn.load_policy(trained(tmp_path, "shoal/CartPole-v1"))
    observation = np.zeros(4, np.float32)
    assert len({int(policy.predict(observation)) for _ in range(20)}) == 1
    drawn = [int(policy.predict(observation, deterministic=False)) for _ in range(200)]
    assert 20 < sum(drawn) < 180
    again = shoal.learn.load_policy(tmp_path / "run")
    assert [int(again.predict(observation, deterministic=False)) for _ in range(200)] == drawn


def test_deterministic_is_true_false_or_none(tmp_path):
    run_dir = trained(tmp_path, "shoal/CartPole-v1")
    for policy in (shoal.learn.load_policy(run_dir), own_policy(tmp_path)):
        batch = np.zeros((200, 4), np.float32)
        for value in (False, np.False_):
            assert len(set(policy.predict(batch, deterministic=value).tolist())) == 2
        for value in (True, np.True_):
            assert len(set(policy.predict(batch, deterministic=value).tolist())) == 1
        for value in (0, "no"):
            with pytest.raises(TypeError, match=f"deterministic is True, False or None, not {value!r}"):
                policy.predict(batch, deterministic=value)
    with pytest.raises(TypeError, match="deterministic is True, False or None, not 0"):
        shoal.learn.evaluate(run_dir, 2, deterministic=0)


def own_policy(tmp_path):
    import learn_modules

    options = {"num_envs": 2, "total_steps": 64, "num_steps": 16, "batch_size": 16, "num_workers": 0, "eval_every": 0}
    run = shoal.learn.train(
        "shoal/CartPole-v1", policy=learn_modules.ActorCritic, run_dir=tmp_path / "own", final_episodes=0, **options
    )
    return shoal.learn.load_policy(run.run_dir)


def test_predict_says_what_is_no_observation(tmp_path):
    policy = shoal.learn.load_policy(trained(tmp_path, "shoal/CartPole-v1"))
    one = np.zeros(4, np.float32)
    wrong = {
        "a dict": {"obs": one},
        "a NoneType": None,
        "a str": "left",
        "a list": [one, one[:2]],
        "a tuple": (one, {}),
    }
    for name, value in wrong.items():
        with pytest.raises(
            ValueError, match=rf"the observation is {name}, .* array of float32 of shape \(4,\)"
        ) as refused:
            policy.predict(value)
        assert ("of what reset() returns, it is the first element" in str(refused.value)) == (name == "a tuple")
    for value in (np.nan, -np.inf):
        with pytest.raises(ValueError, match=r"a number that is not finite \(NaN or infinity\)"):
            policy.predict(np.stack([one, one + value]))


def test_predict_takes_tensors(tmp_path):
    import torch

    policy = shoal.learn.load_policy(trained(tmp_path, "shoal/CartPole-v1"))
    batch = np.random.default_rng(1).normal(size=(9, 4)).astype(np.float32)
    tensors = torch.from_numpy(batch).requires_grad_()
    assert np.array_equal(policy.predict(tensors), policy.predict(batch))


def test_predict_says_what_does_not_fit(tmp_path):
    policy = shoal.learn.load_policy(trained(tmp_path, learn_envs.Pictures))
    batch = batch_of(policy.observation_space, 2)
    with pytest.raises(ValueError, match=r"'numbers' has shape \(2, 3\); one is \(2,\), and a batch is \(n, 2\)"):
        policy.predict({**batch, "numbers": np.zeros((2, 3))})
    with pytest.raises(ValueError, match="'screen' is float64, the space takes uint8"):
        policy.predict({**batch, "screen": batch["screen"] / 255})
    with pytest.raises(ValueError, match="other lengths"):
        policy.predict({**batch, "numbers": np.zeros((3, 2))})
    with pytest.raises(ValueError, match="single and others batches"):
        policy.predict({**batch, "numbers": np.zeros(2)})
    with pytest.raises(ValueError, match="has no 'label'"):
        policy.predict({name: part for name, part in batch.items() if name != "label"})


def test_the_spaces_are_the_environments(tmp_path):
    policy = shoal.learn.load_policy(trained(tmp_path, learn_envs.Pictures))
    assert policy.observation_space == learn_envs.Pictures.observation_space
    assert policy.action_space == learn_envs.Pictures.action_space
    assert policy.step == 320
    assert policy.config["total_steps"] == 320


def test_which_policy(tmp_path):
    run_dir = trained(tmp_path, "shoal/CartPole-v1", pause_at_step=160, eval_every=100)
    shoal.learn.train(run_dir=run_dir, resume=True, total_steps=160)
    assert shoal.learn.load_policy(run_dir).step == shoal.learn.load_policy(run_dir, "best").step
    assert shoal.learn.load_policy(run_dir, "last").step == 160
    assert shoal.learn.load_policy(run_dir / "checkpoints/last").step == 160
    assert shoal.learn.load_policy(run_dir / "checkpoints/last", "last").step == 160
    for ask in (shoal.learn.load_policy, lambda folder, which: shoal.learn.evaluate(folder, 1, which=which)):
        with pytest.raises(ValueError, match="last is one checkpoint, and not 'best': give the folder of its run"):
            ask(run_dir / "checkpoints/last", "best")
    with pytest.raises(ValueError, match="'best' and 'last', not 'latest'"):
        shoal.learn.load_policy(run_dir, "latest")
    with pytest.raises(FileNotFoundError, match="no directory"):
        shoal.learn.load_policy(tmp_path / "none")
    with pytest.raises(FileNotFoundError, match="holds no policy"):
        shoal.learn.load_policy(tmp_path)


def test_a_damaged_policy_is_an_error(tmp_path):
    run_dir = trained(tmp_path, "shoal/CartPole-v1")
    state = run_dir / "checkpoints/best/state.json"
    state.write_text(json.dumps({**json.loads(state.read_text()), "format": "other"}))
    with pytest.raises(shoal.Error, match="not written by Shoal"):
        shoal.learn.load_policy(run_dir)


def test_evaluate_is_a_function_of_its_arguments(tmp_path):
    run_dir = trained(tmp_path, "CartPole-v1")
    first = shoal.learn.evaluate(run_dir, episodes=11, seed=5, num_envs=4, num_workers=2)
    assert first == shoal.learn.evaluate(run_dir, episodes=11, seed=5, num_envs=4, num_workers=0)
    assert first.returns != shoal.learn.evaluate(run_dir, episodes=11, seed=6, num_envs=4, num_workers=0).returns
    assert first.episodes == 11
    assert first.returns == first.lengths  # CartPole pays 1 a step
    assert first.mean_return == pytest.approx(np.mean(first.returns))
    assert first.std_return == pytest.approx(np.std(first.returns))
    by_chance = shoal.learn.evaluate(run_dir, episodes=11, seed=5, num_envs=4, num_workers=0, deterministic=False)
    assert by_chance.returns != first.returns


@pytest.mark.parametrize("own", [False, True])
def test_evaluate_says_which_episodes_and_seeds_it_takes(tmp_path, own):
    options = SMALL
    if own:
        pytest.importorskip("torch")
        options = {name: value for name, value in SMALL.items() if not name.endswith("_hidden")}
        options |= {"policy": "learn_modules:ActorCritic"}
    run_dir = shoal.learn.train("shoal/CartPole-v1", run_dir=tmp_path / "run", num_workers=0, **options).run_dir
    for episodes in (0, -2, 3_000_000_000):
        with pytest.raises(ValueError, match=f"episodes is {episodes}, it has to be a number from 1 to"):
            shoal.learn.evaluate(run_dir, episodes)
    for seed in (-1, 2**64):
        with pytest.raises(ValueError, match=f"seed is {seed}, it has to be a number from 0"):
            shoal.learn.evaluate(run_dir, 1, seed)
    with pytest.raises(TypeError, match="episodes is '2', it has to be a whole number"):
        shoal.learn.evaluate(run_dir, "2")
    for seed in (2**32, 2**64 - 1, np.int64(7)):
        found = shoal.learn.evaluate(run_dir, np.int64(1), seed, num_workers=0)
        assert found == shoal.learn.evaluate(run_dir, 1, seed, num_workers=0)


def test_an_episode_that_an_evaluation_cuts_is_warned_of(tmp_path):
    run_dir = trained(tmp_path, learn_envs.Endless)
    with pytest.warns(RuntimeWarning, match="1 of 1 episodes .* were cut after 200,000 steps, .* max_episode_steps="):
        assert shoal.learn.evaluate(run_dir, 1, num_workers=0).lengths == [200_000]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert shoal.learn.evaluate(run_dir, 1, num_workers=0, max_episode_steps=50).lengths == [50]


def test_evaluate_refuses_another_task(tmp_path):
    run_dir = trained(tmp_path, "shoal/CartPole-v1")
    with pytest.raises(ValueError, match="trained with observations"):
        shoal.learn.evaluate(run_dir, episodes=1, env="shoal/Pendulum-v1")
