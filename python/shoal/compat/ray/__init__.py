"""Shoal on Ray: collectors as actors, ranks in Ray Train's process group, runs as trials of Tune.

    import shoal.compat.ray

    shoal.compat.ray.train("CartPole-v1", "appo", num_collectors=4)                     # collectors are actors

    for batch in shoal.compat.ray.RayCollector("CartPole-v1", policy, …):               # batches in Ray's object store
        …

    TorchTrainer(shoal.compat.ray.train_loop, train_loop_config={"env": "CartPole-v1"}, …).fit()

    Tuner(shoal.compat.ray.trainable("CartPole-v1"), param_space={"learning_rate": …}).fit()

Placement, resources, restarts, storage and schedulers are Ray's, and given by its own options. Ray is imported with the first of these
names that is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.names import names_of

if TYPE_CHECKING:
    from shoal.compat.ray.rank_program import train_loop
    from shoal.compat.ray.ray_collector import RayCollector
    from shoal.compat.ray.trainer import Trainer, train
    from shoal.compat.ray.trial_program import trainable

__all__ = ["RayCollector", "Trainer", "train", "train_loop", "trainable"]

__getattr__ = names_of(
    "shoal.compat.ray",
    {
        "RayCollector": "shoal.compat.ray.ray_collector",
        "Trainer": "shoal.compat.ray.trainer",
        "train": "shoal.compat.ray.trainer",
        "train_loop": "shoal.compat.ray.rank_program",
        "trainable": "shoal.compat.ray.trial_program",
    },
    needs="shoal.compat.ray needs Ray:  pip install 'shoal[ray]'",
    roots=["ray"],
)


def __dir__() -> list[str]:
    return sorted(__all__)
