"""shoal.compat.torchrl: the contract of TorchRL's batched environments, and what their users meet."""

from __future__ import annotations

import functools
import gc
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

pytest.importorskip("torchrl", reason="it is in an environment of its own: ./shoal test --only torchrl")

from tensordict import LazyStackedTensorDict, TensorDict
from torchrl import envs as peer
from torchrl.envs import EnvBase, GymEnv, GymWrapper
from torchrl.testing.mocking_classes import CountingEnv, NestedCountingEnv

import shoal
from sample_envs import CounterEnv
from shoal.compat.torchrl import ParallelEnv, SerialEnv, slots
from shoal.compat.torchrl.buffers import event_of, portrait_of, rebuilt
from shoal.compat.torchrl.gym_steps import GymSteps
from torchrl_makers import cartpole, transformed


class InfoEnv(CounterEnv):
    """Its infos are arrays, as TorchRL's reader of infos wants them."""

    def reset(self, **kwargs: Any) -> Any:
        obs, _ = super().reset(**kwargs)
        return obs, {"half": np.array(0.5)}

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, _ = super().step(action)
        return obs, reward, terminated, truncated, {"half": np.array(float(np.sum(obs)) / 2)}


def with_infos() -> EnvBase:
    return GymWrapper(InfoEnv()).auto_register_info_dict()


class DictEnv(gymnasium.Env):
    """Observations of several dtypes, rewards of several kinds, and episodes that end in both ways."""

    observation_space = gymnasium.spaces.Dict(
        {
            "image": gymnasium.spaces.Box(0, 255, (2, 3), np.uint8),
            "state": gymnasium.spaces.Box(-1, 1, (2,), np.float64),
        }
    )
    action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)

    def observed(self) -> dict[str, np.ndarray]:
        return {"image": np.full((2, 3), self.steps, np.uint8), "state": self.np_random.uniform(-1, 1, 2)}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return self.observed(), {}

    def step(self, action: np.ndarray) -> Any:
        self.steps += 1
        rewards: list[Any] = [0, 1, 0.1, np.float32(0.3), np.float64(action[0]), True]
        return self.observed(), rewards[self.steps % 6], self.steps == 9, bool(self.steps == 7 and action[1] > 0), {}


MAKERS: dict[str, Callable[[], EnvBase]] = {
    "one_hot": cartpole,
    "categorical": functools.partial(cartpole, categorical_action_encoding=True),
    "box": functools.partial(GymEnv, "Pendulum-v1", max_episode_steps=10),
    "dict": lambda: GymWrapper(DictEnv()),
    "transforms": transformed,
    "infos": with_infos,
    "batched": functools.partial(CountingEnv, max_steps=4, batch_size=(2,)),
    "nested": functools.partial(NestedCountingEnv, max_steps=4),
}


STEPPED_DIRECTLY = ("one_hot", "categorical", "box", "dict")


def assert_equal(ours: Any, theirs: Any) -> None:
    keys = set(theirs.keys(True, True))
    assert set(ours.keys(True, True)) == keys and ours.batch_size == theirs.batch_size
    for key in keys:
        own, expected = ours.get(key), theirs.get(key)
        assert own.dtype == expected.dtype and own.shape == expected.shape, key
        assert torch.equal(own.nan_to_num(7), expected.nan_to_num(7)), key


def played(envs: EnvBase, steps: int = 25) -> list[Any]:
    """Steps with resets by themselves, then by masks. Without the actions beside a first observation, which mean nothing."""
    assert envs.set_seed(3) is not None
    torch.manual_seed(0)
    seen = []
    td = envs.reset()
    seen.append(td.exclude(*envs.action_keys))
    for _ in range(steps):
        out, td = envs.step_and_maybe_reset(envs.rand_action(td))
        seen += [out.clone(), td.exclude(*envs.action_keys)]
    for _ in range(steps):
        td = envs.step(envs.rand_action(td))
        seen.append(td.clone())
        td = envs.step_mdp(td)
        ended = td.get(envs.done_keys[0])
        if ended.any():
            _reset = TensorDict({"_reset": ended.clone()}, batch_size=td.batch_size)
            td = envs.reset(td.update(_reset)) if isinstance(envs.done_keys[0], str) else envs.reset()
            seen.append(td.exclude(*envs.action_keys))
    return seen


# What the classes do, as the peer does it


@pytest.mark.parametrize("name", MAKERS)
def test_results_are_the_peers(name: str) -> None:
    ours, theirs = ParallelEnv(3, MAKERS[name]), peer.SerialEnv(3, MAKERS[name])
    assert isinstance(ours, peer.ParallelEnv) and ours.batch_size == theirs.batch_size
    for spec in ("action_spec", "observation_spec", "reward_spec", "done_spec"):
        assert getattr(ours, spec) == getattr(theirs, spec)
    for own, expected in zip(played(ours), played(theirs), strict=True):
        assert_equal(own, expected)
    ours.close()
    theirs.close()


