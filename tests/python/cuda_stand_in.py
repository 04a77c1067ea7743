"""The stand-in for the CUDA driver, for tests in processes that run with `environment()`: tensors on devices that are
not there."""

from __future__ import annotations

import ctypes
import functools
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

SOURCES = Path(__file__).parents[2] / "src"


def build(folder: Path) -> Path:
    """Compiles it; returns the folder in which it lies as libcuda.so.1."""
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler for the stand-in driver")
    sources = map(str, (SOURCES / "shoal/shm/cuda/testing").glob("stand_in_*.cc"))
    command = [compiler, "-std=c++20", "-shared", "-fPIC", f"-I{SOURCES}", "-Wl,-soname,libcuda.so.1"]
    subprocess.run([*command, *sources, "-o", str(folder / "libcuda.so.1")], check=True, timeout=100)
    return folder


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "LD_LIBRARY_PATH": str(folder)}


# --- in a process that has it ----------------------------------------------------------------------------------------


@functools.cache
def driver() -> Any:
    """With the context of device 0 current in this thread."""
    library = ctypes.CDLL("libcuda.so.1")
    library.stand_in_count.restype = ctypes.c_long
    context = ctypes.c_void_p()
    assert library.cuInit(0) == 0
    assert library.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert library.cuCtxPushCurrent_v2(context) == 0
    return library


def count(name: str) -> int:
    return driver().stand_in_count(name.encode())


class Allocation:
    """What torch's allocator would have made; freed with the last storage on it."""

    freed = 0

    def __init__(self, nbytes: int) -> None:
        address = ctypes.c_uint64()
        assert driver().cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(nbytes)) == 0
        self.address = address.value

    def __del__(self) -> None:
        assert driver().cuMemFree_v2(ctypes.c_uint64(self.address)) == 0
        Allocation.freed += 1


def on_device(tensor: Any) -> Any:
    """A copy of a CPU tensor with its strides and all of its storage on device 0, in the middle of an allocation."""
    from shoal import _torch

    nbytes = tensor.untyped_storage().nbytes()
    allocation = Allocation(4096 + nbytes)
    address = allocation.address + 1024
    ctypes.memmove(address, tensor.untyped_storage().data_ptr(), nbytes)
    return _torch.device_tensor(tensor, address, 0, allocation)


def to_cpu(tensor: Any) -> Any:
    """A tensor on the CPU that looks at the same bytes."""
    import torch

    storage = tensor.untyped_storage()
    nbytes = storage.nbytes()
    if nbytes == 0:
        return torch.empty(tensor.shape, dtype=tensor.dtype)
    raw = torch.frombuffer((ctypes.c_char * nbytes).from_address(storage.data_ptr()), dtype=torch.uint8)
    return raw.view(tensor.dtype).as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())
