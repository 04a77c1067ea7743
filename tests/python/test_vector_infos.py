"""Infos that environments go on changing: what a step returned stays as it was, for any number of workers."""

from __future__ import annotations

import copy
import dataclasses
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

import shoal
from same import assert_same
from sample_envs import CounterEnv
from shoal.compat import gymnasium as compat

WAYS: dict[str, dict[str, Any]] = {
    "serial": {"backend": "serial"},
    **{f"{n} workers": {"backend": "process", "num_workers": n} for n in range(1, 5)},
    "sync": {},
    "async": {},
}
NUM_ENVS = 4

Make = Callable[..., Any]


@dataclasses.dataclass
class Marks:
    """An object of the user's own that changes."""

    seen: list[int]


class Reusing(CounterEnv):
    """Returns the same info every time, and changes it in place; `shared` infos are those of all its environments."""

    def __init__(self, number: int, shared: dict[str, Any] | None = None) -> None:
        super().__init__(length=2 + number)
        self.number = number
        own = {"array": np.zeros(2), "deep": {"list": [0], "er": {"array": np.zeros((1, 2), np.uint8)}}}
        self.infos = shared if shared is not None else {**own, "count": 0, "marks": Marks([]), "log": []}

    def _told(self) -> dict[str, Any]:
        infos = self.infos
        infos["count"] = 100 * self.number + 10 * self.resets + self.steps
        infos["array"][:] = infos["count"], self.steps
        infos["deep"]["list"][:] = [self.steps] * (1 + self.steps)
        infos["deep"]["er"]["array"][0, 1] = self.steps
        infos["marks"].seen[:] = [self.number, self.steps]
        infos["log"][:] = [("reset", [self.resets])] if self.steps == 0 else [*infos["log"], self.steps]
        return infos

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        observation, _ = super().reset(seed=seed)
        return observation, self._told()

    def step(self, action: Any) -> Any:
        *result, _ = super().step(action)
        return (*result, self._told())


class Sharing(Reusing):
    """All that are in one process share one dict, and fill it anew for each info."""

    everybodys: dict[str, Any] = {
        "array": np.zeros(2),
        "deep": {"list": [0], "er": {"array": np.zeros((1, 2), np.uint8)}},
        "marks": Marks([]),
        "log": [],
    }

    def __init__(self, number: int) -> None:
        super().__init__(number, self.everybodys)

    def _told(self) -> dict[str, Any]:
        infos = super()._told()
        infos["log"][:] = [self.number, self.steps]
        return infos


class Fresh(gymnasium.Wrapper):
    """The same, but what it returns is nobody else's: how the result has to look."""

    def reset(self, **kwargs: Any) -> Any:
        return copy.deepcopy(self.env.reset(**kwargs))

    def step(self, action: Any) -> Any:
        return copy.deepcopy(self.env.step(action))


@pytest.fixture(params=WAYS)
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    made: list[Any] = []

    def make_one(factories: list[Any], mode: str) -> Any:
        peers = {
            "sync": compat.SyncVectorEnv,
            "async": functools.partial(compat.AsyncVectorEnv, shared_memory=False),
        }
        if request.param in peers:
            made.append(peers[request.param](factories, autoreset_mode=AutoresetMode[mode.upper()]))
        else:
            made.append(shoal.make_vec(factories, autoreset_mode=mode, **WAYS[request.param]))
        return made[-1]

    yield make_one
    for envs in made:
        envs.close()