@pytest.mark.parametrize("name", MAKERS)
def test_gym_environments_over_boxes_are_stepped_without_tensordicts(name: str) -> None:
    envs = ParallelEnv(1, MAKERS[name])
    envs._create_td()
    shared = rebuilt(portrait_of(envs.shared_tensordicts[0]))
    steps = GymSteps.of(MAKERS[name](), shared.exclude("next"), shared.get("next"))
    assert (steps is not None) == (name in STEPPED_DIRECTLY)


def test_partial_steps_and_views_are_the_peers() -> None:
    ours, theirs = ParallelEnv(3, cartpole), peer.SerialEnv(3, cartpole)
    results: list[list[Any]] = []
    for envs in (ours, theirs):
        envs.set_seed(1)
        torch.manual_seed(1)
        td = envs.rand_action(envs.reset())
        td["_step"] = torch.tensor([True, False, True])
        seen = [envs.step(td.clone())]
        view = envs[1:]
        seen.append(view.step_and_maybe_reset(td[1:].exclude("_step"))[0].clone())
        seen.append(envs.step_and_maybe_reset(td.exclude("_step"))[1].clone())
        results.append(seen)
    for own, expected in zip(*results, strict=True):
        for key in (("next", "observation"), ("next", "done"), "observation"):
            if key in expected.keys(True):
                assert torch.equal(own.get(key), expected.get(key)), key
    ours.close()
    theirs.close()


def test_several_tasks_are_stacked_as_the_peers() -> None:
    makers = [functools.partial(CountingEnv, max_steps=3), functools.partial(CountingEnv, max_steps=5)]
    ours, theirs = ParallelEnv(2, makers), peer.SerialEnv(2, makers)
    assert_equal(
        ours.rollout(8, policy=ones, break_when_any_done=False),
        theirs.rollout(8, policy=ones, break_when_any_done=False),
    )
    ours.close()


def ones(td: Any) -> Any:
    return td.set("action", torch.ones(*td.batch_size, 1, dtype=torch.int32))


def test_without_buffers_tensordicts_cross_whole() -> None:
    ours, theirs = ParallelEnv(2, transformed, use_buffers=False), peer.SerialEnv(2, transformed, use_buffers=False)
    for own, expected in zip(played(ours, 6), played(theirs, 6), strict=True):
        assert_equal(own, expected)
    ours.close()


def test_attributes_states_and_restarts_are_the_peers() -> None:
    envs = ParallelEnv(2, lambda: CountingEnv(max_steps=4))
    assert envs.is_closed
    assert envs.rollout(3).shape == (2, 3)
    assert list(envs.max_steps) == [4, 4]
    state = envs.state_dict()
    assert list(state) == ["worker0", "worker1"]
    envs.load_state_dict(state)
    assert len({process.pid for process in envs._workers} | {os.getpid()}) == 3
    processes = envs._workers
    envs.close()
    assert not any(process.is_alive() for process in processes)
    with pytest.raises(RuntimeError, match="closed environment"):
        envs.close()
    assert envs.rollout(3).shape == (2, 3)  # it starts again
    envs.close()


@pytest.mark.parametrize("method", [None, "forkserver", "spawn"])
def test_workers_start_as_asked(method: str | None) -> None:
    envs = ParallelEnv(1, cartpole, mp_start_method=method)
    assert envs.rollout(2).shape == (1, 2)
    assert envs._workers[0]._start_method == (method or "forkserver")
    envs.close()


def test_one_worker_is_a_serial_environment_where_asked() -> None:
    envs = ParallelEnv(1, cartpole, serial_for_single=True, on_fault="restart")
    assert type(envs) is SerialEnv and isinstance(envs, peer.SerialEnv)


# What is Shoal's


def test_no_environment_is_built_in_the_callers_process(tmp_path: Path) -> None:
    def make() -> EnvBase:
        (tmp_path / str(os.getpid())).touch()
        return cartpole()

    envs = ParallelEnv(2, make)
    assert envs.rollout(2).shape == (2, 2)
    assert str(os.getpid()) not in {path.name for path in tmp_path.iterdir()}
    envs.close()


def test_environments_may_share_processes() -> None:
    ours, theirs = ParallelEnv(5, cartpole, num_processes=2), peer.SerialEnv(5, cartpole)
    for own, expected in zip(played(ours, 8), played(theirs, 8), strict=True):
        assert_equal(own, expected)
    assert len({process.pid for process in ours._workers}) == 2
    ours.close()


def partly_one(envs: Any) -> Any:
    """The action 1 for the last environment alone."""
    td = envs.reset()
    td.set("action", torch.ones_like(envs.action_spec.zero()))
    return td.set("_step", torch.arange(envs.num_workers) == envs.num_workers - 1)


