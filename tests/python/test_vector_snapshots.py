"""snapshot(), restore() and clone(): back to where environments were, bit for bit."""

from __future__ import annotations

import contextlib
import copy
import pickle
import threading
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.error import ResetNeeded
from gymnasium.utils import EzPickle

import shoal
from same import assert_same

BACKENDS: dict[str, dict[str, Any]] = {
    "serial": {"backend": "serial"},
    "process": {"backend": "process", "num_workers": 2},
    "native-serial": {"backend": "serial"},
    "native-thread": {"backend": "thread", "num_workers": 2},
    "native-process": {"backend": "process", "num_workers": 2},
}
of_python = pytest.mark.parametrize("make", ["serial", "process"], indirect=True)
"""For environments that are no registered ids, which native ones are."""
IDS = ["CartPole-v1", "Pendulum-v1", "Acrobot-v1", "MountainCar-v0", "MountainCarContinuous-v0"]
Make = Callable[..., shoal.VectorEnv]


@pytest.fixture(params=BACKENDS)
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    made: list[shoal.VectorEnv] = []

    def make_and_keep(env: Any, *args: Any, **kwargs: Any) -> shoal.VectorEnv:
        native = request.param.startswith("native")
        made.append(shoal.make_vec(f"shoal/{env}" if native else env, *args, **{**BACKENDS[request.param], **kwargs}))
        return made[-1]

    yield make_and_keep
    for envs in made:
        envs.close()


def actions_of(envs: shoal.VectorEnv, steps: int, seed: int) -> list[Any]:
    envs.action_space.seed(seed)
    return [envs.action_space.sample() for _ in range(steps)]


def timeless(result: tuple[Any, ...]) -> tuple[Any, ...]:
    infos = {**result[-1]}
    if "episode" in infos:
        infos["episode"] = {key: value for key, value in infos["episode"].items() if key != "t"}
    return (*result[:-1], infos)


def run(envs: shoal.VectorEnv, actions: list[Any]) -> tuple[Any, ...]:
    return tuple(timeless(envs.step(action)) for action in actions)


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
@pytest.mark.parametrize("name", IDS)
def test_the_same_actions_give_the_same_bits_again(make: Make, name: str, mode: str) -> None:
    envs = make(
        name,
        5,
        autoreset_mode=mode,
        max_episode_steps=23,
        frame_stack=3,
        reward_clip=(-1, 0.5),
        episode_statistics=True,
    )
    envs.reset(seed=11)
    # Taken at every point of an episode, with resets pending and not.
    for taken_after in (0, 1, 21, 1, 1, 7):
        run(envs, actions_of(envs, taken_after, taken_after))
        taken = envs.snapshot()
        actions = actions_of(envs, 60, 3)
        first = run(envs, actions)
        for _ in range(2):
            envs.restore(pickle.loads(pickle.dumps(taken)))
            assert_same(run(envs, actions), first, f"{taken_after} steps")
        envs.restore(taken)


def test_only_those_that_are_named_go_back(make: Make) -> None:
    envs, twin = make("CartPole-v1", 4), make("CartPole-v1", 4)
    for both in (envs, twin):
        both.reset(seed=2)
    actions = actions_of(envs, 12, 1)
    run(envs, actions[:4]), run(twin, actions[:4])
    taken = envs.snapshot([1, 3])
    assert taken.ids == (1, 3) and len(taken) == 2
    run(envs, actions[4:8]), run(twin, actions[4:8])
    envs.restore(taken)
    after, control = envs.step(actions[8])[0], twin.step(actions[8])[0]
    assert np.array_equal(after[[0, 2]], control[[0, 2]]) and not np.array_equal(after[[1, 3]], control[[1, 3]])


def test_environments_become_each_other(make: Make) -> None:
    envs = make("CartPole-v1", 4)
    envs.reset(seed=2)
    for action in actions_of(envs, 5, 1):
        envs.step(action)
    envs.clone(0, [1, 3])
    for _ in range(100):  # through automatic resets: the random streams are the same, too
        obs = envs.step([1, 1, 0, 1])[0]
        assert np.array_equal(obs[0], obs[1]) and np.array_equal(obs[0], obs[3])
    envs.clone([2, 0], [0, 2])
    before, after = obs, envs.step([1] * 4)[0]
    assert not np.array_equal(before, after)
    with pytest.raises(ValueError, match="as many, or one"):
        envs.clone([0, 1], [2])


def test_another_vector_environment_goes_on_from_a_snapshot(make: Make) -> None:
    envs, other = make("CartPole-v1", 3), make("CartPole-v1", 5)
    envs.reset(seed=7)
    run(envs, actions_of(envs, 9, 0))
    taken = envs.snapshot()
    with pytest.raises(ResetNeeded):
        other.restore(taken)
    other.reset(seed=0)
    other.restore(taken, [4, 0, 2])
    for _ in range(60):
        assert np.array_equal(other.step([1] * 5)[0][[4, 0, 2]], envs.step([1] * 3)[0])


