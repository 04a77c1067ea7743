"""The runners of other libraries' tests fail where these were not run."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

RUNNERS = Path(__file__).parents[1] / "conformance"
PASSES = "def test_it():\n    pass\n"
DIES = "import os\nos._exit(0)\n" + PASSES
DIES_IN_TEST = "import os\ndef test_it():\n    os._exit(0)\n"
NO_TESTS = "test_nothing = None\n"
SKIPS = "import pytest\npytest.importorskip('no_such_module')\n" + PASSES


def run(runner: str, *arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, str(RUNNERS / runner), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=100,
    )
    return done.returncode, done.stdout


def archive(folder: Path, files: dict[str, str]) -> str:
    path = folder / "tests.tar.gz"
    with tarfile.open(path, "w:gz") as made:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"peer/tests/vector/{name}")
            entry.size = len(text)
            made.addfile(entry, io.BytesIO(text.encode()))
    return str(path)


@pytest.mark.parametrize(
    ("second", "told"),
    [
        (PASSES, ""),
        (SKIPS, ""),
        (DIES, "took it along"),
        (DIES_IN_TEST, "took it along"),
        (NO_TESTS, "of tests/vector/test_b"),
    ],
)
def test_gymnasiums(tmp_path: Path, second: str, told: str) -> None:
    code, output = run("gymnasium_vector.py", "--source", archive(tmp_path, {"test_a.py": PASSES, "test_b.py": second}))
    assert bool(code) == bool(told) and told in output, output


def test_gymnasiums_without_any_file(tmp_path: Path) -> None:
    code, output = run("gymnasium_vector.py", "--source", archive(tmp_path, {"readme.txt": ""}))
    assert code == 1 and "there are no tests" in output


@pytest.mark.parametrize(("second", "told"), [(PASSES, ""), (DIES, "took it along")])
def test_stable_baselines3s(tmp_path: Path, second: str, told: str) -> None:
    ours = (
        "from stable_baselines3.common.vec_env import DummyVecEnv\nassert DummyVecEnv.__module__.startswith('shoal.')\n"
    )
    files = {"test_a.py": ours + PASSES, "test_b.py": ours + second, "test_c.py": "def test_other():\n    assert 0\n"}
    code, output = run("sb3_vec_env.py", "--source", archive(tmp_path, files))
    assert bool(code) == bool(told) and told in output, output


@pytest.mark.parametrize(("second", "told"), [(PASSES, ""), (DIES, "took it along"), (NO_TESTS, "of test_b.py")])
def test_pytorchs(tmp_path: Path, second: str, told: str) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("expecttest")
    pytest.importorskip("pytest_timeout")
    sources = []
    for name, text in (("test_a.py", PASSES), ("test_b.py", second)):
        (tmp_path / name).write_text(text)
        sources += ["--source", str(tmp_path / name)]
    code, output = run("torch_multiprocessing.py", *sources)
    assert bool(code) == bool(told) and told in output, output


@pytest.fixture
def cpythons() -> ModuleType:
    spec: Any = importlib.util.spec_from_file_location("cpython_runner", RUNNERS / "cpython_multiprocessing.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def started(*messages: Any, listed: Any = None) -> Any:
    """As the runner's start(): a process that says so much, and ends with exit code 0."""

    def start(module: str, names: Path | None) -> tuple[subprocess.Popen[bytes], int]:
        reader, writer = os.pipe()
        told = json.dumps(listed) if names is None else "".join(json.dumps(message) + "\n" for message in messages)
        command = [sys.executable, "-c", f"import os; os.write({writer}, {told!r}.encode()); os._exit(0)"]
        pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        process = subprocess.Popen(command, pass_fds=[writer], start_new_session=True, **pipes)
        os.close(writer)
        return process, reader

    return start


PASSED = [["start", "T.test_a", ""], ["passed", "T.test_a", ""], ["stop", "T.test_a", ""]]


@pytest.mark.parametrize(
    ("messages", "code", "told"),
    [
        (PASSED, 0, "fork: 1 passed"),
        ([], 1, "1 tests were not run: their process ended"),
        (PASSED[:1], 1, "T.test_a: hung or crashed"),
    ],
)
def test_cpythons(
    cpythons: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    messages: list[Any],
    code: int,
    told: str,
) -> None:
    if importlib.util.find_spec("test._test_multiprocessing") is None:
        pytest.skip("this interpreter comes without its `test` package")
    monkeypatch.setattr(cpythons, "start", started(*messages, listed=["T.test_a"]))
    monkeypatch.setattr(sys, "argv", ["cpython_multiprocessing.py", "fork"])
    assert cpythons.main() == code
    assert told in capsys.readouterr().out


def test_cpythons_without_a_test(cpythons: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec("test._test_multiprocessing") is None:
        pytest.skip("this interpreter comes without its `test` package")
    monkeypatch.setattr(cpythons, "start", started(listed=[]))
    monkeypatch.setattr(sys, "argv", ["cpython_multiprocessing.py", "fork"])
    with pytest.raises(SystemExit, match="has no tests"):
        cpythons.main()
