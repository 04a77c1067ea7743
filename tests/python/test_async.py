"""send() and recv(): batches of those that are ready, cohorts, what is refused, what is lent."""

from __future__ import annotations

import dataclasses
import functools
import gc
import os
import re
import signal
import threading
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.error import AlreadyPendingCallError, NoAsyncCallError, ResetNeeded

import shoal
from same import assert_same
from sample_envs import SPACES, CounterEnv, GatedEnv, SpaceEnv
from shoal.vector.action_parts import batch_of


class SlowEnv(CounterEnv):
    """Sleeps for its action's seconds; at action -1 it kills its process, at -2 it raises."""

    action_space = gymnasium.spaces.Box(-2, 60, (), np.float64)

    def step(self, action: Any) -> Any:
        if action == -1:
            os.kill(os.getpid(), signal.SIGKILL)
        if action == -2:
            raise ValueError("not this")
        time.sleep(float(action))
        return super().step(0)


class TalkingEnv(CounterEnv):
    """Says at every reset and step who it is and what it was told."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        observation, _ = super().reset(seed=seed)
        return observation, {"options": dict(options or {}), "large": np.full(1000, shoal.worker().env_index)}

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, _ = super().step(action)
        return observation, reward, terminated, truncated, {"action": int(action), "index": shoal.worker().env_index}


BACKENDS = {
    "serial": {"num_workers": 0},
    "one worker": {"num_workers": 1},
    "two workers": {"num_workers": 2},
    "four workers": {"num_workers": 4},
}
backends = pytest.mark.parametrize("backend", BACKENDS.values(), ids=BACKENDS.keys())


def action_of(env: int, step: int) -> int:
    return (env + step) % 2


Trajectory = list[tuple[bytes, float, bool, bool, bytes | None]]


def row_of(result: Any, row: int) -> tuple[bytes, float, bool, bool, bytes | None]:
    observations, rewards, terminated, truncated, infos = result
    final = infos["final_obs"][row].tobytes() if infos.get("_final_obs", np.zeros(99, bool))[row] else None
    return observations[row].tobytes(), float(rewards[row]), bool(terminated[row]), bool(truncated[row]), final


def play_sync(envs: shoal.VectorEnv, steps: int) -> list[Trajectory]:
    n = envs.num_envs
    observations, infos = envs.reset(seed=3)
    result: Any = (observations, np.zeros(n), np.zeros(n, bool), np.zeros(n, bool), infos)
    played: list[Trajectory] = [[row_of(result, i)] for i in range(n)]
    for step in range(steps):
        result = envs.step(np.array([action_of(i, step) for i in range(n)]))
        for i in range(n):
            played[i].append(row_of(result, i))
    return played


def play_async(envs: Any, steps: int) -> tuple[list[Trajectory], list[list[int]]]:
    played: list[Trajectory] = [[] for _ in range(envs.num_envs)]
    order = []
    envs.async_reset(seed=3)
    while min(map(len, played)) <= steps:
        result = envs.recv(timeout=30)
        ids = result[4]["env_id"]
        assert ids.dtype == np.int64 and ids.shape == (envs.batch_size,) and result[4]["_env_id"].all()
        assert np.array_equal(envs.env_ids, ids)
        order.append(ids.tolist())
        for row, i in enumerate(ids):
            played[i].append(row_of(result, row))
        envs.send(np.array([action_of(i, len(played[i]) - 1) for i in ids]), ids)
    return [one[: steps + 1] for one in played], order


@backends
@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_every_environment_has_the_trajectory_of_synchronous_steps(backend: dict[str, Any], mode: str) -> None:
    with_mode = {"autoreset_mode": mode}
    reference = shoal.make_vec("CartPole-v1", 6, num_workers=0, **with_mode)
    expected = play_sync(reference, 80)
    reference.close()
    for arguments in ({"batch_size": 1}, {"batch_size": 4}, {"cohorts": 2}, {"cohorts": 3}, {"batch_size": 6}):
        envs = shoal.make_vec("CartPole-v1", 6, **arguments, **backend, **with_mode)
        played, order = play_async(envs, 80)
        assert played == expected, arguments
        if "cohorts" in arguments:
            size = 6 // arguments["cohorts"]
            turns = [list(range(lo, lo + size)) for lo in range(0, 6, size)]
            assert order == (turns * len(order))[: len(order)]
        assert play_sync_again(envs) == expected
        envs.close()


def play_sync_again(envs: Any) -> list[Trajectory]:
    """The same by reset() (which throws away what is in flight) and sends of all at once."""
    n = envs.num_envs
    observations, infos = envs.reset(seed=3)
    result: Any = (observations, np.zeros(n), np.zeros(n, bool), np.zeros(n, bool), infos)
    played: list[Trajectory] = [[row_of(result, i)] for i in range(n)]
    for step in range(80):
        envs.step_async(np.array([action_of(i, step) for i in range(n)]))
        result = envs.step_wait()
        for i in range(n):
            played[i].append(row_of(result, i))
    return played


@pytest.mark.parametrize("backend", ["serial", "thread", "process"])
def test_native_environments_have_the_trajectories_of_synchronous_steps(backend: str) -> None:
    expected = play_sync(shoal.make_vec("shoal/CartPole-v1", 6, backend="serial"), 80)
    for arguments in ({"batch_size": 4}, {"cohorts": 2}):
        envs = shoal.make_vec(
            "shoal/CartPole-v1", 6, num_workers=2 if backend != "serial" else None, backend=backend, **arguments
        )
        assert play_async(envs, 80)[0] == expected
        envs.close()


@pytest.mark.parametrize("arguments", [{"num_workers": 0}, {"num_workers": 2}, {"backend": "thread"}])
def test_without_batch_size_a_batch_is_all_of_them(arguments: dict[str, Any]) -> None:
    env = "shoal/CartPole-v1" if "backend" in arguments else "CartPole-v1"
    envs = shoal.make_vec(env, 4, **arguments)
    expected = play_sync(envs, 30)
    assert play_async(envs, 30)[0] == expected
    envs.recv()
    with pytest.raises(NoAsyncCallError, match=r"\[0, 1, 2, 3\] are not in flight"):
        envs.recv()
    envs.send([0, 1], [3, 1])
    assert envs.in_flight == 2
    with pytest.raises(AlreadyPendingCallError, match=r"\[1\] are in flight already"):
        envs.send([0, 0], [0, 1])
    with pytest.raises(ValueError, match="ids are 0 to 3"):
        envs.send([0], [4])
    envs.send(np.array([0, 1]), np.array([0, 2]))
    assert envs.recv()[4]["env_id"].tolist() == [0, 1, 2, 3]
    envs.send([0, 1], [3, 1])
    with pytest.raises(AlreadyPendingCallError, match=r"\[1, 3\] were sent actions; send\(\) the others"):
        envs.step([0, 1, 0, 1])
    with pytest.raises(ValueError, match=r"one for each of env_ids \[0, 2\]: expected int64 .* Nothing was sent"):
        envs.send([0, "left"], [0, 2])
    assert envs.in_flight == 2
    with pytest.raises(AlreadyPendingCallError, match=r"\[1, 3\] are in flight"):
        envs.reset(options={"reset_mask": np.array([True, False, False, False])})
    envs.reset(seed=0)  # throws them away
    assert envs.in_flight == 0
    envs.send([0, 1, 0, 1])
    envs.recv()
    envs.close()


TOGETHER = pytest.mark.parametrize("num_workers", [0, 2])


@TOGETHER
@pytest.mark.parametrize("kind", SPACES)
def test_actions_that_are_sent_in_parts_are_those_of_a_step(kind: str, num_workers: int) -> None:
    with (
        shoal.make_vec(SpaceEnv, 3, num_workers=num_workers, env_kwargs={"action": kind}) as envs,
        shoal.make_vec(SpaceEnv, 3, num_workers=0, env_kwargs={"action": kind}) as straight,
    ):
        straight.reset(seed=1), envs.reset(seed=1)
        space = envs.single_action_space
        space.seed(1)
        for _ in range(6):
            one, two, three = (space.sample() for _ in range(3))
            expected = straight.step(batch_of([one, two, three], space))
            envs.send(batch_of([three, one], space), [2, 0])
            envs.send([two] if isinstance(space, gymnasium.spaces.Dict) else batch_of([two], space), [1])
            result = envs.recv()
            assert result[4].pop("env_id").tolist() == [0, 1, 2] and result[4].pop("_env_id").all()
            assert_same(result, expected)


class PushedEnv(CounterEnv):
    action_space = gymnasium.spaces.Box(-9, 9, (2,), np.float32)

    def step(self, action: Any) -> Any:
        return super().step(action[0])


class SaidEnv(CounterEnv):
    action_space = gymnasium.spaces.Dict(
        {"list": gymnasium.spaces.Sequence(gymnasium.spaces.Discrete(99)), "at": gymnasium.spaces.Discrete(9)}
    )

    def step(self, action: Any) -> Any:
        return super().step(action["list"][0] + action["at"] / 10)


@TOGETHER
def test_a_part_is_the_environments_own_when_it_was_sent(num_workers: int) -> None:
    with shoal.make_vec(PushedEnv, 4, num_workers=num_workers) as envs:
        envs.reset()
        buffer = np.ones((2, 2), np.float32)
        envs.send(buffer, [0, 3])
        buffer[:] = 7
        envs.send(buffer, [1, 2])
        assert envs.recv()[1].tolist() == [1, 7, 7, 1]
    with shoal.make_vec(SaidEnv, 2, num_workers=num_workers) as envs:
        envs.reset()
        said, at = [1], np.array([1])
        envs.send({"list": [said], "at": at}, [0])
        said[0], at[:] = 2, 2
        envs.send({"list": [said], "at": at}, [1])
        assert envs.recv()[1].tolist() == [1.1, 2.2]


NOT_PUSHED: list[tuple[Any, str]] = [
    (
        np.zeros((2, 5)),
        r"expected float32 of shape \(2,\) for each of 2 .*, \(2, 2\) in all, got float64 of shape \(2, 5\)",
    ),
    (np.zeros((3, 2)), "got 3 of them"),
    ([[1.0, 1.0]], "got 1 of them"),
    ([[1.0, 1.0], [1.0]], "got list, of which NumPy says: .*inhomogeneous"),
    ([[1.0, 1.0], [1.0, "1"]], "got <U32 of shape"),
    ([[1.0, 1.0], [1.0, {}]], r"got object of shape \(2, 2\): float\(\) argument"),
    (np.full((2, 2), 1e300), "got float64 .* with values that float32 cannot hold"),
    (np.ones((2, 2), complex), "got complex128"),
    ({"push": 1}, "got one dict"),
    (1.0, "got one float"),
]
NOT_SAID: list[tuple[Any, str]] = [
    ({"list": [(1,), (1,)]}, "a dict with the keys 'at', 'list', got dict without 'at'"),
    ([{"list": (1,), "at": 1}, {"list": (1,)}], "a dict with the keys 'at', 'list', got list"),
    ({"list": [(1,)], "at": [1, 1]}, "for 'list' expected one for each of 2 environments, got 1 of them"),
    ({"list": [(1,), (1,)], "at": [0.5, 1]}, "for 'at' int64 .* values that int64 cannot hold"),
    ({"list": [(1,), threading.Lock()], "at": [1, 1]}, "cannot pickle '_thread.lock' object"),
    ({"list": 1, "at": [1, 1]}, "not iterable"),
]


@TOGETHER
@pytest.mark.parametrize("env", [PushedEnv, SaidEnv])
def test_a_part_that_does_not_fit_is_refused_when_it_is_sent(env: type, num_workers: int) -> None:
    refused, good = (NOT_PUSHED, [[1, 1]]) if env is PushedEnv else (NOT_SAID, [{"list": (1,), "at": np.float64(0)}])
    with shoal.make_vec(env, 4, num_workers=num_workers) as envs:
        envs.reset()
        envs.send(good, [1])
        for actions, text in refused:
            with pytest.raises(ValueError, match=rf"one for each of env_ids \[0, 2\]: .*{text}.*\. Nothing was sent"):
                envs.send(actions, [0, 2])
            assert envs.in_flight == 1
        envs.send(2 * good, [0, 2])
        with pytest.raises(ValueError, match=r"env_ids \[3\]"):
            envs.send(refused[0][0], [3])
        envs.send(good, [3])
        assert envs.recv()[1].tolist() == [1.0] * 4


def test_one_action_a_dict_is_refused_with_its_part_where_environments_are_stepped_one_by_one() -> None:
    with shoal.make_vec(SpaceEnv, 2, num_workers=0, batch_size=2, env_kwargs={"action": "nested"}) as envs:
        envs.reset()
        good = envs.single_action_space.sample()
        for wrong, text in (
            ({**good, "flag": 0.5}, "for 'flag' int8 .* cannot hold"),
            ({**good, "outer": (good["outer"][0],)}, "for 'outer/0' a dict"),
            ({**good, "outer": ({"a": 1}, 2)}, "for 'outer/0' a dict with the keys 'a', 'b'"),
        ):
            with pytest.raises(ValueError, match=text):
                envs.send([good, wrong], [0, 1])
        envs.send([good, good], [0, 1])
        envs.recv()


def test_the_first_that_are_ready_come_first() -> None:
    envs = shoal.make_vec(SlowEnv, 4, num_workers=4, batch_size=2)
    envs.reset(seed=0)
    envs.send([60.0, 0.0, 60.0, 0.0])
    assert sorted(envs.recv(timeout=30)[4]["env_id"]) == [1, 3]
    envs.send([0.0, 0.0])  # those of the last batch
    assert sorted(envs.recv(timeout=30)[4]["env_id"]) == [1, 3]
    assert envs.in_flight == 2
    envs.close()


def test_a_late_environment_is_named_and_may_be_waited_for_again(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    envs = shoal.make_vec(functools.partial(GatedEnv, gate), 3, num_workers=3, batch_size=2)
    envs.reset(seed=0)
    envs.send([1, 0], [2, 0])
    late = "environment 0"
    while "environment 0" in late:  # it ends, whenever that is
        with pytest.raises(TimeoutError, match="did not end in time") as caught:
            envs.recv(timeout=0.1)
        late = str(caught.value)
    assert re.search(r"environment 2 \(for \d+\.\d+ s\) did not end in time", late)
    gate.touch()
    assert sorted(envs.recv(timeout=30)[4]["env_id"]) == [0, 2]
    envs.close()


def test_what_is_refused_sends_nothing() -> None:
    envs = shoal.make_vec(CounterEnv, 4, num_workers=2, batch_size=2)
    with pytest.raises(ResetNeeded, match="environments 0 and 1 have not been reset"):
        envs.send([0, 0], [0, 1])
    envs.reset(seed=0)
    with pytest.raises(NoAsyncCallError, match="a batch is 2 environments, 0 are in flight"):
        envs.recv()
    for ids, error, text in (
        ([0, 7], ValueError, "environment 7; their ids are 0 to 3"),
        ([-1, 0], ValueError, "environment -1"),
        ([2, 2], ValueError, "environment 2 came twice"),
        ([0.5, 1], TypeError, "env_ids must be integers"),
        ([[0, 1]], ValueError, "one dimension"),
        (np.array([True, False]), TypeError, "env_ids must be integers"),
    ):
        with pytest.raises(error, match=text):
            envs.send([0, 0], ids)
    for actions in ([0], [0, 0, 0], [[0, 0], [0, 0]], "no"):
        with pytest.raises((ValueError, TypeError)):
            envs.send(actions, [0, 1])
    assert envs.in_flight == 0
    envs.send([0, 0], [0, 1])
    with pytest.raises(AlreadyPendingCallError, match="environment 1 is in flight already"):
        envs.send([0, 0], [1, 2])
    for call in (lambda: envs.step_async([0] * 4), lambda: envs.reset_async()):
        with pytest.raises(AlreadyPendingCallError, match="in flight"):
            call()
    with pytest.raises(AlreadyPendingCallError, match="environment 1 is in flight"):
        envs.async_reset(options={"reset_mask": np.array([False, True, True, False])})
    assert envs.in_flight == 2
    assert sorted(envs.recv(timeout=30)[4]["env_id"]) == [0, 1]
    envs.close()
    for call in (lambda: envs.send([0], [0]), lambda: envs.recv()):
        with pytest.raises(gymnasium.error.ClosedEnvironmentError):
            call()


def test_arguments_that_do_not_go_together_are_refused() -> None:
    for arguments, error, text in (
        ({"batch_size": 5}, ValueError, "takes 1 to num_envs=4, got 5"),
        ({"batch_size": 0}, ValueError, "batch_size"),
        ({"batch_size": 1.5}, TypeError, "takes an int"),
        ({"cohorts": 3}, ValueError, "must divide num_envs=4"),
        ({"cohorts": 2, "batch_size": 1}, ValueError, "leave one of them out"),
        ({"max_in_flight": 2}, ValueError, "give one of them"),
        ({"batch_size": 3, "max_in_flight": 2}, ValueError, "between batch_size=3"),
        ({"pool": 4}, TypeError, "takes a shoal.WorkerPool"),
    ):
        with pytest.raises(error, match=text):
            shoal.make_vec(CounterEnv, 4, num_workers=0 if "pool" not in arguments else None, **arguments)


def test_max_in_flight_bounds_what_is_out() -> None:
    envs = shoal.make_vec(CounterEnv, 4, num_workers=0, batch_size=2, max_in_flight=3)
    envs.reset(seed=0)
    with pytest.raises(AlreadyPendingCallError, match="4 environments would be in flight, max_in_flight is 3"):
        envs.send([0] * 4)
    envs.send([0] * 3, [0, 1, 2])
    envs.close()


@backends
def test_infos_come_with_their_environment(backend: dict[str, Any]) -> None:
    envs = shoal.make_vec(TalkingEnv, 4, batch_size=2, **backend)
    envs.async_reset(seed=0, options={"level": 7})
    for _ in range(2):
        infos = envs.recv(timeout=30)[4]
        assert infos["options"]["level"].tolist() == [7, 7]
        for row, env in enumerate(infos["env_id"]):
            assert np.array_equal(infos["large"][row], np.full(1000, env))
    envs.send([0, 1, 0, 1], [0, 1, 2, 3])
    for _ in range(2):
        infos = envs.recv(timeout=30)[4]
        assert infos["_action"].tolist() == [True, True]
        assert np.array_equal(infos["action"], infos["env_id"] % 2)
        assert np.array_equal(infos["index"], infos["env_id"])
    envs.async_reset(seed=5, options={"reset_mask": np.array([False, False, True, True])})
    infos = envs.recv(timeout=30)[4]
    assert "level" not in infos["options"] and sorted(infos["env_id"]) == [2, 3]
    envs.close()


@pytest.mark.parametrize("arguments", [{"num_workers": 0}, {"num_workers": 2}])
def test_what_is_received_is_never_overwritten(arguments: dict[str, Any]) -> None:
    envs = shoal.make_vec("CartPole-v1", 4, batch_size=2, **arguments)
    envs.async_reset(seed=0)
    random = np.random.default_rng(0)
    kept: list[tuple[Any, Any]] = []
    for step in range(300):
        result = envs.recv(timeout=30)
        arrays = (*result[:4], result[4]["env_id"])
        assert all(array.flags.writeable for array in arrays)
        kept.append((arrays, [array.copy() for array in arrays]))
        envs.send(np.full(2, step % 2), result[4]["env_id"])
        if len(kept) > 10:
            del kept[random.integers(10)]
    envs.close()
    del envs
    gc.collect()
    for arrays, copies in kept:
        assert all(map(np.array_equal, arrays, copies))


def test_blocks_are_used_again_when_nobody_has_them() -> None:
    envs = shoal.make_vec("CartPole-v1", 4, batch_size=2, num_workers=0)
    envs.async_reset(seed=0)
    addresses = set()
    for _ in range(50):
        result = envs.recv()
        addresses.add(result[0].ctypes.data)
        envs.send(np.zeros(2, int), result[4]["env_id"])
    assert len(addresses) <= 6
    envs.close()


def test_received_arrays_go_to_torch_without_a_copy() -> None:
    torch = pytest.importorskip("torch")
    envs = shoal.make_vec("CartPole-v1", 2, batch_size=2, num_workers=0)
    envs.async_reset(seed=0)
    observations = envs.recv()[0]
    tensor, copy, address = torch.from_numpy(observations), observations.copy(), observations.ctypes.data
    assert tensor.data_ptr() == address
    del observations
    for _ in range(30):
        envs.send(np.zeros(2, int))
        assert envs.recv()[0].ctypes.data != address
    assert np.array_equal(tensor.numpy(), copy)
    envs.close()


def test_calls_are_answered_while_environments_are_in_flight() -> None:
    envs = shoal.make_vec(SlowEnv, 2, num_workers=2, batch_size=1)
    envs.reset(seed=0)
    envs.send([0.0, 0.0])
    envs.set_attr("mark", [3, 4])
    assert envs.get_attr("mark") == (3, 4)
    assert len(envs.recv(timeout=30)[4]["env_id"]) == 1
    envs.close()


@backends
def test_an_exception_is_raised_as_it_was(backend: dict[str, Any]) -> None:
    envs = shoal.make_vec(SlowEnv, 4, batch_size=1, **backend)
    envs.reset(seed=0)
    envs.send([-2.0], [3])
    with pytest.raises(ValueError, match="not this") as caught:
        envs.recv(timeout=30)
    assert any("environment 3" in note for note in getattr(caught.value, "__notes__", ["environment 3"]))
    with pytest.raises(RuntimeError, match="closed"):
        envs.send([0.0], [0])
    envs.close()


class Unreadable:
    def __reduce__(self) -> Any:
        return int, ("none",)


class OddInfos(CounterEnv):
    """The info of its second step cannot be taken with others'."""

    def __init__(self, kind: str) -> None:
        super().__init__(length=99)
        self.kind = kind

    def step(self, action: Any) -> Any:
        result = super().step(action)[:4]
        if self.steps != 2:
            return (*result, {})
        return (*result, {"odd": np.zeros(2 + int(action)) if self.kind == "shapes" else Unreadable()})


