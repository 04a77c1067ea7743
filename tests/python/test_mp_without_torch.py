"""Where torch cannot be imported, all but its tensors crosses, and nothing asks for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ABSENT = {
    "not installed": (
        "import importlib.abc, sys\n"
        "class NoTorch(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] == 'torch':\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, NoTorch())\n"
    ),
    "refused": "import sys\nsys.modules['torch'] = None\n",
}

PROGRAM = """
import threading
import numpy as np
import shoal
import shoal.multiprocessing as mp
from shoal._core import ipc, tensors

class Event:
    "More than a tree of builtins."
    def __init__(self, array):
        self.array = array

def serve(there, back):
    sys.modules["torch"] = None
    while (got := there.get()) is not None:
        back.put({"sum": got.array.sum() if isinstance(got, Event) else got, "event": Event(np.ones(4))})

for kind in (mp.SimpleQueue, mp.Queue):
    there, back = kind(), kind()
    process = mp.Process(target=serve, args=(there, back))
    process.start()
    for sent, received in ((Event(mp.SharedArray(np.arange(5000.0))), 12497500.0), ([1, "two"], [1, "two"])):
        there.put(sent)
        got = back.get()
        assert got["sum"] == received and got["event"].array.tolist() == [1] * 4
    there.put(None)
    process.join()
    assert process.exitcode == 0

parent, child = mp.Pipe()
parent.send({"array": np.zeros(10_000)})
assert child.recv()["array"].shape == (10_000,)
with mp.get_context("forkserver").Pool(1) as pool:
    assert pool.map(abs, [-1, 2]) == [1, 2]
assert ipc.check() == []

for name in ("SharedTensor", "share_module"):
    try:
        getattr(mp, name)
    except ImportError as error:
        assert "torch" in str(error)
    else:
        raise AssertionError(name)
for ask, what in (
    (lambda: shoal.share_module, "shoal.share_module"),
    (lambda: shoal.Collector("CartPole-v1", None, num_envs=1, frames_per_batch=8, total_frames=8, device="cuda"), "device='cuda'"),
):
    try:
        ask()
    except ImportError as error:
        assert str(error) == f"{what} needs torch:  pip install 'shoal[torch]'", error
    else:
        raise AssertionError(what)
with open("/proc/self/maps") as maps:
    libraries = maps.read()
assert "_core" in libraries
assert not [word for word in ("libtorch", "libc10", "libshm.so") if word in libraries]
assert sys.modules.get("torch") is None and "shoal.ipc.tensors" not in sys.modules
"""


@pytest.mark.parametrize("how", ABSENT)
def test_queues_pipes_pools_and_arrays_need_no_torch(how: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    main = PROGRAM.strip().replace("\n", "\n    ")
    program.write_text(f"{ABSENT[how]}\nif __name__ == '__main__':\n    {main}\n")
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0 and not done.stderr, done.stderr
