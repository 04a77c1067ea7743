"""What shoal.make_vec says when it is used wrongly, and what it raises when an environment fails."""

from __future__ import annotations

import functools
import socket
import threading
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import shoal
import shoal.errors
from sample_envs import CounterEnv, FaultyEnv, SpaceEnv, TwoArgumentError
from vector_backends import PYTHON_BACKENDS, Make, make_on

make = make_on(PYTHON_BACKENDS)


def notes(error: BaseException) -> str:
    return "\n".join(getattr(error, "__notes__", ()))


class ThirdStep(CounterEnv):
    """Fails at its third step, in one way or another."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.count = how, 0

    def step(self, action: Any) -> Any:
        self.count += 1
        if self.count < 3:
            return super().step(action)
        if self.how == "raises":
            raise ValueError("what it raises")
        if self.how == "returns too little":
            return super().step(action)[:3]
        observation, *rest, info = super().step(action)
        return (observation, *rest, None) if self.how == "has no info" else (np.zeros(77), *rest, info)


@pytest.mark.parametrize("how", ["raises", "returns too little", "has no info", "does not fit"])
def test_the_step_that_failed_is_counted_from_one(how: str) -> None:
    with shoal.make_vec(lambda: ThirdStep(how), 1, num_workers=1) as envs:
        envs.reset(seed=0)
        with pytest.raises(ValueError) as caught:
            for _ in range(5):
                envs.step(envs.action_space.sample())
    assert "step 3 of its episode" in notes(caught.value)


# What is to be built


def test_an_instance_is_refused_with_the_fix() -> None:
    with pytest.raises(TypeError, match=r"got an environment \(a CartPoleEnv\).*make_vec\('CartPole-v1', …\)"):
        shoal.make_vec(gymnasium.make("CartPole-v1"), 2)
    with pytest.raises(TypeError, match=r"make_vec\(lambda: CounterEnv\(…\), …\)"):
        shoal.make_vec(CounterEnv(), 2)
    with pytest.raises(TypeError, match="got, as element 1 of the list, an environment"):
        shoal.make_vec([CounterEnv, CounterEnv()])
    with pytest.raises(TypeError, match=r"env_kwargs=\{'render_mode': 'rgb_array'\}"):
        shoal.make_vec(gymnasium.make("CartPole-v1", render_mode="rgb_array"), 2)
    with pytest.raises(TypeError, match=r"make_vec\(lambda: TimeLimit\(CounterEnv\(…\), …\), …\)"):
        shoal.make_vec(gymnasium.wrappers.TimeLimit(CounterEnv(), 5), 2)
    around = gymnasium.wrappers.FrameStackObservation(gymnasium.make("CartPole-v1"), 4)
    with pytest.raises(TypeError, match=r"lambda: FrameStackObservation\(gymnasium.make\('CartPole-v1'\), …\)"):
        shoal.make_vec(around, 2)
    with pytest.raises(TypeError, match=r"generator object.*write make_vec\(list\(…\)\)"):
        shoal.make_vec(CounterEnv for _ in range(2))


def test_one_environment_for_all_is_refused(make: Make) -> None:
    env = CounterEnv()
    with pytest.raises(
        TypeError, match=r"environment 1: its factory returned the CounterEnv that is environment 0 already"
    ):
        make([lambda: env] * 2, num_workers=1)
    with pytest.raises(TypeError, match="got an environment"):
        shoal.make_vec(gymnasium.make_vec("CartPole-v1", 2), 2)


@pytest.mark.parametrize(
    ("env_id", "nearest"),
    [("CartPol-v1", "CartPole-v1"), ("cartpole-V1", "CartPole-v1"), ("shoal/CartPol-v1", "shoal/CartPole-v1")],
)
def test_an_unknown_id_names_the_nearest(env_id: str, nearest: str) -> None:
    with pytest.raises(gymnasium.error.NameNotFound, match=f"Did you mean '{nearest}'"):
        shoal.make_vec(env_id, 2)


def test_an_id_of_a_module_that_is_not_there_names_the_module() -> None:
    with pytest.raises(
        ModuleNotFoundError, match="no module 'no_such_module_at_all' to import: run the program in the folder"
    ):
        shoal.make_vec("no_such_module_at_all:Env-v0", 2)


@pytest.mark.parametrize(
    ("env_id", "text"),
    [
        ("sample_envs:CounterEnv", r"as a class.*register\('CounterEnv-v0', entry_point='sample_envs:CounterEnv'\)"),
        ("sample_envs:Counter-v3", r"no environment 'Counter-v3'. Write into it: gymnasium.register\('Counter-v3', "),
        ("sample_envs:CartPol-v1", "Did you mean 'CartPole-v1'"),
        ("mine/Walk-v0", r"One of a plug-in is there after shoal.envs.load_plugin\(…\)"),
    ],
)
def test_an_id_that_nobody_registered_says_how_it_becomes_one(env_id: str, text: str) -> None:
    with pytest.raises(gymnasium.error.NameNotFound, match=text):
        shoal.make_vec(env_id, 2)


def test_an_id_without_version_is_the_newest() -> None:
    envs = shoal.make_vec("CartPole", 1)
    assert envs.spec.id == "CartPole-v1"
    envs.close()


@pytest.mark.parametrize("env", [3, None, {"a": 1}, object()])
def test_what_builds_no_environment_is_a_type_error(env: Any) -> None:
    with pytest.raises(TypeError, match="takes an environment's id, its class, a function"):
        shoal.make_vec(env, 2)


@pytest.mark.parametrize(
    ("env", "text"),
    [
        ((name for name in ["CartPole-v1"]), r"got <generator .*: write make_vec\(list\(…\)\)$"),
        ([["CartPole-v1"]], r"got, as element 0 of the list, \['CartPole-v1'\]$"),
        (["CartPole-v1", {"CartPole-v1"}], r"got, as element 1 of the list, \{'CartPole-v1'\}$"),
    ],
)
def test_a_list_is_advised_where_one_would_do(env: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        shoal.make_vec(env)


def test_an_unpicklable_part_is_named_before_any_process_starts() -> None:
    with socket.socket() as connection:
        config = {"nested": {"connection": connection}}
        with pytest.raises(TypeError, match=r"env\.<closure>\.config\['nested'\]\['connection'\].*cannot pickle"):
            shoal.make_vec(lambda: (config, CounterEnv())[1], 2, num_workers=2)
        with pytest.raises(TypeError, match=r"env\[1\]"):
            shoal.make_vec([CounterEnv, lambda: (config, CounterEnv())[1]], num_workers=2)


@pytest.mark.parametrize(
    ("argument", "text"),
    [
        ({"render_mode": "rgb_array"}, r"env_kwargs=\{'render_mode': 'rgb_array'\}"),
        ({"num_worker": 2}, r"no argument 'num_worker'. Did you mean 'num_workers'\?"),
    ],
)
def test_an_argument_of_the_environments_or_a_slip_names_what_was_meant(argument: dict[str, Any], text: str) -> None:
    with pytest.raises(TypeError, match=text):
        shoal.make_vec("CartPole-v1", 2, **argument)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"num_envs": 0}, ValueError, "at least 1"),
        ({"num_envs": -2}, ValueError, "at least 1"),
        ({"num_envs": 2**31}, ValueError, r"at most 2\*\*31 - 1, got 2147483648"),
        ({"env": "shoal/CartPole-v1", "num_envs": 2**31}, ValueError, r"make_vec\(num_envs=…\) takes"),
        ({"num_envs": 1.5}, TypeError, "takes an int"),
        ({"num_envs": True}, TypeError, "takes an int"),
        ({"num_workers": -1}, ValueError, "0 or more"),
        ({"num_workers": "2"}, TypeError, "takes an int"),
        ({"context": "thread"}, ValueError, "'auto', 'fork', 'forkserver' or 'spawn', got 'thread'"),
        ({"backend": "ray"}, ValueError, "'auto', 'process', 'thread' or 'serial', got 'ray'"),
        ({"backend": "thread"}, ValueError, "native environments"),
        ({"backend": "process", "num_workers": 0}, ValueError, "no workers"),
        ({"autoreset_mode": "never"}, ValueError, "'next_step', 'same_step' or 'disabled', got 'never'"),
        ({"on_fault": "ignore"}, ValueError, "'raise', 'restart' or 'drop'"),
        ({"seed": [1, 2, 3]}, ValueError, "length must match num_envs=2"),
        ({"env_kwargs": {"no_such_argument": 1}}, TypeError, "no_such_argument"),
        ({"env_kwargs": ["length"]}, TypeError, "takes a dict of keyword arguments"),
        ({"copy": "no"}, TypeError, "takes True or False"),
        ({"timeout": "1"}, TypeError, "takes seconds"),
        ({"timeout": -1}, ValueError, "0 or more seconds"),
        ({"seed": "a"}, TypeError, "seed must be an int"),
        ({"worker": {"threads": 2}}, TypeError, "shoal.WorkerOptions"),
    ],
)
def test_a_wrong_argument_is_named_with_its_choices(
    arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        shoal.make_vec(**{"env": CounterEnv, "num_envs": 2, **arguments})


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"threads": 0}, ValueError),
        ({"threads": 2**31}, ValueError),
        ({"gpu": "all"}, ValueError),
        ({"affinity": "some"}, ValueError),
        ({"start_timeout": 0}, ValueError),
        ({"start_timeout": "3"}, TypeError),
        ({"start_timeout": True}, TypeError),
        ({"preload": "json"}, TypeError),
        ({"preload": [3]}, TypeError),
        ({"preload": 3}, TypeError),
        ({"shared_bytes": True}, ValueError),
        ({"shared_bytes": 0}, ValueError),
        ({"env": {"": "1"}}, ValueError),
        ({"env": {"A=B": "1"}}, ValueError),
        ({"env": {"A\0": "1"}}, ValueError),
        ({"env": {"A": "1\0 2"}}, ValueError),
    ],
)
def test_wrong_worker_options_are_named(arguments: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match=rf"WorkerOptions\({next(iter(arguments))}=…\) takes"):
        shoal.WorkerOptions(**arguments)


def test_a_factory_must_return_one_environment(make: Make) -> None:
    with pytest.raises(TypeError, match="environment 0: its factory must return a gymnasium.Env.*returned None"):
        make(lambda: None, 2)
    with pytest.raises(TypeError, match=r"returned the class CounterEnv: call it there, CounterEnv\(…\)"):
        make(lambda: CounterEnv, 2)
    with pytest.raises(TypeError, match="must return a single gymnasium.Env"):
        make(functools.partial(gymnasium.make_vec, "CartPole-v1", 2), 2)


def test_environments_of_different_spaces_are_refused_with_both(make: Make) -> None:
    factories = [functools.partial(SpaceEnv, name) for name in ("box", "box", "box_float64", "box")]
    with pytest.raises(shoal.errors.SpacesDiffer, match=r"environment 2 has Box\(-inf, inf, \(2, 2\), float64\)"):
        make(factories)
    with pytest.raises(ValueError, match="environment 1 .*Discrete"):
        make([functools.partial(SpaceEnv, "box", "box"), functools.partial(SpaceEnv, "box", "discrete")])


def test_what_is_no_space_is_refused(make: Make) -> None:
    class Odd(CounterEnv):
        observation_space = "Box"

    with pytest.raises(ValueError, match="expected a gymnasium.Space, got Box"):
        make(Odd, 2)


def test_spaces_without_arrays_that_differ_are_refused(make: Make) -> None:
    class Odd(CounterEnv):
        def __init__(self, length: int) -> None:
            super().__init__()
            self.observation_space = spaces.Dict({"a": spaces.Text(length), "b": spaces.Discrete(2)})

    with pytest.raises(ValueError, match=r"environment 1 has Dict\('a': Text\(1, 4"):
        make([functools.partial(Odd, length) for length in (3, 4)])


# What an environment does


@pytest.mark.parametrize("error", [ValueError("bad luck"), KeyError("missing"), OSError(5, "io"), SystemError("odd")])
def test_an_exception_in_init_comes_back_as_it_was(make: Make, error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        make([CounterEnv, CounterEnv, functools.partial(FaultyEnv, init=error), CounterEnv])
    assert str(caught.value) == str(error)
    assert "environment 2: while it was built" in notes(caught.value)


@pytest.mark.parametrize("method", ["reset", "step"])
def test_an_exception_in_reset_or_step_names_environment_action_and_seed(make: Make, method: str) -> None:
    envs = make([CounterEnv, CounterEnv, functools.partial(FaultyEnv, **{method: ValueError("bad luck")}), CounterEnv])
    if method == "step":
        envs.reset(seed=40)
    with pytest.raises(ValueError, match="bad luck") as caught:
        envs.reset(seed=40) if method == "reset" else envs.step([0, 0, 1, 0])
    assert f"environment 2: {method}()" in notes(caught.value) and "last seed 42" in notes(caught.value)
    assert ("action np.int64(1)" in notes(caught.value)) == (method == "step")
    with pytest.raises(RuntimeError):
        envs.reset()


@pytest.mark.parametrize("when", ["init", "step"])
def test_a_gpu_that_a_worker_does_not_see_is_explained(when: str) -> None:
    error = RuntimeError("No CUDA GPUs are available")
    with pytest.raises(RuntimeError, match="No CUDA GPUs") as caught:
        with shoal.make_vec(functools.partial(FaultyEnv, **{when: error}), 2, num_workers=2) as envs:
            envs.reset()
            envs.step([0, 0])
    assert "environment 0" in notes(caught.value) or "environment 1" in notes(caught.value)
    assert "shoal.WorkerOptions(gpu='own')" in str(caught.value.__cause__)


def test_the_workers_traceback_is_the_cause() -> None:
    envs = shoal.make_vec(functools.partial(FaultyEnv, step=ValueError("bad luck")), 2, num_workers=2)
    envs.reset()
    with pytest.raises(ValueError) as caught:
        envs.step([0, 0])
    cause = str(caught.value.__cause__)
    assert "worker 0" in cause and "sample_envs.py" in cause and "raise self.raise_in_step" in cause
    envs.close()


def test_an_exception_that_cannot_be_pickled_comes_as_a_remote_error_with_its_text() -> None:
    class Env(CounterEnv):
        def step(self, action: Any) -> Any:
            error = ValueError("what it says")
            error.lock = threading.Lock()
            raise error

    envs = shoal.make_vec(Env, 2, num_workers=2)
    envs.reset()
    with pytest.raises(shoal.RemoteError, match="ValueError: what it says"):
        envs.step([0, 0])
    envs.close()


def test_an_exception_with_two_arguments_comes_back_as_it_was(make: Make) -> None:
    class Env(CounterEnv):
        def step(self, action: Any) -> Any:
            raise TwoArgumentError("no", 3)

    envs = make(Env, 2)
    envs.reset()
    with pytest.raises(TwoArgumentError, match="no/3"):
        envs.step([0, 0])


@pytest.mark.parametrize(
    ("observation", "text"),
    [
        (np.zeros(3), r"expected float64 of shape \(2,\), got float64 of shape \(3,\)"),
        (np.zeros((2, 1)), r"got float64 of shape \(2, 1\)"),
        (0.5, r"got float64 of shape \(\)"),
        (np.array(["a", "b"]), "got <U1"),
        ([1, [2, 3]], "NumPy says"),
        (object(), "got object of shape"),
    ],
)
def test_an_observation_that_does_not_fit_names_what_came_and_what_the_space_says(
    make: Make, observation: Any, text: str
) -> None:
    envs = make([CounterEnv, functools.partial(_Returning, observation)])
    envs.reset()
    with pytest.raises(ValueError, match=f"environment 1: step\\(\\) returned an observation.*{text}"):
        envs.step([0, 0])


UNFIT = [
    (np.uint8, 0.5),
    (np.uint8, 300),
    (np.uint8, -1),
    (np.uint8, np.nan),
    (np.int8, np.int64(300)),
    (np.float32, 1e300),
    (np.float16, np.float32(1e6)),
]


@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
@pytest.mark.parametrize(("dtype", "value"), UNFIT)
def test_values_that_the_dtype_cannot_hold_are_refused(make: Make, dtype: Any, value: Any) -> None:
    class Image(CounterEnv):
        observation_space = spaces.Box(0, 100, (2,), dtype)

        def _observation(self) -> Any:
            return np.array([0, value if self.steps else 0])

    envs = make(Image, 1)
    assert envs.reset()[0].tolist() == [[0, 0]]
    with pytest.raises(ValueError, match=f"values that {np.dtype(dtype)} cannot hold"):
        envs.step([0])


@pytest.mark.parametrize(("dtype", "value"), [(np.float32, 0.1), (np.float32, np.inf), (np.float16, np.nan)])
def test_floats_are_rounded(make: Make, dtype: Any, value: float) -> None:
    class Measured(CounterEnv):
        observation_space = spaces.Box(-np.inf, np.inf, (2,), dtype)

        def _observation(self) -> Any:
            return np.array([0.1, value])

    assert np.array_equal(make(Measured, 1).reset()[0], np.array([[0.1, value]], dtype), equal_nan=True)


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (
            (np.zeros(2), 1.0, False, {}),
            r"must return \(observation, reward, terminated, truncated, info\).*tuple of 4: those of old gym",
        ),
        (np.zeros(2), "returned numpy.ndarray"),
        ((np.zeros(2), 1.0, False, False, None), "a dict as info, it returned NoneType"),
        ((np.zeros(2), "much", False, False, {}), "not a number or a truth value"),
        ((np.zeros(2), None, False, False, {}), "not a number or a truth value"),
        ((np.zeros(2), 1.0, np.array([True, False]), False, {}), "not a number or a truth value"),
    ],
)
def test_a_step_that_returns_something_else_is_named(make: Make, result: Any, text: str) -> None:
    envs = make(functools.partial(FaultyEnv, result=result), 2)
    envs.reset()
    with pytest.raises(ValueError, match=rf"environment 0: step\(\).*{text}"):
        envs.step([0, 0])


def test_a_reset_in_the_old_style_is_named(make: Make) -> None:
    class Old(CounterEnv):
        def reset(self, **kwargs: Any) -> Any:
            return super().reset(**kwargs)[0].tolist()[:1]

    with pytest.raises(ValueError, match=r"environment 0: reset\(\) must return \(observation, info\)"):
        make(Old, 2).reset()


class Unready(CounterEnv):
    def reset(self, **kwargs: Any) -> Any:
        raise LookupError("no episode today")


def test_after_a_first_reset_that_failed_every_call_says_so(make: Make) -> None:
    envs = make(Unready, 2)
    with pytest.raises(LookupError):
        envs.reset()
    calls = (envs.reset, lambda: envs.step([0, 0]), lambda: envs.send([0], [0]), envs.recv, envs.snapshot)
    for call in calls:
        with pytest.raises(RuntimeError, match=r"these environments are closed, because .* failed"):
            call()


# What the caller passes


@pytest.mark.parametrize(
    ("actions", "error", "text"),
    [
        ([0], ValueError, r"for each of 3 environments, \(3,\) in all, got 1 of them"),
        ([0, 0, 0, 0], ValueError, "got 4 of them"),
        (np.zeros((3, 2), np.int64), ValueError, r"got int64 of shape \(3, 2\)"),
        (0, TypeError, "got one int"),
        (None, TypeError, "got one NoneType"),
        ([0.5, 0, 0], ValueError, "values that int64 cannot hold"),
        (["a", "b", "c"], ValueError, "got <U1"),
    ],
)
def test_actions_that_do_not_fit_step_nothing(make: Make, actions: Any, error: type[Exception], text: str) -> None:
    envs = make(CounterEnv, 3)
    envs.reset()
    with pytest.raises(error, match=text):
        envs.step(actions)
    assert envs.step(np.array([0, 1, 2]))[0][:, 1].tolist() == [1, 1, 1]


def test_actions_may_be_anything_that_makes_an_array(make: Make) -> None:
    envs = make(CounterEnv, 3)
    envs.reset()
    for actions in ([0, 1, 2], (0, 1, 2), np.array([0, 1, 2], np.int8), np.array([0.0, 1.0, 2.0]), iter([0, 1, 2])):
        assert envs.step(actions)[1].tolist() == [0.0, 1.0, 2.0]
        envs.reset()


def test_dict_and_tuple_actions_that_do_not_fit_name_the_leaf(make: Make) -> None:
    envs = make(functools.partial(SpaceEnv, "box", "nested"), 2)
    envs.reset()
    actions = envs.action_space.sample()
    with pytest.raises(ValueError, match="without 'flag'"):
        envs.step({"outer": actions["outer"]})
    with pytest.raises(ValueError, match="for 'outer' a tuple of 2, got one of 1"):
        envs.step({**actions, "outer": actions["outer"][:1]})
    with pytest.raises(ValueError, match="for 'outer/1' int64"):
        envs.step({**actions, "outer": (actions["outer"][0], np.zeros((2, 5)))})


class _Returning(CounterEnv):
    def __init__(self, observation: Any) -> None:
        super().__init__()
        self.observation = observation

    def _observation(self) -> Any:
        return self.observation if self.steps else super()._observation()


def test_wrong_arguments_of_reset_are_named(make: Make) -> None:
    envs = make(CounterEnv, 2)
    with pytest.raises(TypeError, match="seed must be an int"):
        envs.reset(seed=1.5)
    with pytest.raises(TypeError, match="takes a dict, got 3"):
        envs.reset(options=3)
    assert envs.reset(seed=1)[0].tolist() == [[1, 0], [1, 0]]