@pytest.mark.parametrize(
    ("kind", "backend"),
    [("shapes", {"num_workers": 0}), ("shapes", {"num_workers": 1}), ("pickle", {"num_workers": 1})],
)
def test_infos_that_cannot_be_taken_are_told_once(kind: str, backend: dict[str, Any]) -> None:
    with shoal.make_vec(OddInfos, 4, batch_size=2, env_kwargs={"kind": kind}, **backend) as envs:
        envs.reset(seed=0)
        for steps in range(1, 5):
            envs.send([0, 1], [3, 1])
            if steps != 2:
                assert envs.recv()[0][:, 1].tolist() == [steps, steps]
                continue
            with pytest.raises(ValueError, match="broadcast" if kind == "shapes" else "invalid literal") as raised:
                envs.recv()
            if hasattr(raised.value, "__notes__"):  # from Python 3.11 on
                assert re.search(r"environments \[(3, 1|1, 3)\]", raised.value.__notes__[-1])
            assert envs.in_flight == 0 and sorted(envs.env_ids) == [1, 3]
            with pytest.raises(NoAsyncCallError):
                envs.recv()


def test_a_death_is_raised_with_its_environments() -> None:
    envs = shoal.make_vec(SlowEnv, 4, num_workers=2, batch_size=1)
    envs.reset(seed=0)
    envs.send([-1.0], [3])
    with pytest.raises(shoal.WorkerDied, match="SIGKILL") as caught:
        envs.recv(timeout=30)
    assert caught.value.env_indices == range(2, 4)
    envs.close()