class Noting:
    """In the place of an event of CUDA's: notes what lies under a key of the buffers when it is recorded and waited for."""

    def __init__(self, td: Any, key: Any, noted: list[Any]) -> None:
        self.td, self.key, self.noted = td, key, noted

    def record(self) -> None:
        self.noted.append(self.td.get(self.key).flatten().tolist())

    def synchronize(self) -> None:
        self.noted.append("synchronized")


def noting() -> EnvBase:
    env = CountingEnv(max_steps=4)
    env.noted = []
    slots.event_of = lambda td: Noting(td, ("next", "observation"), env.noted)
    return env


def test_what_is_written_on_a_gpu_is_waited_for_on_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[Any] = []
    monkeypatch.setattr("shoal.compat.torchrl.parallel_env.event_of", lambda td: Noting(td, "action", noted))
    envs = ParallelEnv(2, noting)
    td = envs.reset()
    td.set("action", torch.ones_like(envs.action_spec.zero()))
    envs.step(td.clone())
    envs.step_and_maybe_reset(td.clone())
    assert noted[1::2] == ["synchronized"] * 3 and noted[2::2] == [[1, 1], [1, 1]]
    each = [[0.0], "synchronized", [1.0], "synchronized", [2.0], "synchronized"]
    assert list(envs.noted) == [each, each]
    noted.clear()
    envs.step(partly_one(envs))
    assert noted and set(noted[1::2]) == {"synchronized"} and noted[-2][1] == 1
    first, last = envs.noted
    assert [len(first), len(last)] == [8, 10] and last[-2:] == [[1.0], "synchronized"]
    envs.close()
    assert envs.event is None


class OnGpu(torch.Tensor):
    @property
    def is_cuda(self) -> bool:  # type: ignore[override]
        return True


def test_only_what_lies_on_a_gpu_has_an_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "Event", lambda: "an event")
    here = TensorDict({"next": {"reward": torch.zeros(1)}})
    there = TensorDict({"next": {"reward": torch.zeros(1).as_subclass(OnGpu)}})
    assert event_of(here) is None and event_of(there) == "an event"
    assert event_of(LazyStackedTensorDict(here, here)) is None and event_of(LazyStackedTensorDict(here, there))


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"worker": 3}, TypeError, "shoal.WorkerOptions"),
        ({"worker": shoal.WorkerOptions(memory_limit=2**40)}, ValueError, "memory_hard_limit"),
        ({"on_fault": "drop"}, ValueError, "none can be dropped"),
        ({"num_processes": 0}, ValueError, "1 or more"),
        ({"mp_start_method": "thread"}, ValueError, "thread"),
    ],
)
def test_wrong_options_are_refused_before_anything_starts(options: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        ParallelEnv(1, cartpole, **options)


def test_what_is_no_environment_is_named() -> None:
    with pytest.raises(TypeError, match="CartPole"):
        ParallelEnv(1, lambda: gymnasium.make("CartPole-v1").unwrapped)
    with pytest.raises(shoal.ipc.pickling.PicklingError, match="socket"):
        import socket

        with socket.socket() as held:
            ParallelEnv(1, lambda: held)


def test_environments_are_refused_where_functions_are_needed() -> None:
    """One was taken, and the first rollout() said what make_vec() would."""
    env = GymEnv("CartPole-v1")
    for given, name in ((env, "create_env_fn"), ([cartpole, env], r"create_env_fn\[1\]")):
        with pytest.raises(
            TypeError, match=rf"ParallelEnv\(\) takes functions.*{name} is .*write  lambda: GymEnv\(…\)"
        ):
            ParallelEnv(2, given)
    with pytest.raises(TypeError, match="takes functions that make environments, create_env_fn is 'CartPole-v1'"):
        ParallelEnv(2, "CartPole-v1")  # type: ignore[arg-type]  # that is the point


# Leaving


def test_an_environment_that_nobody_holds_ends_its_workers() -> None:
    envs = ParallelEnv(2, cartpole)
    envs.reset()
    processes = envs._workers
    del envs
    gc.collect()
    for process in processes:
        process.join(10)
        assert not process.is_alive()


def run(program: str) -> str:
    path = os.pathsep.join(filter(None, [str(Path(shoal.__file__).parents[1]), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_without_the_peer_the_error_says_what_to_install() -> None:
    program = """
import sys
sys.modules["torchrl"] = None
import shoal.compat.torchrl
try:
    from shoal.compat.torchrl import ParallelEnv
except ModuleNotFoundError as error:
    print(error)
"""
    assert "pip install 'shoal[torchrl]'" in run(program)


def test_the_program_of_the_migration_page_runs() -> None:
    page = Path(__file__).parents[2] / "docs/migrating/torchrl.md"
    (program,) = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    assert run(program + "\nprint(batch.shape)") == "torch.Size([8, 25])\n"
