"""shoal.compat.tianshou: the contract of tianshou's vectorised environments, as the peer has it."""

from __future__ import annotations

import functools
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

pytest.importorskip("tianshou", reason="it is in an environment of its own: ./shoal test --only tianshou")

from tianshou import env as peer

from same import assert_same
from sample_envs import CounterEnv, FaultyEnv, ShapedEnv, SpaceEnv
from shoal.compat.tianshou import DummyVectorEnv, ShmemVectorEnv, SubprocVectorEnv

CLASSES = {"dummy": DummyVectorEnv, "subproc": SubprocVectorEnv, "shmem": ShmemVectorEnv}
SPACE_NAMES = "box box_scalar box_float64 image discrete discrete_start multi_discrete multi_binary dict".split()


@pytest.fixture(params=CLASSES)
def vector_env(request: pytest.FixtureRequest) -> Any:
    return CLASSES[request.param]


def without_ids(infos: np.ndarray) -> list[dict[str, Any]]:
    return [{key: value for key, value in info.items() if key != "env_id"} for info in infos]


@pytest.mark.parametrize("name", SPACE_NAMES)
def test_results_are_the_peers(vector_env: Any, name: str) -> None:
    factories = [functools.partial(SpaceEnv, name)] * 3
    ours, theirs = vector_env(factories), peer.DummyVectorEnv(factories)
    assert isinstance(ours, peer.BaseVectorEnv) and isinstance(ours, getattr(peer, vector_env.__name__))
    assert_same(ours.reset(seed=5, options={"a": 1}), theirs.reset(seed=5, options={"a": 1}))
    ended = 0
    for i in range(40):
        ids = [[0, 1, 2], [2, 0], np.array([1])][i % 3]
        actions = np.array([i, i + 1, i + 2])[: len(ids)] % 5
        result, expected = ours.step(actions, ids), theirs.step(actions, ids)
        assert_same(result[:4], expected[:4])
        assert_same(list(result[4]), list(expected[4]))
        done = np.asarray(ids)[result[2] | result[3]]
        if len(done):
            assert_same(ours.reset(done), theirs.reset(done))
            ended += len(done)
    assert ended
    ours.close()


def test_spaces_and_specs_are_lists_over_environments(vector_env: Any) -> None:
    envs = vector_env([lambda i=i: gymnasium.make("CartPole-v1", max_episode_steps=10 + i) for i in range(2)])
    assert len(envs) == envs.env_num == 2 and not envs.is_async and not envs.is_closed
    assert envs.action_space == [spaces.Discrete(2)] * 2 and len(envs.observation_space) == 2
    assert [spec.max_episode_steps for spec in envs.spec] == [10, 11]
    assert [metadata["render_fps"] for metadata in envs.metadata] == [50, 50]
    envs.close()


def test_nothing_is_reset_but_by_the_caller(vector_env: Any) -> None:
    envs = vector_env([functools.partial(CounterEnv, 2)] * 2)
    envs.reset()
    for steps in (1, 2, 3):
        observations, _, terminated, _, _ = envs.step(np.array([0, 0]))
        assert observations.tolist() == [[1, steps]] * 2 and terminated.tolist() == [steps >= 2] * 2
    assert envs.reset(1)[0].tolist() == [[2, 0]]
    assert envs.step(np.array([0, 0]))[0].tolist() == [[1, 4], [2, 1]]
    envs.close()


def test_attributes_are_found_in_wrappers_and_set_within_them(vector_env: Any) -> None:
    envs = vector_env([lambda i=i: gymnasium.wrappers.TimeLimit(CounterEnv(i), 9) for i in (10, 11, 12)])
    assert envs.get_env_attr("length") == [10, 11, 12]
    assert envs.get_env_attr("length", 2) == [12] and envs.get_env_attr("length", np.array([2, 0])) == [12, 10]
    assert envs.get_env_attr("_max_episode_steps", id=0) == [9]
    assert envs.get_env_attr("width") == [None] * 3
    envs.set_env_attr("length", 5, [0, 2])
    assert envs.get_env_attr("length") == [5, 11, 5]
    envs.set_env_attr("brand_new", 1)
    assert envs.get_env_attr("brand_new") == [1, 1, 1]
    envs.close()


def test_seeds_begin_an_episode(vector_env: Any) -> None:
    envs, other = (vector_env([lambda: gymnasium.make("CartPole-v1")] * 3) for _ in range(2))
    assert len(envs.seed(4)) == len(other.seed([4, 5, 6])) == 3
    first = envs.step(np.array([0, 1, 0]))[0]
    assert_same(other.step(np.array([0, 1, 0]))[0], first)
    assert not np.array_equal(first[0], first[2])
    assert [space.sample() for space in envs.action_space] == [space.sample() for space in other.action_space]
    assert len(envs.seed(None)) == 3
    with pytest.raises(ValueError):
        envs.seed([1, 2])
    for each in (envs, other):
        each.close()


