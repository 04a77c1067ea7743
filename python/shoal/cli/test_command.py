"""`shoal test`: builds and runs the C++ tests (ctest) and the Python tests (pytest) of a source folder; `--all`: and the rest."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field
from pathlib import Path

import typer

from shoal.cli import completion
from shoal.cli.console import fail, note, say, wrong_use
from shoal.cli.test_python import NO_TESTS, run_pytest

SANITIZERS = ("thread", "address")

NOT_SANITIZED = (
    "the tests of Python: an interpreter that is built without a sanitizer cannot load what is built with one"
)


def register(app: typer.Typer) -> None:
    app.command("test")(test)


def test(
    sanitize: str = typer.Option(
        None,
        "--sanitize",
        metavar="thread|address",
        help="The C++ tests alone, under ThreadSanitizer or AddressSanitizer.",
        autocompletion=completion.sanitizers,
    ),
    keyword: str = typer.Option(
        None, "-k", metavar="WORD", help="Only tests whose name has this word, of both runners."
    ),
    jobs: int = typer.Option(None, "-j", "--jobs", min=1, help="Compilers and tests at a time [default: the CPUs]."),
    everything: bool = typer.Option(
        False, "--all", help="The suite, and what is rare, long, or needs more than a clean clone. It takes hours."
    ),
    only: list[str] = typer.Option(
        None,
        "--only",
        metavar="PART",
        help="This part of --all; may be repeated.",
        autocompletion=completion.parts,
    ),
    listed: bool = typer.Option(False, "--list", help="Name the parts of --all."),
    copies: Path = typer.Option(
        None, "--copies", metavar="FOLDER", help="Gymnasium's and PyTorch's tests, where they cannot be fetched."
    ),
    record: bool = typer.Option(
        False, "--record", help="Put the figures into CONTRIBUTING.md; alone: those of the last runs."
    ),
) -> None:
    """Run the whole test suite: C++ and Python."""
    if listed or everything or only or copies or record:
        if sanitize or keyword or jobs:
            wrong_use("--sanitize, -k and -j are not for --all, whose parts --only chooses")
        from shoal.cli import test_all

        if listed:
            test_all.list_parts()
        elif everything or only or copies:
            test_all.run(source_folder(), tool_environment(), only, copies, record)
        else:
            test_all.record_last(source_folder())
        return
    if sanitize is not None and sanitize not in SANITIZERS:
        wrong_use(f"--sanitize takes thread or address, not {sanitize!r}")
    if keyword is not None and not re.fullmatch(r"[\w./:-]+", keyword):
        wrong_use(f"-k takes one word, not {keyword!r}")
    source = source_folder()
    jobs = jobs or len(os.sched_getaffinity(0))
    environment = tool_environment()
    results = [run_cpp(source, sanitize, keyword, jobs, environment)]
    if sanitize is None:
        results.append(run_python(source, keyword, jobs, environment))
    say("")
    for reason in left_out(source / "build" / (sanitize or "release"), sanitize):
        say(f"left out: {reason}")
    for result in results:
        for failure in result.failures:
            say(failure)
    for result in results:
        say(f"{result.runner:7} {result.summary}")
    if keyword and not any(result.ran for result in results):
        fail(f"no test has {keyword!r} in its name")
    if not all(result.passed for result in results):
        raise typer.Exit(1)


@dataclass
class Result:
    runner: str
    summary: str  # the runner's own closing line
    passed: bool
    ran: bool  # whether any test matched
    failures: list[str] = field(default_factory=list)  # a line each


def in_source_folder() -> bool:
    return (_root() / "CMakePresets.json").is_file()


def _root() -> Path:
    return Path(__file__).resolve().parents[3]


def source_folder(what: str = "tests", command: str = "test") -> Path:
    root = _root()
    if not in_source_folder():
        fail(f"the {what} are not part of an installed package; run ./shoal {command} in a source folder of Shoal")
    return root


def tool_environment() -> dict[str, str]:
    """That of cmake, ninja and ctest: the ones in this interpreter's folder, if any, go before the system's."""
    return {**os.environ, "PATH": f"{Path(sys.prefix, 'bin')}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}


def run_cpp(source: Path, sanitize: str | None, keyword: str | None, jobs: int, environment: dict[str, str]) -> Result:
    build = source / "build" / (sanitize or "release")
    log = source / "build" / f"test-{sanitize or 'release'}.log"
    log.parent.mkdir(exist_ok=True)
    log.write_text("")
    if not (build / "build.ninja").is_file():
        note(f"shoal: Configuring {build.relative_to(source)} …")
        configure = [
            "cmake",
            "-S",
            str(source),
            "--preset",
            sanitize or "release",
            f"-DPython_EXECUTABLE={sys.executable}",
        ]
        _logged(configure, log, source, environment)
    note(f"shoal: Building the C++ tests in {build.relative_to(source)} …")
    _logged(["ninja", "-C", str(build), "-j", str(jobs_that_fit(jobs))], log, source, environment)

    report = build / "ctest.xml"
    report.unlink(missing_ok=True)
    command = ["ctest", "--test-dir", str(build), "--output-on-failure", "--no-tests=ignore", "-j", str(jobs)]
    command += ["--output-junit", str(report), "--test-output-size-passed", "16384"]
    if keyword:
        command += ["-R", "".join(f"[{c.lower()}{c.upper()}]" if c.isalpha() else re.escape(c) for c in keyword)]
    if sanitize == "thread" and _runs(["setarch", "-R", "true"]):
        command = [
            "setarch",
            "-R",
            *command,
        ]  # ThreadSanitizer's memory layout and much address randomisation do not mix
    status, lines = _streamed(command, source, environment, keep=r"tests passed,.*out of \d+")
    if not lines:
        return Result("C++", "0 tests" if status == 0 else f"ctest left with status {status}", status == 0, False)
    for line in skipped(report):
        say(line)
    return Result("C++", lines[-1], status == 0, True, failed(report))


def _cases(report: Path) -> list[ElementTree.Element]:
    """The tests in a report of ctest's, if there is one."""
    return list(ElementTree.parse(report).iter("testcase")) if report.is_file() else []


