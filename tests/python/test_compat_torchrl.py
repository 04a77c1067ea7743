"""shoal.compat.torchrl: the contract of TorchRL's batched environments and collectors, and what their users meet."""

from __future__ import annotations

import functools
import gc
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

pytest.importorskip("torchrl", reason="it is in an environment of its own: ./shoal test --only torchrl")

import torchrl._utils
from tensordict import LazyStackedTensorDict, TensorDict
from tensordict.nn import TensorDictModule
from torchrl import collectors as peer_collectors
from torchrl import envs as peer
from torchrl.envs import EnvBase, GymEnv, GymWrapper, TransformedEnv
from torchrl.envs.transforms import RewardSum, StepCounter
from torchrl.modules import ProbabilisticActor, RandomPolicy, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE
from torchrl.testing.mocking_classes import CountingEnv, NestedCountingEnv

import shoal
from interrupting import interrupted_once_there
from sample_envs import CounterEnv, TellingGatedEnv
from shoal.compat.torchrl import (
    Collector,
    MultiAsyncCollector,
    MultiaSyncDataCollector,
    MultiCollector,
    MultiSyncCollector,
    MultiSyncDataCollector,
    ParallelEnv,
    SerialEnv,
    SyncDataCollector,
    slots,
)
from shoal.compat.torchrl.buffers import event_of, portrait_of, rebuilt
from shoal.compat.torchrl.channels import Channel
from shoal.compat.torchrl.gym_steps import GymSteps
from test_gpu_hygiene import StandInCuda, Synchronizing, contexts  # noqa: F401  # a fixture


def cartpole(**kwargs: Any) -> EnvBase:
    return GymEnv("CartPole-v1", max_episode_steps=12, **kwargs)


def transformed() -> EnvBase:
    return TransformedEnv(cartpole(), torchrl.envs.Compose(StepCounter(), RewardSum()))


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


class Failing(CounterEnv):
    """Step 3 of environment 1 raises, or ends its process."""

    def __init__(self, by: str, flag: Path, length: int = 100) -> None:
        super().__init__(length)
        self.by, self.flag = by, flag
        self.calls = 0

    def step(self, action: Any) -> Any:
        self.calls += 1
        if shoal.worker().env_index == 1 and self.calls == 3 and not self.flag.exists():
            self.flag.touch()
            if self.by == "raise":
                raise KeyError("of the environment")
            print("the last words", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)


def failing(by: str, tmp_path: Path, length: int = 100, **options: Any) -> ParallelEnv:
    return ParallelEnv(2, lambda: GymWrapper(Failing(by, tmp_path / "failed", length)), **options)


def test_an_exception_of_an_environment_is_raised_with_its_place(tmp_path: Path) -> None:
    envs = failing("raise", tmp_path)
    with pytest.raises(KeyError, match="of the environment") as raised:
        envs.rollout(5, break_when_any_done=False)
    assert "environment 1" in "".join(getattr(raised.value, "__notes__", ["environment 1"]))
    assert "in step" in str(raised.value.__cause__)
    envs.close()


def test_a_killed_worker_is_named_with_its_signal_and_last_lines(tmp_path: Path) -> None:
    envs = failing("kill", tmp_path)
    with pytest.raises(shoal.WorkerDied, match="SIGKILL") as raised:
        envs.rollout(5, break_when_any_done=False)
    assert raised.value.env_indices == range(1, 2) and raised.value.exitcode == -signal.SIGKILL
    assert "the last words" in raised.value.log_tail
    envs.close()


@pytest.mark.parametrize("by", ["raise", "kill"])
def test_a_lost_environment_ends_its_episode_and_has_a_successor(by: str, tmp_path: Path) -> None:
    envs = failing(by, tmp_path, on_fault="restart")
    td = envs.reset()
    for step in range(1, 7):
        before = td["observation"].clone()
        if step == 3:
            with pytest.warns(UserWarning, match="environment 1 was lost"):
                out, td = envs.step_and_maybe_reset(envs.rand_action(td))
            assert list(envs.faults) == [1] and envs.faults[1].kind == ("exception" if by == "raise" else "killed")
            assert out["next", "done"].flatten().tolist() == [False, True]
            assert out["next", "truncated"].flatten().tolist() == [False, True]
            assert not out["next", "terminated"].any() and out["next", "reward"][1] == 0
            assert torch.equal(out["next", "observation"][1], before[1])
            assert not td["done"].any() and td["observation"][1].tolist() == [1, 0]  # its first reset
        else:
            out, td = envs.step_and_maybe_reset(envs.rand_action(td))
            assert not envs.faults and not out["next", "done"].any()
    envs.close()


