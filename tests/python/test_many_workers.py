"""Many workers within narrow limits: few descriptors, and next to no /dev/shm."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(*command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment)


def test_more_workers_than_descriptors_start_step_answer_and_close() -> None:
    done = run(
        sys.executable,
        str(ROOT / "benchmarks" / "many_workers.py"),
        *("--workers", "160", "--steps", "3", "--descriptors", "150", "--shm-bytes", "65536", "--json"),
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["workers"] == 160 and found["descriptors"] == 150
    assert found["held"] < 40
    if "no mount namespace" not in done.stderr:
        assert found["shm_bytes"] == 65536


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_start_methods_that_take_descriptors_say_so_before_they_start(context: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import os, resource
            resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
            import shoal
            try:
                shoal.make_vec("CartPole-v1", 40, num_workers=40, context={context!r})
            except OSError as error:
                print(error)
            print(open(f"/proc/self/task/{{os.getpid()}}/children").read().split())
            """
        )
    )
    done = run(sys.executable, str(script))
    assert done.returncode == 0, done.stderr
    message, children = done.stdout.splitlines()
    assert "40 workers" in message and "ulimit -n" in message and "context='forkserver'" in message
    assert children == "[]"
