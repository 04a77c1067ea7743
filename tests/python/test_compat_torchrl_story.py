"""The story of many collectors, with TorchRL (docs/stories/many_collectors.md).

`./shoal test --only torchrl` runs it in an environment of its own.
"""

from __future__ import annotations

import importlib.util
import shutil

import pytest

from story_programs import run, works

if importlib.util.find_spec("torchrl") is None:
    pytest.skip(
        "there is no TorchRL (./shoal test --only torchrl makes an environment that has it)", allow_module_level=True
    )

pytestmark = [
    pytest.mark.skipif(not (shutil.which("cc") or shutil.which("gcc")), reason="there is no C compiler"),
    pytest.mark.timeout(300),
]


def test_processes_of_collectors_held_memory_of_the_gpu() -> None:
    size = ("--collectors", "1", "--envs", "2", "--frames", "200")
    done = run("many_collectors/with_torchrl.py", *size, "--stand-in", "80000", "--theirs", seconds=200)
    assert done.stdout.splitlines()[-1] == "800 MiB of the GPU are held", done.stderr


def test_processes_of_collectors_hold_no_memory_of_the_gpu() -> None:
    size = ("--collectors", "2", "--envs", "2", "--frames", "200")
    told = works("many_collectors/with_torchrl.py", *size, "--stand-in", "300", seconds=200)
    first, figures, held = told.splitlines()
    assert figures.startswith("200 frames") and held == "0 MiB of the GPU are held"
