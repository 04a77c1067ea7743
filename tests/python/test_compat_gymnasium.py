"""shoal.compat.gymnasium: the contract of Gymnasium's vector environments, its tests' points among them, and register()."""

from __future__ import annotations

import functools
import gc
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError, NoAsyncCallError
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.vector.utils import batch_differing_spaces

import shoal
import shoal.compat.gymnasium as compat
from same import assert_same
from sample_envs import TOLD_OF_DEATH, CounterEnv, FaultyEnv, GatedEnv, MortalEnv, PlainWordSpace, SpaceEnv

CLASSES = {"sync": compat.SyncVectorEnv, "async": compat.AsyncVectorEnv}


@pytest.fixture(params=CLASSES)
def vector_env(request: pytest.FixtureRequest) -> Any:
    return CLASSES[request.param]


class SpacedEnv(CounterEnv):
    """Of any observation space; says what its action was."""

    def __init__(self, space: spaces.Space, action_space: spaces.Space | None = None) -> None:
        super().__init__()
        self.observation_space = space
        self.action_space = action_space if action_space is not None else spaces.Discrete(3)

    def reset(self, **kwargs: Any) -> Any:
        super().reset(**kwargs)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        return self.observation_space.sample(), 0.0, False, False, {"action": f"{type(action).__name__} {action}"}


def of_spaces(*all_spaces: spaces.Space) -> list[Any]:
    return [functools.partial(SpacedEnv, space) for space in all_spaces]


def test_what_users_read_is_what_they_gave(vector_env: Any) -> None:
    factories = [functools.partial(SpaceEnv, "box", render_mode="rgb_array")] * 3
    envs = vector_env(factories, autoreset_mode="SameStep")
    theirs = SyncVectorEnv(factories, autoreset_mode="SameStep")
    assert repr(envs) == f"{vector_env.__name__}(num_envs=3)"
    assert (envs.num_envs, envs.render_mode, envs.spec, envs.closed, envs.copy) == (3, "rgb_array", None, False, True)
    assert envs.metadata == theirs.metadata and "autoreset_mode" not in SpaceEnv.metadata
    assert (envs.env_fns, envs.observation_mode, envs.autoreset_mode) == (factories, "same", AutoresetMode.SAME_STEP)
    assert isinstance(envs, gymnasium.vector.VectorEnv) and envs.unwrapped is envs
    if vector_env is compat.AsyncVectorEnv:
        assert (envs.shared_memory, envs.context, envs.daemon, envs.worker) == (True, None, True, None)
        assert envs.max_concurrency is None and len(set(envs.call("pid"))) == 3
        assert [process.pid for process in envs.processes] == list(envs.call("pid"))
        assert all(process.is_alive() for process in envs.processes)
    else:
        assert [type(env) for env in envs.envs] == [SpaceEnv] * 3
    envs.spec = gymnasium.spec("CartPole-v1")
    assert repr(envs) == f"{vector_env.__name__}(CartPole-v1, num_envs=3)"
    envs.close()


def test_environments_of_other_spaces_are_a_runtime_error(vector_env: Any) -> None:
    with pytest.raises(RuntimeError, match="sub-environments observation spaces are not equivalent.*'different'"):
        vector_env(of_spaces(spaces.Discrete(3), spaces.Discrete(4)))
    with pytest.raises(RuntimeError, match="action space"):
        vector_env([functools.partial(SpaceEnv, "box", name) for name in ("discrete", "box")])
    with pytest.raises((RuntimeError, ValueError)):
        vector_env(of_spaces(spaces.Discrete(3), spaces.Box(0, 1, (2,))), observation_mode="different")


def test_spaces_may_differ_in_their_bounds_where_that_is_said(vector_env: Any) -> None:
    own = [spaces.Box(0, high, (5,)) for high in (1, 2, 3)]
    given = (spaces.Box(0, 9, (3, 5)), spaces.Box(0, 9, (5,)))
    for mode, batched, single in [("different", batch_differing_spaces(own), own[0]), (given, *given)]:
        envs = vector_env(of_spaces(*own), observation_mode=mode)
        assert envs.observation_space == batched and envs.single_observation_space == single
        envs.reset()
        assert envs.step([0, 1, 2])[0].shape == (3, 5)
        envs.close()


