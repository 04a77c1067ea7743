"""torch's tensors that several processes see."""

from typing import Any

def tensor_packer() -> Any:
    """What ipc.add_packer() takes for tensors."""

def pack_tensor(tensor: object, blocks: list[Any]) -> Any:
    """
    The tensor as bytes that name a block of the heap, into which its storage moves (from the CPU) or which stands for it (on a CUDA device); None for tensors without plain storage there. The blocks are appended to `blocks`.
    """

def unpack_tensor(packed: bytes) -> Any:
    """The tensor that pack_tensor() described."""

def pack_storage(storage: object, blocks: list[Any]) -> Any:
    """
    As pack_tensor(), of an untyped storage on the CPU; None where storages of this torch cannot be moved.
    """

def unpack_storage(packed: bytes) -> Any:
    """The storage that pack_storage() described."""

def share(storage: object) -> bool:
    """
    Moves a storage on the CPU, of at least one byte, into the heap, in place; False where storages of this torch cannot be moved.
    """

def is_shared(storage: object) -> bool:
    """Whether a storage on the CPU lies in the heap."""

def new_storage(nbytes: int) -> Any:
    """
    A storage of that many bytes in the heap, at least one; not initialised.
    """

def exchange_kind() -> str:
    """
    How storages are moved in place: by "torch"'s own function (2.12 and newer), by the "words" that hold their memory, or "none": they cannot be.
    """

def share_on_device(storage: object, device: int) -> Any:
    """
    Moves a storage on a CUDA device, of at least one byte, into memory that outlives this process, in place. A tensor on the memory that it had, which a copy on the current stream reads; None where others may see the storage already.
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
