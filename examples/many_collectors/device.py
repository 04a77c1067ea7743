"""The GPU of this machine, or one that is not there: who holds memory of it."""

from __future__ import annotations

import ctypes
import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1]))
from measuring import gpu_mib

__all__ = ["held_mib", "stand_in", "synchronize"]

CONTEXT_MIB = 400
"""What a context takes on the stand-in: real ones take 300 to 500."""


def stand_in(folder: Path, mib: int) -> None:
    """For this process and all that it starts from now on: a driver of a device with so much memory."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise SystemExit("the stand-in for the driver needs a C compiler")
    source = Path(__file__).with_name("stand_in_driver.c")
    library = folder / "libcuda.so.1"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", str(source), "-o", str(library)], check=True
    )
    (folder / "contexts").touch()
    os.environ |= {
        "STAND_IN_DRIVER": str(library),
        "STAND_IN_CONTEXTS": str(folder / "contexts"),
        "STAND_IN_MIB": str(mib),
    }
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)


@functools.cache
def _driver() -> Any:
    return ctypes.CDLL(os.environ["STAND_IN_DRIVER"])


def synchronize() -> None:
    """What tensordict did after every transfer, also between CPUs, until its "Simple syncs" (tensordict#942): the process gets
    a CUDA context."""
    if "STAND_IN_DRIVER" not in os.environ:
        import torch

        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return
    count = ctypes.c_int(0)
    if _driver().cuInit(0) != 0 or _driver().cuDeviceGetCount(ctypes.byref(count)) != 0 or count.value == 0:
        return  # as torch.cuda.is_available() says
    result = _driver().cuDevicePrimaryCtxRetain(ctypes.byref(ctypes.c_void_p()), 0)
    if result == 2:
        raise RuntimeError("CUDA error: out of memory")  # as torch says
    assert result == 0 and _driver().cuCtxSynchronize() == 0


def held_mib(pids: list[int]) -> int:
    """What these processes hold of the stand-in, or what all processes hold of the GPU, if there is one."""
    if "STAND_IN_CONTEXTS" in os.environ:
        contexts = set(map(int, Path(os.environ["STAND_IN_CONTEXTS"]).read_text().split()))
        return CONTEXT_MIB * len(contexts & set(pids))
    return gpu_mib()
