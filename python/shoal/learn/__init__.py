"""Learning: PPO, A2C, A3C, IMPALA, APPO, DQN and SAC in C++ on Shoal's vector environments.

    import shoal

    result = shoal.learn.train("CartPole-v1", seed=1)      # a Result; result.run_dir holds everything
    policy = shoal.learn.load_policy(result.run_dir)
    action = policy.predict(observation)
    shoal.learn.evaluate(result.run_dir, episodes=100).mean_return

`Trainer` is the same with the learner running in the background. Python's torch is not imported, except by `torch_policy` and
where `policy=` brings a torch module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.names import names_of

if TYPE_CHECKING:
    from shoal.learn.config import algorithm_names, config_names, preset_for
    from shoal.learn.evaluation import Evaluation, evaluate
    from shoal.learn.exporting import export
    from shoal.learn.modules.policy import ModulePolicy
    from shoal.learn.policy import Policy, load_policy
    from shoal.learn.remote import Collected, collect
    from shoal.learn.torch_module import TorchPolicy, torch_policy
    from shoal.learn.trainer import Result, Trainer, train
    from shoal.runs import preset, preset_names

_MODULE_OF = {
    "Collected": "shoal.learn.remote",
    "Evaluation": "shoal.learn.evaluation",
    "ModulePolicy": "shoal.learn.modules.policy",
    "Policy": "shoal.learn.policy",
    "Result": "shoal.learn.trainer",
    "TorchPolicy": "shoal.learn.torch_module",
    "Trainer": "shoal.learn.trainer",
    "algorithm_names": "shoal.learn.config",
    "collect": "shoal.learn.remote",
    "config_names": "shoal.learn.config",
    "evaluate": "shoal.learn.evaluation",
    "export": "shoal.learn.exporting",
    "load_policy": "shoal.learn.policy",
    "preset": "shoal.runs",
    "preset_for": "shoal.learn.config",
    "preset_names": "shoal.runs",
    "torch_policy": "shoal.learn.torch_module",
    "train": "shoal.learn.trainer",
}

__all__ = [
    "Collected",
    "Evaluation",
    "ModulePolicy",
    "Policy",
    "Result",
    "TorchPolicy",
    "Trainer",
    "algorithm_names",
    "collect",
    "config_names",
    "evaluate",
    "export",
    "load_policy",
    "preset",
    "preset_for",
    "preset_names",
    "torch_policy",
    "train",
]

__getattr__ = names_of(
    __name__, _MODULE_OF, needs="shoal.learn.torch_policy needs torch:  pip install 'shoal[torch]'", roots=["torch"]
)


def __dir__() -> list[str]:
    return sorted(__all__)
