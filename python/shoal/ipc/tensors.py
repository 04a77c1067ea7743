"""torch's tensors that several processes see, with any release of torch from 2.6 on. Imports torch: nothing imports this
before somebody has."""

from __future__ import annotations

import os
from typing import Any, TypeVar

import torch
from torch.multiprocessing import reductions as _stock

from shoal._core import ipc
from shoal._core import tensors as _core
from shoal.errors import Error
from shoal.ipc import device_tensors, immovable
from shoal.ipc.reducers import add_reducer

__all__ = [
    "SharedTensor",
    "cuda_collect",
    "get_all_sharing_strategies",
    "get_sharing_strategy",
    "is_shared",
    "set_sharing_strategy",
    "share_memory_",
    "share_module",
]

if torch.__version__ < "2.6":  # compared as versions are
    raise ImportError(f"shoal.multiprocessing sends tensors of torch 2.6 and newer; this is {torch.__version__}")

_Shared = TypeVar("_Shared", torch.Tensor, torch.UntypedStorage, torch.TypedStorage)

_NON_LEAF = (
    "Cowardly refusing to serialize non-leaf tensor which requires_grad, since autograd does not support crossing "
    "process boundaries.  If you just want to transfer the data, call detach() on the tensor before serializing "
    "(e.g., putting it on the queue)."
)


def share_memory_(obj: _Shared) -> _Shared:
    """Moves the bytes of a tensor or storage to where all processes of the family see them, in place, and returns it.
    torch's views of it follow. Nothing happens to what others may see already.

    On the CPU, sending a tensor does this by itself. A storage that is shared has a fixed size. `Tensor.numpy()` arrays made
    of it before, and the array that `torch.from_numpy()` made it of, keep the old bytes: they see nothing of what is
    written afterwards. What DLPack made of it before must not be used any more: torch tells nobody of it, and the old bytes
    are given back.

    On a CUDA device it moves, by a copy on the current stream, from the memory of torch's allocator to memory that
    lives as long as any process holds it, also when this one ends. (Sent without, it stays where it is, and goes with
    this process.) Raises ValueError for other devices, OSError when memory is short, shoal.Error when the device's is,
    or the CUDA driver refuses.
    """
    for part in _parts(obj):
        _share(part)
    return obj


def _share(part: torch.Tensor | torch.UntypedStorage) -> None:
    storage = part.untyped_storage() if isinstance(part, torch.Tensor) else part
    if storage.nbytes() == 0:
        return
    if storage.device.type == "cuda":
        device_tensors.share(storage)
    elif not (storage.device.type == "cpu" and storage.is_shared()) and not _core.share(storage):
        immovable.share(part)


def SharedTensor(data: Any, **options: Any) -> torch.Tensor:
    """`data` as a tensor that several processes see: a tensor is moved in place, as by share_memory_(), and returned, what else
    `torch.tensor(data, **options)` takes is copied.

    Args:
        options: as torch.tensor() has them. A tensor that is of another dtype, or on another device, is copied, too.
    """
    if not isinstance(data, torch.Tensor):
        data = torch.tensor(data, **options)
    elif options:
        requires_grad = options.pop("requires_grad", data.requires_grad)
        data = data.to(**options).requires_grad_(requires_grad)
    shared: torch.Tensor = share_memory_(data)
    return shared


def is_shared(obj: torch.Tensor | torch.UntypedStorage | torch.TypedStorage) -> bool:
    """Whether its bytes lie where all processes of the family see them, on the CPU (by us), in torch's own shared
    memory, or on a CUDA device. torch's own `Tensor.is_shared()` knows of the latter two alone. Of one without elements no byte
    lies elsewhere."""
    return all(
        storage.nbytes() == 0 or storage.is_shared() or (storage.device.type == "cpu" and _core.is_shared(storage))
        for storage in (part.untyped_storage() if isinstance(part, torch.Tensor) else part for part in _parts(obj))
    )


def share_module(module: torch.nn.Module) -> torch.nn.Module:
    """Puts all parameters and buffers of a module where all processes of the family see them, in place, and returns it.

    What one process writes to them the others see: Hogwild training. Gradients stay each process's own, tied weights
    stay tied, and parameters that are sent stay parameters. As share_memory_() says, arrays that were made of them before
    keep the old bytes.
    """
    if not isinstance(module, torch.nn.Module):
        what = (
            f"the class {module.__name__}" if isinstance(module, type) else f"an object of type {type(module).__name__}"
        )
        raise TypeError(
            f"share_module() takes a torch.nn.Module, not {what}. A tensor is shared by shoal.multiprocessing.share_memory_()"
        )
    for tensor in [*module.parameters(), *module.buffers()]:
        share_memory_(tensor)
    return module


