"""The Python examples run as their pages say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("context", ["serial", "fork", "forkserver", "spawn"])
def test_server_per_worker(context: str) -> None:
    command = [sys.executable, str(EXAMPLES / "server_per_worker" / "main.py"), context]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "worlds: ['ice'], ports: 4 different ones",
        f"workers: {1 if context == 'serial' else 2}, episodes: 24 in all",
        "the goal was reached first in one of the episodes 1 to 4: True",
    ]


def run(*command: str) -> str:
    done = subprocess.run([sys.executable, *command], cwd=EXAMPLES, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a3c() -> None:
    """Untrained networks reach some 10 by their likeliest actions, and 22 by chance: nobody reaches the bar whose updates do
    not come to the network of the process that started the others."""
    pytest.importorskip("torch")
    *each, last = run("a3c/main.py", "--processes", "2", "--steps", "12000").splitlines()
    told = [re.fullmatch(r"(\d+) episodes: mean return (\d+) at first, (\d+) at last", line) for line in each]
    assert len(told) == 2 and all(told)
    for first, final in ((int(match[2]), int(match[3])) for match in told if match):
        assert first < 40 < final
    reached = re.fullmatch(r"the shared network: mean return (\d+)", last)
    assert reached and int(reached[1]) > 50


PPO = "--num-envs 16 --num-steps 64 --learning-rate 1e-3".split()
TOLD = re.compile(r"(\d+) steps: mean return (\d+\.\d), \d+ steps/s")


def test_ppo() -> None:
    """Chance lasts some 22 steps."""
    pytest.importorskip("torch")
    ((steps, first), (_, last)) = TOLD.findall(
        run("ppo/main.py", *PPO, "--total-timesteps", "16384", "--num-workers", "0")
    )
    assert steps == "10240" and 22 < float(first) < float(last) and float(last) > 60


def test_ppo_is_the_same_for_any_number_of_workers() -> None:
    pytest.importorskip("torch")
    command = ("ppo/main.py", *PPO, "--total-timesteps", "2048", "--num-workers")
    here, there = (TOLD.findall(run(*command, workers)) for workers in ("0", "2"))
    assert here == there and len(here) == 1


def test_distributed_ranks_are_worth_one_process(tmp_path: Path) -> None:
    program = ["distributed/train.py", "--total-steps", "8192"]
    one = run(*program, "--nproc", "1", "--run-dir", str(tmp_path / "one"))
    assert re.fullmatch(r"\w+ after 8,192 steps: mean return \d+\.\d\n", one)
    assert run(*program, "--nproc", "2", "--run-dir", str(tmp_path / "two")) == one


def test_distributed_ranks_of_torchrun(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    told = run(*launcher, "distributed/train.py", "--total-steps", "8192", "--run-dir", str(tmp_path / "run"))
    assert re.fullmatch(r"\w+ after 8,192 steps: mean return \d+\.\d\n", told)


SCRIPTS = sorted(path.name for path in (EXAMPLES / "distributed").iterdir() if path.suffix in (".sh", ".sbatch"))


@pytest.mark.parametrize("name", SCRIPTS)
def test_distributed_scripts_call_what_there_is(name: str, tmp_path: Path) -> None:
    """With stand-ins for the launchers, which end by calling `shoal`, which says what it was called with."""
    path = EXAMPLES / "distributed" / name
    for program in ("torchrun", "mpirun", "srun"):
        (tmp_path / program).write_text('#!/bin/sh\nwhile [ "$1" != shoal ]; do shift; done\nexec "$@"\n')
    (tmp_path / "shoal").write_text('#!/bin/sh\nfor word; do echo "$word"; done\n')
    for file in tmp_path.iterdir():
        file.chmod(0o755)
    variables = {
        "HOSTS": "n1:2,n2:2",
        "LEARNER": "n1",
        "MASTER_ADDR": "n1",
        "NODE_RANK": "0",
        "SHOAL_GROUP_SECRET": "a",
        "SLURM_JOB_ID": "7",
    }
    environment = {
        **os.environ,
        **variables,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "SLURM_SUBMIT_DIR": str(tmp_path),
    }
    shell = path.read_text().splitlines()[0].removeprefix("#!")
    done = subprocess.run([shell, str(path)], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    command, *arguments = done.stdout.splitlines()
    import typer

    from shoal.cli.app import app

    typer.main.get_command(app).commands[command].make_context(command, arguments)  # type: ignore[attr-defined]
