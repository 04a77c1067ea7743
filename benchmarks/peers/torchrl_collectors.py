"""TorchRL's collectors on CartPole-v1 with a small torch policy.

Run by benchmarks/collectors.py with the peers' interpreter; prints one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
import warnings
from typing import Any

multiprocessing.set_start_method("fork")  # else TorchRL's import makes it spawn, and each process import torch
warnings.filterwarnings("ignore")

import torch  # noqa: E402
from tensordict.nn import TensorDictModule  # noqa: E402
from torchrl.collectors import Collector, MultiAsyncCollector, MultiSyncCollector  # noqa: E402
from torchrl.envs import EnvBase, GymEnv, ParallelEnv, SerialEnv  # noqa: E402
from torchrl.modules import ProbabilisticActor  # noqa: E402

LAYERS = (64, 64)


def make_env() -> EnvBase:
    return GymEnv("CartPole-v1", categorical_action_encoding=True)


def environments(kind: str, num_envs: int, workers: int) -> EnvBase:
    if kind == "serial":
        return SerialEnv(num_envs, make_env)
    share = num_envs // workers
    return ParallelEnv(workers, lambda: SerialEnv(share, make_env))


def policy(env: EnvBase) -> ProbabilisticActor:
    sizes = (4, *LAYERS, 2)
    layers: list[torch.nn.Module] = []
    for i in range(len(sizes) - 1):
        layers += [torch.nn.Linear(sizes[i], sizes[i + 1]), torch.nn.Tanh()]
    module = TensorDictModule(torch.nn.Sequential(*layers[:-1]), in_keys=["observation"], out_keys=["logits"])
    return ProbabilisticActor(
        module,
        in_keys=["logits"],
        spec=env.action_spec,
        distribution_class=torch.distributions.Categorical,
        return_log_prob=True,
    )


def make_collector(arguments: argparse.Namespace) -> Any:
    common = {"frames_per_batch": arguments.frames, "total_frames": -1}
    if arguments.kind in ("serial", "parallel"):
        env = environments(arguments.kind, arguments.envs, arguments.workers)
        return Collector(env, policy(env), **common)
    share = arguments.envs // arguments.workers
    kind = MultiSyncCollector if arguments.kind == "multi_sync" else MultiAsyncCollector
    makers = [lambda: SerialEnv(share, make_env)] * arguments.workers
    return kind(makers, policy(make_env()), **common)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", choices=["serial", "parallel", "multi_sync", "multi_async"], required=True)
    parser.add_argument("--envs", type=int, required=True)
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--frames", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    collector = make_collector(arguments)
    frames, begin = 0, 0.0
    for i, batch in enumerate(collector):
        if i == 0:  # the first has the start in it
            begin = time.perf_counter()
            continue
        frames += batch.numel()
        if time.perf_counter() - begin > arguments.seconds:
            break
    print(json.dumps({"per_second": frames / (time.perf_counter() - begin)}), flush=True)
    collector.shutdown()


if __name__ == "__main__":
    main()
