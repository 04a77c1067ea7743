"""A part of `shoal test --all` at work: its commands, under one deadline, with their output in a file."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from shoal.cli.test_python import NO_TESTS

SKIPPED = re.compile(r"^SKIPPED \[(\d+)\] (\S+?)(?::\d+)?: (.*)$")
"""A line of `pytest -rs`: how many tests, of which file, why."""


class LeftOut(Exception):
    """This machine cannot run the part; says why."""


class Failed(Exception):
    """Says which command failed, and how."""


@contextlib.contextmanager
def _held_back(*numbers: signal.Signals) -> Iterator[None]:
    """Signals that come meanwhile are handled at the end, as they would have been."""
    came: list[int] = []
    before = {number: signal.signal(number, lambda came_now, _: came.append(came_now)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for one in came:
            signal.raise_signal(one)


class Job:
    """What a part's function works with. Every command ends, with all that it started, by the part's deadline."""

    def __init__(
        self, name: str, source: Path, environment: dict[str, str], minutes: float, copies: Path | None = None
    ) -> None:
        self.name, self.source, self.environment = name, source, environment
        self.copies = copies  # the folder of other projects' tests, where they are not to be fetched
        self.left_out: list[str] = []  # what did not run within the part, each with the reason
        self.seconds = 60 * minutes
        self.deadline = time.monotonic() + self.seconds
        self.folder = source / "build" / "test-all"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.log = self.folder / f"{name}.log"
        self.log.write_text("")

    def run(self, command: list[object], *, cwd: Path | None = None, **variables: str) -> list[str]:
        """Runs a command that must succeed; returns the lines that it printed."""
        status, lines = self.outcome(command, cwd=cwd, **variables)
        if status:
            raise Failed(f"{_called(command)} left with status {status}")
        return lines

    def outcome(self, command: list[object], *, cwd: Path | None = None, **variables: str) -> tuple[int, list[str]]:
        """Runs a command to its end; returns its status and the lines that it printed."""
        words = [str(word) for word in command]
        with self.log.open("ab") as file:
            file.write(f"== {' '.join(words)}\n".encode())
            file.flush()
            start = file.tell()
            process: subprocess.Popen[bytes] | None = None
            try:
                with _held_back(signal.SIGTERM, signal.SIGINT):  # else one could leave a process that nobody knows
                    process = subprocess.Popen(
                        words,
                        cwd=cwd or self.source,
                        env={**self.environment, **variables},
                        stdin=subprocess.DEVNULL,
                        stdout=file,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,
                    )
                status = process.wait(max(0.0, self.deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                assert process is not None
                process.send_signal(signal.SIGINT)  # pytest and unittest say where they are
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(10)
                raise Failed(f"{_called(words)} did not end within {self.seconds / 60:g} minutes") from None
            finally:
                if process is not None:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
        with self.log.open(errors="replace") as file:
            file.seek(start)
            return status, file.read().splitlines()

    def pytest(self, *arguments: object, python: object = sys.executable, **variables: str) -> str:
        """Runs tests; returns pytest's closing count. What it skips is left out of the part."""
        return self.count([python, "-m", "pytest", "-rs", "--color=no", *arguments], **variables)

    def count(self, command: list[object], **variables: str) -> str:
        """As `pytest`, of a command that runs it."""
        status, lines = self.outcome(command, cwd=None, **variables)
        closing = pytest_closing(lines)
        self.left_out += skips(lines)
        if status not in (0, NO_TESTS):
            raise Failed(closing or f"{_called(command)} left with status {status}")
        if not re.search(r"\b\d+ passed", closing):
            raise LeftOut("; ".join(self.left_out)) if self.left_out else Failed(closing or "pytest ran no test")
        return closing

    def environment_over(self, name: str, *requirements: object) -> Path:
        """The interpreter of an environment over this one: what pip installs there hides the same package of ours."""
        home = self.folder / f"environment-{name}"
        python = home / "bin" / "python"
        shutil.rmtree(home, ignore_errors=True)
        self.run([sys.executable, "-m", "venv", "--without-pip", home])
        (site,) = home.glob("lib/python*/site-packages")
        (site / "shared.pth").write_text(f"{sysconfig.get_path('purelib')}\n{self.source / 'python'}\n")
        install = [
            sys.executable,
            "-m",
            "pip",
            "--python",
            python,
            "--disable-pip-version-check",
            "--no-input",
            "install",
        ]
        self.run([*install, "-c", self.source / "requirements.lock", *requirements])
        return python

    def need_program(self, name: str, *packages: str) -> None:
        """Installs Debian's packages where the program is missing and this user may."""
        if shutil.which(name):
            return
        as_root = [] if os.geteuid() == 0 else ["sudo", "-n"]
        install = ["apt-get", "install", "-y", "--no-install-recommends", *packages]
        may = shutil.which("apt-get") and (not as_root or not self._status(["sudo", "-n", "true"]))
        if may:
            self._status([*as_root, "apt-get", "update"])
            self._status([*as_root, "env", "DEBIAN_FRONTEND=noninteractive", *install])
        if not shutil.which(name):
            raise LeftOut(f"there is no {name}: sudo {' '.join(install[:3])} {' '.join(packages)}")

    def _status(self, command: list[str]) -> int:
        if not shutil.which(command[0]):
            return 127
        with self.log.open("ab") as file:
            return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file).returncode


def _called(command: Sequence[object]) -> str:
    """The beginning of a command, for one line."""
    return " ".join([Path(str(command[0])).name, *map(str, command[1:])])[:100]


def pytest_closing(lines: list[str]) -> str:
    """'12 passed, 3 skipped in 4.56s', or nothing."""
    found = [line for line in lines if re.search(r"\b\d+ \w+.* in [\d.]+s\b|no tests ran", line)]
    return re.sub(r"\x1b\[[\d;]*m", "", found[-1]).strip("= ") if found else ""


def skips(lines: list[str]) -> list[str]:
    """'reason (3 of test_x.py, Suite.Test)' for each reason that pytest or `shoal test` gave for a skip."""
    found: dict[str, dict[str, int]] = {}
    for line in lines:
        if match := SKIPPED.match(re.sub(r"\x1b\[[\d;]*m", "", line)):
            count, where, reason = match.groups()
            name = Path(where).name if where.endswith(".py") else where
            tests = found.setdefault(reason.removeprefix("Skipped: "), {})
            tests[name] = tests.get(name, 0) + int(count)
    return [
        f"{reason} ({', '.join(f'{count} of {name}' if count > 1 else name for name, count in tests.items())})"
        for reason, tests in found.items()
    ]
