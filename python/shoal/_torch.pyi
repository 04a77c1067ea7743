"""Tensors in shared memory. Use it through shoal.multiprocessing."""

from typing import Any

def tensor_packer() -> Any:
    """What add_packer() takes for tensors."""

def pack_tensor(tensor: object, blocks: list[Any]) -> Any:
    """
    The tensor as bytes that name a block of the heap, into which its storage moves (from the CPU) or which stands for it (on a CUDA device); None for tensors without plain storage there. The blocks are appended to `blocks`.
    """

def unpack_tensor(packed: bytes) -> Any:
    """The tensor that pack_tensor() described."""

def pack_storage(storage: object, blocks: list[Any]) -> Any:
    """As pack_tensor(), of an untyped storage."""

def unpack_storage(packed: bytes) -> Any:
    """The storage that pack_storage() described."""

def share(storage: object) -> None:
    """
    Moves a storage into the heap (from the CPU), or into memory that outlives this process (on a CUDA device), in place.
    """

def is_shared(storage: object) -> bool:
    """Whether a storage lies in the heap."""

def device_tensor(like: object, address: int, device: int, owner: object) -> Any:
    """
    A tensor at an address on a CUDA device, which `owner` keeps, with the dtype, shape, strides and size of storage of the CPU tensor `like`.
    """

def device_collect() -> None:
    """
    Gives back memory of CUDA devices that no other process holds any more.
    """

def device_finish() -> None:
    """Waits for the work whose results were sent: before this process ends."""

def device_stats() -> dict[Any, Any]:
    """
    Figures of this process's memory on CUDA devices: `given` and kept for whoever holds it, `left` of that without a storage here, `releasing` until work is done, `mapped` of other processes, `segments` of its own, `marks` of work under way.
    """