@pytest.mark.parametrize(("by", "processes"), [("raise", 2), ("kill", 2), ("kill", 1)])
def test_the_first_step_of_an_episode_that_is_lost_has_an_observation_of_its_own_episode(
    by: str, processes: int, tmp_path: Path
) -> None:
    envs = failing(by, tmp_path, 2, num_processes=processes, on_fault="restart")
    td = envs.reset()
    for _ in range(2):
        out, td = envs.step_and_maybe_reset(envs.rand_action(td))
    assert out["next", "done"].all() and td["observation"].tolist() == [[2, 0], [2, 0]]
    with pytest.warns(UserWarning, match="environment 1 was lost"):
        out, td = envs.step_and_maybe_reset(envs.rand_action(td))
    lost = [0, 1] if processes == 1 else [1]
    assert sorted(envs.faults) == lost
    for i in range(2):
        assert out["next", "observation"][i].tolist() == [2, 0 if i in lost else 1]
        assert bool(out["next", "truncated"][i]) == (i in lost) and not out["next", "terminated"][i]
        assert td["observation"][i].tolist() == ([1, 0] if i in lost else [2, 1])
    out, td = envs.step_and_maybe_reset(envs.rand_action(td))
    assert out["next", "observation"][1].tolist() == [1, 1]
    envs.close()


def test_restarts_need_buffers() -> None:
    with pytest.raises(ValueError, match="use_buffers"):
        ParallelEnv(1, cartpole, use_buffers=False, on_fault="restart").reset()


def test_steps_have_the_peers_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torchrl._utils, "BATCHED_PIPE_TIMEOUT", 0.5)
    envs = ParallelEnv(1, lambda: GymWrapper(Hanging()))
    td = envs.rand_action(envs.reset())
    with pytest.raises(RuntimeError, match="BATCHED_PIPE_TIMEOUT"):
        envs.step(td)
    envs.close()


CALLS: dict[str, Callable[[Any], Any]] = {
    "attribute": lambda envs: list(envs.max_steps),
    "reset": lambda envs: envs.reset(),
    "state": lambda envs: envs.state_dict(),
    "seed": lambda envs: envs.set_seed(3),
}


def partly_one(envs: Any) -> Any:
    """The action 1 for the last environment alone."""
    td = envs.reset()
    td.set("action", torch.ones_like(envs.action_spec.zero()))
    return td.set("_step", torch.arange(envs.num_workers) == envs.num_workers - 1)


