"""shoal.compat.torchrl: collectors, what is trained with them, and GPUs that nobody asked for."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("torchrl", reason="it is in an environment of its own: ./shoal test --only torchrl")

from tensordict.nn import TensorDictModule
from torchrl import collectors as peer_collectors
from torchrl import envs as peer
from torchrl.envs import EnvBase, GymWrapper
from torchrl.modules import ProbabilisticActor, RandomPolicy, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE
from torchrl.testing.mocking_classes import CountingEnv

import shoal
from sample_envs import CounterEnv
from shoal.compat.torchrl import (
    Collector,
    MultiAsyncCollector,
    MultiaSyncDataCollector,
    MultiCollector,
    MultiSyncCollector,
    MultiSyncDataCollector,
    ParallelEnv,
    SyncDataCollector,
)
from test_gpu_hygiene import StandInCuda, Synchronizing, contexts  # noqa: F401  # a fixture
from torchrl_makers import Raising, cartpole, transformed

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
    assert "on_fault" not in str(raised.value)


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
