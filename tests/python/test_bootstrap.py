"""The bootstrap script ./shoal, on a small project of the same shape: nothing to install, modules built at once."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
if not (ROOT / "shoal").is_file():
    pytest.skip("the script is not part of an installed package", allow_module_level=True)

_MODULES = ("_core", "_learn")
_PRODUCTS = (*_MODULES, "shoal-worker")
_CMAKE = """
cmake_minimum_required(VERSION 3.25)
project(small LANGUAGES NONE)
foreach(module @PRODUCTS@)
  set(source ${CMAKE_SOURCE_DIR}/src/${module}.cc)
  set(output ${CMAKE_SOURCE_DIR}/python/shoal/${module})
  if(NOT module STREQUAL shoal-worker)
    string(APPEND output .so)
  endif()
  add_custom_command(OUTPUT ${output} DEPENDS ${source} VERBATIM
    COMMAND sh ${CMAKE_SOURCE_DIR}/src/compile.sh ${source} ${output})
  add_custom_target(${module} DEPENDS ${output})
endforeach()
"""
_PRESETS = """{"version": 6, "configurePresets": [
  {"name": "release", "generator": "Ninja", "binaryDir": "${sourceDir}/build/release"}]}"""
_CLI = """
import os, sys
import shoal
def main():
    print(os.getcwd(), os.environ["SHOAL_COMMAND"], *sys.argv[1:], sep="|")
    return int(os.environ.get("STATUS", "0"))
