"""The Python tests in several pytest processes, which share the files (tests/conftest.py), told as one run."""

from __future__ import annotations

import queue
import re
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NamedTuple

NO_TESTS = 5
"""pytest's status where it ran none."""

COUNTED = ("failed", "passed", "skipped", "deselected", "xfailed", "xpassed", "warning", "error")
"""What pytest's closing line counts, in its order."""


@dataclass
class Run:
    """One pytest process."""

    process: subprocess.Popen[str]
    report: list[str] = field(default_factory=list)  # its lines after those of progress, without the closing one
    failures: list[str] = field(default_factory=list)  # the lines of its summary that name them
    counts: dict[str, int] | None = None  # of its closing line


class Outcome(NamedTuple):
    """Of all processes."""

    status: int  # pytest's
    summary: str  # its closing counts
    failures: list[str]  # 'FAILED' or 'ERROR', the test, and the first line of the reason


def run_pytest(source: Path, keyword: str | None, processes: int, environment: dict[str, str]) -> Outcome:
    """Runs the Python tests in view of the user.

    Progress is shown as it comes, what each process reports at its end in one piece.
    """
    colour = "yes" if sys.stdout.isatty() else "no"
    command = [sys.executable, "-m", "pytest", "-ra", f"--color={colour}", "-o", "console_output_style=classic"]
    command += ["-vv", "-o", "verbosity_test_cases=0"]  # reasons in full, and still one character a test
    if keyword:
        command += ["-k", keyword]
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="shoal-tests-") as folder:
        runs = _side_by_side([*command, f"--share={folder}"], processes, source, environment)
    for run in runs:
        sys.stdout.writelines(run.report)
    without = [f"pytest left with status {run.process.returncode}" for run in runs if run.counts is None]
    total = _told([run.counts for run in runs if run.counts is not None], time.monotonic() - start)
    summary = "; ".join([total, *without])
    sys.stdout.write(f"{f' {summary} ':=^100}\n")
    failures = list(dict.fromkeys(failure for run in runs for failure in run.failures))
    statuses = {run.process.returncode for run in runs}
    if statuses <= {0, NO_TESTS}:
        return Outcome(min(statuses), summary, failures)
    return Outcome(next(status for status in statuses if status not in (0, NO_TESTS)), summary, failures)


def _side_by_side(command: list[str], processes: int, folder: Path, environment: dict[str, str]) -> list[Run]:
    lines: queue.SimpleQueue[tuple[Run, str]] = queue.SimpleQueue()

    def read(run: Run, output: IO[str]) -> None:
        for line in output:
            lines.put((run, line))
        lines.put((run, ""))

    runs: list[Run] = []
    try:
        for _ in range(processes):
            process = subprocess.Popen(
                command,
                cwd=folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            )
            runs.append(Run(process))
            threading.Thread(target=read, args=(runs[-1], process.stdout), daemon=True).start()
        reading = len(runs)
        while reading:
            run, line = lines.get()
            reading -= not line
            _take(run, line)
        for run in runs:
            run.process.wait()
        return runs
    except BaseException:
        for run in runs:
            run.process.terminate()
        for run in runs:
            run.process.wait()
        raise


def _take(run: Run, line: str) -> None:
    """Shows a line of progress, keeps one of the report, counts the closing one."""
    plain = re.sub(r"\x1b\[[\d;]*m", "", line).rstrip("\n")
    closing = re.fullmatch(r"=+ (.*) in [\d.]+s(?: \([\d:]+\))? =+", plain)
    if closing:
        counts = re.findall(r"(\d+) ([a-z]+)", closing[1])
        run.counts = {word if word in COUNTED else word.removesuffix("s"): int(count) for count, word in counts}
    elif run.report or re.match(r"=+ (?!test session starts)", plain):
        run.report.append(line)
        if re.fullmatch(r"=+ short test summary info =+", plain):
            run.failures.clear()  # the last one is this run's: a test of this file shows others
        elif re.match(r"(FAILED|ERROR) \S+\.py", plain):
            run.failures.append(plain)
    else:
        sys.stdout.write(line)
        sys.stdout.flush()


def _told(counts: list[dict[str, int]], seconds: float) -> str:
    """The counts of all processes as pytest tells those of one."""
    parts = []
    for word in COUNTED:
        each = [count.get(word, 0) for count in counts]
        number = max(each, default=0) if word == "deselected" else sum(each)  # each process deselects the same
        if number:
            parts.append(f"{number} {word}{'s' if word in ('warning', 'error') and number > 1 else ''}")
    clock = f" ({seconds // 3600:.0f}:{seconds // 60 % 60:02.0f}:{seconds % 60:02.0f})" if seconds >= 60 else ""
    return f"{', '.join(parts) or 'no tests ran'} in {seconds:.2f}s{clock}"
