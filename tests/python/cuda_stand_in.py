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
MARK = "SHOAL_TEST_STAND_IN"


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
    return {**os.environ, "LD_LIBRARY_PATH": str(folder), MARK: "1"}


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


# DLPack's structures, as ctypes has them.


class _Device(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int32), ("index", ctypes.c_int32))


class _Type(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("dims", ctypes.c_int32),
        ("dtype", _Type),
        ("sizes", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter))


_CUDA, _UINT = 2, 1
_lent: dict[int, tuple[Any, ...]] = {}  # what storages on the device need, by the address of their structure


@_Deleter
def _give_back(managed: int) -> None:
    del _lent[managed]


def _bytes_at(address: int, nbytes: int, owner: Any) -> Any:
    """A tensor of uint8 on device 0, as torch makes one of another library's memory."""
    import torch

    sizes, strides = (ctypes.c_int64 * 1)(nbytes), (ctypes.c_int64 * 1)(1)
    managed = _Managed(_Tensor(address, _Device(_CUDA, 0), 1, _Type(_UINT, 8, 1), sizes, strides, 0), None, _give_back)
    _lent[ctypes.addressof(managed)] = (managed, sizes, strides, owner)
    capsule = ctypes.pythonapi.PyCapsule_New
    capsule.restype, capsule.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return torch._C._from_dlpack(capsule(ctypes.addressof(managed), b"dltensor", None))


@functools.cache
def let_torch_have_devices() -> Any:
    """torch makes tensors on devices, and sets them on storages there, as if it were built without CUDA: neither touches
    their memory. Returns what has to live meanwhile."""
    import torch

    torch.cuda._lazy_init = lambda: None
    torch.backends.cuda.is_built = lambda: False  # one that is built with it wants a real driver for its streams
    library = torch.library.Library("aten", "IMPL")
    name = "set_.source_Storage_storage_offset"
    operator = torch.ops.aten.set_.source_Storage_storage_offset
    cpu = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
    library.impl(name, lambda *arguments: operator.redispatch(cpu, *arguments), "CUDA")
    return library


def on_device(tensor: Any) -> Any:
    """A copy of a CPU tensor with its strides and all of its storage on device 0, in the middle of an allocation."""
    nbytes = tensor.untyped_storage().nbytes()
    allocation = Allocation(4096 + nbytes)
    address = allocation.address + 1024
    ctypes.memmove(address, tensor.untyped_storage().data_ptr(), nbytes)
    storage = _bytes_at(address, nbytes, allocation).untyped_storage()
    empty = _bytes_at(address, 0, allocation).view(tensor.dtype)
    return empty.data.set_(storage, tensor.storage_offset(), tensor.size(), tensor.stride())


def to_cpu(tensor: Any) -> Any:
    """A tensor on the CPU that looks at the same bytes."""
    import torch

    storage = tensor.untyped_storage()
    nbytes = storage.nbytes()
    if nbytes == 0:
        return torch.empty(tensor.shape, dtype=tensor.dtype)
    raw = torch.frombuffer((ctypes.c_char * nbytes).from_address(storage.data_ptr()), dtype=torch.uint8)
    return raw.view(tensor.dtype).as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())


if MARK in os.environ:
    let_torch_have_devices()