"""


class Project:
    """A folder with the script and just enough beside it, and a PATH on which programs can be replaced."""

    def __init__(self, root: Path):
        self.root = root
        self.programs = root.parent / "programs"
        for folder in (
            self.programs,
            root / "src",
            root / "cmake",
            root / "python/bindings",
            root / "python/shoal/cli",
        ):
            folder.mkdir(parents=True)
        shutil.copy(ROOT / "shoal", root / "shoal")
        for path in ROOT.glob("requirements*"):
            (root / path.name).write_text("# none\n")
        (root / "CMakeLists.txt").write_text(_CMAKE.replace("@PRODUCTS@", " ".join(_PRODUCTS)))
        (root / "CMakePresets.json").write_text(_PRESETS)
        (root / "src/compile.sh").write_text('cp "$1" "$2"\n')
        (root / "python/shoal/__init__.py").write_text("")
        (root / "python/shoal/_version.py").write_text("")
        (root / "python/shoal/cli/__init__.py").write_text(_CLI)
        for module in _PRODUCTS:
            (root / f"src/{module}.cc").write_text(module)
            (root / f"src/{module}.cc").chmod(0o755)

    def replace(self, program: str, script: str) -> None:
        """Puts a shell script in the place of a program."""
        file = self.programs / program
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)

    def environment(self, **variables: str) -> dict[str, str]:
        path = f"{self.programs}:{os.environ['PATH']}"
        base = getattr(sys, "_base_executable", sys.executable)
        inherited = {name: value for name, value in os.environ.items() if name != "SHOAL_WERROR"}  # CI's own
        return {**inherited, "PATH": path, "SHOAL_PYTHON": base, "PIP_NO_INDEX": "1", **variables}

    def start(
        self, *arguments: str, cwd: Path | None = None, prefix: tuple[str, ...] = (), **variables: str
    ) -> subprocess.Popen:
        return subprocess.Popen(
            [*prefix, str(self.root / "shoal"), *arguments],
            cwd=cwd or self.root,
            env=self.environment(**variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def call(self, *arguments: str, **options) -> subprocess.CompletedProcess:
        process = self.start(*arguments, **options)
        out, err = process.communicate(timeout=90)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)


@pytest.fixture
def bare() -> Iterator[Project]:
    """A project as it is cloned."""
    # Readable for another user too, unlike pytest's own folders.
    folder = Path(tempfile.mkdtemp(prefix="shoal bootstrap "))
    folder.chmod(0o777)
    yield Project(folder / "a project")
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def empty_environment(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("environment") / ".venv"
    subprocess.run([getattr(sys, "_base_executable", sys.executable), "-m", "venv", folder], check=True, timeout=90)
    return folder


@pytest.fixture
def project(bare, empty_environment) -> Project:
    """A project with an environment, of which the script knows nothing yet: making one takes seconds."""
    shutil.copytree(empty_environment, bare.root / ".venv", symlinks=True)
    return bare


def test_first_call_sets_up_and_hands_arguments_over(bare, tmp_path):
    result = bare.call("train", "a b", "--x=*", cwd=tmp_path, STATUS="7")
    assert result.stdout == f"{tmp_path}|{bare.root}/shoal|train|a b|--x=*\n"
    assert result.returncode == 7
    assert "Creating .venv" in result.stderr and "Building the extension modules" in result.stderr


def test_second_call_does_nothing_but_start(project):
    project.call()
    again = project.call("envs")
    assert again.stderr == ""
    assert again.stdout.endswith("|envs\n")


def test_works_through_a_symbolic_link(project, tmp_path):
    (tmp_path / "command").symlink_to(project.root / "shoal")
    project.call()
    result = subprocess.run(
        [tmp_path / "command", "x"], env=project.environment(), capture_output=True, text=True, timeout=90
    )
    assert result.stdout.endswith("|x\n")


def test_the_environments_own_command_works_from_any_path(project):
    project.call()
    command = project.root / ".venv/bin/shoal"
    result = subprocess.run(
        [command, "y z"], env=project.environment(SHOAL_COMMAND="shoal"), capture_output=True, text=True, timeout=30
    )
    assert (result.stdout.split("|")[1:], result.stderr) == (["shoal", "y z\n"], "")


def test_an_edited_source_is_built_and_nothing_else_is_done(project):
    project.call()
    (project.root / "src/_core.cc").write_text("edited")
    result = project.call()
    assert (project.root / "python/shoal/_core.so").read_text() == "edited"
    assert "Building" in result.stderr and "Creating" not in result.stderr and "Configuring" not in result.stderr
    assert project.call().stderr == ""


def test_warnings_become_errors_where_that_is_asked_for_and_nothing_is_configured_twice(project):
    cache = project.root / "build/release/CMakeCache.txt"
    project.call()
    assert "SHOAL_WERROR" not in cache.read_text()
    result = project.call(SHOAL_WERROR="1")
    assert "Configuring" in result.stderr and "SHOAL_WERROR:UNINITIALIZED=ON" in cache.read_text()
    assert project.call(SHOAL_WERROR="1").stderr == ""
    assert project.call().stderr == "", "as it was configured, so it stays"


def test_a_shell_that_completes_a_word_sets_nothing_up(bare, empty_environment):
    def completed() -> tuple[int, str, str]:
        result = bare.call(_SHOAL_COMPLETE="complete_bash")
        return result.returncode, result.stdout.rpartition("|")[2], result.stderr

    before = sorted(bare.root.rglob("*"))
    assert completed() == (0, "", "")
    assert sorted(bare.root.rglob("*")) == before
    shutil.copytree(empty_environment, bare.root / ".venv", symlinks=True)
    bare.call()
    assert completed() == (0, f"{bare.root}/shoal\n", "")
    (bare.root / "src/_core.cc").write_text("edited")
    assert completed() == (0, "", "")
    assert (bare.root / "python/shoal/_core.so").read_text() == "_core"


def test_a_lost_module_is_built_again(project):
    project.call()
    (project.root / "python/shoal/_learn.so").unlink()
    project.call()
    assert (project.root / "python/shoal/_learn.so").exists()


def test_changed_requirements_are_installed(project):
    project.call()
    (project.root / "requirements.txt").write_text("# one more\n")
    result = project.call()
    assert "Installing" in result.stderr and "Creating" not in result.stderr
    assert project.call().stderr == ""


def test_what_tests_need_is_installed_when_they_are_first_run(project):
    (project.root / "requirements-dev.txt").write_text("shoal-needs-no-such-package==1.0\n")
    assert project.call("train").returncode == 0, "training needs none of it"
    for command in ("test", "lint", "docs"):
        result = project.call(command)
        assert result.returncode == 1 and "shoal-needs-no-such-package" in result.stderr
    (project.root / "requirements-dev.txt").write_text("# none\n")
    result = project.call("test")
    assert "Installing torch, pytest" in result.stderr and "Installing gymnasium" not in result.stderr
    assert "Configuring" not in result.stderr and "Building" not in result.stderr
    for command in ("test", "train"):
        assert project.call(command).stderr == ""


def test_a_failing_build_shows_the_end_of_its_log_and_is_tried_again(project):
    (project.root / "src/compile.sh").write_text("echo the compiler is sad; exit 1\n")
    for _ in range(2):
        result = project.call()
        assert result.returncode == 1
        assert "the compiler is sad" in result.stderr and "build/setup.log" in result.stderr
        assert result.stdout == ""
    (project.root / "src/compile.sh").write_text('cp "$1" "$2"\n')
    assert project.call().returncode == 0


def test_requirements_that_cannot_be_installed_fail_and_leave_the_environment_usable(project):
    (project.root / "requirements.txt").write_text("shoal-needs-no-such-package==1.0\n")
    result = project.call()
    assert result.returncode == 1
    assert "shoal-needs-no-such-package" in result.stderr
    (project.root / "requirements.txt").write_text("# none\n")
    result = project.call()
    assert result.returncode == 0 and "Creating" not in result.stderr


def test_an_environment_left_by_a_killed_installation_is_made_anew(project):
    project.call()
    (project.root / ".venv/.installing").touch()
    (project.root / ".venv/.ready-run").unlink()
    (project.root / ".venv/half of a package").touch()
    assert project.call().returncode == 0
    assert not (project.root / ".venv/half of a package").exists()


def test_an_installation_interrupted_from_the_keyboard_is_begun_anew(project):
    slow = project.root.parent / "slow"
    slow.mkdir()
    (slow / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "slow"\nbackend-path = ["."]\n[project]\nname = "slow"\nversion = "1"\n'
    )
    (slow / "slow.py").write_text("import pathlib, time\npathlib.Path('started').touch()\ntime.sleep(60)\n")
    (project.root / "requirements.txt").write_text(f"slow @ {slow.as_uri()}\n")
    process = project.start()
    _wait_until((slow / "started").exists)
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130
    assert (project.root / ".venv/.installing").exists()
    (project.root / "requirements.txt").write_text("# none\n")
    result = project.call()
    assert result.returncode == 0 and "Creating .venv" in result.stderr


def test_a_first_call_killed_during_the_build_is_completed_by_the_next(project):
    started = project.root.parent / "started"
    (project.root / "src/compile.sh").write_text(f'touch "{started}"; printf half > "$2"; sleep 60\n')
    process = project.start()
    _wait_until(started.exists)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=30)
    (project.root / "src/compile.sh").write_text('cp "$1" "$2"\n')
    assert project.call().returncode == 0
    for module in _MODULES:
        assert (project.root / f"python/shoal/{module}.so").read_text() == module


def test_two_first_calls_at_once_set_up_once(bare):
    log = bare.root.parent / "compiled"
    (bare.root / "src/compile.sh").write_text(f'echo once >> "{log}"; cp "$1" "$2"\n')
    processes = [bare.start(str(number)) for number in range(2)]
    outputs = [process.communicate(timeout=90) for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert sorted(out.split("|")[-1] for out, _ in outputs) == ["0\n", "1\n"]
    assert sum("Creating .venv" in err for _, err in outputs) == 1
    assert log.read_text().count("once") == len(_PRODUCTS)


def test_a_moved_folder_still_works(project):
    project.call()
    moved = project.root.parent / "moved"
    project.root.rename(moved)
    project.root = moved
    result = project.call("here")
    assert result.returncode == 0, result.stderr
    assert result.stdout.endswith("|here\n")


def hide_header(project: Project, name: str) -> Path:
    """Makes the compiler lack the headers of a library until the file that is returned exists."""
    installed = project.root.parent / f"{name} is installed"
    project.replace(
        "g++",
        f"""text=$(cat)
