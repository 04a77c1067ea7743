"""The stories in docs/stories: the program that failed fails as it did, and the one beside it works, says so, and leaves nothing."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import promise

EXAMPLES = Path(__file__).parents[2] / "examples"
MARK = "SHOAL_STORY"


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONUNBUFFERED": "1", MARK: uuid.uuid4().hex, **more}


def alive(environment: dict[str, str]) -> set[int]:
    """The processes that have this environment's mark, whoever their parent is now."""
    mark = f"{MARK}={environment[MARK]}".encode()
    found = set()
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and mark in (folder / "environ").read_bytes().split(b"\0"):
                found.add(int(folder.name))
        except OSError:
            continue  # ended meanwhile, or another user's
    return found


def shared_files() -> set[str]:
    return set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()


def end(environment: dict[str, str]) -> None:
    for pid in alive(environment):
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass


def run(*command: str, seconds: float = 55, **more: str) -> subprocess.CompletedProcess[str]:
    """A program of the examples, to its end, with all that it started."""
    env = environment(**more)
    try:
        return subprocess.run(
            [sys.executable, *command], cwd=EXAMPLES, env=env, capture_output=True, text=True, timeout=seconds
        )
    finally:
        end(env)


def works(*command: str, seconds: float = 110, **more: str) -> str:
    """What it printed. It leaves no process, and nothing in /dev/shm."""
    env, before = environment(**more), shared_files()
    try:
        done = subprocess.run(
            [sys.executable, *command], cwd=EXAMPLES, env=env, capture_output=True, text=True, timeout=seconds
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stderr == "", done.stderr
        for _ in promise.patience(f"the end of what {command} started"):
            if not alive(env):
                break
        assert not {name for name in shared_files() - before if "shoal" in name or "torch" in name}
        return done.stdout
    finally:
        end(env)


@pytest.fixture
def interrupted() -> Iterator[Callable[..., str]]:
    """Runs a program until it has printed its first line, and then presses Ctrl-C: returns what it wrote to stderr."""

    def press(*command: str, **more: str) -> str:
        env = environment(**more)
        program = subprocess.Popen(
            [sys.executable, *command],
            cwd=EXAMPLES,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            assert program.stdout is not None and program.stdout.readline()
            os.killpg(program.pid, signal.SIGINT)  # a terminal sends it to all processes of the group
            _, told = program.communicate(timeout=60)
            assert program.returncode in (-signal.SIGINT, 130), told
            for _ in promise.patience(f"the end of what {command} started"):
                if not alive(env):
                    break
            return told
        finally:
            program.kill()
            end(env)

    yield press


# An environment with a server, a port and settings, in Stable-Baselines3


@pytest.mark.parametrize(
    ("way", "told"),
    [
        ("instance", r"TypeError: cannot pickle 'socket' object"),
        ("port", r"OSError: \[Errno 98\] Address already in use[\s\S]*(ConnectionResetError|EOFError|BrokenPipeError)"),
        ("settings", r"the main program set the world to 'ice', and the workers have \['empty'\]"),
    ],
)
def test_server_per_worker_failed(way: str, told: str) -> None:
    pytest.importorskip("stable_baselines3")
    done = run("server_per_worker/original.py", way)
    assert done.returncode == 1 and re.search(told, done.stderr), done.stderr


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_server_per_worker_works(method: str) -> None:
    pytest.importorskip("stable_baselines3")
    lines = works(
        "server_per_worker/with_sb3.py", "--envs", "3", "--steps", "192", "--start-method", method
    ).splitlines()
    assert re.fullmatch(r"3 workers ready after \d+\.\d\d s, \d+\.\d MiB each", lines[0])
    assert lines[1] == "worlds: ['ice'], ports: 3 different ones"
    assert re.fullmatch(r"192 steps and updates: \d+\.\d s, \d+ episodes of all workers", lines[2])


def test_server_per_worker_can_be_interrupted(interrupted: Callable[..., str]) -> None:
    pytest.importorskip("stable_baselines3")
    told = interrupted("server_per_worker/with_sb3.py", "--steps", "1000000")
    assert told.count("Traceback") <= 1 and "KeyboardInterrupt" in told
