"""What travels by value keeps the name of its file, whichever release of cloudpickle is installed."""

from __future__ import annotations

import inspect
import pickle
import re
from pathlib import Path
from types import CodeType
from typing import Any

import cloudpickle
import pytest

import shoal.multiprocessing.reduction as reduction
from own_programs import python
from shoal.ipc import cloudpickling, pickling
from shoal.multiprocessing import pool_worker

NAMELESS = """
from types import CodeType
import cloudpickle

written = cloudpickle.Pickler.dispatch_table[CodeType]

def nameless(code):  # as cloudpickle 3.1.3 does it
    make, arguments = written(code)
    return make, tuple("<dynamic-code>" if part == code.co_filename else part for part in arguments)

cloudpickle.Pickler.dispatch_table[CodeType] = nameless
"""


@pytest.fixture
def nameless(monkeypatch: pytest.MonkeyPatch) -> None:
    """cloudpickle as of 3.1.3."""
    names: dict[str, Any] = {}
    monkeypatch.setitem(cloudpickle.Pickler.dispatch_table, CodeType, cloudpickle.Pickler.dispatch_table[CodeType])
    exec(NAMELESS, names)


def by_value() -> Any:
    def outer() -> Any:
        return lambda: 3

    return outer


@pytest.mark.usefixtures("nameless")
@pytest.mark.parametrize(
    "dumps",
    [
        cloudpickling.dumps,
        pickling.dumps,
        lambda obj: reduction.dumps(obj)[0],
        lambda obj: pool_worker.dumps(obj)[0],
        lambda obj: pool_worker.dumps(obj, by_handle=False)[0],
    ],
    ids=["cloudpickling", "pickling", "reduction", "pool", "pool without handles"],
)
def test_a_function_and_those_within_keep_their_file(dumps: Any) -> None:
    sent = by_value()
    assert pickle.loads(cloudpickle.dumps(sent)).__code__.co_filename == "<dynamic-code>"
    came = pickle.loads(dumps(sent))
    assert came is not sent
    for function in (came, came()):
        assert function.__code__.co_filename == __file__
    assert inspect.getsource(came) == inspect.getsource(sent)
    assert came()() == 3


ENV = """
import gymnasium
import shoal

class Env(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 1)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        raise ValueError("no step")  # the line

if __name__ == "__main__":
    envs = shoal.make_vec(Env, num_envs=2, num_workers=1)
    envs.reset(seed=0)
    envs.step(envs.action_space.sample())
"""

PROCESS = """
import shoal.multiprocessing as mp

def work():
    raise ValueError("no work")  # the line

if __name__ == "__main__":
    process = mp.Process(target=work)
    process.start()
    process.join()
"""

POOL = """
import shoal.multiprocessing as mp

def work(number):
    raise ValueError("no work")  # the line

if __name__ == "__main__":
    with mp.Pool(1) as pool:
        pool.map(work, [0])
"""


@pytest.mark.parametrize("program", [ENV, PROCESS, POOL], ids=["make_vec", "Process", "Pool"])
def test_a_traceback_of_another_process_has_the_line(tmp_path: Path, program: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(NAMELESS + program)
    done = python(
        "import runpy, sys; sys.argv[:] = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')", script
    )
    line = next(i for i, text in enumerate(script.read_text().splitlines(), 1) if "# the line" in text)
    assert f'File "{script}", line {line}, in ' in done.stderr
    assert re.search(r"^ +raise ValueError\(.* # the line$", done.stderr, re.MULTILINE), done.stderr
    assert "<dynamic-code>" not in done.stderr


def test_the_package_pickles_with_cloudpickle_here_only() -> None:
    package = Path(inspect.getfile(pickling)).parents[1]
    uses = re.compile(r"cloudpickle\.(dumps?\(|(Cloud)?Pickler\b)")
    found = [path.name for path in package.rglob("*.py") if uses.search(path.read_text())]
    assert found == ["cloudpickling.py"]