def cuda_collect() -> None:
    """Gives memory of CUDA devices back to torch's allocator that this process has sent, keeps no tensor of, and that no
    other process holds any more, and lets go of memory that was shared and is not used. The former happens by itself
    within a second, at most; this does it now."""
    ipc.sweep()
    _core.device_collect()


def _parts(obj: Any) -> list[torch.Tensor] | list[torch.UntypedStorage]:
    """What of it has a storage."""
    if isinstance(obj, torch.UntypedStorage):
        return [obj]
    if isinstance(obj, torch.TypedStorage):
        return [obj._untyped_storage]
    if not isinstance(obj, torch.Tensor):
        raise TypeError(f"a tensor or a storage of torch is needed, not {type(obj).__name__}")
    return _dense_parts(obj)


def _dense_parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    if tensor.layout is torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    if tensor.is_nested:
        return [tensor.values()]
    return [tensor]


# --- sharing strategies, as torch.multiprocessing has them ----------------------------------------------------------

_STRATEGIES = {"heap", "file_descriptor", "file_system"}
_strategy = "heap"


def get_all_sharing_strategies() -> set[str]:
    """The names that `set_sharing_strategy` takes."""
    return set(_STRATEGIES)


def get_sharing_strategy() -> str:
    """The name that was set last; "heap" before."""
    return _strategy


def set_sharing_strategy(new_strategy: str) -> None:
    """Takes the names of torch's strategies, for programs that set one. All tensors lie in the heap of the family
    whichever it is: no descriptor a tensor as with torch's "file_descriptor", no file as with its "file_system"."""
    global _strategy
    if new_strategy not in _STRATEGIES:
        raise ValueError(f"there is no sharing strategy {new_strategy!r}; there are {sorted(_STRATEGIES)}")
    _strategy = new_strategy


# --- what crosses ---------------------------------------------------------------------------------------------------


def _reduce_tensor(tensor: torch.Tensor, blocks: list[ipc.Block]) -> Any:
    if tensor.requires_grad and not tensor.is_leaf:
        raise RuntimeError(_NON_LEAF)
    torch.utils.hooks.warn_if_has_hooks(tensor)
    packed = _core.pack_tensor(tensor, blocks)
    if packed is None and immovable.is_in_the_way(tensor):
        packed = _core.pack_tensor(immovable.moved(tensor), blocks)
    if packed is not None:
        return _tensor, (packed,)
    return _reduce_other(tensor)


def _tensor(packed: bytes) -> torch.Tensor:
    tensor: torch.Tensor = _core.unpack_tensor(packed)
    return tensor


def _reduce_other(tensor: torch.Tensor) -> Any:
    """Tensors that are made of others, or whose bytes are elsewhere."""
    if tensor.is_quantized:
        return tensor._reduce_ex_internal(2)
    if tensor.is_nested and type(tensor) is torch.Tensor:
        sizes = (tensor._nested_tensor_size(), tensor._nested_tensor_strides(), tensor._nested_tensor_storage_offsets())
        return _nested, (tensor.values().detach(), *sizes, tensor.requires_grad)
    if tensor.layout is torch.sparse_coo:
        parts: tuple[torch.Tensor, ...] = (tensor._indices().detach(), tensor._values().detach())
        return _sparse_coo, (*parts, tensor.shape, tensor.is_coalesced(), tensor.requires_grad)
    if tensor.layout is not torch.strided and tensor.layout is not torch._mkldnn:  # type: ignore[attr-defined]  # torch has it, its types do not
        parts = tuple(part.detach() for part in _dense_parts(tensor))
        return _sparse_compressed, (*parts, tensor.shape, str(tensor.layout), tensor.requires_grad)
    if tensor.device.type == "cpu" and tensor.layout is torch.strided:
        view = (tensor.storage_offset(), tensor.size(), tensor.stride(), tensor.requires_grad)
        return _on_storage, (type(tensor), tensor.untyped_storage(), tensor.dtype, view)
    if tensor.device.type in (
        "cuda",
        "meta",
    ):  # cuda: memory that crosses in no other way, as torch's expandable segments
        return _stock.reduce_tensor(tensor)
    return NotImplemented


