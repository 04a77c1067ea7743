"""`shoal doctor`: what it sees, and that it says something about what is wrong."""

from __future__ import annotations

import ast
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import shoal
from shoal.cli import main
from shoal.doctor import cgroup, containers, cores, examine, machine, memory, processes, software
from shoal.doctor.accelerators import gpus
from shoal.doctor.finding import Finding


def find(findings, name):
    return next(finding for finding in findings if finding.name == name)


WITHOUT_A_COMMAND = {"kernel", "cores"}
"""Another kernel is the machine's, or its owner's, matter; so are cores of one's own."""


def test_every_finding_that_is_not_fine_has_advice():
    findings = examine()
    assert {finding.area for finding in findings} == {"software", "processes", "machine", "memory", "accelerators"}
    for finding in findings:
        assert finding.status in ("ok", "warn", "fail")
        assert finding.value and (finding.advice or finding.status == "ok")
        assert "\n" not in finding.advice
        assert finding.status == "ok" or finding.remedy or finding.name in WITHOUT_A_COMMAND


def test_every_place_that_finds_something_gives_a_command():
    """Also what is not the matter here: each `Finding` of the sources that is not fine."""
    made = 0
    for path in sorted(Path(shoal.__file__).parent.joinpath("doctor").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Finding"):
                continue
            name, status = (
                getattr(argument, "value", None) for argument in (node.args[1], (node.args + [None] * 4)[3])
            )
            if status in ("warn", "fail"):
                made += 1
                assert len(node.args) == 6 or name in WITHOUT_A_COMMAND, f"{path.name}:{node.lineno}"
    assert made >= 18


def test_names_are_unique():
    names = [finding.name for finding in examine()]
    assert len(names) == len(set(names))


def test_json_is_one_line(capsys):
    status = main(["doctor", "--json"])
    out, err = capsys.readouterr()
    assert err == "" and out.count("\n") == 1
    answer = json.loads(out)
    assert status == (1 if answer["fail"] else 0)
    assert answer["ok"] + answer["warn"] + answer["fail"] == len(answer["findings"])
    assert {"area", "name", "value", "status", "advice", "remedy"} == set(answer["findings"][0])


def test_text_shows_every_finding(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    main(["doctor"])
    out, _ = capsys.readouterr()
    for finding in examine():
        assert finding.name in out
        assert finding.remedy is None or f"$ {finding.remedy}\n" in re.sub(" +\n", "\n", out)


def test_text_on_a_narrow_terminal_is_whole(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setattr(
        "shoal.doctor.examine", lambda: [Finding("memory", "shared memory", "3 MiB", "warn", "Too few.", "mount")]
    )
    main(["doctor"])
    out, _ = capsys.readouterr()
    lines = [line.rstrip() for line in out.splitlines()]
    assert lines[:5] == ["memory", "! shared memory", "  3 MiB", "  Too few.", "  $ mount"]


def test_it_leaves_the_process_as_it_was():
    code = textwrap.dedent("""
        import os, sys
        from shoal import _core
        from shoal.doctor import examine
        descriptors = sorted(os.listdir("/proc/self/fd"))
        assert examine()
        assert sorted(os.listdir("/proc/self/fd")) == descriptors
        assert not _core.process.fork_hazards()
        assert not {"torch", "gymnasium"} & set(sys.modules)
    """)
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr


def test_a_low_limit_of_open_files_is_noticed():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        finding = find(processes.examine(), "open files")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert finding.status == "warn" and finding.value.startswith("256 ")
    assert finding.remedy == f"ulimit -n {min(hard, 65536) if hard >= 0 else 65536}"


@pytest.mark.parametrize(
    ("limits", "value", "remedy", "by_root"),
    [
        ((64, 64), "64 (the hard limit)", "sudo prlimit --pid $$ --nofile=65536", True),
        ((64, 128), "64 (may be raised to 128)", "sudo prlimit --pid $$ --nofile=65536", True),
        ((64, 4096), "64 (may be raised to 4096)", "ulimit -n 4096", False),
        ((64, -1), "64 (may be raised to unlimited)", "ulimit -n 65536", False),
    ],
)
def test_files_are_raised_as_far_as_the_hard_limit_and_then_by_who_set_it(monkeypatch, limits, value, remedy, by_root):
    monkeypatch.setattr(containers, "inside", lambda: False)
    limit = resource.getrlimit
    monkeypatch.setattr("resource.getrlimit", lambda of: limits if of == resource.RLIMIT_NOFILE else limit(of))
    finding = find(processes.examine(), "open files")
    assert (finding.status, finding.value) == ("warn", value)
    assert finding.remedy == remedy and ("ulimit -Hn" in finding.advice) == by_root
    if by_root:
        monkeypatch.setattr(containers, "inside", lambda: True)
        assert find(processes.examine(), "open files").remedy == "docker run --ulimit nofile=65536 IMAGE"


def test_launcher_variables_are_named(monkeypatch):
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "0")
    monkeypatch.setenv("LOCAL_RANK", "0")
    finding = find(processes.examine(), "launcher")
    assert "OMPI_COMM_WORLD_RANK" in finding.value and "LOCAL_RANK" in finding.value


def test_a_thread_count_that_is_none_is_noticed(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "many")
    finding = find(processes.examine(), "thread pools")
    assert (finding.status, finding.remedy) == ("warn", "unset OMP_NUM_THREADS")
    monkeypatch.setenv("OMP_NUM_THREADS", "4,2")
    assert find(processes.examine(), "thread pools").status == "ok"


def test_an_older_torch_than_tested_is_named_and_none_is_no_obstacle(monkeypatch):
    for version, status in (("2.5.1+cpu", "warn"), ("2.6.0", "ok"), ("2.15.0+cu132", "ok"), (None, "ok")):
        monkeypatch.setattr(software, "_version_of", lambda package, version=version: version)
        assert find(software.examine(), "torch").status == status


def test_a_package_that_is_not_there_is_named_by_shoals_own_extra(monkeypatch):
    monkeypatch.setattr(software, "_version_of", lambda package: None)
    findings = software.examine()
    for name, extra in (("Box2D", "box2d"), ("mujoco", "mujoco"), ("ale-py", "atari")):
        assert find(findings, name).remedy == f"pip install 'shoal[{extra}]'"
    assert find(findings, "torch").remedy == "pip install 'shoal[torch]'"


@pytest.mark.parametrize(
    ("call", "module", "name"), [("os.memfd_create", memory, "memfd"), ("os.pidfd_open", processes, "pidfd")]
)
def test_a_refused_call_of_the_kernel_is_an_obstacle(monkeypatch, call, module, name):
    def refuse(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(call, refuse)
    finding = find(module.examine(), name)
    assert finding.status == "fail" and "seccomp" in finding.advice
    assert finding.remedy == "docker run --security-opt seccomp=unconfined IMAGE"


def read_as(monkeypatch, file, text):
    """Has `file` of the kernel's say `text`."""
    read = Path.read_text
    monkeypatch.setattr(Path, "read_text", lambda self, *a, **k: text if str(self) == file else read(self, *a, **k))


@pytest.mark.parametrize(("release", "status"), [("5.9.16-generic", "fail"), ("5.10.0-8-amd64", "ok"), ("6.1", "ok")])
def test_a_kernel_that_is_too_old_is_an_obstacle(monkeypatch, release, status):
    monkeypatch.setattr("platform.release", lambda: release)
    assert find(software.examine(), "kernel").status == status


def test_an_interpreter_without_the_gil_is_noticed(monkeypatch):
    assert find(software.examine(), "Python").status == "ok"
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    assert find(software.examine(), "Python").status == "warn"


def test_modules_of_another_version_are_an_obstacle(monkeypatch):
    monkeypatch.setattr("shoal._core.version", "0.0.1")
    finding = find(software.examine(), "extension modules")
    assert finding.status == "fail" and "0.0.1" in finding.value


@pytest.fixture(scope="module")
def unbuilt(tmp_path_factory):
    """Shoal without its extension modules: what a command in it gives."""
    folder = tmp_path_factory.mktemp("unbuilt")
    leave_out = shutil.ignore_patterns("*.so", "shoal-worker", "__pycache__")
    shutil.copytree(Path(shoal.__file__).parent, folder / "shoal", ignore=leave_out)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *(path for path in sys.path if path)])}

    def call(*arguments):
        command = [sys.executable, *arguments]
        return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, timeout=60)

    return call


