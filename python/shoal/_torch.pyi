"""Tensors in shared memory. Use it through shoal.multiprocessing."""

def pack_tensor(tensor: object, blocks: list) -> object:
    """
    The tensor as bytes that name a block of the heap, into which its storage moves; None for tensors without plain storage on the CPU. The block is appended to `blocks`.
    """

def pack_plain_tensor(tensor: object, blocks: list) -> object:
    """
    As pack_tensor(), and None for what it would have to be refused or warned of.
    """

def unpack_tensor(packed: bytes) -> object:
    """The tensor that pack_tensor() described."""

def pack_storage(storage: object, blocks: list) -> object:
    """As pack_tensor(), of an untyped storage."""

def unpack_storage(packed: bytes) -> object:
    """The storage that pack_storage() described."""

def share(storage: object) -> None:
    """Moves a storage on the CPU into the heap, in place."""

def is_shared(storage: object) -> bool:
    """Whether a storage lies in the heap."""