def play(envs: Any, steps: int) -> list[Any]:
    """All results, kept until the end: later steps must not change them."""
    results = [envs.reset(seed=0)]
    for step in range(steps):
        results.append(envs.step(np.full(NUM_ENVS, step % 3)))
        if step == 4:
            mask = np.array([True, False] * (NUM_ENVS // 2))
            results.append(envs.reset(options={"reset_mask": mask}))
    return results


@pytest.mark.parametrize("mode", ["same_step", "next_step"])
@pytest.mark.parametrize("kind", [Reusing, Sharing])
def test_infos_are_as_they_were_returned(make: Make, kind: type[Reusing], mode: str) -> None:
    ours = play(make([functools.partial(kind, i) for i in range(NUM_ENVS)], mode), 12)
    peers = gymnasium.vector.SyncVectorEnv(
        [functools.partial(lambda i: Fresh(kind(i)), i) for i in range(NUM_ENVS)],
        autoreset_mode=AutoresetMode[mode.upper()],
    )
    for i, (mine, other) in enumerate(zip(ours, play(peers, 12), strict=True)):
        assert_same(in_any_order(mine), in_any_order(other), f"result {i}")


def in_any_order(result: tuple[Any, ...]) -> tuple[Any, ...]:
    return (*result[:-1], dict(sorted(result[-1].items())))


@pytest.mark.parametrize("arguments", [{"backend": "serial"}, {"num_workers": 1}, {"num_workers": 3}])
@pytest.mark.parametrize("kind", [Reusing, Sharing])
def test_send_and_recv_have_them_too(kind: type[Reusing], arguments: dict[str, Any]) -> None:
    envs = shoal.make_vec(
        [functools.partial(kind, i) for i in range(NUM_ENVS)], batch_size=2, autoreset_mode="same_step", **arguments
    )
    steps = dict.fromkeys(range(NUM_ENVS), 0)
    resets = dict.fromkeys(range(NUM_ENVS), 1)
    envs.async_reset(seed=0)
    ended = 0
    for _ in range(30):
        *_, infos = envs.recv()
        for row, env in enumerate(infos["env_id"].tolist()):
            if "_final_info" in infos and infos["_final_info"][row]:
                ended += 1
                final = infos["final_info"]
                assert final["count"][row] == 100 * env + 10 * resets[env] + steps[env]
                assert final["deep"]["list"][row] == [steps[env]] * (1 + steps[env])
                assert final["marks"][row] == Marks([env, steps[env]])
                steps[env], resets[env] = 0, resets[env] + 1
            assert infos["count"][row] == 100 * env + 10 * resets[env] + steps[env]
            assert infos["array"][row].tolist() == [infos["count"][row], steps[env]]
        for env in infos["env_id"].tolist():
            steps[env] += 1
        envs.send([0, 0])
    assert ended > 3
    envs.close()


class Awkward(Reusing):
    """Its infos hold what nobody can copy, and a list that holds itself."""

    lock = threading.Lock()

    def _told(self) -> dict[str, Any]:
        infos = super()._told()
        ring = infos["log"]
        ring.append(ring)
        nest: list[Any] = []
        for _ in range(100_000):
            nest = [nest]
        return {**infos, "lock": self.lock, "pair": ([self.steps], self.lock), "nest": nest}


def test_what_cannot_be_copied_stays_and_the_rest_is_copied() -> None:
    envs = shoal.make_vec(
        [functools.partial(Awkward, i) for i in range(2)], backend="serial", autoreset_mode="same_step"
    )
    envs.reset(seed=0)
    envs.step([0, 0])
    infos = envs.step([0, 0])[-1]
    final = infos["final_info"]
    assert final["lock"][0] is Awkward.lock and final["pair"][0][1] is Awkward.lock
    assert final["pair"][0][0] == [2] and final["array"][0].tolist() == [12, 2]
    assert infos["array"].tolist() == [[20, 0], [112, 2]]
    ring = final["log"][0]
    assert ring[-1] is ring and ring[-2] == 2
    envs.close()


class SharedList(CounterEnv):
    """Observes a list that all environments of its process fill."""

    observation_space = spaces.Sequence(spaces.Discrete(99))
    everybodys: list[int] = []

    def reset(self, **kwargs: Any) -> Any:
        _, info = super().reset(**kwargs)
        return self._told(), info

    def step(self, action: Any) -> Any:
        _, *result = super().step(action)
        return (self._told(), *result)

    def _told(self) -> list[int]:
        self.everybodys[:] = [self.resets, self.steps, *range(self.length)]
        return self.everybodys


def test_observations_without_arrays_are_as_they_were_returned(make: Make) -> None:
    lengths = (1, 2, 3, 4)
    envs = make([functools.partial(SharedList, length) for length in lengths], "same_step")
    assert envs.reset(seed=0)[0] == tuple([1, 0, *range(length)] for length in lengths)
    observations, *_, infos = envs.step([0] * 4)
    assert observations == ([2, 0, 0], [1, 1, 0, 1], [1, 1, 0, 1, 2], [1, 1, 0, 1, 2, 3])
    assert infos["final_obs"][0] == [1, 1, 0]
    observations = envs.reset(options={"reset_mask": np.array([False, True, False, False])})[0]
    assert observations == ([2, 0, 0], [2, 0, 0, 1], [1, 1, 0, 1, 2], [1, 1, 0, 1, 2, 3])


class Popping(CounterEnv):
    """Takes out of its options what it needs."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        observation, _ = super().reset(seed=seed)
        return observation, {"level": (options or {}).pop("level", -1)}


def test_every_environment_has_options_of_its_own(make: Make) -> None:
    envs = make([Popping] * 4, "next_step")
    options = {"level": 7}
    assert envs.reset(options=options)[1]["level"].tolist() == [7] * 4
    assert options == {"level": 7}