PYTHON = f"Python {sys.version_info.major}.{sys.version_info.minor}"


def test_what_is_not_built_for_this_python_is_an_obstacle(unbuilt):
    result = unbuilt("-m", "shoal.cli", "doctor", "--json")
    findings = {finding["name"]: finding for finding in json.loads(result.stdout)["findings"]}
    modules = findings["extension modules"]
    assert (result.returncode, modules["status"], modules["value"]) == (1, "fail", f"not built for {PYTHON}")
    assert "pip install" in modules["advice"]
    assert f"none can be started: shoal is not built for {PYTHON}" in findings["zygotes"]["advice"]


@pytest.mark.parametrize(
    "arguments",
    [("-m", "shoal.cli", "stat"), ("-m", "shoal.cli", "envs"), ("-c", "from shoal._core import ipc")],
)
def test_what_needs_the_extension_modules_says_that_they_are_not_built(unbuilt, arguments):
    result = unbuilt(*arguments)
    assert result.returncode == 1
    assert f"ImportError: shoal is not built for {PYTHON}: call ./shoal" in result.stderr.splitlines()[-1]


def test_the_package_itself_needs_no_extension_modules(unbuilt):
    assert unbuilt("-c", "import shoal; shoal.__version__").returncode == 0


def test_a_preloaded_library_is_noticed(monkeypatch):
    monkeypatch.setenv("LD_PRELOAD", "/nowhere/odd.so")
    finding = find(processes.examine(), "LD_PRELOAD")
    assert (finding.status, finding.value, finding.remedy) == ("warn", "/nowhere/odd.so", "unset LD_PRELOAD")