@pytest.mark.parametrize(
    ("mode", "error", "text"),
    [
        ("invalid", ValueError, "Invalid `observation_mode`, expected: 'same' or 'different'.*actual got invalid"),
        (("a", "b"), TypeError, "Expected both elements of observation_mode to be Spaces"),
        ((spaces.Box(0, 1, (2, 3)), spaces.Box(0, 1, (3,))), RuntimeError, "do not share a common shape and dtype"),
    ],
)
def test_a_wrong_observation_mode_is_named(vector_env: Any, mode: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        vector_env(of_spaces(spaces.Box(0, 1, (5,)), spaces.Box(0, 1, (5,))), observation_mode=mode)


def test_actions_keep_the_types_that_they_are_given_with(vector_env: Any) -> None:
    envs = vector_env([functools.partial(SpacedEnv, spaces.Discrete(2))] * 2)
    envs.reset()
    for actions in ([0, 2], np.array([0, 2]), np.array([0, 2], np.int8), np.array([0.5, 1.5]), (True, "b")):
        assert envs.step(actions)[-1]["action"].tolist() == [f"{type(a).__name__} {a}" for a in actions]
    envs.close()


def test_a_wrong_number_of_actions_steps_nothing(vector_env: Any) -> None:
    envs = vector_env([CounterEnv] * 2)
    envs.reset()
    for actions, error in [([0], ValueError), (np.zeros(3, np.int64), ValueError), (0, TypeError)]:
        with pytest.raises(error):
            envs.step(actions)
    assert envs.step([0, 0])[0].tolist() == [[1, 1], [1, 1]]
    envs.close()


def test_final_observations_are_what_the_environments_returned(vector_env: Any) -> None:
    class Env(CounterEnv):
        observation_space = spaces.Discrete(9)

        def _observation(self) -> Any:
            return self.steps  # an int, not a NumPy number

    factories = [functools.partial(Env, length) for length in (1, 2)]
    envs = vector_env(factories, autoreset_mode=AutoresetMode.SAME_STEP)
    peer = getattr(gymnasium.vector, vector_env.__name__)
    theirs = peer(factories, autoreset_mode=AutoresetMode.SAME_STEP)
    assert_same(envs.reset(), theirs.reset())
    for _ in range(5):
        assert_same(envs.step([0, 0]), theirs.step([0, 0]))
    envs.close()
    theirs.close()


def test_the_mask_is_taken_out_of_the_callers_options(vector_env: Any) -> None:
    envs = vector_env([CounterEnv] * 2)
    options = {"reset_mask": np.array([True, True]), "x": 1}
    envs.reset(options=options)
    assert options == {"x": 1}
    envs.close()


def test_stepping_before_the_first_reset_is_the_environments_affair(vector_env: Any) -> None:
    envs = vector_env([CounterEnv] * 2)
    assert envs.step([1, 2])[1].tolist() == [1.0, 2.0]
    envs.close()
    guarded = vector_env([functools.partial(gymnasium.make, "CartPole-v1")] * 2)
    with warnings.catch_warnings(), pytest.raises(gymnasium.error.ResetNeeded):
        warnings.simplefilter("ignore")
        guarded.step([0, 1])
    guarded.close()


def test_the_serial_class_refuses_to_step_what_has_ended() -> None:
    envs = compat.SyncVectorEnv([functools.partial(CounterEnv, n) for n in (1, 3)], autoreset_mode="Disabled")
    envs.reset()
    ended = envs.step([0, 0])[2]
    with pytest.raises(AssertionError, match="must be reset first"):
        envs.step([0, 0])
    envs.reset(options={"reset_mask": ended})
    envs.step([0, 0])
    envs.close()


# AsyncVectorEnv alone


def test_calls_out_of_order_have_the_peers_words() -> None:
    envs = compat.AsyncVectorEnv([CounterEnv] * 2)
    for name in ("reset", "step", "call"):
        with pytest.raises(NoAsyncCallError, match=f"Calling `{name}_wait` without any prior call to `{name}_async`."):
            getattr(envs, f"{name}_wait")()
    envs.reset_async()
    with pytest.raises(
        AlreadyPendingCallError, match="`step_async` while waiting for a pending call to `reset`"
    ) as error:
        envs.step_async([0, 0])
    assert error.value.name == "reset"
    with pytest.warns(UserWarning, match="Calling `close` while waiting for a pending call to `reset` to complete."):
        envs.close(terminate=True)
    with pytest.raises(ClosedEnvironmentError, match="Trying to operate on `AsyncVectorEnv`, after a call to `close"):
        envs.reset()
    with pytest.raises(ValueError, match="Trying to call function `_setattr` with `call`"):
        compat.AsyncVectorEnv.call_async(envs, "_setattr")


def test_the_result_of_a_call_whose_time_was_over_is_not_the_next_ones(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    envs = compat.AsyncVectorEnv([functools.partial(GatedEnv, gate)] * 2)
    envs.reset()
    envs.step_async([1, 0])
    with pytest.raises(
        multiprocessing.TimeoutError, match=re.escape("`step_wait` has timed out after 0.01 second(s).")
    ):
        envs.step_wait(timeout=0.01)
    gate.touch()
    assert envs.get_attr("steps") == (1, 1)  # it has been stepped, and nobody wants to know
    observations, rewards, *_ = envs.step([0, 0])
    assert observations.tolist() == [[1, 2], [1, 2]] and rewards.tolist() == [0.0, 0.0]
    gate.unlink()
    envs.step_async([1, 0])
    with pytest.raises(multiprocessing.TimeoutError):
        envs.step_wait(timeout=0.01)
    envs.close(terminate=True)


def test_failures_are_told_of_each_worker_in_the_peers_words() -> None:
    failing = functools.partial(FaultyEnv, step=ValueError("bad luck"))
    envs = compat.AsyncVectorEnv([CounterEnv, failing, failing])
    envs.reset()
    with warnings.catch_warnings(record=True) as caught, pytest.raises(ValueError, match="bad luck"):
        warnings.simplefilter("always")
        envs.step([0, 0, 0])
    texts = [str(warning.message) for warning in caught]
    assert len(texts) == 5
    for i, worker in ((0, 1), (2, 2)):
        assert texts[i] == f"\x1b[31mERROR: Received the following error from Worker-{worker} - Shutting it down\x1b[0m"
        assert texts[i + 1].startswith("\x1b[31mERROR: Traceback") and texts[i + 1].endswith(
            "ValueError: bad luck\n\x1b[0m"
        )
    assert texts[4] == "\x1b[31mERROR: Raising the last exception back to the main process.\x1b[0m"
    envs.close()


def test_an_environments_own_timeout_is_no_call_under_way() -> None:
    envs = compat.AsyncVectorEnv([functools.partial(FaultyEnv, step=TimeoutError("the simulator"))])
    envs.reset()
    with warnings.catch_warnings(), pytest.raises(TimeoutError, match="the simulator"):
        warnings.simplefilter("ignore")
        envs.step([0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        envs.close()


def test_a_dead_worker_is_a_worker_died_and_close_works() -> None:
    envs = compat.AsyncVectorEnv([CounterEnv] * 2)
    envs.reset()
    processes = envs.processes
    processes[0].kill()
    processes[0].join(30)
    assert not processes[0].is_alive() and processes[1].is_alive()
    with pytest.raises(shoal.WorkerDied):
        for _ in range(1000):
            envs.step([0, 0])
    envs.close()
    assert not any(process.is_alive() for process in processes)


def test_a_worker_that_dies_in_a_step_is_told_with_its_last_words() -> None:
    envs = compat.AsyncVectorEnv([MortalEnv] * 2)
    envs.reset()
    with pytest.raises(shoal.WorkerDied, match=TOLD_OF_DEATH):
        envs.step([0, 2])
    envs.close()


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_a_lost_environment_is_replaced_where_that_is_asked(mode: AutoresetMode) -> None:
    fault = shoal.FaultPolicy("restart", backoff=0.0)
    length = 1_000_000  # steps are short: thousands pass until another worker is up
    envs = compat.AsyncVectorEnv([functools.partial(MortalEnv, length)] * 2, autoreset_mode=mode, on_fault=fault)
    envs.reset(seed=1)
    envs.step([0, 0])
    _, rewards, terminated, truncated, infos = envs.step([1, 2])
    assert rewards.tolist() == [1.0, 0.0] and truncated.tolist() == [False, True] and not terminated.any()
    lost = infos["fault"][1]
    assert infos["fault"][0] is None and (lost.env, lost.signal) == (1, signal.SIGKILL)
    assert "the simulator says goodbye" in lost.details
    while "down" in (infos := (result := envs.step(np.array([1, 1])))[4]):
        assert infos["down"].tolist() == [False, True] and result[3][1]
    assert result[0][1].tolist() == [1, 0] and not result[3].any()
    assert result[0][0, 0] == 1 and envs.get_attr("length") == (length, length)
    envs.close()


class SayingEnv(CounterEnv):
    def track(self) -> str | None:
        return os.environ.get("TRACK")


def test_workers_are_set_up_as_asked() -> None:
    envs = compat.AsyncVectorEnv([SayingEnv], worker_options=shoal.WorkerOptions(env={"TRACK": "ice"}))
    assert envs.call("track") == ("ice",)
    envs.close()
    with pytest.raises(TypeError, match=r"worker_options=…\) takes shoal\.WorkerOptions"):
        compat.AsyncVectorEnv([SayingEnv], worker_options={"TRACK": "ice"})


def test_spaces_that_shared_memory_of_the_peer_refuses_are_refused() -> None:
    for space in (spaces.Sequence(spaces.Discrete(2)), spaces.Graph(spaces.Discrete(2), None)):
        with pytest.raises(TypeError, match="has a dynamic shape so its not possible to make a static shared memory"):
            compat.AsyncVectorEnv(of_spaces(space, space))
    with pytest.raises(ValueError, match="shared_memory=False"):
        compat.AsyncVectorEnv(of_spaces(PlainWordSpace(), PlainWordSpace()))
    envs = compat.AsyncVectorEnv(of_spaces(*[spaces.Text(40)] * 2))
    seen = {envs.reset()[0][0], *(envs.step([0, 0])[0][0] for _ in range(5))}
    assert len(seen) > 3  # the peer decodes a Text once, and never again
    envs.close()


@pytest.mark.parametrize("arguments", [{"max_concurrency": 2}, {"num_workers": 2}, {"max_concurrency": np.int64(2)}])
def test_workers_may_share_environments(arguments: dict[str, Any]) -> None:
    envs = compat.AsyncVectorEnv([functools.partial(SpaceEnv, "box")] * 4, **arguments)
    assert len(set(envs.call("pid"))) == 2
    envs.close()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"max_concurrency": 1.5}, "`max_concurrency` must be an integer or None, got"),
        ({"max_concurrency": 0}, "`max_concurrency` must be a positive or None, got"),
        ({"num_workers": 0}, "num_workers"),
        ({"on_fault": "again"}, "takes 'raise', 'restart' or 'drop', got 'again'"),
        ({"context": "thread"}, "cannot find context for 'thread'"),
        ({"autoreset_mode": "Never"}, "Never"),
        ({"worker": lambda: None}, "A custom `worker` must accept 8 arguments"),
    ],
)
def test_wrong_arguments_are_named_before_anything_starts(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        compat.AsyncVectorEnv([CounterEnv], **arguments)


@pytest.mark.parametrize("context", ["fork", "forkserver", "spawn"])
def test_every_context_starts(context: str) -> None:
    bonus = 3.0

    class Local(CounterEnv):
        def step(self, action: Any) -> Any:
            observation, reward, *rest = super().step(action)
            return (observation, reward + bonus, *rest)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fork may give way here
        envs = compat.AsyncVectorEnv([Local] * 2, context=context)
    envs.reset()
    assert envs.step([0, 1])[1].tolist() == [3.0, 4.0]
    envs.close()


def test_a_custom_worker_is_run_by_gymnasiums_own_class() -> None:
    from gymnasium.vector.async_vector_env import AsyncVectorEnv, _async_worker

    envs = compat.AsyncVectorEnv([CounterEnv] * 2, worker=functools.partial(_async_worker), context="fork")
    assert type(envs) is AsyncVectorEnv
    envs.reset()
    envs.close()
    with pytest.raises(ValueError, match="leave on_fault out"):
        compat.AsyncVectorEnv([CounterEnv] * 2, worker=functools.partial(_async_worker), on_fault="restart")


def test_an_environment_dropped_without_close_ends_its_workers() -> None:
    envs = compat.AsyncVectorEnv([CounterEnv] * 2)
    (process, _) = envs.processes
    envs.reset_async()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del envs
        gc.collect()
    process.join(30)
    assert not process.is_alive()


# register()


@pytest.fixture
def registered() -> Any:
    yield compat.register
    compat.unregister()


def test_make_vec_of_gymnasium_reaches_shoal(registered: Any) -> None:
    before = gymnasium.spec("CartPole-v1").vector_entry_point
    registered("CartPole-v1", num_workers=2)
    envs = gymnasium.make_vec("CartPole-v1", 4, vectorization_mode="vector_entry_point", max_episode_steps=2)
    assert isinstance(envs, shoal.VectorEnv) and envs.num_workers == 2 and envs.spec.id == "CartPole-v1"
    theirs = gymnasium.make_vec("CartPole-v1", 4, vectorization_mode="sync", max_episode_steps=2)
    assert_same(envs.reset(seed=1), theirs.reset(seed=1))
    for _ in range(5):
        assert_same(envs.step(np.ones(4, np.int64)), theirs.step(np.ones(4, np.int64)))
    envs.close()
    compat.unregister("CartPole-v1")
    assert gymnasium.spec("CartPole-v1").vector_entry_point == before
    with pytest.raises(gymnasium.error.UnregisteredEnv, match="has not been called"):
        compat.unregister("CartPole-v1")


@pytest.mark.parametrize("single", [False, True], ids=["", "known_to_make"])
def test_native_environments_have_ids_in_gymnasium(
    registered: Any, single: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from shoal import envs as native

    known = {name: spec for name, spec in gymnasium.registry.items() if not name.startswith("shoal/")}
    monkeypatch.setattr(gymnasium.envs.registration, "registry", known)
    if single:
        native.register()
    registered()
    envs = gymnasium.make_vec("shoal/CartPole-v1", 3)
    assert isinstance(envs, shoal.VectorEnv) and repr(envs) == "VectorEnv(shoal/CartPole-v1, num_envs=3)"
    envs.reset(seed=0)
    envs.step(envs.action_space.sample())
    envs.close()
    for _ in range(2):
        gymnasium.make("shoal/CartPole-v1").close()
        compat.unregister()


def test_native_ids_are_known_to_make_whichever_is_first() -> None:
    """register() before `import shoal.envs` made them ids without an environment."""
    program = (
        "import gymnasium, shoal.compat.gymnasium as compat\n"
        "compat.register()\n"
        "import shoal.envs\n"
        "print(gymnasium.make('shoal/CartPole-v1').spec.id)\n"
        "compat.unregister()\n"
        "print(gymnasium.make('shoal/CartPole-v1').spec.id)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "shoal/CartPole-v1\n" * 2), done.stderr


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"n_workers": 2}, "has no argument 'n_workers'. Did you mean 'num_workers'"),
        ({"vector_kwargs": {}}, "arguments of make_vec"),
        ({"unknown": 2}, "has no argument 'unknown'"),
        ({"num_envs": 4}, "takes no num_envs"),
    ],
)
def test_arguments_that_make_vec_has_not_are_refused_at_once(
    registered: Any, arguments: dict[str, Any], text: str
) -> None:
    before = gymnasium.spec("CartPole-v1").vector_entry_point
    with pytest.raises(TypeError, match=text):
        registered("CartPole-v1", **arguments)
    assert gymnasium.spec("CartPole-v1").vector_entry_point == before


