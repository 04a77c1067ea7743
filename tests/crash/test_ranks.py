"""kill -9 of ranks at random moments while they train together: every other rank ends within ten seconds and says which one is lost,
nothing of them stays, and a resume goes on to the policy of a run that nobody disturbed, bit for bit."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

RANKS = 3
SOON = 10.0
START = 120.0
SMALL = {
    "num_envs": 6,
    "total_steps": 4800,
    "num_steps": 20,
    "batch_size": 60,
    "epochs": 2,
    "policy_hidden": [8],
    "value_hidden": [8],
    "normalize_obs": True,
    "env_kwargs": {"linger": 0.0002},
    "eval_every": 0,
    "final_episodes": 0,
    "save_every_seconds": 0.02,
}
PROGRAM = """
import json, sys
import learn_envs, shoal
with shoal.learn.Trainer(learn_envs.Drift, run_dir=sys.argv[1], num_workers=0, **json.loads(sys.argv[2])) as trainer:
    print(json.dumps(trainer.members), flush=True)
    trainer.start()
    trainer.wait()
"""


class Session:
    """Ranks that train, all of which have met.

    Args:
        kind: "nproc", where rank 0 starts the others; "host" and "hosts", where each is a program that a launcher started.
    """

    def __init__(self, kind: str, run_dir: Path, resume: bool) -> None:
        options = {"resume": True} if resume else dict(SMALL)
        attempt = uuid.uuid4().hex
        self.programs: list[subprocess.Popen[str]] = []
        for rank in range(1 if kind == "nproc" else RANKS):
            variables = {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1] / "python"), *sys.path])}
            if kind == "nproc":
                options["nproc"] = RANKS
            else:
                variables |= {"RANK": str(rank), "WORLD_SIZE": str(RANKS), "SHOAL_GROUP_ATTEMPT": attempt}
            if kind == "hosts":
                variables |= {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
            self.programs.append(
                subprocess.Popen(
                    [sys.executable, "-c", PROGRAM, str(run_dir), json.dumps(options)],
                    env={**os.environ, **variables},
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
        told = [program.stdout.readline() for program in self.programs if program.stdout]
        assert all(told), [program.communicate(timeout=START) for program in self.programs]
        self.pids = {rank: pid for rank, _, pid in json.loads(told[0])}

    def wait_for(self, seconds: float) -> bool:
        """Whether it has come to its end by then."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if all(program.poll() is not None for program in self.programs):
                return True
            time.sleep(0.005)
        return False

    def lose(self, rank: int) -> None:
        """Kills that one, and sees that the others say so, and end."""
        os.kill(self.pids[rank], signal.SIGKILL)
        killed = time.monotonic()
        for program in self.programs:
            _, errors = program.communicate(timeout=killed + SOON - time.monotonic())
            if program.pid == self.pids[rank]:
                assert program.returncode == -signal.SIGKILL
                continue
            assert program.returncode == 1, errors
            assert f"PeerLost: rank {rank} " in errors and str(self.pids[rank]) in errors, errors
        while any(map(lives, self.pids.values())):
            assert time.monotonic() < killed + SOON, f"after {SOON} s some of {self.pids} are still there"
            time.sleep(0.005)

    def finish(self) -> None:
        for program in self.programs:
            _, errors = program.communicate(timeout=START)
            assert program.returncode == 0, errors

    def close(self) -> None:
        for program in self.programs:
            program.kill()
            program.communicate()


def lives(pid: int) -> bool:
    """Not one that has ended, and that nobody has asked for its end."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def policy_of(run_dir: Path) -> bytes:
    return (run_dir / "checkpoints/last/policy.safetensors").read_bytes()


@pytest.mark.timeout(3600)
def test_a_killed_rank_is_told_and_a_resume_ends_as_if_nothing_had_been(tmp_path: Path, rounds: int) -> None:
    kills = max(1, rounds // 2)
    choose = random.Random(f"ranks {kills}")
    whole = Session("host", tmp_path / "whole", False)
    whole.finish()
    wanted = policy_of(tmp_path / "whole")
    run_dir = tmp_path / "run"
    killed = finished = 0
    while killed < kills or not finished:
        resume = (run_dir / "checkpoints/last").exists()
        if not resume:
            shutil.rmtree(run_dir, ignore_errors=True)
        session = Session(choose.choice(["nproc", "host", "hosts"]), run_dir, resume)
        try:
            if killed < kills and not session.wait_for(choose.uniform(0.0, 0.5)):
                session.lose(choose.randrange(RANKS))
                killed += 1
                continue
            session.finish()
        finally:
            session.close()
        assert policy_of(run_dir) == wanted
        finished += 1
        shutil.rmtree(run_dir)
