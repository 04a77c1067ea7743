"""Programs of the stories (docs/stories), run as a user runs them: what they say, and what they leave."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import promise

EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path.append(str(EXAMPLES))
import measuring  # noqa: E402

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


def beside(story: str) -> dict[str, str]:
    """For a program elsewhere that imports what lies in a story's folder."""
    parts = [str(EXAMPLES / story), str(EXAMPLES), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(parts)}


def end(environment: dict[str, str]) -> None:
    for pid in alive(environment):
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass


def run(*command: str, seconds: float = 55, **more: str) -> subprocess.CompletedProcess[str]:
    """A program of the examples, to its end; nothing of it is there afterwards."""
    env = environment(**more)
    words = (sys.executable, *command)
    try:
        return subprocess.run(words, cwd=EXAMPLES, env=env, capture_output=True, text=True, timeout=seconds)
    finally:
        end(env)


def with_our_import(program: str, theirs: str, ours: str, folder: Path) -> str:
    """A copy of a program in which nothing but one import differs."""
    source = (EXAMPLES / program).read_text()
    assert source.count(f"{theirs}\n") == 1
    copy = folder / "original.py"
    copy.write_text(source.replace(theirs, ours))
    return str(copy)


def hangs(*command: str, **more: str) -> bool:
    """Whether a program comes to where it and all that it started wait, and none of them computes any more; not before it has
    printed a line."""
    env = environment(**more)
    words = (sys.executable, *command)
    with subprocess.Popen(words, cwd=EXAMPLES, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as program:
        try:
            assert program.stdout is not None and program.stdout.readline()
            while program.poll() is None:
                if measuring.hang([program.pid, *measuring.descendants(program.pid)], seconds=5.0):
                    return True
            return False
        finally:
            end(env)


def works(*command: str, seconds: float = 110, **more: str) -> str:
    """What it printed. It leaves no process, and nothing in /dev/shm."""
    env, before = environment(**more), shared_files()
    try:
        words = (sys.executable, *command)
        done = subprocess.run(words, cwd=EXAMPLES, env=env, capture_output=True, text=True, timeout=seconds)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stderr == "", done.stderr
        for _ in promise.patience(f"the end of what {command} started"):
            if not alive(env):
                break
        assert not {name for name in shared_files() - before if "shoal" in name or "torch" in name}
        return done.stdout
    finally:
        end(env)


def interrupt(*command: str, **more: str) -> str:
    """What a program wrote to stderr that got Ctrl-C when it had printed its first line. It leaves no process."""
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