def test_what_is_registered_for_the_environments_goes_beside_what_the_call_says(registered: Any) -> None:
    registered("CartPole-v1", num_workers=0, env_kwargs={"sutton_barto_reward": True, "max_episode_steps": 9})
    envs = gymnasium.make_vec("CartPole-v1", 1, max_episode_steps=2)
    envs.reset(seed=1)
    assert [envs.step(np.zeros(1, np.int64))[1:4] for _ in range(2)] == [
        ([0.0], [False], [False]),
        ([0.0], [False], [True]),
    ]
    envs.close()


@pytest.mark.parametrize(
    "argument", [{"wrappers": [gymnasium.wrappers.TimeAwareObservation]}, {"vector_kwargs": {"copy": False}}]
)
def test_wrappers_and_vector_kwargs_need_a_mode_where_an_id_is_registered(registered: Any, argument: Any) -> None:
    """As docs/migrating/gymnasium.md says."""
    registered("Acrobot-v1", num_workers=0)
    with pytest.raises(gymnasium.error.Error, match=next(iter(argument))):
        gymnasium.make_vec("Acrobot-v1", 2, **argument)
    gymnasium.make_vec("Acrobot-v1", 2, vectorization_mode="sync", **argument).close()


def test_an_unknown_id_cannot_be_registered(registered: Any) -> None:
    with pytest.raises(gymnasium.error.Error, match="NoSuchThing"):
        registered("NoSuchThing-v0")