@pytest.mark.parametrize(
    ("user", "container", "status"),
    [
        (-1, None, "ok"),
        (100, None, "warn"),
        (-1, 30, "warn"),
        (-1, 0, "warn"),
        (100_000, 30, "warn"),
        (100_000, 99_999, "ok"),
    ],
)
def test_a_low_limit_of_processes_is_noticed(monkeypatch, user, container, status):
    limit = resource.getrlimit
    monkeypatch.setattr("resource.getrlimit", lambda of: (user, user) if of == resource.RLIMIT_NPROC else limit(of))
    monkeypatch.setattr(cgroup, "number", lambda *_: container)
    assert find(processes.examine(), "processes").status == status


@pytest.mark.parametrize(
    ("limits", "group", "in_a_container", "remedy"),
    [
        ((100, -1), None, False, "ulimit -u 4096"),
        ((100, 200), None, False, "sudo prlimit --pid $$ --nproc=4096"),
        ((100, 200), None, True, "docker run --ulimit nproc=4096 IMAGE"),
        ((-1, -1), 30, True, "docker run --pids-limit 4096 IMAGE"),
        ((-1, -1), 30, False, f"sudo systemctl set-property user-{os.getuid()}.slice TasksMax=4096"),
    ],
)
def test_the_limit_of_processes_is_raised_where_it_is_set(monkeypatch, limits, group, in_a_container, remedy):
    limit = resource.getrlimit
    monkeypatch.setattr("resource.getrlimit", lambda of: limits if of == resource.RLIMIT_NPROC else limit(of))
    monkeypatch.setattr(cgroup, "number", lambda *_: group)
    monkeypatch.setattr(containers, "inside", lambda: in_a_container)
    assert find(processes.examine(), "processes").remedy == remedy


@pytest.mark.parametrize(
    ("available", "container", "status"),
    [
        (2 << 20, None, "ok"),
        (1000, None, "warn"),
        (2 << 20, (2 << 30, 3 << 29), "warn"),
        (2 << 20, (2 << 30, 0), "ok"),
        (2 << 20, (0, 0), "warn"),
    ],
)
def test_little_memory_is_noticed_of_the_machine_and_of_the_container(monkeypatch, available, container, status):
    read_as(monkeypatch, "/proc/meminfo", f"MemTotal: {8 << 20} kB\nMemAvailable: {available} kB\n")
    monkeypatch.setattr(cgroup, "memory", lambda total: container and cgroup.Memory(*container))
    finding = find(memory.examine(), "memory")
    assert finding.status == status and ("this container" in finding.value) == (container is not None)


@pytest.mark.parametrize(("mode", "status"), [("0", "ok"), ("1", "ok"), ("2", "warn")])
def test_strict_overcommit_is_noticed(monkeypatch, mode, status):
    read_as(monkeypatch, "/proc/sys/vm/overcommit_memory", mode + "\n")
    finding = find(memory.examine(), "overcommit")
    assert finding.status == status
    assert finding.remedy == ("sudo sysctl vm.overcommit_memory=0" if status == "warn" else None)


def test_a_small_dev_shm_is_named_and_no_obstacle(monkeypatch):
    statvfs = os.statvfs

    def small(path):
        found = list(statvfs(path))
        found[1], found[2], found[4] = 1024, 64, 64  # f_frsize, f_blocks, f_bavail: 64 KiB
        return os.statvfs_result(found)

    monkeypatch.setattr("os.statvfs", small)
    finding = find(memory.examine(), "/dev/shm")
    assert finding.status == "ok" and finding.remedy == "docker run --shm-size=2g IMAGE"


@pytest.fixture
def group(tmp_path):
    """A tree of control groups of version 2: this process is in /outer/inner."""
    inner = tmp_path / "fs" / "outer" / "inner"
    inner.mkdir(parents=True)
    groups = tmp_path / "groups"
    groups.write_text("0::/outer/inner\n")
    return inner, tmp_path / "fs", groups