def skipped(report: Path) -> list[str]:
    """The C++ tests that skipped themselves, as pytest tells of its own: ctest names them without the reason."""
    lines = []
    for case in _cases(report):
        if case.find("skipped") is not None:
            output = case.findtext("system-out") or ""
            reason = re.search(r": Skipped\n(.*)", output)
            lines.append(f"SKIPPED [1] {case.get('name')}: {reason[1].strip() if reason else 'it gives no reason'}")
    return lines


def failed(report: Path) -> list[str]:
    """The C++ tests that failed, as pytest names its own."""
    failures: list[str] = []
    for case in _cases(report):
        if case.find("failure") is not None:
            reason = re.search(r"^(.+): Failure\n(.*)", case.findtext("system-out") or "", re.MULTILINE)
            why = f"{reason[1]}: {reason[2].strip()}" if reason else "its output, above, has no failed expectation"
            failures.append(f"FAILED {case.get('name')} - {why}")
    return failures


def left_out(build: Path, sanitize: str | None) -> list[str]:
    """What of the tests a build has no programs of, and what a sanitizer does not see of those that ran, each with the reason.

    Tests that have skipped themselves are told by `skipped`.
    """
    files: dict[str, list[str]] = {}
    listed = build / "left_out.txt"
    for line in listed.read_text().splitlines() if listed.is_file() else ():
        tests, _, reason = line.partition(": ")
        files.setdefault(reason, []).append(tests.replace(" ", "/"))
    told = [f"{', '.join(tests)}: {reason}" for reason, tests in files.items()]
    if sanitize is not None:
        told.append(NOT_SANITIZED)
    report = build / "ctest.xml"
    if sanitize == "thread":
        cases = [case.findtext("system-out") or "" for case in _cases(report)]
        count = sum("[ CHILDREN ]" in output for output in cases)
        if count:
            told.append(
                f"races between processes, in {count} of {len(cases)} tests, which run child processes: "
                "ThreadSanitizer checks the threads of each process by themselves"
            )
    return told


def run_python(source: Path, keyword: str | None, jobs: int, environment: dict[str, str]) -> Result:
    outcome = run_pytest(source, keyword, jobs, environment)
    nothing = outcome.status == NO_TESTS
    passed = outcome.status == 0 or (nothing and keyword is not None)
    return Result("Python", outcome.summary, passed, not nothing, outcome.failures)


def jobs_that_fit(jobs: int) -> int:
    """At most one compiler for each GB of free memory."""
    available = re.search(r"MemAvailable:\s+(\d+)", Path("/proc/meminfo").read_text())
    return max(1, min(jobs, int(available[1]) // 1_000_000)) if available else jobs


def _runs(command: list[str]) -> bool:
    return shutil.which(command[0]) is not None and subprocess.run(command, capture_output=True).returncode == 0


def _logged(command: list[str], log: Path, folder: Path, environment: dict[str, str]) -> None:
    """Runs a step whose output matters only if it fails."""
    try:
        with log.open("a") as file:
            status = subprocess.run(
                command, cwd=folder, env=environment, stdout=file, stderr=subprocess.STDOUT
            ).returncode
    except FileNotFoundError:
        fail(f"{command[0]} is not installed; ./shoal installs it")
    if status:
        end = "\n".join(log.read_text(errors="replace").splitlines()[-40:])
        fail(f"{command[0]} failed; {log} ends with:\n{end}")


def _streamed(command: list[str], folder: Path, environment: dict[str, str], keep: str) -> tuple[int, list[str]]:
    """Runs a command in view of the user; returns its status and its lines that match `keep`.

    ctest pads its lines to the longest name of a test and announces each twice: both are taken out.
    """
    kept = []
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if re.match(r"\s+Start\s+\d+: ", line):
                continue
            sys.stdout.write(re.sub(r" \.{3,}(?=[ *])", "  ", line))
            sys.stdout.flush()
            if re.search(keep, line):
                kept.append(line.strip())
        return process.wait(), kept
    except BaseException:
        process.terminate()
        process.wait()
        raise