class SeededEnv(CounterEnv):
    def seed(self, seed: int | None = None) -> list[int | None]:  # type: ignore[override]
        return [seed, seed]

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.resets += 1
        self.steps = 0
        return self._observation(), {}


def test_an_environments_own_seed_is_asked(vector_env: Any) -> None:
    envs = vector_env([SeededEnv] * 2)
    assert envs.seed(3) == [[3, 3], [4, 4]]
    envs.close()


class OwnActionsEnv(ShapedEnv):
    observation_space = spaces.Box(0, 9, (1, 2), np.float64)

    def __init__(self) -> None:
        super().__init__()
        self.action_space = spaces.Discrete(1000)


class SeededActionsEnv(OwnActionsEnv):
    def seed(self, seed: int | None = None) -> None:
        """Leaves the action space alone."""


@pytest.mark.parametrize("kind", [OwnActionsEnv, SeededActionsEnv])
@pytest.mark.parametrize("name", ["SubprocVectorEnv", "ShmemVectorEnv"])
def test_action_spaces_of_the_workers_are_seeded_as_the_peers(name: str, kind: Any) -> None:
    ours, theirs = CLASSES[name.removesuffix("VectorEnv").lower()]([kind] * 2), getattr(peer, name)([kind] * 2)
    spaces_of = [[worker.action_space for worker in envs.workers] for envs in (ours, theirs)]  # for good
    for call in (
        lambda envs: envs.reset(seed=5),
        lambda envs: envs.reset([1], seed=6),
        lambda envs: envs.seed(7),
        lambda envs: envs.workers[0].seed(8),
        lambda envs: envs.workers[1].reset(seed=9),
    ):
        for envs in (ours, theirs):
            call(envs)
        own, expected = ([[space.sample() for _ in range(9)] for space in both] for both in spaces_of)
        assert own == expected
    assert all(space is worker.action_space for space, worker in zip(spaces_of[0], ours.workers, strict=True))
    for envs in (ours, theirs):
        envs.close()


class ActedEnv(CounterEnv):
    """Says what its last action was."""

    action_space = spaces.Box(-1, 1, (2, 3), np.float32)

    def step(self, action: Any) -> Any:
        return self._observation(), 0.0, False, False, {"action": action}


@pytest.mark.parametrize(
    "actions",
    [
        np.arange(12, dtype=np.float32).reshape(2, 2, 3),
        np.arange(12, dtype=np.float64).reshape(2, 2, 3)[::-1],
        np.array([True, False]),
        np.array([3, 4], np.int16),
        [3, 4],
        [{"a": (1, "b")}, np.arange(3)],
        torch.arange(4.0).reshape(2, 2),
        np.arange(1000).reshape(2, 500),
        ["x" * 10_000, "y"],
        np.array([{"a": 1}, {"a": 2}]),
        np.zeros((2, 0)),
    ],
)
def test_an_action_is_what_the_caller_gave(vector_env: Any, actions: Any) -> None:
    envs = vector_env([ActedEnv] * 2)
    envs.reset()
    for _ in range(2):
        infos = envs.step(actions)[4]
        for given, got in zip(actions, infos, strict=True):
            if isinstance(given, torch.Tensor):
                assert torch.equal(given, got["action"])
            else:
                assert_same(got["action"], given)
    envs.close()


def test_observations_of_several_shapes_are_an_array_of_objects() -> None:
    envs = SubprocVectorEnv([functools.partial(ShapedEnv, size) for size in (1, 2, 3)])
    for observations in (envs.reset()[0], envs.step(np.zeros(3))[0]):
        assert observations.dtype == object and [each.shape for each in observations] == [(1, 2), (2, 2), (3, 2)]
    envs.close()


@pytest.mark.parametrize("observation", ["text", 7, {"a": np.arange(2), "b": "c"}, [1.5, 2.5]])
def test_observations_without_a_space_are_what_the_environment_returned(observation: Any) -> None:
    factories = [functools.partial(ShapedEnv, observation=observation)] * 2
    ours = SubprocVectorEnv(factories)
    expected = np.stack([observation] * 2)
    assert_same(ours.reset()[0], expected)
    assert_same(ours.step(np.zeros(2))[0], expected)
    ours.close()


@pytest.mark.parametrize(
    "rewards", [[1, 2], [1, 2.5], [[1, 2], [3, 4]], [np.float32(1), np.float32(2)], [2**60 + 1, 1], [True, False]]
)
def test_rewards_are_stacked_as_they_are(rewards: list[Any]) -> None:
    envs = SubprocVectorEnv([functools.partial(ShapedEnv, reward=reward) for reward in rewards])
    envs.reset()
    for _ in range(2):
        assert_same(envs.step(np.zeros(2))[1], np.stack(rewards))
    envs.close()