@pytest.mark.parametrize("arguments", [{"batch_size": 2}, {"cohorts": 2}])
@pytest.mark.parametrize("action", [-1.0, -2.0])
def test_with_restart_what_fails_comes_back_as_a_fault(arguments: dict[str, Any], action: float) -> None:
    envs = shoal.make_vec(SlowEnv, 4, num_workers=2, on_fault="restart", **arguments)
    envs.reset(seed=0)
    envs.send([action, 0.0], [0, 1])
    result = envs.recv(timeout=30)
    row = result[4]["env_id"].tolist().index(0)
    assert result[3][row] and result[1][row] == 0
    assert result[4]["fault"][row].kind == ("killed" if action == -1 else "exception")
    assert sum(worker["faults"]["killed"] + worker["faults"]["exception"] for worker in envs.health()) == 1
    if "cohorts" in arguments:
        envs.send([0.0, 0.0], [2, 3])
        envs.recv(timeout=30)
    envs.send([0.0, 0.0], [0, 1])
    result = envs.recv(timeout=30)
    assert not result[4].get("fault", np.zeros(2))[result[4]["env_id"].tolist().index(0)]
    envs.close()


class TestPool:
    def test_vector_environments_share_the_workers_and_close_apart(self) -> None:
        with shoal.WorkerPool(2) as pool:
            reference = shoal.make_vec("CartPole-v1", 4, num_workers=0)
            expected = play_sync(reference, 30)
            whole = shoal.make_vec("CartPole-v1", 4, pool=pool)
            parts = shoal.make_vec("CartPole-v1", 4, batch_size=2, pool=pool)
            native = shoal.make_vec("shoal/CartPole-v1", 3, batch_size=1, pool=pool)
            pids = {worker["pid"] for envs in (whole, parts, native) for worker in envs.stats()["workers"]}
            assert pids == set(pool.pids)
            assert play_sync(whole, 30) == expected
            assert play_async(parts, 30)[0] == expected
            native.async_reset(seed=1)
            assert native.recv(timeout=30)[0].shape == (1, 4)
            parts.close()
            assert play_sync(whole, 30) == expected
            native.close()
        with pytest.raises(RuntimeError, match="pool"):
            whole.step([0] * 4)
        whole.close()

    def test_it_ends_with_the_last_of_its_users(self) -> None:
        pool = shoal.WorkerPool(1)
        pid = pool.pids[0]
        envs = shoal.make_vec(CounterEnv, 2, pool=pool)
        del pool
        gc.collect()
        assert envs.reset(seed=0)[0].shape[0] == 2
        envs.close()
        del envs
        gc.collect()
        assert not os.path.exists(f"/proc/{pid}")

    def test_what_cannot_be_is_refused(self) -> None:
        with pytest.raises(ValueError, match="at least 1"):
            shoal.WorkerPool(0)
        with shoal.WorkerPool(1) as pool:
            for arguments in (
                {"num_workers": 2},
                {"backend": "serial"},
                {"context": "spawn"},
                {"worker": shoal.WorkerOptions()},
            ):
                with pytest.raises(ValueError, match=r"make_vec\("):
                    shoal.make_vec(CounterEnv, 2, pool=pool, **arguments)
            with pytest.raises(ZeroDivisionError):
                shoal.make_vec(lambda: 1 / 0, 2, pool=pool)
            assert shoal.make_vec(CounterEnv, 1, pool=pool).reset(seed=0)[0].shape[0] == 1
        with pytest.raises(RuntimeError, match="closed"):
            shoal.make_vec(CounterEnv, 2, pool=pool)

    def test_environments_that_are_not_built_in_the_pools_time_are_late(self) -> None:
        with shoal.WorkerPool(1) as pool:
            pool.options = dataclasses.replace(
                pool.options, start_timeout=0.2
            )  # the workers themselves may take longer
            with pytest.raises(TimeoutError, match="start_timeout=0.2 s"):
                shoal.make_vec(lambda: time.sleep(3600), 1, pool=pool)

    def test_setup_and_identity_are_the_session_s(self) -> None:
        with shoal.WorkerPool(2) as pool:
            one = shoal.make_vec(TalkingEnv, 4, pool=pool, setup=functools.partial(str, "one"))
            other = shoal.make_vec(TalkingEnv, 2, pool=pool, setup=functools.partial(str, "other"))
            for envs in (other, one, other):
                envs.reset(seed=0)
                infos = envs.step([0] * envs.num_envs)[4]
                assert infos["index"].tolist() == list(range(envs.num_envs))
            one.close()
            other.close()


