"""shoal.compat.tianshou: tianshou's own code around its environments, and how the peer is imported."""

from __future__ import annotations

import functools
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

pytest.importorskip("tianshou", reason="it is in an environment of its own: ./shoal test --only tianshou")

from tianshou import env as peer
from tianshou.algorithm import PPO
from tianshou.algorithm.modelfree.reinforce import DiscreteActorPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Batch, Collector, VectorReplayBuffer
from tianshou.trainer import OnPolicyTrainerParams
from tianshou.utils.net.common import Net
from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic

from same import assert_same
from sample_envs import SpaceEnv
from shoal.compat.tianshou import DummyVectorEnv, ShmemVectorEnv, SubprocVectorEnv

CLASSES = {"dummy": DummyVectorEnv, "subproc": SubprocVectorEnv, "shmem": ShmemVectorEnv}


@pytest.fixture(params=CLASSES)
def vector_env(request: pytest.FixtureRequest) -> Any:
    return CLASSES[request.param]


def test_the_peers_wrapper_goes_around(vector_env: Any) -> None:
    results = []
    for kind in (vector_env, peer.DummyVectorEnv):
        envs = peer.VectorEnvNormObs(kind([lambda: gymnasium.make("CartPole-v1")] * 2))
        envs.seed(3)
        seen = [envs.reset()[0]]
        for i in range(12):
            seen.append(envs.step(np.array([i % 2, 1]))[0])
        results.append(seen)
        envs.close()
    assert_same(*results)


class TalkingEnv(SpaceEnv):
    """Its infos have the same keys every time, as tianshou's buffers want them."""

    def _info(self, options: dict[str, Any] | None) -> dict[str, Any]:
        return {"draw": self.np_random.random()}

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, float(reward), bool(terminated), truncated, {"draw": info["draw"]}


def collected(kind: Any, **how_much: Any) -> Batch:
    envs = kind([TalkingEnv] * 3)
    net = Net(state_shape=envs.observation_space[0].shape, hidden_sizes=[8])
    with torch.random.fork_rng():
        torch.manual_seed(1)
        policy = DiscreteActorPolicy(
            actor=DiscreteActor(preprocess_net=net, action_shape=5),
            dist_fn=torch.distributions.Categorical,
            action_space=envs.action_space[0],
        )
        for parameter in policy.parameters():
            torch.nn.init.normal_(parameter)
        collector = Collector(policy, envs, VectorReplayBuffer(200, 3))
        collector.reset(gym_reset_kwargs={"seed": 3})
        collector.collect(**how_much)
    envs.close()
    return collector.buffer[:]


@pytest.mark.parametrize("how_much", [{"n_step": 60}, {"n_episode": 9}])
def test_a_collector_collects_the_same(vector_env: Any, how_much: dict[str, int]) -> None:
    ours, theirs = collected(vector_env, **how_much), collected(peer.SubprocVectorEnv, **how_much)
    for key in ("obs", "act", "rew", "terminated", "truncated", "obs_next"):
        assert_same(ours[key], theirs[key], key)
    assert_same(ours.info.draw, theirs.info.draw)


def trained(kind: Any, **arguments: Any) -> list[torch.Tensor]:
    np.random.seed(1)
    torch.manual_seed(1)
    make = functools.partial(gymnasium.make, "CartPole-v1")
    training_envs, test_envs = kind([make] * 4, **arguments), kind([make] * 2, **arguments)
    training_envs.seed(1)
    test_envs.seed(11)
    net = Net(state_shape=(4,), hidden_sizes=[16])
    actor, critic = DiscreteActor(preprocess_net=net, action_shape=2), DiscreteCritic(preprocess_net=net)
    policy = DiscreteActorPolicy(
        actor=actor, dist_fn=torch.distributions.Categorical, action_space=training_envs.action_space[0]
    )
    algorithm = PPO(policy=policy, critic=critic, optim=AdamOptimizerFactory(lr=1e-3))
    algorithm.run_training(
        OnPolicyTrainerParams(
            training_collector=Collector(algorithm, training_envs, VectorReplayBuffer(2000, 4)),
            test_collector=Collector(algorithm, test_envs),
            max_epochs=1,
            epoch_num_steps=400,
            collection_step_num_env_steps=200,
            update_step_num_repetitions=2,
            batch_size=64,
            test_step_num_episodes=2,
            verbose=False,
            show_progress=False,
        )
    )
    training_envs.close()
    test_envs.close()
    return [value.detach().clone() for value in algorithm.state_dict().values() if isinstance(value, torch.Tensor)]


def test_training_is_that_of_the_peer_bit_for_bit() -> None:
    theirs = trained(peer.SubprocVectorEnv)
    assert len(theirs) > 4
    for mine in (trained(SubprocVectorEnv), trained(ShmemVectorEnv, num_workers=2), trained(DummyVectorEnv)):
        assert all(torch.equal(own, other) for own, other in zip(mine, theirs, strict=True))


def run(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_peer_is_imported_when_it_is_needed_and_in_no_worker_that_does_not_need_it() -> None:
    program = """
import sys
import shoal.compat.tianshou
assert not {"tianshou", "torch"} & set(sys.modules)
assert shoal.compat.tianshou.SubprocVectorEnv.__module__ == "shoal.compat.tianshou.subproc_vector_env"

import gymnasium

class Env(gymnasium.Env):
    observation_space = gymnasium.spaces.Discrete(2)
    action_space = gymnasium.spaces.Discrete(2)
    @property
    def modules(self):
        import sys
        return sorted({"tianshou", "torch"} & set(sys.modules))

envs = shoal.compat.tianshou.SubprocVectorEnv([Env, lambda: Env()])
print(envs.get_env_attr("modules"))
envs.close()
"""
    assert run(program) == "[[], []]\n"


def test_without_the_peer_the_error_says_what_to_install() -> None:
    program = """
import sys
sys.modules["tianshou"] = None
import shoal.compat.tianshou
try:
    from shoal.compat.tianshou import SubprocVectorEnv
except ModuleNotFoundError as error:
    print(error)
"""
    assert "pip install 'shoal[tianshou]'" in run(program)


def test_the_program_of_the_migration_page_runs() -> None:
    page = Path(__file__).parents[2] / "docs/migrating/tianshou.md"
    (program,) = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    assert run(program + "\nprint(result.n_collected_steps)") == "200\n"