def test_a_masked_reset_shows_where_the_others_are(make: Make) -> None:
    envs = make("CartPole-v1", 3)
    envs.reset(seed=0)
    taken = envs.snapshot()
    there = envs.step([0, 0, 0])[0]
    taken_there = envs.snapshot()
    envs.restore(taken)
    envs.step([1, 1, 1])
    envs.restore(taken_there)
    after = envs.reset(seed=0, options={"reset_mask": np.array([True, False, False])})[0]
    assert np.array_equal(after[1:], there[1:])


def test_wrong_numbers_and_states_are_refused_and_change_nothing(make: Make) -> None:
    envs, other = make("CartPole-v1", 2), make("Acrobot-v1", 2)
    with pytest.raises(ResetNeeded):
        envs.snapshot()
    envs.reset(seed=0), other.reset(seed=0)
    taken = envs.snapshot()
    for ids in ([2], [-1], 2):
        with pytest.raises(ValueError, match="there is no environment"):
            envs.snapshot(ids)
    with pytest.raises(TypeError, match="numbers of environments"):
        envs.snapshot([1.5])
    with pytest.raises(ValueError, match="2 environments for 1"):
        envs.restore(taken, [0])
    with pytest.raises(ValueError, match="twice"):
        envs.restore(taken, [0, 0])
    with pytest.raises(TypeError, match="what snapshot"):
        envs.restore(b"bytes")
    with pytest.raises(ValueError, match="another observation space|with env='shoal/CartPole-v1'; these have"):
        other.restore(taken)
    garbled = type(taken)((0,), (b"garbage",))
    with pytest.raises(ValueError, match="not the state of an environment"):
        envs.restore(garbled)
    first = run(envs, [[0, 1]] * 5)
    envs.restore(taken)
    assert_same(run(envs, [[0, 1]] * 5), first, "after refusals")
    envs.step_async([0, 0])
    with pytest.raises(gymnasium.error.AlreadyPendingCallError):
        envs.snapshot()
    envs.step_wait()


class Counter(gymnasium.Env[Any, Any]):
    observation_space = spaces.Box(0, 1e6, (1,), np.float64)
    action_space = spaces.Discrete(2)

    def __init__(self) -> None:
        self.count = 0.0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.array([self.count]), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.count += 1
        return np.array([self.count]), 0.0, False, False, {}


class Forgetful(Counter, EzPickle):
    def __init__(self) -> None:
        EzPickle.__init__(self)
        Counter.__init__(self)


class CopiedOnly(Counter):
    """Has a lock, which cannot be pickled, and says how it is copied."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()

    def __deepcopy__(self, memo: dict[int, Any]) -> CopiedOnly:
        twin = type(self)()
        twin.count = self.count
        return twin


class SeededCopiedOnly(CopiedOnly):
    """Counts on from its seed."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.count = float(seed or 0)
        return super().reset(seed=seed)


class CountedCopiedOnly(CopiedOnly):
    alive = 0

    def __init__(self) -> None:
        super().__init__()
        type(self).alive += 1

    def __del__(self) -> None:
        type(self).alive -= 1


class Neither(Counter):
    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


@of_python
@pytest.mark.parametrize(
    ("env", "reason"), [(Forgetful, "Forgetful does not support snapshots: it is an EzPickle"), (Neither, "lock")]
)
def test_an_environment_that_cannot_be_taken_is_named_with_the_reason(make: Make, env: Any, reason: str) -> None:
    envs = make(env, 2)
    envs.reset(seed=0)
    with pytest.raises(TypeError, match=reason):
        envs.snapshot()
    assert envs.step([0, 0])[0].tolist() == [[1.0], [1.0]]


@of_python
def test_an_environment_that_can_only_be_copied_stays_in_its_worker(make: Make) -> None:
    envs = make(CopiedOnly, 2)
    envs.reset(seed=0)
    envs.step([0, 0])
    taken = envs.snapshot()
    for _ in range(2):
        envs.step([0, 0])
        envs.restore(taken)
        assert envs.step([0, 0])[0].tolist() == [[2.0], [2.0]]


@pytest.mark.parametrize("where", ["serial", "pool", "own workers"])
def test_copies_of_another_vector_environment_are_refused(where: str) -> None:
    with contextlib.ExitStack() as stack:
        how: dict[str, Any] = {"num_workers": int(where == "own workers")}
        if where == "pool":
            how = {"pool": stack.enter_context(shoal.WorkerPool(1))}
        one, other = (stack.enter_context(shoal.make_vec(SeededCopiedOnly, 1, **how)) for _ in range(2))
        one.reset(seed=100), other.reset(seed=200)
        taken, others = one.snapshot(), other.snapshot()
        with pytest.raises(ValueError, match="their copies are not here"):
            other.restore(taken)
        one.step([0]), other.step([0])
        one.restore(taken), other.restore(others)
        assert (one.step([0])[0].item(), other.step([0])[0].item()) == (101, 201)