def masked(*ids: int, **options: Any) -> dict[str, Any]:
    """Options of a reset of these of three environments."""
    return {**options, "reset_mask": np.isin(np.arange(3), ids)}


def levels(envs: Any, count: int) -> dict[int, Any]:
    """What TalkingEnvs were told in `count` batches of one."""
    told = {}
    for _ in range(count):
        infos = envs.recv(timeout=20)[4]
        told[int(infos["env_id"][0])] = infos["options"].get("level", [None])[0] if "options" in infos else None
    return told


@backends
def test_each_reset_has_the_options_and_the_large_seed_of_its_own_call(backend: dict[str, Any]) -> None:
    class SeededEnv(TalkingEnv):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            observation, info = super().reset(seed=seed, options=options)
            return observation, info | {"options": info["options"] | ({"level": str(seed)} if seed else {})}

    with shoal.make_vec(
        SeededEnv, 3, batch_size=1, **(backend | {"num_workers": min(backend["num_workers"], 3)})
    ) as envs:
        envs.reset(seed=0)
        for _ in range(3):
            envs.async_reset(options=masked(0, level=7))
            envs.async_reset(options=masked(1, level=8))
            envs.async_reset(options=masked(2))
            assert levels(envs, 3) == {0: 7, 1: 8, 2: None}
        envs.async_reset(seed=2**70, options=masked(1))
        envs.async_reset(options=masked(2))
        assert levels(envs, 2) == {1: str(2**70 + 1), 2: None}