def _on_storage(kind: type, storage: torch.UntypedStorage, dtype: torch.dtype, view: tuple[Any, ...]) -> torch.Tensor:
    typed = torch.TypedStorage(wrap_storage=storage, dtype=dtype, _internal=True)
    tensor: torch.Tensor = _stock.rebuild_tensor(kind, typed, view)
    return tensor


def _nested(
    values: torch.Tensor, sizes: torch.Tensor, strides: torch.Tensor, offsets: torch.Tensor, requires_grad: bool
) -> torch.Tensor:
    return torch._nested_view_from_buffer(values, sizes, strides, offsets).requires_grad_(requires_grad)


def _sparse_coo(
    indices: torch.Tensor, values: torch.Tensor, shape: torch.Size, is_coalesced: bool, requires_grad: bool
) -> torch.Tensor:
    made = torch.sparse_coo_tensor(indices, values, shape, is_coalesced=is_coalesced, check_invariants=False)
    return made.requires_grad_(requires_grad)


def _sparse_compressed(
    compressed: torch.Tensor,
    plain: torch.Tensor,
    values: torch.Tensor,
    shape: torch.Size,
    layout: str,
    requires_grad: bool,
) -> torch.Tensor:
    kind = getattr(torch, layout.removeprefix("torch."))
    made = torch.sparse_compressed_tensor(compressed, plain, values, shape, layout=kind, check_invariants=False)
    return made.requires_grad_(requires_grad)


def _reduce_storage(storage: torch.UntypedStorage, blocks: list[ipc.Block]) -> Any:
    if storage.device.type != "cpu":
        raise RuntimeError(
            f"Cannot pickle {storage.device.type} storage; try pickling a {storage.device.type} tensor instead"
        )
    if storage.is_shared() and storage.nbytes():  # an empty one has no descriptor
        return _reduce_storage_of_torch(storage)
    packed = _core.pack_storage(storage, blocks)
    if packed is None:
        packed = _core.pack_storage(immovable.copied(storage), blocks)
    return _storage, (packed,)


def _storage(packed: bytes) -> torch.UntypedStorage:
    storage: torch.UntypedStorage = _core.unpack_storage(packed)
    return storage


def _reduce_storage_of_torch(storage: torch.UntypedStorage) -> Any:
    """In torch's own shared memory: others may see it there, so there it stays, and crosses as torch does it: its
    descriptor is fetched from this process, which must live until then."""
    if torch.multiprocessing.get_sharing_strategy() == "file_system":
        return _stock.reduce_storage(storage)
    from multiprocessing.reduction import DupFd  # among the arguments of a process it goes along, and needs nobody

    try:
        descriptor, size = storage._share_fd_cpu_()
        key = _stock.fd_id(descriptor)
    except OSError as error:  # of torch.from_file(…, shared=True)
        raise Error(
            "a tensor looks at a file that torch has mapped, which has no descriptor to send: send tensor.clone(), or the name of "
            "the file"
        ) from error
    _stock.shared_cache[key] = _stock.StorageWeakRef(storage)
    return _storage_of_torch, (type(storage), DupFd(descriptor), size, os.getpid())


def _storage_of_torch(kind: Any, descriptor: Any, size: int, sender: int) -> torch.UntypedStorage:
    try:
        storage: torch.UntypedStorage = _stock.rebuild_storage_fd(kind, descriptor, size)
        return storage
    except (ConnectionError, EOFError, FileNotFoundError) as error:
        raise Error(
            f"a tensor in torch's own shared memory came from process {sender}, which has to live until it is received, and "
            "does not: Tensor.share_memory_() puts it there; shoal.multiprocessing.share_memory_() has no such limit"
        ) from error


def _reduce_typed_storage(storage: torch.TypedStorage, blocks: list[ipc.Block]) -> Any:
    return _stock.reduce_typed_storage(storage)


for _kind in (torch.Tensor, torch.nn.Parameter):
    add_reducer(_kind, _reduce_tensor)
    ipc.add_packer(_kind, _core.tensor_packer(), __name__)
add_reducer(torch.UntypedStorage, _reduce_storage)
add_reducer(torch.TypedStorage, _reduce_typed_storage)
