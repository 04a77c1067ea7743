"""Two network namespaces as two hosts: what torchrun starts in each trains together, and goes on after a rank is killed or its
host's link is cut."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from namespaces import Namespaces, why_not

REASON = why_not()
pytestmark = [
    pytest.mark.skipif(REASON is not None, reason=str(REASON)),
    pytest.mark.skipif(
        shutil.which("torchrun", path=os.path.dirname(sys.executable)) is None, reason="there is no torchrun"
    ),
]
SOLVED = 475
PORT = 29_600


@pytest.fixture
def hosts() -> Iterator[Namespaces]:
    with Namespaces(2, gbit=1) as made:
        yield made


def torchrun(hosts: Namespaces, host: int, *arguments: str, restarts: int = 0) -> subprocess.Popen[str]:
    """One agent with a rank, which runs `shoal train …`."""
    python = Path(sys.executable)
    command = [
        *(str(python.parent / "torchrun"), "--nnodes", "2", "--node-rank", str(host), "--nproc-per-node", "1"),
        *("--master-addr", hosts.address(0), "--master-port", str(PORT), "--max-restarts", str(restarts)),
        *("--no-python", str(python), "-m", "shoal.cli", "train", *arguments),
    ]
    return subprocess.Popen(
        hosts.command(host, command),
        env={**os.environ, "SHOAL_GROUP_SECRET": "known to both", "GLOO_SOCKET_IFNAME": "net"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def ranks_on(hosts: Namespaces, host: int) -> list[int]:
    """The processes there that train."""
    lines = {pid: _command_line(pid) for pid in hosts.pids(host)}
    return [int(pid) for pid, line in lines.items() if b"\0train\0" in line and b"torchrun" not in line]


def _command_line(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def wait_for(path: Path, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} does not come"
        time.sleep(0.05)


def test_two_hosts_train_cartpole_to_475(hosts: Namespaces, tmp_path: Path) -> None:
    run = tmp_path / "run"
    arguments = ["CartPole-v1", "--seed", "1", "--quiet", "--run-dir", str(run)]
    agents = [torchrun(hosts, host, *arguments) for host in range(2)]
    told = [agent.communicate(timeout=600)[0] for agent in agents]
    assert [agent.returncode for agent in agents] == [0, 0], told
    assert json.loads((run / "result.json").read_text())["mean_return"] >= SOLVED


def test_a_rank_that_is_killed_is_started_again_and_the_run_goes_on_exactly(hosts: Namespaces, tmp_path: Path) -> None:
    """torchrun starts all ranks anew, which resume from rank 0's last checkpoint."""
    run, alone = tmp_path / "run", tmp_path / "alone"
    settings = {"total_steps": 60_000, "target_return": "none", "eval_every": 0, "final_episodes": 0, "shards": 2}
    options = ["CartPole-v1", "--seed", "1", "--quiet", "--set", "save_every_seconds=0.2"]
    for name, value in settings.items():
        options += ["--set", f"{name}={value}"]
    agents = [torchrun(hosts, host, *options, "--run-dir", str(run), "--continue", restarts=3) for host in range(2)]
    wait_for(run / "checkpoints" / "last")
    (rank,) = ranks_on(hosts, 1)
    os.kill(rank, signal.SIGKILL)
    told = [agent.communicate(timeout=300)[0] for agent in agents]
    assert [agent.returncode for agent in agents] == [0, 0], told
    assert "rank 1 " in told[0] and "is lost" in told[0], told[0]
    subprocess.run([sys.executable, "-m", "shoal.cli", "train", *options, "--run-dir", str(alone)], check=True)
    policies = [(folder / "checkpoints/last/policy.safetensors").read_bytes() for folder in (run, alone)]
    assert policies[0] == policies[1]


def test_a_cut_link_ends_both_sides_with_the_rank_that_does_not_answer(hosts: Namespaces, tmp_path: Path) -> None:
    run = tmp_path / "run"
    options = ["CartPole-v1", "--seed", "1", "--quiet", "--set", "total_steps=100000000", "--set", "target_return=none"]
    options += ["--set", "eval_every=0", "--set", "save_every_seconds=0.2"]
    agents = [torchrun(hosts, host, *options, "--run-dir", str(run)) for host in range(2)]
    wait_for(run / "checkpoints" / "last")
    ranks = [rank for host in range(2) for rank in ranks_on(hosts, host)]
    assert len(ranks) == 2
    hosts.cut(1)
    cut = time.monotonic()
    while any(_command_line(str(rank)) for rank in ranks):
        assert time.monotonic() < cut + 10, "ranks hang behind a cut link"
        time.sleep(0.05)
    for agent in agents:
        agent.send_signal(signal.SIGTERM)
    told = [agent.communicate(timeout=120)[0] for agent in agents]
    assert "rank 1 " in told[0] and "does not answer" in told[0], told[0]
    assert "rank 0 " in told[1] and "does not answer" in told[1], told[1]