@pytest.mark.parametrize(
    "backend", [{"num_workers": 0}, {"num_workers": 2}, {"num_workers": 2, "backend": "process"}], ids=str
)
def test_each_reset_of_native_environments_has_the_options_of_its_own_call(backend: dict[str, Any]) -> None:
    with shoal.make_vec("shoal/CartPole-v1", 3, batch_size=1, autoreset_mode="disabled", **backend) as envs:
        envs.reset(seed=0)
        for _ in range(10):
            envs.async_reset(options=masked(0, low=0.10, high=0.11))
            envs.async_reset(options=masked(1, low=0.20, high=0.21))
            envs.async_reset(options=masked(2))
            found = {}
            for _ in range(3):
                observations, *_, infos = envs.recv(timeout=20)
                found[int(infos["env_id"][0])] = observations[0].min(), observations[0].max()
            assert 0.10 <= found[0][0] and found[0][1] <= 0.11
            assert 0.20 <= found[1][0] and found[1][1] <= 0.21
            assert -0.05 <= found[2][0] and found[2][1] <= 0.05
        with pytest.raises(ValueError, match="lowest"):
            envs.async_reset(options=masked(0, lowest=1))
        envs.async_reset(options=masked(0))  # nothing was sent before
        assert np.abs(envs.recv(timeout=20)[0]).max() <= 0.05


