"""DI-engine's PPO over environments that hold a segmentation model, in worker processes.

    PYTHONPATH=python build/peers/ding/bin/python examples/segmentation/ding_ppo.py [--envs 8] [--iterations 20] [--service | --theirs]

Against DI-engine's own manager one line differs, the import of SubprocessEnvManagerV2. With `--service` all environments ask one
`shoal.ModelService`, which the line with `worker=` gives them, instead of holding a model each.
`--theirs` takes DI-engine's own, which forks its workers: on a
GPU that is "Cannot re-initialize CUDA in forked subprocess" (opendilab/DI-engine#816). `benchmarks/peers/setup ding` makes an environment with DI-engine.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium
from ding.config import compile_config
from ding.envs import DingEnvWrapper
from ding.framework import task
from ding.framework.context import OnlineRLContext
from ding.framework.middleware import StepCollector, gae_estimator, multistep_trainer
from ding.model import VAC
from ding.policy import PPOPolicy
from ding.utils import set_pkg_seed
from easydict import EasyDict
from segmented_world import load_model  # and registers SegmentedWorld-v0

import shoal
from shoal.compat.ding import SubprocessEnvManagerV2  # was: from ding.envs import SubprocessEnvManagerV2

sys.path.append(str(Path(__file__).resolve().parents[1]))
from measuring import memory_of_tree, positive


def make(segmenter: str) -> DingEnvWrapper:
    return DingEnvWrapper(gymnasium.make("SegmentedWorld-v0", segmenter=segmenter))


def config(envs: int) -> EasyDict:
    network = {"obs_shape": 6, "action_shape": 4, "action_space": "discrete", "encoder_hidden_size_list": [64, 64]}
    network |= {"critic_head_hidden_size": 64, "actor_head_hidden_size": 64}
    main = EasyDict(
        exp_name="runs/ding_segmentation",
        env={"collector_env_num": envs, "evaluator_env_num": 1, "n_evaluator_episode": 1, "stop_value": 10.0},
        policy={
            "cuda": False,
            "action_space": "discrete",
            "model": network,
            "learn": {"epoch_per_collect": 4, "batch_size": 64, "learning_rate": 3e-4},
            "collect": {"n_sample": 128, "unroll_len": 1, "discount_factor": 0.97, "gae_lambda": 0.95},
        },
    )
    # Its configurations name an environment, which this program does not make.
    named = {"type": "cartpole", "import_names": ["dizoo.classic_control.cartpole.envs.cartpole_env"]}
    create = EasyDict(env=named, env_manager={"type": "subprocess"}, policy={"type": "ppo"})
    return compile_config(main, create_cfg=create, auto=True, save_cfg=False)


def train(envs: int, iterations: int, service: shoal.ModelService | None, theirs: bool) -> float:
    """The mean return of the episodes of the last iterations."""
    cfg = config(envs)
    returns: list[float] = []
    manager: Any = SubprocessEnvManagerV2
    more = {"worker": shoal.WorkerOptions(models=service, start_timeout=600.0)}
    if theirs:
        manager, more = importlib.import_module("ding.envs").SubprocessEnvManagerV2, {}
    begun = time.perf_counter()

    def look(context: Any) -> None:
        if not returns:
            seconds = time.perf_counter() - begun
            print(f"first samples after {seconds:.1f} s, {memory_of_tree() / 2**20:.0f} MiB all together", flush=True)
        returns.extend(float(part.reward.sum()) for part in context.trajectories)

    with task.start(async_mode=False, ctx=OnlineRLContext()):
        collector_env = manager(
            env_fn=[functools.partial(make, "own" if service is None else "service")] * envs,
            cfg=cfg.env.manager,
            **more,
        )
        set_pkg_seed(0, use_cuda=False)
        model = VAC(**cfg.policy.model)
        policy = PPOPolicy(cfg.policy, model=model)
        task.use(StepCollector(cfg, policy.collect_mode, collector_env))
        task.use(look)
        task.use(gae_estimator(cfg, policy.collect_mode))
        task.use(multistep_trainer(policy.learn_mode, log_freq=50))
        task.run(max_step=iterations)
        collector_env.close()
    latest = returns[len(returns) // 2 :]
    return sum(latest) / len(latest)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envs", type=positive, default=8)
    parser.add_argument("--iterations", type=positive, default=20, help="of 128 steps each, and an update")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--service", action="store_true", help="one model for all environments")
    which.add_argument("--theirs", action="store_true", help="DI-engine's own manager")
    arguments = parser.parse_args()
    with contextlib.ExitStack() as stack:
        service = (
            stack.enter_context(shoal.ModelService({"segment": load_model}, max_batch=64))
            if arguments.service
            else None
        )
        mean = train(arguments.envs, arguments.iterations, service, arguments.theirs)
    print(f"mean reward of a step in the later half: {mean:.4f}")


if __name__ == "__main__":
    main()