@pytest.mark.parametrize(
    ("call", "where"),
    [
        ("attribute", "send"),
        ("attribute", "recv"),
        ("reset", "send"),
        ("state", "send"),
        ("state", "recv"),
        ("seed", "recv"),
    ],
)
def test_a_call_that_was_interrupted_leaves_nothing_to_the_next(
    call: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    envs = ParallelEnv(2, lambda: CountingEnv(max_steps=4))
    envs.reset()
    with monkeypatch.context() as patched:
        through = getattr(Channel, where)

        def interrupted(channel: Channel, *message: Any) -> Any:
            if channel is envs.parent_channels[1]:
                raise KeyboardInterrupt
            return through(channel, *message)

        patched.setattr(Channel, where, interrupted)
        with pytest.raises(KeyboardInterrupt):
            CALLS[call](envs)
    assert list(envs.max_steps) == [4, 4] and list(envs.state_dict()) == ["worker0", "worker1"]
    assert envs.rollout(3).shape == (2, 3)
    envs.close()


def test_a_step_that_ctrl_c_interrupted_is_waited_for_by_the_next_call(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    envs = ParallelEnv(2, lambda: GymWrapper(TellingGatedEnv(gate)))
    td = envs.reset()
    td["action"] = torch.tensor([[0, 1, 0], [0, 1, 0]])
    with interrupted_once_there(tmp_path / "begun"):
        envs.step(td)
    gate.touch()
    assert torch.equal(envs.reset()["observation"][:, 1], torch.zeros(2))
    assert envs.rollout(3).shape == (2, 3)
    envs.close()


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


class Hanging(CounterEnv):
    def step(self, action: Any) -> Any:
        signal.pause()


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


def test_serial_environments_say_which_one_failed() -> None:
    envs = SerialEnv(2, [cartpole_like, lambda: GymWrapper(Raising())])
    with pytest.raises(KeyError) as raised:
        envs.rollout(2)
    if sys.version_info >= (3, 11):
        assert any("environment 1" in note for note in raised.value.__notes__)


def cartpole_like() -> EnvBase:
    return GymWrapper(CounterEnv())


# GPUs: story of many collectors on a machine that has one


class Careless(Synchronizing):
    """As Synchronizing; torch itself stays what it is, for TorchRL's sake."""

    def __init__(self) -> None:
        self.torch = SimpleNamespace(cuda=StandInCuda(), zeros=torch.zeros)  # type: ignore[assignment]
        self.careful, self.shows, self.at, self.steps = True, None, "init", 0
        self.sync()


def careless() -> EnvBase:
    return GymWrapper(Careless())


def test_sixty_four_environments_hold_no_gpu_memory(contexts: Path) -> None:  # noqa: F811
    envs = ParallelEnv(64, careless)
    assert envs.rollout(5, break_when_any_done=False).shape == (64, 5)
    envs.close()
    assert contexts.read_text() == ""
    envs = ParallelEnv(2, careless, worker=shoal.WorkerOptions(gpu="own"))
    envs.rollout(2)
    envs.close()
    assert contexts.read_text().splitlines(), "the stand-in counts those that see a GPU"


@pytest.mark.parametrize("kind", [MultiSyncCollector, MultiAsyncCollector])
def test_collectors_on_the_cpu_hold_no_gpu_memory(contexts: Path, kind: Any) -> None:  # noqa: F811
    policy = RandomPolicy(GymWrapper(CounterEnv()).action_spec)
    for gpu in (None, True):
        collector = kind([careless] * 4, policy, frames_per_batch=64, total_frames=256, gpu=gpu)
        assert sum(batch.numel() for batch in collector) >= 256
        collector.shutdown()
        assert (contexts.read_text() == "") == (gpu is None)


# Collectors


def actor(spec: Any) -> ProbabilisticActor:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2))
    return ProbabilisticActor(
        TensorDictModule(net, in_keys=["observation"], out_keys=["logits"]),
        in_keys=["logits"],
        spec=spec,
        distribution_class=torch.distributions.OneHotCategorical,
        return_log_prob=True,
    )


def test_older_names_are_the_same_classes() -> None:
    assert SyncDataCollector is Collector and issubclass(Collector, peer_collectors.Collector)
    assert MultiSyncDataCollector is MultiSyncCollector
    assert MultiaSyncDataCollector is MultiAsyncCollector


def test_synchronous_collectors_collect_what_the_peers_do() -> None:
    batches: list[list[Any]] = []
    for kind in (MultiSyncCollector, peer_collectors.MultiSyncCollector):
        collector = kind([cartpole] * 2, actor(cartpole().action_spec), frames_per_batch=40, total_frames=120)
        collector.set_seed(5)
        batches.append([batch.clone() for batch in collector])
        collector.shutdown()
    for own, expected in zip(*batches, strict=True):
        for key in ("observation", "action", ("next", "reward"), ("next", "done"), "logits"):
            assert torch.equal(own.get(key), expected.get(key)), key


def test_an_asynchronous_collector_keeps_what_nobody_has_taken_yet() -> None:
    """The peer's collects over it: what it had stepped was lost."""
    collector = MultiAsyncCollector(
        [lambda: CountingEnv(max_steps=10**6)] * 3, ones_of, frames_per_batch=50, total_frames=900
    )
    counts: dict[int, list[int]] = {}
    for i, batch in enumerate(collector):
        if i == 0:
            wait_until(lambda: collector.queue_out.qsize() == 3)
        steps = batch["observation"].flatten().tolist()
        counts.setdefault(int(batch["collector", "traj_ids"][0]), []).extend(steps)
    collector.shutdown()
    assert len(counts) == 3
    for steps in counts.values():
        assert steps == list(range(len(steps)))


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def ones_of(td: Any) -> Any:
    return td.set("action", torch.ones(*td.batch_size, 1, dtype=torch.int32))