@of_python
def test_copies_that_no_snapshot_names_are_freed(make: Make) -> None:
    envs = make(CountedCopiedOnly, 2, num_workers=1)
    envs.reset(seed=0)
    held = envs.snapshot()
    for _ in range(5):
        envs.snapshot()
        envs.clone(0, 1)
        envs.step([0, 0])
    envs.restore(held)
    assert envs.get_attr("alive")[0] == 4  # the environments, and the copies that are held
    assert envs.step([0, 0])[0].tolist() == [[1.0], [1.0]]


@of_python
def test_copies_are_held_by_the_snapshot_and_not_by_what_it_was_pickled_to(make: Make) -> None:
    envs = make(CopiedOnly, 1)
    envs.reset(seed=0)
    taken = envs.snapshot()
    again = copy.deepcopy([copy.copy(taken)])
    pickled = pickle.dumps(taken)
    del taken
    envs.restore(pickle.loads(pickled))
    del again
    with pytest.raises(ValueError, match="what snapshot\\(\\), or a collector's state_dict\\(\\), returned is held"):
        envs.restore(pickle.loads(pickled))


class OtherCounter(Counter):
    pass


class Choosing(Counter):
    def __init__(self, choices: int) -> None:
        super().__init__()
        self.action_space = spaces.Discrete(choices)


class Plain(gymnasium.Wrapper[Any, Any, Any, Any]):
    pass


@of_python
@pytest.mark.parametrize(
    ("other", "options", "text"),
    [
        (OtherCounter, {}, r"is \S*\.OtherCounter; the snapshot is of \S*\.Counter"),
        (Counter, {"wrappers": [Plain]}, r"is \S*\.Plain around \S*\.Counter; the snapshot is of \S*\.Counter"),
        (Counter, {"autoreset_mode": "same_step"}, "autoreset_mode='next_step'; these have autoreset_mode='same_step'"),
        (Counter, {"max_episode_steps": 3}, "max_episode_steps=None; these have max_episode_steps=3"),
        (Counter, {"episode_statistics": True}, "episode_statistics=False; these have episode_statistics=True"),
        (Counter, {"reward_clip": (0, 1)}, r"reward_clip=None; these have reward_clip=\(0\.0, 1\.0\)"),
    ],
)
def test_a_snapshot_of_another_kind_is_refused_and_changes_nothing(
    make: Make, other: Any, options: dict[str, Any], text: str
) -> None:
    envs, others = make(Counter, 1), make(other, 1, **options)
    envs.reset(seed=0), others.reset(seed=0)
    envs.step([0])
    with pytest.raises(ValueError, match=text):
        others.restore(envs.snapshot())
    assert others.step([0])[0].item() == 1


@of_python
def test_a_snapshot_with_other_actions_is_refused(make: Make) -> None:
    envs, others = (make(Choosing, 1, env_kwargs={"choices": choices}) for choices in (2, 3))
    envs.reset(seed=0), others.reset(seed=0)
    with pytest.raises(ValueError, match=r"would have the spaces .* Discrete\(2\), before it had .* Discrete\(3\)"):
        others.restore(envs.snapshot())


def test_a_snapshot_of_another_time_limit_of_an_id_is_refused(make: Make) -> None:
    envs, others = make("CartPole-v1", 1, max_episode_steps=9), make("CartPole-v1", 1, max_episode_steps=8)
    envs.reset(seed=0), others.reset(seed=0)
    with pytest.raises(ValueError, match="max_episode_steps=9; these have max_episode_steps=8"):
        others.restore(envs.snapshot())


@pytest.mark.parametrize("backend", ["thread", "process"])
def test_what_is_in_flight_has_to_come_back_first(backend: str) -> None:
    with contextlib.closing(
        shoal.make_vec("shoal/CartPole-v1", 4, batch_size=2, backend=backend, num_workers=2)
    ) as envs:
        envs.reset(seed=0)
        taken = envs.snapshot()
        envs.send(np.zeros(4, np.int64), np.arange(4))
        for call in (envs.snapshot, lambda: envs.restore(taken)):
            with pytest.raises(gymnasium.error.AlreadyPendingCallError, match="in flight"):
                call()
        rows: dict[int, Any] = {}
        for _ in range(2):
            observations = envs.recv()[0]
            rows |= dict(zip(envs.env_ids.tolist(), observations.tolist(), strict=True))
        envs.restore(taken)
        envs.send(np.zeros(4, np.int64), np.arange(4))
        for _ in range(2):
            observations = envs.recv()[0]
            assert [rows[i] for i in envs.env_ids.tolist()] == observations.tolist()
