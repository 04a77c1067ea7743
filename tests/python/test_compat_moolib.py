"""shoal.compat.moolib: EnvPool's batches and futures, as its users' loops read them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import shoal
from sample_envs import TOLD_OF_DEATH, CounterEnv, GatedEnv, die
from shoal.compat.moolib import EnvPool

torch = pytest.importorskip("torch")


class OldEnv:
    """gym's interface as it was, without spaces: a sum of what it is told, until it is 6 or more."""

    def __init__(self, key: str | None = None) -> None:
        self.key = key

    def reset(self) -> Any:
        self.sum = 0
        return self._observation()

    def step(self, action: int) -> tuple[Any, ...]:
        if type(action) is not int:
            raise TypeError(f"an int, not {action!r}")
        if action < 0:
            die()
        if action > 90:
            raise ValueError(f"no action {action}")
        self.sum += action
        return self._observation(), torch.tensor(self.sum / 4), self.sum >= 6, {"sum": self.sum}

    def _observation(self) -> Any:
        told = np.full((2, 3), self.sum, np.uint8)
        if self.key is None:
            return told
        return {
            self.key: torch.full((2,), float(self.sum)),
            "told": told,
            "even": np.bool_(self.sum % 2 == 0),
            "n": self.sum,
        }


@pytest.fixture
def pool() -> Iterator[Any]:
    """EnvPool(), which is closed."""
    made: list[EnvPool] = []

    def make(create_env: Any, *arguments: int, **options: Any) -> EnvPool:
        made.append(EnvPool(create_env, *arguments, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


def actions(*values: int) -> Any:
    return torch.tensor(values, dtype=torch.int64)


def test_a_loop_over_two_batches_sees_what_its_environments_return(pool: Any) -> None:
    envs = pool(lambda: OldEnv("sum"), num_processes=2, batch_size=3, num_batches=2)
    generator = torch.Generator().manual_seed(0)
    sums = [[0] * 3 for _ in range(2)]
    ends = 0
    futures = [envs.step(index, actions(7, 7, 7)) for index in range(2)]  # resets, whatever the actions
    for index in (1, 0):
        obs = futures[index].result()
        assert obs["told"].tolist() == [[[0] * 3] * 2] * 3 and not obs["done"].any() and not obs["reward"].any()
    given = [actions(0, 0, 0)] * 2
    for index in range(2):
        given[index] = torch.randint(0, 4, (3,), generator=generator)
        futures[index] = envs.step(index, given[index])
    for turn in range(40):
        index = turn % 2
        obs = futures[index].result()
        assert futures[index].done() and futures[index].result() is obs
        for i in range(3):
            total = sums[index][i] + int(given[index][i])
            done = total >= 6
            ends += done
            sums[index][i] = shown = 0 if done else total
            assert (bool(obs["done"][i]), float(obs["reward"][i])) == (done, total / 4)
            assert obs["sum"][i].tolist() == [shown] * 2 and obs["told"][i].tolist() == [[shown] * 3] * 2
            assert (bool(obs["even"][i]), int(obs["n"][i])) == (shown % 2 == 0, shown)
        given[index] = torch.randint(0, 4, (3,), generator=generator)
        futures[index] = envs.step(batch_index=index, action=given[index])
    assert ends > 5
    dtypes = {key: obs[key].dtype for key in obs}
    assert dtypes == {
        "sum": torch.float32,
        "told": torch.uint8,
        "even": torch.bool,
        "n": torch.int64,
        "done": torch.bool,
        "reward": torch.float32,
    }


def test_gymnasiums_environments_are_taken_and_their_time_limits_end_episodes(pool: Any) -> None:
    envs = pool(lambda: gymnasium.make("CartPole-v1", max_episode_steps=3), 1, 2, 1)
    assert envs.step(0, actions(0, 0)).result()["state"].shape == (2, 4)
    seen = [envs.step(0, actions(turn % 2, turn % 2)).result() for turn in range(6)]
    assert [obs["done"].tolist() for obs in seen] == [[False] * 2, [False] * 2, [True] * 2] * 2
    assert all(obs["state"].dtype == torch.float32 and obs["reward"].tolist() == [1, 1] for obs in seen)
    assert (seen[2]["state"].abs() <= 0.05).all(), "the first observation of the next episode"


def test_results_stay_the_callers_own_while_their_batch_is_stepped(pool: Any) -> None:
    envs = pool(CounterEnv, 2, 2, 1)
    results = [envs.step(0, actions(1, 1)).result() for _ in range(6)]
    assert [obs["state"][:, 1].tolist() for obs in results] == [[n % 3] * 2 for n in range(6)]
    results[0]["state"].fill_(9)
    assert envs.step(0, actions(1, 1)).result()["state"][:, 1].tolist() == [0, 0]


def test_whole_numbers_of_any_kind_are_actions_and_others_are_refused(pool: Any) -> None:
    envs = pool(OldEnv, 1, 2, 2)
    envs.step(0, actions(0, 0)).result()
    for given in (actions(1, 2), actions(1, 2).int(), np.array([1, 2], np.uint8)):
        envs.step(0, given).result()
    assert envs.step(0, actions(0, 1)).result()["state"][:, 0, 0].tolist() == [3, 1]
    for index, given, words in (
        (0, torch.zeros(2), r"whole numbers of shape \(2,\).*float32"),
        (0, actions(1, 1, 1), r"whole numbers of shape \(2,\).*\(3,\)"),
        (0, actions(1, 1)[None], r"whole numbers of shape \(2,\).*\(1, 2\)"),
        (2, actions(1, 1), "no batch 2, they are 0 to 1"),
        (-1, actions(1, 1), "no batch -1"),
    ):
        with pytest.raises(RuntimeError, match=words):
            envs.step(index, given)
    future = envs.step(0, actions(1, 1))
    with pytest.raises(RuntimeError, match=r"step\(0, …\): this batch is under way, take its last result\(\) first"):
        envs.step(0, actions(1, 1))
    envs.step(1, actions(1, 1)).result()
    assert future.result()["state"][:, 0, 0].tolist() == [4, 2]


def test_an_environments_exception_is_the_steps_and_each_call_of_result_raises_it(pool: Any) -> None:
    envs = pool(OldEnv, 2, 2, 2)
    envs.step(0, actions(0, 0)).result()
    future = envs.step(0, actions(0, 99))
    for _ in range(2):
        with pytest.raises(ValueError, match="no action 99") as raised:
            future.result()
    assert "environment 1" in "\n".join(raised.value.__notes__)


def test_a_killed_worker_is_told_of_and_everything_closes(pool: Any) -> None:
    envs = pool(OldEnv, 2, 2, 1)
    envs.step(0, actions(0, 0)).result()
    with pytest.raises(shoal.WorkerDied, match=TOLD_OF_DEATH):
        envs.step(0, actions(0, -1)).result()
    envs.close()
    envs.close()
    with pytest.raises(RuntimeError, match="closed"):
        envs.step(0, actions(0, 0))


def test_a_killed_worker_is_replaced_where_that_is_asked(pool: Any) -> None:
    envs = pool(OldEnv, 2, 2, 2, on_fault=shoal.FaultPolicy("restart", backoff=0.0))
    for index in range(2):
        envs.step(index, actions(0, 0)).result()
    envs.step(0, actions(2, 3)).result()
    obs = envs.step(0, actions(-1, 1)).result()
    assert obs["done"].tolist() == [True, False] and obs["state"][1, 0, 0] == 4
    while (obs := envs.step(0, actions(1, 0)).result())["done"][0]:
        state = int(obs["state"][0, 0, 0])
        assert state in (0, 2) and obs["reward"][0] == 0
    assert state == 0, "the last row of done is the first observation of the new environment"
    assert obs["state"][:, 0, 0].tolist() == [1, 4]
    envs.step(1, actions(1, 1)).result()
    assert envs.step(1, actions(1, 1)).result()["state"][1, 0, 0] == 2


class FailingEnv(OldEnv):
    """Action 9 is an exception."""

    def step(self, action: int) -> tuple[Any, ...]:
        if action == 9:
            raise LookupError("bad luck")
        return super().step(action)


def test_an_episode_begins_in_a_row_of_done_after_an_exception_too(pool: Any) -> None:
    envs = pool(FailingEnv, 1, 2, 1, on_fault=shoal.FaultPolicy("restart", backoff=0.0))
    envs.step(0, actions(0, 0)).result()
    envs.step(0, actions(2, 3)).result()
    obs = envs.step(0, actions(9, 1)).result()
    assert obs["done"].tolist() == [True, False] and obs["reward"][0] == 0
    last = obs
    while (obs := envs.step(0, actions(1, 0)).result())["done"][0]:
        last = obs
    assert last["state"][:, 0, 0].tolist() == [0, 4] and not last["done"][1]
    assert obs["state"][:, 0, 0].tolist() == [1, 4]


def test_a_late_step_is_still_under_way_after_its_timeout(pool: Any, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    envs = pool(lambda: GatedEnv(gate), 1, 1, 1, timeout=0.05)
    envs.step(0, actions(0)).result(timeout=60)
    future = envs.step(0, actions(1))
    with pytest.raises(TimeoutError):
        future.result()
    assert not future.done()
    with pytest.raises(RuntimeError, match="under way"):
        envs.step(0, actions(0))
    gate.touch()
    assert future.result(timeout=60)["reward"].tolist() == [1]


@pytest.mark.parametrize(
    ("create_env", "error", "words"),
    [
        (lambda: OldEnv("done"), ValueError, "'done' would hide the step's own"),
        (lambda: OldEnv(3), TypeError, "keys of observations are strings, got 3"),  # type: ignore[arg-type]
        (OldEnv("sum"), TypeError, "a function that returns an environment"),
    ],
)
def test_what_cannot_be_a_batch_is_refused(pool: Any, create_env: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        pool(create_env, 1, 1, 1)


@pytest.mark.parametrize("name", ["num_processes", "batch_size", "num_batches"])
def test_counts_are_one_or_more(name: str) -> None:
    counts = {"num_processes": 1, "batch_size": 1, "num_batches": 1}
    with pytest.raises(ValueError, match=rf"EnvPool\({name}=…\) takes 1 or more"):
        EnvPool(OldEnv, **{**counts, name: 0})
    with pytest.raises(ValueError, match="on_fault"):
        EnvPool(OldEnv, **counts, on_fault="drop")


def test_workers_are_set_up_as_asked(pool: Any) -> None:
    class TellingEnv(OldEnv):
        def _observation(self) -> Any:
            return {"pid": os.getpid(), "told": int(os.environ["TOLD"])}

    envs = pool(TellingEnv, 2, 4, 2, worker=shoal.WorkerOptions(env={"TOLD": "7"}))
    told = [envs.step(index, actions(0, 0, 0, 0)).result() for index in range(2)]
    assert told[0]["told"].tolist() == [7] * 4
    assert told[0]["pid"].equal(told[1]["pid"]) and len(set(told[0]["pid"].tolist())) == 2