def test_tuples_and_resets_of_another_kind_are_refused_in_the_peers_words(vector_env: Any) -> None:
    class Tuples(SpaceEnv):
        def __init__(self) -> None:
            super().__init__("tuple")

    envs = vector_env([Tuples])
    with pytest.raises(TypeError, match="Tuple observation space is not supported"):
        envs.reset()
    envs.close()

    class OldFashioned(CounterEnv):
        def reset(self, **arguments: Any) -> Any:
            return super().reset(**arguments)[0]

    envs = vector_env([OldFashioned])
    with pytest.raises(AssertionError, match="does not adhere to the Gymnasium's API"):
        envs.reset()
    envs.close()


def test_all_environments_of_this_process_are_closed_whatever_one_of_them_raises() -> None:
    closed = []

    class Env(CounterEnv):
        def close(self) -> None:
            closed.append(self)
            if len(closed) == 1:
                raise OSError("still busy")

    envs = DummyVectorEnv([Env] * 2)
    with pytest.warns(UserWarning, match="raised OSError: still busy"):
        envs.close()
    assert len(closed) == 2 and envs.is_closed


def test_after_close_nothing_may_be_called(vector_env: Any) -> None:
    envs = vector_env([CounterEnv])
    envs.close()
    calls = (
        envs.reset,
        envs.seed,
        envs.render,
        envs.close,
        lambda: envs.step(np.array([0])),
        lambda: envs.action_space,
    )
    for call in calls:
        with pytest.raises(AssertionError, match="cannot be called after close"):
            call()
    assert envs.is_closed and [worker.is_closed for worker in envs.workers] == [True]


def test_wrong_numbers_of_actions_and_environments_are_refused(vector_env: Any) -> None:
    envs = vector_env([CounterEnv] * 2)
    envs.reset()
    with pytest.raises(ValueError, match="action must be not-None for non-async"):
        envs.step(None)
    for arguments in ((np.zeros(3),), (np.zeros(2), [0]), (np.zeros(1), None)):
        with pytest.raises(AssertionError):
            envs.step(*arguments)
    with pytest.raises(IndexError):
        envs.reset([5])
    assert envs.step(np.array([0, 0]))[0].tolist() == [[1, 1], [1, 1]]
    envs.close()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [({"wait_num": 3}, "wait_num should be in \\[1, 2\\], but got 3"), ({"timeout": -1.0}, "it should be positive")],
)
def test_wrong_bounds_of_waiting_are_refused_in_the_peers_words(
    vector_env: Any, arguments: dict[str, Any], text: str
) -> None:
    with pytest.raises(AssertionError, match=text):
        vector_env([CounterEnv] * 2, **arguments)


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        (lambda: CounterEnv(), TypeError, "takes a list of functions that make environments.*make_env] \\* 4\\)$"),
        (CounterEnv(), TypeError, "got an environment \\(a CounterEnv\\).*lambda: CounterEnv"),
        ([CounterEnv, CounterEnv()], TypeError, "env_fns\\[1\\] is an environment.*lambda: CounterEnv"),
        ([], ValueError, "empty list"),
    ],
)
def test_what_are_no_functions_is_named(vector_env: Any, given: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=f"{vector_env.__name__}.*{text}"):
        vector_env(given)


def test_an_environments_exception_is_raised_with_its_place(vector_env: Any) -> None:
    envs = vector_env([CounterEnv, functools.partial(FaultyEnv, step=LookupError("bad luck"))])
    envs.reset()
    with pytest.raises(LookupError, match="bad luck") as raised:
        envs.step(np.array([0, 0]))
    assert any("environment 1: step()" in note for note in raised.value.__notes__)
    envs.close()


def test_a_worker_has_the_methods_of_the_peers(vector_env: Any) -> None:
    envs = vector_env([functools.partial(CounterEnv, 9)] * 2)
    worker = envs.workers[1]
    assert isinstance(worker, peer.worker.EnvWorker) and issubclass(envs.worker_class, peer.worker.EnvWorker)
    assert worker.action_space == spaces.Discrete(3)
    observation, info = worker.reset(seed=3)
    assert observation.tolist() == [1, 0] and info["seed"] == 3
    observation, reward, terminated, truncated, _ = worker.step(2)
    assert (observation.tolist(), reward, terminated, truncated) == ([1, 1], 2.0, False, False)
    worker.send(None, seed=4)
    assert worker.recv()[1]["seed"] == 4
    worker.set_env_attr("length", 1)
    assert worker.get_env_attr("length") == 1 and envs.get_env_attr("length") == [9, 1]
    envs.close()