def test_a_successor_is_reset_without_the_options_of_others() -> None:
    class FailingEnv(TalkingEnv):
        def step(self, action: Any) -> Any:
            if action == 1:
                raise ValueError("not this")
            return super().step(action)

    with shoal.make_vec(FailingEnv, 3, num_workers=1, batch_size=1, on_fault="restart") as envs:
        envs.reset(seed=0, options={"level": 1})
        envs.send([1], [1])
        assert "fault" in envs.recv(timeout=20)[4]
        envs.send([0], [1])  # its successor's reset
        envs.async_reset(options=masked(0, level=7))
        assert levels(envs, 2) == {0: 7, 1: None}


def test_a_native_successor_is_reset_without_the_options_of_the_last_reset() -> None:
    with shoal.make_vec("shoal/CartPole-v1", 2, num_workers=2, backend="process", on_fault="restart") as envs:
        envs.reset(seed=0, options={"low": 0.2, "high": 0.21})
        os.kill(envs.stats()["workers"][0]["pid"], signal.SIGKILL)
        deadline = time.monotonic() + 60
        while np.abs(envs.step([0, 0])[0][0]).max() > 0.05:
            assert time.monotonic() < deadline


def test_a_reset_with_options_waits_for_no_other_environment(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with shoal.make_vec(functools.partial(GatedEnv, gate), 2, num_workers=2, batch_size=1) as envs:
        envs.reset(seed=0)
        envs.send([1], [1])
        envs.async_reset(options={"level": 7, "reset_mask": np.array([True, False])})
        assert envs.recv(timeout=20)[4]["env_id"].tolist() == [0]
        gate.touch()
        assert envs.recv(timeout=20)[4]["env_id"].tolist() == [1]
