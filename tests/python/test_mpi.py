"""Workers and processes under each rank of mpirun, of Open MPI and of MPICH (requirements-mpi.txt, requirements-mpich.txt), and
ranks that train together."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.skipif(shutil.which("mpirun") is None, reason="there is no mpirun (requirements-mpi.txt)"),
    pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="there is no mpi4py (requirements-mpi.txt)"),
]


STORY = Path(__file__).parents[2] / "examples" / "start_methods" / "with_mpi.py"


def ranks(*command: object) -> subprocess.CompletedProcess[str]:
    """Runs a program of Python's as two ranks."""
    version = subprocess.run(["mpirun", "--version"], capture_output=True, text=True).stdout
    of_open_mpi = ["--oversubscribe", *(["--allow-run-as-root"] if os.geteuid() == 0 else [])]
    options = [] if "HYDRA" in version else of_open_mpi
    command = ("mpirun", "-n", "2", *options, sys.executable, *map(str, command))
    # Everything on this machine, and none of it over a network interface.
    environment = {**os.environ, "OMPI_MCA_btl": "self,vader", "OMPI_MCA_pml": "ob1", "OMPI_MCA_plm": "isolated"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)


def mpirun(tmp_path: Path, text: str, *arguments: str) -> list[str]:
    """The lines that two ranks printed, sorted."""
    script = tmp_path / "rank.py"
    script.write_text(textwrap.dedent(text))
    done = ranks(script, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return sorted(done.stdout.splitlines())


@pytest.mark.parametrize("method", ["forkserver", "spawn", "fork"])
def test_processes_of_every_context_run_under_each_rank(method: str, tmp_path: Path) -> None:
    lines = mpirun(
        tmp_path,
        """
        import os, sys
        from mpi4py import MPI
        import shoal, shoal.multiprocessing as mp
        method = sys.argv[1]
        if method == "fork":
            try:
                mp.get_context("fork").Process(target=int).start()
                sys.exit("a fork beside MPI was not refused")
            except shoal.ForkRefused as refused:
                assert "MPI" in str(refused)
        ctx = mp.get_context(method, allow_unsafe_fork=True)
        def work(rank, out):
            hidden = [name for name in os.environ if name.startswith(("OMPI_COMM", "OMPI_UNIVERSE", "PMIX_", "PMI_"))]
            out.send((rank, hidden, "mpi4py.MPI" in sys.modules))
        reader, writer = ctx.Pipe(duplex=False)
        rank = MPI.COMM_WORLD.rank
        processes = [ctx.Process(target=work, args=(rank, writer)) for _ in range(2)]
        for process in processes: process.start()
        for process in processes:
            seen, hidden, has_mpi = reader.recv()
            assert seen == rank and not hidden, (seen, hidden)
            assert has_mpi == (method == "fork")
        for process in processes: process.join()
        total = MPI.COMM_WORLD.allreduce(sum(process.exitcode == 0 for process in processes))
        os.write(1, f"rank {rank} total {total}\\n".encode())  # at once: both ranks write to one pipe
        """,
        method,
    )
    assert lines == ["rank 0 total 4", "rank 1 total 4"]


@pytest.mark.parametrize("context", ["auto", "spawn"])
def test_environment_workers_run_under_each_rank(context: str, tmp_path: Path) -> None:
    lines = mpirun(
        tmp_path,
        """
        import os, sys
        from mpi4py import MPI
        import shoal
        envs = shoal.make_vec("CartPole-v1", 4, num_workers=2, backend="process", context=sys.argv[1])
        envs.reset(seed=0)
        for _ in range(20):
            observations = envs.step(envs.action_space.sample())[0]
        envs.close()
        total = MPI.COMM_WORLD.allreduce(len(observations))
        os.write(1, f"rank {MPI.COMM_WORLD.rank} total {total}\\n".encode())
        """,
        context,
    )
    assert lines == ["rank 0 total 8", "rank 1 total 8"]


def test_the_story_of_workers_that_are_taken_for_ranks() -> None:
    """docs/stories/start_methods.md, whose MPI lets 0 of 4 workers do their work; others end the ranks."""
    failed = ranks(STORY, "--theirs")
    assert failed.returncode != 0 and "4 of 4 workers did their work" not in failed.stdout
    done = ranks(STORY)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        f"rank {rank} of 2: 4 of 4 workers did their work, and saw 0 of MPI's variables" for rank in range(2)
    ]


def test_two_ranks_train_cartpole_to_475(tmp_path: Path) -> None:
    run = tmp_path / "run"
    done = ranks("-m", "shoal.cli", "train", "CartPole-v1", "--seed", "1", "--quiet", "--run-dir", run)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((run / "result.json").read_text())["mean_return"] >= 475