def test_the_smallest_limit_on_the_way_up_counts(group):
    inner, root, groups = group
    (inner / "memory.max").write_text("max\n")
    (inner.parent / "memory.max").write_text("4096\n")
    assert cgroup.number("memory.max", root=root, groups=groups) == 4096
    (inner / "memory.max").write_text("1024\n")
    assert cgroup.number("memory.max", root=root, groups=groups) == 1024
    assert cgroup.number("pids.max", root=root, groups=groups) is None


def test_memory_is_that_of_the_group_with_the_least_left(group):
    inner, root, groups = group
    assert cgroup.memory(1 << 30, root, groups) is None
    (inner / "memory.max").write_text("max\n")
    (inner / "memory.current").write_text("100\n")
    (inner.parent / "memory.max").write_text("4096\n")
    (inner.parent / "memory.current").write_text("4000\n")
    assert cgroup.memory(1 << 30, root, groups) == (4096, 4000)
    (inner / "memory.max").write_text("1024\n")
    assert cgroup.memory(1 << 30, root, groups) == (4096, 4000)
    (inner / "memory.current").write_text("1000\n")
    assert cgroup.memory(1 << 30, root, groups) == (1024, 1000)
    assert cgroup.memory(1024, root, groups) is None


def test_a_limit_of_nothing_is_a_limit(group):
    inner, root, groups = group
    (inner / "pids.max").write_text("0\n")
    (inner.parent / "pids.max").write_text("4096\n")
    assert cgroup.number("pids.max", root=root, groups=groups) == 0


def test_what_is_no_limit_is_none(group):
    inner, root, groups = group
    for text in ("max", "", "-1", str(2**63 - 4096)):  # the last two are version 1's
        (inner / "memory.max").write_text(text + "\n")
        assert cgroup.number("memory.max", root=root, groups=groups) is None


def test_the_quota_is_in_cpus(group):
    inner, root, groups = group
    (inner / "cpu.max").write_text("max 100000\n")
    assert cgroup.cpus(root, groups) is None
    (inner.parent / "cpu.max").write_text("150000 100000\n")
    assert cgroup.cpus(root, groups) == 1.5


def test_version_1_of_control_groups(tmp_path):
    groups = tmp_path / "groups"
    groups.write_text("4:memory:/job\n3:cpu,cpuacct:/job\n")
    for controller, file, text in (
        ("memory", "memory.limit_in_bytes", "2048"),
        ("memory", "memory.usage_in_bytes", "1024"),
        ("cpu", "cpu.cfs_quota_us", "50000"),
        ("cpu", "cpu.cfs_period_us", "100000"),
    ):
        folder = tmp_path / controller / "job"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text + "\n")
    assert cgroup.number("memory.max", "memory/memory.limit_in_bytes", tmp_path, groups) == 2048
    assert cgroup.memory(1 << 30, tmp_path, groups) == (2048, 1024)
    assert cgroup.cpus(tmp_path, groups) == 0.5


def test_gpus_are_read_from_the_kernel(tmp_path):
    for i in range(2):
        folder = tmp_path / f"0000:0{i}:00.0"
        folder.mkdir()
        (folder / "information").write_text(f"Model: \t\t NVIDIA Test {i}\nIRQ:   1\n")
    assert gpus(tmp_path) == ["NVIDIA Test 0", "NVIDIA Test 1"]


def test_cpus_that_are_halves_of_cores_are_told(monkeypatch):
    monkeypatch.setattr(cores, "side_by_side", lambda: cores.SideBySide(2, 1.24))
    finding = find(machine.examine(), "cores")
    assert finding.value == "2 CPUs side by side do the work of 1.2: they behave as halves of cores"
    assert finding.status == "warn" and finding.advice
    monkeypatch.setattr(cores, "side_by_side", lambda: cores.SideBySide(2, 1.9, share=0.5))
    finding = find(machine.examine(), "cores")
    assert finding.status == "ok" and "while other programs ran" in finding.value


def test_cpus_are_compared_with_one_of_them():
    """Not by how much: other programs run while tests do."""
    found = cores.side_by_side(0.01)
    assert found.cpus == min(len(os.sched_getaffinity(0)), cores.MOST)
    assert 0 < found.worth and 0 < found.share <= 1


def test_one_cpu_is_worth_one(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0})
    assert cores.side_by_side() == cores.SideBySide(1, 1.0)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1_000_000})
    finding = find(machine.examine(), "cores")
    assert finding.status == "warn" and "could not be measured" in finding.value
