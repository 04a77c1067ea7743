"""shoal.compat.torchrl: environments that fail, hang or are killed, and calls that are interrupted."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

pytest.importorskip("torchrl", reason="it is in an environment of its own: ./shoal test --only torchrl")

import torchrl._utils
from torchrl.envs import EnvBase, GymWrapper
from torchrl.testing.mocking_classes import CountingEnv

import shoal
from interrupting import interrupted_once_there
from sample_envs import CounterEnv, TellingGatedEnv
from shoal.compat.torchrl import ParallelEnv, SerialEnv
from shoal.compat.torchrl.channels import Channel
from torchrl_makers import Raising, cartpole


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


class Drawing(Failing):
    """Observes a number of its own generator and one of torch's."""

    observation_space = gymnasium.spaces.Box(0, 1, (2,), np.float64)

    def _observation(self) -> np.ndarray:
        return np.array([self.np_random.random(), torch.rand(()).item()])


@pytest.mark.parametrize(("by", "processes"), [("raise", 1), ("kill", 2)])
def test_a_successor_draws_other_numbers_and_the_same_whenever_the_same_happens(
    by: str, processes: int, tmp_path: Path
) -> None:
    runs = []
    for run in range(2):
        flag = tmp_path / f"failed {run}"
        envs = ParallelEnv(
            2, lambda flag=flag: GymWrapper(Drawing(by, flag)), num_processes=processes, on_fault="restart"
        )
        envs.set_seed(3)
        seen = [(td := envs.reset())["observation"].clone()]
        for step in range(1, 6):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                out, td = envs.step_and_maybe_reset(envs.rand_action(td))
            seen += [out["next", "observation"].clone(), td["observation"].clone()]
            assert list(envs.faults) == ([1] if step == 3 else [])
        runs.append(torch.stack(seen))
        envs.close()
    assert torch.equal(*runs)
    before, after = runs[0][:5, 1], runs[0][6:, 1]
    assert not set(before.flatten().tolist()) & set(after.flatten().tolist())
    if by == "raise":  # in a process that goes on, torch's generator is the neighbour's, too
        generator = torch.Generator().manual_seed(torchrl._utils.seed_generator(3))
        numbers = {torch.rand((), generator=generator).item() for _ in range(30)}
        assert set(runs[0][..., 1].flatten().tolist()) <= numbers


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


class Hanging(CounterEnv):
    def step(self, action: Any) -> Any:
        signal.pause()


def test_serial_environments_say_which_one_failed() -> None:
    envs = SerialEnv(2, [cartpole_like, lambda: GymWrapper(Raising())])
    with pytest.raises(KeyError) as raised:
        envs.rollout(2)
    if sys.version_info >= (3, 11):
        assert any("environment 1" in note for note in raised.value.__notes__)


def test_serial_environments_are_all_closed_whatever_one_of_them_raises() -> None:
    closed: list[Any] = [None]

    class Env(CounterEnv):
        def close(self) -> None:
            closed.append(self)
            if len(closed) == 1:
                raise OSError("still busy")

    envs = SerialEnv(2, lambda: GymWrapper(Env()))
    envs.reset()
    closed.clear()  # TorchRL has closed one that it looked at
    with pytest.warns(UserWarning, match="raised OSError: still busy"):
        envs.close()
    assert len({*map(id, closed)}) == 2 and envs.is_closed


def cartpole_like() -> EnvBase:
    return GymWrapper(CounterEnv())
