"""shoal.compat.timesteps: environments of DI-engine's interface on Shoal's engine, without DI-engine."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import shoal
from interrupting import interrupted_once_there
from same import assert_same
from shoal.compat.action_rows import HEADER, ActionReader, packed_actions
from shoal.compat.timesteps.row_spaces import as_row, row_space
from shoal.compat.timesteps.slot import Failure, ResetOrder, Rules, Slot
from shoal.compat.timesteps.slots import Lost, Slots, Stepped, error_of, started
from timestep_envs import CountingEnv, DictEnv, GoodAtClosing, OddEnv, ShyEnv, SizedEnv, TellingEnv, Timestep

ACTIONS: dict[str, list[Any]] = {
    "arrays": [np.array([1.5, 2.5], np.float32), np.array([3.5, 4.5], np.float32)],
    "arrays without dimensions": [np.array(1), np.array(2)],
    "scalars": [np.int64(1), np.int64(2)],
    "bools": [np.bool_(True), np.bool_(False)],
    "ints": [1, 2],
    "text": ["left", "right"],
    "dicts": [{"a": np.zeros(2)}, {"a": np.ones(2)}],
    "of several kinds": [np.zeros(3), 1],
    "of several shapes": [np.zeros(3), np.zeros(2)],
    "empty": [np.zeros((0, 2)), np.zeros((0, 2))],
    "large": [np.arange(1000), np.arange(1000)],
    "large objects": ["x" * 1000, "y" * 1000],
    "of many dimensions": [np.zeros((1, 1, 1, 1, 2)), np.ones((1, 1, 1, 1, 2))],
    "in the other order of bytes": [np.arange(2, dtype=">i4"), np.arange(2, dtype=">i4")],
    "of objects": [np.array([None, "a"]), np.array([1, 2], object)],
    "not in a row": [np.arange(12).reshape(3, 4).T, np.arange(12).reshape(3, 4).T],
    "none": [None, None],
}


@pytest.mark.parametrize("name", ACTIONS)
def test_actions_arrive_as_they_were_given(name: str) -> None:
    rows, apart = packed_actions(ACTIONS[name], HEADER + 240)
    assert bool(apart) == name.startswith("large")
    for i, action in enumerate(ACTIONS[name]):
        reader = ActionReader()
        if i in apart:
            reader.set_apart(apart[i])
        assert_same(reader.read(rows[i]), action)


@pytest.mark.parametrize("batch", [np.arange(6).reshape(3, 2), np.arange(3.0), np.arange(3, dtype=np.uint8)])
def test_a_batch_of_actions_is_its_rows(batch: np.ndarray) -> None:
    rows, apart = packed_actions(batch, HEADER + 240)
    reader = ActionReader()
    assert not apart
    for row, action in zip(rows, batch, strict=True):
        assert_same(reader.read(row), action)


def test_a_reader_goes_from_one_kind_of_action_to_another() -> None:
    reader = ActionReader()
    for action in (np.zeros(2), np.zeros(3), "text", "longer text", np.int8(3), np.zeros(2)):
        rows, _ = packed_actions([action], HEADER + 240)
        assert_same(reader.read(rows[0]), action)


def test_an_action_that_an_environment_keeps_is_not_changed_by_the_next() -> None:
    rows, _ = packed_actions([np.zeros(2)], HEADER + 240)
    reader = ActionReader()
    kept = reader.read(rows[0])
    rows[:] = packed_actions([np.ones(2)], HEADER + 240)[0]
    assert_same(reader.read(rows[0]), np.ones(2))
    assert_same(kept, np.zeros(2))


def test_an_action_that_was_to_come_apart_is_missed() -> None:
    rows, apart = packed_actions(["x" * 1000], HEADER + 240)
    assert apart
    with pytest.raises(RuntimeError, match="has not come"):
        ActionReader().read(rows[0])


BOX = spaces.Box(-1.0, 1.0, (3,), np.float32)


@pytest.mark.parametrize(
    ("space", "has_rows"),
    [
        (BOX, True),
        (spaces.Box(0, 255, (2, 2), np.uint8), True),
        (spaces.Discrete(3), True),
        (spaces.Dict(a=BOX, b=spaces.Dict(c=BOX)), True),
        (spaces.Dict(a=BOX, b=spaces.Text(3)), False),
        (spaces.Box(-1, 1, (3,), np.float16), False),
        (spaces.Tuple([BOX]), False),
        (spaces.Text(3), False),
        (None, False),
        ("a space of another library", False),
    ],
)
def test_spaces_of_arrays_have_rows(space: Any, has_rows: bool) -> None:
    assert (row_space(space) is not None) == has_rows


@pytest.mark.parametrize(
    ("observation", "exactly", "cast"),
    [
        (np.ones(3, np.float32), True, True),
        (np.ones(3, np.float64), False, True),
        (np.ones(1, np.float32), False, True),
        (np.ones(4, np.float32), False, False),
        (np.ones(3, np.int64), False, True),
        (np.ones(3, np.complex128), False, False),
        ([1.0, 2.0, 3.0], False, False),
        (None, False, False),
    ],
)
def test_observations_that_would_be_changed_take_no_row(observation: Any, exactly: bool, cast: bool) -> None:
    space = row_space(BOX)
    assert space is not None
    assert (as_row(observation, space, False) is not None) == exactly
    assert (as_row(observation, space, True) is not None) == cast


def test_dicts_take_rows_with_the_spaces_keys_alone() -> None:
    space = row_space(spaces.Dict(a=BOX, b=BOX))
    assert space is not None
    a = np.ones(3, np.float32)
    assert as_row({"a": a, "b": a}, space, False) is not None
    assert as_row({"b": a, "a": a}, space, False) is None
    assert as_row({"a": a}, space, False) is None
    assert as_row({"a": a, "b": a, "c": a}, space, False) is None


# In worker processes


@contextmanager
def slots(env_fns: list[Any], rules: Rules | None = None, **more: Any) -> Iterator[Slots]:
    arguments: dict[str, Any] = {
        "num_workers": len(env_fns),
        "context": "auto",
        "faults": shoal.FaultPolicy("raise"),
        "worker": shoal.WorkerOptions(),
        "own_rows": True,
    }
    running = started(env_fns, rules or Rules(), **{**arguments, **more})
    try:
        yield running
    finally:
        running.close()


def counting(count: int, **arguments: Any) -> list[Any]:
    return [functools.partial(CountingEnv, i, **arguments) for i in range(count)]


def all_reset(running: Slots, **order: Any) -> dict[int, Any]:
    running.send_resets({i: ResetOrder(**order) for i in range(running.num_envs)})
    return {env_id: result for env_id, _, result in (running.receive(30) for _ in range(running.num_envs))}


def test_environments_are_stepped_one_by_one_or_together() -> None:
    with slots(counting(3)) as running:
        first = all_reset(running, seed=(7,))
        assert_same(first, {i: np.array([i, 7, 0], np.float32) for i in first})
        running.send_steps({1: np.array([1])})
        assert running.call_of(1) == "step" and running.is_busy and not running.resets
        env_id, call, stepped = running.receive(30)
        assert (env_id, call) == (1, "step")
        assert_same(tuple(stepped)[:4], (np.array([1, 7, 1], np.float32), np.array([1], np.float32), False, {}))
        assert stepped.type is Timestep
        together = running.step_all([np.array([1])] * 3)
        assert [int(result.reward[0]) for result in together] == [1, 2, 1]
        assert running.ask({0: ("get", "actions"), 2: ("get", "actions")}) == {
            0: ("value", [np.array([1])]),
            2: ("value", [np.array([1])]),
        }


@pytest.mark.parametrize("num_workers", [1, 2])
def test_environments_may_share_processes(num_workers: int) -> None:
    with slots(counting(3), num_workers=num_workers) as running:
        all_reset(running)
        running.send_resets({0: ResetOrder({"start": 2})})
        running.send_steps({2: np.array([1])})
        came = {env_id: (call, result) for env_id, call, result in (running.receive(30), running.receive(30))}
        assert_same(came[0][1], np.array([0, -1, 2], np.float32))
        assert came[2][1].obs[2] == 1
        assert [result.obs[2] for result in running.step_all([np.array(0)] * 3)] == [3, 1, 2]


@pytest.mark.parametrize("context", ["forkserver", "spawn", "fork"])
def test_every_start_method_will_do(context: str) -> None:
    with slots(counting(2), context=context) as running:  # where threads run, "fork" gives way
        assert_same(all_reset(running)[1], np.array([1, -1, 0], np.float32))
        assert [result.obs[2] for result in running.step_all([0, 0])] == [1, 1]


def test_results_of_every_type_arrive_as_they_were() -> None:
    with slots([OddEnv, OddEnv]) as running:
        all_reset(running)
        for i, expected in enumerate(OddEnv.RESULTS):
            results = running.step_all([i, len(OddEnv.RESULTS) - 1 - i])
            assert_same(tuple(results[0])[:4], tuple(expected))
            assert_same(tuple(results[1])[:4], tuple(OddEnv.RESULTS[-1 - i]))


def test_observations_become_the_spaces_where_that_is_asked_for() -> None:
    with slots([OddEnv], Rules(cast=True)) as running:
        all_reset(running)
        (stepped,) = running.step_all([3])
        assert_same(stepped.obs, np.zeros(3, np.float32))
        (stepped,) = running.step_all([0])
        assert stepped.obs == [1, 2]


@pytest.mark.parametrize("own", [True, False])
def test_rows_are_the_callers(own: bool) -> None:
    with slots(counting(2), own_rows=own) as running:
        all_reset(running)
        first = [result.obs for result in running.step_all([0, 0])]
        kept = [obs.copy() for obs in first]
        running.step_all([0, 0])
        assert_same(first, kept)
        first[0][:] = 9
        assert_same(first[1], kept[1])


def test_dicts_of_arrays_cross_in_rows() -> None:
    with slots([DictEnv] * 2) as running:
        assert isinstance(running.single_observation_space, spaces.Dict)
        all_reset(running)
        result = running.step_all([0, 0])[1]
        assert_same(result.obs, {"vector": np.ones(2, np.float32), "image": np.ones((4, 4), np.uint8)})


def test_environments_of_several_sizes_go_together_as_objects() -> None:
    with slots([functools.partial(SizedEnv, size) for size in (2, 5)]) as running:
        first = all_reset(running)
        assert [first[i].shape for i in range(2)] == [(2,), (5,)]
        assert [result.obs.shape for result in running.step_all([0, 0])] == [(2,), (5,)]


def test_spaces_that_are_there_only_after_a_reset_cost_no_reset() -> None:
    with slots([ShyEnv]) as running:
        assert running.spaces[0] == BOX.__class__(-np.inf, np.inf, (3,), np.float32)
        assert running.ask({0: ("get", "arguments")}) == {0: ("value", [])}


def test_a_step_in_place_returns_the_next_episodes_first_observation() -> None:
    with slots(counting(1, length=2), Rules(reset_inplace=True)) as running:
        all_reset(running, kwargs={"start": 1})
        (stepped,) = running.step_all([0])
        assert stepped.done and stepped.obs[2] == 0 and stepped.info == {"steps": 2}


def test_an_exception_leaves_the_others_alone() -> None:
    with slots(counting(2)) as running:
        all_reset(running)
        failed, fine = running.step_all(["raise", 0])
        assert isinstance(failed, Failure) and isinstance(fine, Stepped)
        error = error_of(failed, 0)
        assert type(error) is KeyError and "as it was told" in str(error.__cause__)
        assert "environment 0: step()" in str(error.__cause__)
        assert all(isinstance(result, Stepped) for result in running.step_all([0, 0]))


def test_a_reset_is_tried_again_in_the_same_environment_or_in_a_new_one() -> None:
    with slots(counting(1)) as running:
        built = running.ask({0: ("get", "built")})
        assert_same(
            all_reset(running, kwargs={"failures": 2}, attempts=3, pause=0.0)[0], np.array([0, -1, 0], np.float32)
        )
        assert running.ask({0: ("get", "built")}) == built
        failed = all_reset(running, kwargs={"failures": 2}, attempts=2, pause=0.0)[0]
        assert isinstance(failed, Failure) and failed.attempts == 2 and "reset failure 2" in failed.text
        # A new one has not failed yet.
        failed = all_reset(running, kwargs={"failures": 9}, attempts=3, pause=0.0, renew=True)[0]
        assert isinstance(failed, Failure) and "reset failure 1" in failed.text
        assert running.ask({0: ("get", "built")}) != built


def test_an_order_lasts_and_a_seed_is_used_once() -> None:
    with slots(counting(1)) as running:
        assert_same(all_reset(running, kwargs={"start": 3}, seed=(4, False))[0], np.array([0, 4, 3], np.float32))
        assert running.ask({0: ("get", "dynamic_seed")}) == {0: ("value", False)}
        running.ask({0: ("call", "seed", 9)})
        assert_same(all_reset(running, kwargs={"start": 3})[0], np.array([0, 9, 3], np.float32))
        assert_same(all_reset(running)[0], np.array([0, 9, 0], np.float32))


def test_python_code_that_takes_too_long_is_interrupted() -> None:
    with slots(counting(1), Rules(step_timeout=0.2)) as running:
        all_reset(running)
        (failed,) = running.step_all(["hang"])
        assert type(error_of(failed, 0)) is TimeoutError and "0.2 seconds" in failed.text
        failed = all_reset(running, kwargs={"command": "hang"}, timeout=0.2)[0]
        assert type(error_of(failed, 0)) is TimeoutError
        assert isinstance(running.step_all([0])[0], Stepped)


def test_a_reset_goes_on_beside_the_steps_of_others(tmp_path: Path) -> None:
    go = tmp_path / "go"
    with slots(counting(2)) as running:
        all_reset(running)
        running.send_resets({0: ResetOrder({"command": f"wait for {go}"})})
        for _ in range(3):
            running.send_steps({1: 0})
            assert running.receive(30)[0] == 1
        with pytest.raises(TimeoutError):
            running.receive(0.0)
        go.touch()
        assert running.receive(30)[:2] == (0, "reset")


INTERRUPTED: dict[str, Callable[[Slots, str], Any]] = {
    "step": lambda running, command: running.step_all([command, 0]),
    "call": lambda running, command: running.ask({0: ("call", "obey", command), 1: ("get", "steps")}),
    "call of one": lambda running, command: running.ask({0: ("call", "obey", command)}),
    "order of a reset": lambda running, command: all_reset(running, kwargs={"command": command}),
}


@pytest.mark.parametrize("name", INTERRUPTED)
def test_what_ctrl_c_has_left_under_way_is_waited_for_by_the_next_call(name: str, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with slots([functools.partial(TellingEnv, i, folder=tmp_path) for i in range(2)]) as running:
        all_reset(running)
        with interrupted_once_there(tmp_path / "begun"):
            INTERRUPTED[name](running, f"wait for {gate}")
        gate.touch()
        while running.is_busy:
            assert running.receive(30)[1] == "reset"
        first = all_reset(running, seed=(5,))
        assert_same(first, {i: np.array([i, 5, 0], np.float32) for i in first})
        for steps in (1, 2):
            results = running.step_all([0, 1])
            assert [result.reward for result in results] == [steps, steps]
            assert all(type(result.reward) is int and type(result.obs) is np.ndarray for result in results)
        assert running.ask({0: ("get", "steps"), 1: ("get", "steps")}) == {0: ("value", 2), 1: ("value", 2)}


def test_a_step_in_the_place_of_one_that_ctrl_c_has_left_comes_after_it(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with slots([functools.partial(TellingEnv, i, folder=tmp_path) for i in range(2)]) as running:
        all_reset(running)
        with interrupted_once_there(tmp_path / "begun"):
            running.step_all([f"wait for {gate}", 0])
        gate.touch()
        assert [result.reward for result in running.step_all([0, 0])] == [2, 2]


def test_large_actions_and_observations_cross() -> None:
    class Mirror(CountingEnv):
        def step(self, action: Any) -> Any:
            return Timestep(action, 0.0, False, {})

    with slots([Mirror] * 2) as running:
        all_reset(running)
        for action in (np.arange(100_000), "x" * 100_000):
            results = running.step_all([action, 0])
            assert_same(results[0].obs, action)


def test_a_death_names_worker_environment_signal_and_last_words() -> None:
    with slots(counting(2)) as running:
        all_reset(running)
        running.send_steps({1: "die"})
        with pytest.raises(shoal.WorkerDied) as died:
            running.receive(30)
    for part in ("worker 1", "environment 1", "signal 9 (SIGKILL)", "last words"):
        assert part in str(died.value)


def test_a_dead_workers_environment_is_made_anew_where_that_is_asked_for() -> None:
    with slots(counting(2), faults=shoal.FaultPolicy("restart")) as running:
        all_reset(running, kwargs={"start": 2})
        fine, lost = running.step_all([0, "die"])
        assert isinstance(fine, Stepped) and isinstance(lost, Lost)
        assert lost.fault.kind == "killed" and lost.fault.env == 1 and "last words" in lost.fault.details
        running.send_resets({1: ResetOrder({"start": 3})})
        assert_same(running.receive(30)[2], np.array([1, -1, 3], np.float32))
        assert [result.obs[2] for result in running.step_all([0, 0])] == [4, 4]


def test_ids_that_the_program_has_registered_are_known_to_the_workers() -> None:
    class OfThisProgram(gymnasium.Env):
        observation_space = BOX
        action_space = spaces.Discrete(2)

    def make() -> Any:
        env = CountingEnv()
        env.inner = gymnasium.make("shoal-tests/OfThisProgram-v0", disable_env_checker=True)
        return env

    gymnasium.register("shoal-tests/OfThisProgram-v0", OfThisProgram)
    try:
        with slots([make]) as running:
            assert all_reset(running)[0][2] == 0
    finally:
        del gymnasium.registry["shoal-tests/OfThisProgram-v0"]


def test_all_are_closed(tmp_path: Path) -> None:
    with slots([functools.partial(GoodAtClosing, i, folder=tmp_path) for i in range(2)]) as running:
        all_reset(running)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["closed-0", "closed-1"]


def test_what_fails_while_it_is_built_names_its_environment() -> None:
    def fails() -> Any:
        raise ValueError("not today")

    with pytest.raises(ValueError, match="not today") as failed:
        with slots([CountingEnv, fails]):
            pass
    assert any("environment 1" in note for note in getattr(failed.value, "__notes__", ["environment 1"]))


def test_a_slot_in_this_process_says_what_is_no_number() -> None:
    slot = Slot(OddEnv, 0, Rules())
    slot.reset()
    rows, _ = packed_actions([8], slot.action_space.shape[0])
    _, reward, done, _, said = slot.step(rows[0])
    assert reward == np.inf and not done and said["manner"].reward == "scalar"
    assert "manner" not in slot.step(rows[0])[4]