@pytest.mark.parametrize("kind", [MultiSyncCollector, MultiAsyncCollector])
def test_a_killed_collector_is_named_with_its_signal(kind: Any) -> None:
    collector = kind([cartpole] * 2, RandomPolicy(cartpole().action_spec), frames_per_batch=64, total_frames=10**6)
    with pytest.raises(shoal.WorkerDied, match=r"collector 1 .*create_env_fn\[1\].*SIGKILL") as raised:
        for i, _ in enumerate(collector):
            if i == 2:
                os.kill(collector.procs[1].pid, signal.SIGKILL)
    assert raised.value.index == 1
    collector.shutdown()


class Raising(CounterEnv):
    def step(self, action: Any) -> Any:
        raise KeyError("of the environment")


def test_what_a_collectors_environment_raised_is_among_its_last_lines() -> None:
    def make() -> EnvBase:
        return ParallelEnv(2, lambda: GymWrapper(Raising()))

    collector = MultiSyncCollector([make], ones_of_three, frames_per_batch=64, total_frames=640)
    with pytest.raises((shoal.WorkerDied, KeyError), match="of the environment"):
        list(collector)
    collector.shutdown()


def ones_of_three(td: Any) -> Any:
    return td.set("action", torch.eye(3, dtype=torch.int64)[torch.ones(td.batch_size, dtype=torch.int64)])


def test_collectors_are_chosen_by_the_peers_arguments() -> None:
    policy = RandomPolicy(cartpole().action_spec)
    one = Collector(cartpole, policy, frames_per_batch=10, total_frames=20)
    assert type(one) is Collector and [batch.shape for batch in one] == [(10,), (10,)]
    one.shutdown()
    several: list[tuple[Any, type]] = [
        (Collector(cartpole, policy, frames_per_batch=10, num_collectors=2), MultiAsyncCollector),
        (Collector([cartpole], policy, frames_per_batch=10, backend="process", sync=True), MultiSyncCollector),
        (MultiCollector([cartpole], policy, frames_per_batch=10, sync=False), MultiAsyncCollector),
    ]
    for collector, kind in several:
        assert type(collector) is kind and next(iter(collector)).numel() == 10
        collector.shutdown()
    with pytest.raises(ValueError, match="positive"):
        Collector(cartpole, policy, frames_per_batch=10, num_collectors=0)


# A training example, with both libraries' classes


def trained(parallel_env: Any, collector: Any) -> list[torch.Tensor]:
    """The parameters after three iterations of PPO, as in TorchRL's tutorial."""
    torch.manual_seed(0)
    envs = parallel_env(4, transformed)
    envs.set_seed(7)
    policy = actor(envs.action_spec)
    critic = ValueOperator(
        torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)), in_keys=["observation"]
    )
    advantage = GAE(gamma=0.99, lmbda=0.95, value_network=critic)
    loss = ClipPPOLoss(policy, critic)
    optimizer = torch.optim.Adam(loss.parameters(), lr=1e-3)
    torch.manual_seed(1)
    frames = collector(envs, policy, frames_per_batch=160, total_frames=480)
    for batch in frames:
        for _ in range(2):
            advantage(batch)
            values = loss(batch.reshape(-1))
            sum(values[key] for key in ("loss_objective", "loss_critic", "loss_entropy")).backward()
            optimizer.step()
            optimizer.zero_grad()
    frames.shutdown()
    return [parameter.detach().clone() for parameter in loss.parameters()]


def test_training_gives_the_peers_parameters_bit_for_bit() -> None:
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        ours = trained(ParallelEnv, Collector)
        theirs = trained(peer.ParallelEnv, peer_collectors.Collector)
    finally:
        torch.set_num_threads(threads)
    assert len(ours) == len(theirs) > 4
    for own, expected in zip(ours, theirs, strict=True):
        assert torch.equal(own, expected)


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
