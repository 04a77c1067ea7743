"""`shoal test --all`: its parts end by their count, are left out with a reason, or fail; nothing outlives a deadline."""

from __future__ import annotations

import importlib.util
import json
import os
import select
import subprocess
import sys
import urllib.error
from collections.abc import Callable
from pathlib import Path

import pytest

from cli_calls import assert_one_line
from shoal.cli import main, test_all, test_parts
from shoal.cli.test_command import NOT_SANITIZED, left_out, skipped, tool_environment
from shoal.cli.test_job import Failed, Job, LeftOut, skips
from shoal.cli.test_parts import PARTS, Part

ROOT = Path(__file__).parents[2]


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job("sample", tmp_path, {"PATH": "/usr/bin:/bin"}, minutes=1)


@pytest.fixture
def shoal(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Calls the command: status, stdout, stderr."""

    def call(*arguments: str) -> tuple[int, str, str]:
        status = main(list(arguments))
        return (status, *capsys.readouterr())

    return call


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A source folder, whose page has room for the table."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "CONTRIBUTING.md").write_text(f"before\n{test_all.BEGIN}\nold\n{test_all.END}\nafter\n")
    monkeypatch.setattr("shoal.cli.test_command.source_folder", lambda: tmp_path)
    return tmp_path


def parts(monkeypatch: pytest.MonkeyPatch, **bodies: Callable[[Job], str]) -> None:
    found = tuple(Part(name, f"what {name} does", 1, body) for name, body in bodies.items())
    monkeypatch.setattr(test_all, "PARTS", found)


def leave_out(job: Job) -> str:
    raise LeftOut("there is no such device")


def fall(job: Job) -> str:
    raise Failed("1 failed, 2 passed")


def test_a_command_that_fails_is_told(job: Job) -> None:
    with pytest.raises(Failed, match="sh -c exit 3 left with status 3"):
        job.run(["/bin/sh", "-c", "exit 3"])


def test_lines_are_those_of_the_command_alone(job: Job) -> None:
    assert job.run(["/bin/echo", "one"]) == ["one"]
    assert job.run(["/bin/echo", "two"]) == ["two"]
    assert job.log.read_text() == "== /bin/echo one\none\n== /bin/echo two\ntwo\n"


def test_a_deadline_ends_the_command_and_all_that_it_started(tmp_path: Path) -> None:
    job = Job("late", tmp_path, {"PATH": "/usr/bin:/bin"}, minutes=0.1)
    child = "import os, time; os.write(1, f'{os.getpid()}\\n'.encode()); time.sleep(600)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    with pytest.raises(Failed, match=r"did not end within 0\.1 minutes"):
        job.run([sys.executable, "-c", parent])
    pid = int(job.log.read_text().splitlines()[1])
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    assert select.select([fd], [], [], 60)[0], "the command's own child lives on"
    os.close(fd)


def test_the_deadline_is_of_all_commands_together(tmp_path: Path) -> None:
    job = Job("late", tmp_path, {"PATH": "/usr/bin:/bin"}, minutes=0)
    with pytest.raises(Failed, match="did not end within 0 minutes"):
        job.run(["/bin/sleep", "600"])


SUITES = {
    "passes": ("def test_one(): pass", "1 passed", None),
    "skips": ("import pytest\ndef test_one(): pass\ndef test_two(): pytest.skip('no moon')", "1 passed", "no moon"),
    "fails": ("def test_one(): assert 0", Failed, "1 failed"),
    "skips all": ("import pytest\ndef test_two(): pytest.skip('no moon')", LeftOut, "no moon"),
    "has none": ("", Failed, "no tests ran"),
    "cannot be read": ("import nothing_of_that_name", Failed, "1 error"),
    "dies": ("import os\ndef test_one(): os._exit(0)", Failed, "pytest ran no test"),
}


@pytest.mark.parametrize("name", SUITES)
def test_a_run_of_pytest_counts_by_its_closing_line(name: str, job: Job) -> None:
    text, closing, told = SUITES[name]
    (job.source / "test_it.py").write_text(text)
    if isinstance(closing, str):
        assert closing in job.pytest("test_it.py")
        assert job.left_out == ([f"{told} (test_it.py)"] if told else [])
    else:
        with pytest.raises(closing, match=told):
            job.pytest("test_it.py")


def test_skips_are_told_by_reason_with_their_tests() -> None:
    lines = [
        "SKIPPED [2] tests/python/test_a.py:12: no GPU",
        "SKIPPED [1] tests/python/test_a.py:40: no GPU",
        "SKIPPED [1] tests/python/test_b.py:3: could not import 'x'",
        "SKIPPED [1] Suite/Case.Name/0: one CPU",
        "PASSED",
    ]
    assert skips(lines) == [
        "no GPU (3 of test_a.py)",
        "could not import 'x' (test_b.py)",
        "one CPU (Suite/Case.Name/0)",
    ]


def test_ctests_skips_are_told_with_their_reason(tmp_path: Path) -> None:
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.25)\nproject(x NONE)\nenable_testing()\n"
        'add_test(NAME Case.Skips COMMAND printf "x_test.cc:7: Skipped\\\\none CPU\\\\n[  SKIPPED ] Case.Skips")\n'
        'set_tests_properties(Case.Skips PROPERTIES SKIP_REGULAR_EXPRESSION "  SKIPPED ")\n'
        "add_test(NAME Case.Passes COMMAND true)\n"
    )
    report = tmp_path / "ctest.xml"
    environment = tool_environment()
    subprocess.run(["cmake", "-S", tmp_path, "-B", tmp_path / "b"], check=True, env=environment, capture_output=True)
    command = ["ctest", "--test-dir", tmp_path / "b", "--output-junit", report]
    subprocess.run(command, check=True, env=environment, capture_output=True)
    assert skipped(report) == ["SKIPPED [1] Case.Skips: one CPU"]
    assert skipped(tmp_path / "none.xml") == []


def test_what_a_sanitizer_leaves_out_is_told_by_reason(tmp_path: Path) -> None:
    assert left_out(tmp_path, None) == []
    assert left_out(tmp_path, "address") == [NOT_SANITIZED]
    (tmp_path / "left_out.txt").write_text(
        "sync a_test.cc: a stack\nlearn b_test.cc: no torch\nsync c_test.cc: a stack\n"
    )
    (tmp_path / "ctest.xml").write_text(
        "<testsuite><testcase name='One'><system-out>[ CHILDREN ]\n[       OK ]</system-out></testcase>"
        "<testcase name='Two'><system-out>[       OK ]</system-out></testcase></testsuite>"
    )
    by_file = ["sync/a_test.cc, sync/c_test.cc: a stack", "learn/b_test.cc: no torch"]
    assert left_out(tmp_path, None) == by_file
    assert left_out(tmp_path, "address") == [*by_file, NOT_SANITIZED]
    assert left_out(tmp_path, "thread")[:3] == [*by_file, NOT_SANITIZED]
    assert left_out(tmp_path, "thread")[3].startswith("races between processes, in 1 of 2 tests")


def test_every_part_is_run_told_and_recorded_whatever_became_of_the_others(shoal, source, monkeypatch) -> None:
    def count(job: Job) -> str:
        job.left_out.append("no moon (3 of test_moon.py)")
        return "7 passed"

    def slip(job: Job) -> str:
        return str(1 // 0)

    parts(monkeypatch, broken=fall, slips=slip, absent=leave_out, whole=count)
    status, out, err = shoal("test", "--all", "--record")
    assert status == 1 and "shoal: failed: broken, slips; build/test-all/broken.log" in err
    assert [line.split()[:2] for line in out.splitlines() if line and line[0] != " "] == [
        ["broken", "failed"],
        ["slips", "failed"],
        ["absent", "left"],
        ["whole", "passed"],
    ]
    assert "left out: no moon (3 of test_moon.py)" in out and "there is no such device" in out
    page = (source / "CONTRIBUTING.md").read_text()
    assert page.startswith("before\n") and page.endswith("\nafter\n") and "old" not in page
    assert "**failed**: 1 failed, 2 passed" in page and "| 7 passed | no moon (3 of test_moon.py) |" in page
    assert "ZeroDivisionError" in page


def test_a_part_that_is_left_out_keeps_its_earlier_figures(shoal, source, monkeypatch) -> None:
    parts(monkeypatch, one=lambda job: "5 passed", two=lambda job: "6 passed")
    assert shoal("test", "--all", "--record")[0] == 0
    parts(monkeypatch, one=leave_out, two=lambda job: "8 passed")
    assert shoal("test", "--all", "--record")[0] == 0
    assert [result["closing"] for result in json.loads((source / test_all.FIGURES).read_text())] == [
        "5 passed",
        "8 passed",
    ]


def test_only_the_named_part_runs_and_nothing_is_recorded_unasked(shoal, source, monkeypatch) -> None:
    parts(monkeypatch, one=fall, two=lambda job: "6 passed")
    before = (source / "CONTRIBUTING.md").read_text()
    status, out, _ = shoal("test", "--only", "two")
    assert status == 0 and "two" in out and "one" not in out
    assert (source / "CONTRIBUTING.md").read_text() == before and not (source / test_all.FIGURES).exists()


def test_the_figures_of_the_last_runs_can_be_recorded_afterwards(shoal, source, monkeypatch) -> None:
    assert_one_line(shoal("test", "--record"), 1, "no part has run here")
    parts(monkeypatch, one=lambda job: "5 passed", two=lambda job: "6 passed")
    assert shoal("test", "--only", "one")[0] == 0 and shoal("test", "--only", "two")[0] == 0
    assert shoal("test", "--record")[0] == 0
    page = (source / "CONTRIBUTING.md").read_text()
    assert "| 5 passed |" in page and "| 6 passed |" in page


def test_sigterm_ends_the_command_of_a_part_too(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\nfrom pathlib import Path\nfrom shoal.cli import test_all\nfrom shoal.cli.test_parts import Part\n"
        "child = 'import os, signal; os.kill(os.getppid(), signal.SIGTERM); print(os.getpid(), flush=True); signal.pause()'\n"
        "test_all.PARTS = (Part('one', 'waits', 1, lambda job: job.run([sys.executable, '-c', child])[0]),)\n"
        f"test_all.run(Path({str(tmp_path)!r}), {{}}, None, None, False)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    assert subprocess.run([sys.executable, script], env=environment, capture_output=True).returncode == 143
    lines = (tmp_path / "build/test-all/one.log").read_text().splitlines()
    assert not any(Path("/proc", line).exists() for line in lines[1:])  # killed, and collected by its parent


def test_wrong_uses_are_one_line(shoal) -> None:
    assert_one_line(shoal("test", "--only", "soak-snyc"), 2, "no part 'soak-snyc'", "did you mean soak-sync?")
    assert_one_line(shoal("test", "--all", "-k", "ring"), 2, "-k", "--only")
    assert_one_line(shoal("test", "--all", "--copies", "/nowhere"), 2, "no folder '/nowhere'")


def test_the_list_names_every_part(shoal) -> None:
    status, out, _ = shoal("test", "--list")
    assert status == 0 and [line.split()[0] for line in out.splitlines()] == [part.name for part in PARTS]


def planned(part: Part, tmp_path: Path) -> list[list[str]]:
    """The commands of a part, none of which is run: pytest is said to have passed, other programs to have said nothing."""
    commands = []

    class Plan(Job):
        def outcome(self, command: list[object], **_: object) -> tuple[int, list[str]]:
            commands.append([str(word) for word in command])
            return 0, ["1 passed in 0.01s", "C++ 1", "fork: 1", "forkserver: 1", "spawn: 1", "torch 2.6.0: 1 passed"]

    (tmp_path / "tests").mkdir(exist_ok=True)
    job = Plan(part.name, tmp_path, {}, 1, tmp_path)
    job.source = ROOT
    for name in ("gymnasium.tar.gz", "test_multiprocessing.py", "test_multiprocessing_spawn.py"):
        (tmp_path / name).touch()
    if part.name == "cpython":
        needs_tests_of_cpython()
    part.run(job)
    return commands


def needs_tests_of_cpython() -> None:
    if importlib.util.find_spec("test._test_multiprocessing") is None:
        pytest.skip("this interpreter comes without its package `test`")


PLAIN = [part for part in PARTS if part.name in ("suite", "kills", "random", "thread", "address", "peers", "gpu")]
RUNNERS = [part for part in PARTS if part.name in ("cpython", "torch", "torch-releases", "gymnasium")]


@pytest.mark.parametrize("part", [*PLAIN, *RUNNERS], ids=lambda part: part.name)
def test_files_that_a_part_names_exist(part: Part, tmp_path: Path) -> None:
    commands = planned(part, tmp_path)
    named = [word for command in commands for word in command if word.startswith(("tests/", "benchmarks/"))]
    assert (named or part.name in ("suite", "thread", "address")) and all((ROOT / path).exists() for path in named)


@pytest.mark.parametrize(
    "part", [part for part in PLAIN if part.name in ("kills", "random", "peers")], ids=lambda p: p.name
)
def test_pytest_finds_tests_for_the_arguments_of_a_part(part: Part, tmp_path: Path) -> None:
    command = planned(part, tmp_path)[-1]
    found = subprocess.run([*command, "--collect-only", "-q"], cwd=ROOT, capture_output=True, text=True)
    assert found.returncode == 0 and "::" in found.stdout, found.stdout + found.stderr


@pytest.mark.parametrize("part", RUNNERS, ids=lambda part: part.name)
def test_the_runners_of_others_tests_take_the_arguments_of_a_part(part: Part, tmp_path: Path) -> None:
    (command,) = planned(part, tmp_path)
    runner = subprocess.run([*command[:2], "--help"], cwd=ROOT, capture_output=True, text=True)
    options = [word for word in command[2:] if word.startswith("--") and word != "--"]
    assert runner.returncode == 0 and all(option in runner.stdout for option in options)


def test_a_soak_tells_its_steps_and_faults(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(test_parts, "SOAK_STEPS", 20_000)
    job = Job("soak", tmp_path, dict(os.environ), minutes=2)
    job.source = ROOT
    told = test_parts.soak(job, "--mean", "10", "--envs", "16", "--mode", "async")
    steps, faults = (int(word.replace(",", "")) for word in told.split() if word[0].isdigit())
    assert steps >= 20_000 and faults > 0


def test_others_tests_that_cannot_be_fetched_are_left_out(monkeypatch: pytest.MonkeyPatch, job: Job) -> None:
    def unreachable(*_: object, **__: object) -> None:
        raise urllib.error.URLError("no route")

    monkeypatch.setattr("urllib.request.urlopen", unreachable)
    for part in (test_parts.torch, test_parts.gymnasium):
        with pytest.raises(LeftOut, match=r"cannot fetch https://.*no route.*--copies"):
            part(job)


def test_a_runner_that_dies_before_its_last_count_has_failed(monkeypatch: pytest.MonkeyPatch, job: Job) -> None:
    needs_tests_of_cpython()
    monkeypatch.setattr(job, "outcome", lambda command: (0, ["fork: 12 passed"]))
    with pytest.raises(Failed, match="fork: 12 passed"):
        test_parts.cpython(job)


def test_the_page_shows_the_recorded_figures() -> None:
    record = json.loads((ROOT / test_all.FIGURES).read_text())
    assert {result["part"] for result in record} <= {part.name for part in PARTS}
    shown = (ROOT / test_all.PAGE).read_text().partition(test_all.BEGIN)[2].partition(test_all.END)[0]
    assert shown.strip() == test_all.table(record)


def test_releases_of_torch_are_told_one_by_one(monkeypatch: pytest.MonkeyPatch, job: Job) -> None:
    lines = ["left out: torch 2.9.1: pip cannot install it", "torch 2.6.0+cu124: 9 passed", "torch 2.15.0: 1 failed"]
    monkeypatch.setattr(job, "outcome", lambda command: (0, lines[:2]))
    assert test_parts.torch_releases(job) == "torch 2.6.0+cu124: 9 passed"
    assert job.left_out == ["torch 2.9.1: pip cannot install it"]
    monkeypatch.setattr(job, "outcome", lambda command: (1, lines))
    with pytest.raises(Failed, match=r"2\.6\.0.*9 passed; torch 2\.15\.0: 1 failed"):
        test_parts.torch_releases(job)
    monkeypatch.setattr(job, "outcome", lambda command: (0, lines[:1]))
    with pytest.raises(LeftOut, match="pip cannot install"):
        test_parts.torch_releases(job)
