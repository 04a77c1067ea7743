"""The heap that a family of processes shares."""

from typing import Any, overload

class Block:
    """
    A reference on a block of the shared heap: a writable buffer of bytes. The block lives while any process, message or view holds it.
    """

    def __init__(self, nbytes: int) -> None:
        """
        A new block, its bytes not initialised. Raises OSError (ENOMEM) where there is no memory.
        """

    def __len__(self, /) -> int:
        """Return len(self)."""

    @property
    def offset(self) -> int:
        """What names it in every process of the family."""

    @property
    def serial(self) -> int:
        """Tells it from a later block at the same offset; never used twice."""

    @property
    def nbytes(self) -> int: ...
    @property
    def address(self) -> int: ...

class OwnBlock:
    """Holds the elements of an array that came by value."""

def pack_array(array: object, blocks: list[Any]) -> Any:
    """
    The array as bytes for unpack_array(); None for elements that are Python objects. The block that they name, if any, is appended to `blocks`.
    """

def array_packer() -> Any:
    """What add_packer() takes for arrays."""

def unpack_array(packed: bytes, dtype: object | None = None) -> Any: ...
def needs_dtype(array: object) -> bool:
    """Whether unpack_array() must be given the array's dtype."""

def is_shared_array(array: object) -> bool:
    """
    Whether the array's elements lie in the heap, and other processes may look at them: not those of one that came by value.
    """

def add_packer(type: object, packer: object, module: str) -> None:
    """
    Objects of exactly this type cross by this packer, which is there wherever `module` is imported.
    """

def pickle_tree(obj: object | None, blocks: list[Any]) -> Any:
    """
    A tree of builtins and of objects with a packer as a pickle, or None for what is more. The blocks that it names are appended to `blocks`.
    """

def decode_tree(bytes: bytes) -> Any:
    """For pickles of pickle_tree(), which call it."""

def exists() -> bool:
    """Whether this process has a heap already."""

def create(nbytes: int = 0) -> None:
    """
    Makes this process's heap, of that much address space (0: four times the machine's memory).
    """

def attach(fd: int) -> None:
    """Maps the heap of the family; takes over the descriptor."""

def fd() -> int:
    """
    The heap's descriptor, to hand to a child; made when there is no heap yet.
    """

def heap_id() -> int:
    """Random, the same in all processes of the family."""

def self_slot() -> int:
    """This process's place in the family, never used for another one."""

def alive(slot: int) -> bool:
    """Whether the process with that place still runs."""

def sweep() -> int:
    """Gives back what dead processes held; how many there were."""

def check() -> list[str]:
    """
    What does not balance in the heap's accounts: nothing, when all is well.
    """

def stats() -> dict[Any, Any]:
    """Figures of the heap; zeros when there is none."""

def holders() -> dict[Any, Any]:
    """
    Who holds how much: `processes` (pid, slot, blocks, bytes) and, for each of the `kinds` data, message, queue and sync, its blocks, their bytes, and the references they hold.
    """

def acquire(offset: int, serial: int = 0) -> Block:
    """
    Another reference on a block that somebody holds. Raises shoal.Error when it was freed.
    """

def block_at(address: int) -> Block:
    """Another reference on the block whose bytes begin at this address."""

def contains(address: int) -> bool:
    """Whether an address lies in the shared heap."""

def open_broker() -> bool:
    """
    Has this process keep descriptors for the family (of device memory, and of what environments share), unless another one does; whether it does now.
    """

def join(heap_id: int) -> None:
    """
    Attaches the heap of that family, which has a broker (open_broker()); nothing where it is attached.
    """

def leave_fd(block: Block, fd: int) -> None:
    """
    Leaves a copy of a descriptor at the broker, until nobody holds the block.
    """

def fetch_fd(offset: int, serial: int) -> int:
    """
    A copy of what was left for a block, which is the caller's; -1 when nothing was.
    """

def arm_fault_point(name: str, nth: int = 1, signal: int = 9) -> None:
    """For tests: SIGKILL or SIGSTOP at the n-th pass through a named point."""

class Queue:
    """Objects from any process of the family to any other."""

    @overload
    def __init__(self, *, max_items: int = 0, max_bytes: int = 0) -> None:
        """
        A new one. put() waits while it holds max_items items, or messages of max_bytes bytes without the tensors and arrays in them (0: no limit).
        """

    @overload
    def __init__(self, block: Block) -> None:
        """That of another process. Raises shoal.Error for a block that is none."""

    def put(self, obj: object | None, block: object = True, timeout: object | None = None) -> None:
        """
        Puts an object; what cannot be pickled raises here. Raises queue.Full after `timeout` seconds (None: never), or at once without `block`.
        """

    def get(self, block: object = True, timeout: object | None = None) -> Any:
        """
        Takes the oldest object. Raises queue.Empty after `timeout` seconds (None: never), or at once without `block`; ValueError after close().
        """

    def put_bytes(self, data: object) -> None:
        """Puts bytes as they are, for get_bytes()."""

    def get_bytes(self) -> bytes:
        """
        The oldest message as bytes: of put_bytes(), or the pickle of an object.
        """

    def take_all_bytes(self, into: object) -> None:
        """
        Appends all messages that are there to a deque, as get_bytes() has them. None is lost where a signal's handler raises.
        """

    def poll(self, timeout: float | None = 0.0) -> bool:
        """
        Waits until there is an object, for `timeout` seconds (None: for ever).
        """

    def qsize(self) -> int: ...
    def empty(self) -> bool: ...
    def full(self) -> bool: ...
    def count_done(self) -> bool:
        """Counts a task as done; False when all are."""

    def wait_done(self) -> None:
        """Waits until all objects that were put are counted as done."""

    def fileno(self) -> int:
        """A descriptor of this process that is readable while there are objects."""

    @property
    def block(self) -> Block: ...

class Connection:
    """One end of a pipe."""

    def __init__(
        self, reader: Block | None, writer: Block | None, own: Block, peer_offset: int, peer_serial: int
    ) -> None:
        """
        From the blocks of its queues, the one that says that this end is held, and that of the other end.
        """

    def send(self, obj: object | None) -> None:
        """
        Sends an object. Raises BrokenPipeError when nobody holds the other end.
        """

    def recv(self) -> Any:
        """
        The next object. Raises EOFError when there is none and nobody holds the other end.
        """

    def send_raw(self, data: object) -> None:
        """send_bytes() of a whole contiguous buffer."""

    def recv_bytes(self, maxlength: int | None = None) -> bytes:
        """
        The next message as bytes. Raises EOFError as recv(), OSError for one that is longer.
        """

    def poll(self, timeout: float | None = 0.0) -> bool:
        """Waits until recv() would not, for `timeout` seconds (None: for ever)."""

    def fileno(self) -> int:
        """
        A descriptor of this process that is readable while recv() would not wait.
        """

    def close(self) -> None: ...
    def parts(self) -> tuple[Any, ...]: ...
    @property
    def closed(self) -> bool: ...
    @property
    def readable(self) -> bool: ...
    @property
    def writable(self) -> bool: ...
