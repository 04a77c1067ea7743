"""kill -9 of workers at random moments while IMPALA and APPO train: the run ends with one typed error within seconds, its
checkpoint is whole, and a resume of it goes on; nothing of the dead stays."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from pathlib import Path

import pytest

import shoal

LONG = 30.0
SMALL = {
    "num_envs": 4,
    "num_steps": 10,
    "policy_hidden": [16],
    "value_hidden": [16],
    "eval_every": 0,
    "final_episodes": 0,
    "save_every_seconds": 0.02,
    "replay_limit": 1,
    "target_return": None,
}


def trained(algorithm: str, run_dir: Path, resume: bool) -> shoal.learn.Trainer:
    options = SMALL | {"total_steps": 50_000_000, "num_workers": 2}
    if resume:
        return shoal.learn.Trainer(run_dir=run_dir, resume=True, num_workers=2)
    return shoal.learn.Trainer("CartPole-v1", algorithm, run_dir=run_dir, seed=1, **options)


def kill_one(trainer: shoal.learn.Trainer, choose: random.Random) -> None:
    """Once the run has learned something and kept it, at a random moment after."""
    begun = trainer.status()["step"]
    kept = trainer.run_dir / "checkpoints" / "last"
    while trainer.status()["step"] <= begun or not kept.exists():
        assert not trainer.wait(0.005)
    time.sleep(choose.uniform(0.0, 0.05))
    workers = [worker["pid"] for worker in trainer._envs[0].health()]
    os.kill(choose.choice(workers), signal.SIGKILL)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("algorithm", ["impala", "appo"])
def test_a_killed_worker_ends_the_run_with_one_error_and_it_goes_on(tmp_path, algorithm, rounds):
    choose = random.Random(f"{algorithm} {rounds}")
    steps = 0
    for round in range(rounds):
        with trained(algorithm, tmp_path / "run", resume=round > 0) as trainer:
            assert trainer.status()["step"] >= steps
            trainer.start()
            kill_one(trainer, choose)
            with pytest.raises(shoal.WorkerDied, match="SIGKILL"):
                trainer.wait(LONG)
            with pytest.raises(shoal.WorkerDied):
                trainer.result()
        policy = shoal.learn.load_policy(tmp_path / "run", which="last")
        assert policy.step >= steps
        steps = policy.step
    with contextlib.closing(trained(algorithm, tmp_path / "run", resume=True)) as trainer:
        trainer.start()
        while trainer.status()["step"] <= steps:
            assert not trainer.wait(0.005)
