"""kill -9 of A3C's actors at random moments: another takes the dead one's place and the run goes on, or it ends with one typed error
and its checkpoint goes on; parameters and statistics stay finite and whole; nothing of the dead stays."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import shoal

LONG = 30.0
SMALL = {
    "num_envs": 4,
    "policy_hidden": [16],
    "value_hidden": [16],
    "eval_every": 0,
    "eval_envs": 1,
    "final_episodes": 0,
    "save_every_seconds": 0.02,
    "target_return": None,
    "max_restarts": 3,
    "restart_window": 600.0,
}


def trained(run_dir: Path, resume: bool) -> shoal.learn.Trainer:
    if resume:
        return shoal.learn.Trainer(run_dir=run_dir, resume=True, num_workers=2)
    options = SMALL | {"total_steps": 10**12, "num_workers": 2}
    return shoal.learn.Trainer("CartPole-v1", "a3c", run_dir=run_dir, seed=1, **options)


def goes_on(trainer: shoal.learn.Trainer, updates: int) -> None:
    """Returns when so many more updates are made. Raises what ends the run."""
    wanted = trainer.status()["iteration"] + updates
    deadline = time.monotonic() + LONG
    while trainer.status()["iteration"] < wanted:
        assert not trainer.wait(0.002)
        assert time.monotonic() < deadline, "nobody learns"


def replaced(trainer: shoal.learn.Trainer, count: int) -> None:
    deadline = time.monotonic() + LONG
    while trainer._actors.handle.replaced < count:
        assert not trainer.wait(0.002)
        assert time.monotonic() < deadline, "nobody takes the dead one's place"


def check_checkpoint(run_dir: Path) -> int:
    """That it is whole; returns its steps."""
    policy = shoal.learn.load_policy(run_dir, which="last")
    assert policy.predict(np.zeros((3, 4), np.float32)).shape == (3,)
    for name in ("policy", "optim"):
        for array in load_file(run_dir / f"checkpoints/last/{name}.safetensors").values():
            assert np.isfinite(array).all()
    return policy.step


@pytest.mark.timeout(3600)
def test_a_killed_actor_is_replaced_or_ends_the_run_with_one_error_that_a_resume_gets_over(tmp_path, rounds):
    choose = random.Random(f"a3c {rounds}")
    run_dir = tmp_path / "run"
    kills, errors, steps = 0, 0, 0
    while kills < rounds:
        with trained(run_dir, resume=kills > 0) as trainer:
            assert trainer.status()["step"] >= steps
            trainer.start()
            try:
                goes_on(trainer, 1)
                while not (run_dir / "checkpoints/last").exists():
                    goes_on(trainer, 1)
                here = 0
                while kills < rounds:
                    time.sleep(choose.uniform(0.0, 0.05))
                    os.kill(choose.choice(trainer._actors.pids), signal.SIGKILL)
                    kills, here = kills + 1, here + 1
                    goes_on(trainer, 10)  # the other one does not wait
                    replaced(trainer, here)
                trainer.stop()
                trainer.wait(LONG)
            except shoal.TooManyFaults as error:
                errors += 1
                assert here == 4 and "max_restarts=3" in str(error) and "SIGKILL" in str(error)
                with pytest.raises(shoal.TooManyFaults):
                    trainer.result()
            pids = trainer._actors.pids
        assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
        steps = check_checkpoint(run_dir)
    assert errors == kills // 4


@pytest.mark.timeout(3600)
def test_a_run_that_forgives_no_death_ends_with_the_first(tmp_path, rounds):
    choose = random.Random(f"first {rounds}")
    for round in range(rounds):
        run_dir = tmp_path / str(round)
        options = SMALL | {"max_restarts": 0, "total_steps": 10**12, "num_workers": 2}
        with shoal.learn.Trainer("shoal/CartPole-v1", "a3c", run_dir=run_dir, **options) as trainer:
            trainer.start()
            goes_on(trainer, choose.randrange(1, 200))
            os.kill(choose.choice(trainer._actors.pids), signal.SIGKILL)
            with pytest.raises(shoal.WorkerDied, match="SIGKILL") as caught:
                trainer.wait(LONG)
            assert caught.value.worker in ("actor 0", "actor 1") and caught.value.exitcode == -signal.SIGKILL
