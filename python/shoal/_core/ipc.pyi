"""The heap that a family of processes shares."""

class Block:
    """
    A reference on a block of the shared heap: a writable buffer of bytes. The block lives while any process, message or view holds it.
    """

    def __init__(self, nbytes: int) -> None:
        """
        A new block, its bytes not initialised. Raises OSError (ENOMEM) where there is no memory.
        """

    def __len__(self, /):
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

def stats() -> dict:
    """Figures of the heap; zeros when there is none."""

def acquire(offset: int, serial: int = 0) -> Block:
    """
    Another reference on a block that somebody holds. Raises shoal.Error when it was freed.
    """

def block_at(address: int) -> Block:
    """Another reference on the block whose bytes begin at this address."""

def contains(address: int) -> bool:
    """Whether an address lies in the shared heap."""

def arm_fault_point(name: str, nth: int = 1) -> None:
    """For tests: SIGKILL at the n-th pass through a named point."""