case $text in *{name}*) [ -e "{installed}" ] || exit 1 ;; esac
printf "%s\\n" "$text" | exec {shutil.which("g++")} "$@" """,
    )
    return installed


def test_a_missing_library_is_installed_where_that_needs_no_password(project):
    installed = hide_header(project, "spdlog")
    project.replace("sudo", '[ "$1" = -n ] && shift; exec "$@"')
    project.replace("apt-get", f'case "$*" in *libspdlog-dev*) touch "{installed}" ;; esac')
    result = project.call()
    assert result.returncode == 0, result.stderr
    assert "shoal: Installing libspdlog-dev …\n" in result.stderr


def test_a_library_that_is_only_welcome_may_be_missing(project):
    hide_header(project, "relacy")
    project.replace("sudo", '[ "$1" = -n ] && shift; exec "$@"')
    project.replace("apt-get", "exit 1")
    result = project.call()
    assert result.returncode == 0, result.stderr
    assert "relacy-dev: not needed" in result.stderr


def test_an_installation_that_fails_shows_the_end_of_its_log(project):
    hide_header(project, "spdlog")
    project.replace("sudo", '[ "$1" = -n ] && shift; exec "$@"')
    project.replace("apt-get", "echo no such package; exit 100")
    result = project.call()
    assert result.returncode == 1
    assert "no such package" in result.stderr and not (project.root / ".venv/.ready-run").exists()


def test_without_root_a_missing_library_is_one_command_to_run(bare):
    hide_header(bare, "spdlog")
    bare.replace("apt-get", "exit 1")
    bare.replace("sudo", "exit 1")
    prefix = ()
    if os.geteuid() == 0:
        if not shutil.which("setpriv"):
            pytest.skip("no setpriv to become another user with")
        bare.root.chmod(0o777)
        prefix = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
        base = getattr(sys, "_base_executable", sys.executable)
        if subprocess.run([*prefix, base, "-c", ""], capture_output=True).returncode:
            pytest.skip("another user cannot run this Python")
    result = bare.call(prefix=prefix)
    assert result.returncode == 1
    assert "sudo apt-get install -y libspdlog-dev\n" in result.stderr
    assert not (bare.root / ".venv").exists()


def _wait_until(condition) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
