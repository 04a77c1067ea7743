"""Programs without `if __name__ == "__main__"` start workers as well as others do, or are told why not: from a script, -c,
-m, stdin, a notebook's namespace, under every start method. Never a process that starts processes without end."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import gymnasium as gym, numpy as np
import shoal

SIZE = 1

class Env(gym.Env):
    observation_space = gym.spaces.Box(-1, 1e6, (2,), np.float64)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return np.array([SIZE, shoal.worker().env_index], float), {{}}

    def step(self, action):
        return np.zeros(2), 0.0, False, False, {{}}

SIZE = 5
envs = shoal.make_vec({factory}, 3, num_workers=2, context={context!r})
print(envs.reset()[0].tolist())
envs.close()
"""
RESULT = "[[5.0, 0.0], [5.0, 1.0], [5.0, 2.0]]"

FORMS = {
    "script": lambda path: ([str(path)], None),
    "-c": lambda path: (["-c", path.read_text()], None),
    "stdin": lambda path: (["-"], path.read_text()),
    "-m": lambda path: (["-m", path.stem], None),
    "notebook": lambda path: (
        ["-c", f"exec(compile(open({str(path)!r}).read(), '<cell>', 'exec'), {{'__name__': '__notebook__'}})"],
        None,
    ),
}
CASES = [
    *[(form, "forkserver", "lambda: Env()") for form in FORMS],
    ("script", "spawn", "lambda: Env()"),
    ("notebook", "spawn", "Env"),
    ("-m", "spawn", "Env"),
    ("script", "fork", "lambda: Env()"),
    ("stdin", "forkserver", "Env"),
]


def run(arguments: list[str], folder: Path, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, input=stdin, capture_output=True, text=True, timeout=100)


def write(folder: Path, context: str, factory: str = "lambda: Env()") -> Path:
    path = folder / "program.py"
    path.write_text(PROGRAM.format(context=context, factory=factory))
    return path


@pytest.mark.parametrize(("form", "context", "factory"), CASES, ids=lambda value: value.replace("()", ""))
def test_an_unguarded_program(form: str, context: str, factory: str, tmp_path: Path) -> None:
    arguments, stdin = FORMS[form](write(tmp_path, context, factory))
    done = run(arguments, tmp_path, stdin)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == RESULT


@pytest.mark.parametrize("factory", ["lambda: Env()", "Env"])
@pytest.mark.parametrize("context", ["forkserver", "spawn"])
def test_a_module_that_starts_workers_when_it_is_imported_is_told_so(
    context: str, factory: str, tmp_path: Path
) -> None:
    source = write(tmp_path, context, factory).read_text()
    line = source[: source.index("envs = ")].count("\n") + 1
    done = run(["-c", "import program"], tmp_path)
    assert done.returncode == 1 and done.stdout == ""
    *_, last = done.stderr.strip().splitlines()
    assert re.match("RuntimeError: worker processes were about to be started while worker [01] imported what its", last)
    assert f"the module program ({tmp_path / 'program.py'}, line {line}) starts workers when it is imported" in last
    assert 'Put what starts them under `if __name__ == "__main__":`' in last


def test_a_module_that_starts_workers_when_it_is_imported_may_fork_them(tmp_path: Path) -> None:
    write(tmp_path, "fork")
    done = run(["-c", "import program"], tmp_path)
    assert done.stdout.strip() == RESULT, done.stderr


def test_an_environment_may_start_workers_of_its_own(tmp_path: Path) -> None:
    program = """
import shoal
from sample_envs import CounterEnv

class Outer(CounterEnv):
    def __init__(self):
        super().__init__()
        self.inner = shoal.make_vec(CounterEnv, 2, num_workers=2)
        self.inner.reset()

    def inner_workers(self):
        return [w["pid"] for w in self.inner.stats()["workers"]]

    def close(self):
        self.inner.close()

if __name__ == "__main__":
    envs = shoal.make_vec(Outer, 2, num_workers=2)
    print(len({pid for pids in envs.call("inner_workers") for pid in pids}))
    envs.close()
"""
    (tmp_path / "program.py").write_text(f"import sys\nsys.path.append({str(Path(__file__).parent)!r})\n{program}")
    done = run(["program.py"], tmp_path)
    assert done.stdout.strip() == "4", done.stderr