def test_processes_that_are_gone_are_no_process_group() -> None:
    """The kernel takes process 0 for all of the caller's group."""
    program = (
        "import shoal.compat.gymnasium as compat, gymnasium\n"
        "from functools import partial\n"
        "envs = compat.AsyncVectorEnv([partial(gymnasium.make, 'CartPole-v1')] * 2)\n"
        "envs.close()\n"
        "for process in envs.processes:\n"
        "    process.terminate(), process.kill(), process.join()\n"
        "    print(process.is_alive(), 'stopped' in repr(process))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, start_new_session=True)
    assert (done.returncode, done.stdout) == (0, "False True\nFalse True\n"), done.stderr


def test_environments_cannot_be_replaced_unnoticed() -> None:
    envs: Any = compat.SyncVectorEnv([CounterEnv] * 2)
    with pytest.raises(TypeError, match="item assignment"):
        envs.envs[0] = CounterEnv()
    envs.close()


@pytest.mark.parametrize("kind", [compat.SyncVectorEnv, compat.AsyncVectorEnv])
def test_what_are_no_factories_is_said_by_the_class_that_got_them(kind: Any) -> None:
    for wrong, error, text in (
        (
            "CartPole-v1",
            TypeError,
            r"takes a list of functions that make environments, one for each, got 'CartPole-v1'",
        ),
        ([CounterEnv()], TypeError, r"env_fns\[0\] is"),
        ([], ValueError, "empty list"),
        (CounterEnv, TypeError, "one for each"),
    ):
        with pytest.raises(error, match=f"{kind.__name__}.*{text}"):
            kind(wrong)


def test_registered_arguments_may_be_such_as_cannot_be_copied() -> None:
    with shoal.WorkerPool(2) as pool:
        compat.register("CartPole-v1", pool=pool)
        try:
            envs = gymnasium.make_vec("CartPole-v1", num_envs=2)
            assert isinstance(envs, shoal.VectorEnv) and envs.reset()[0].shape == (2, 4)
            envs.close()
        finally:
            compat.unregister("CartPole-v1")
