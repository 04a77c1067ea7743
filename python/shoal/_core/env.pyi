"""Native environments by id, and NumPy's random stream."""

from collections.abc import Callable, Sequence
from typing import Any, overload

class EnvSpec:
    """What is known of an id before anything is built."""

    @property
    def id(self) -> str: ...
    @property
    def max_episode_steps(self) -> int:
        """0: no limit."""

    @property
    def reward_threshold(self) -> float | None: ...
    def __repr__(self) -> str: ...

def registered() -> list[EnvSpec]:
    """The native environments, by id."""

def is_registered(id: str) -> bool: ...
def find(id: str) -> EnvSpec:
    """
    The EnvSpec of `id`; ValueError naming the nearest ids when there is none.
    """

def load_plugin(path: str, is_taken: Callable[[str], bool] | None = None) -> list[str]:
    """Loads a shared library of environments; the ids that it registered."""

def loaded_plugins() -> list[str]:
    """The paths of the plug-ins loaded so far."""

def space_from_json(text: str) -> Any:
    """The Gymnasium space that a checkpoint describes."""

def space_repr(space: object) -> str:
    """How the C++ side writes a Gymnasium space."""

class BatchEnv:
    """
    Native environments stepped in this process. Arrays are views: row i is environment i, and the next call overwrites them.
    """

    def __init__(self, id: str, count: int = 1, args: str = "{}") -> None: ...
    def __len__(self) -> int: ...
    @property
    def observation_space(self) -> Any: ...
    @property
    def action_space(self) -> Any: ...
    @property
    def obs(self) -> list[Any]: ...
    @property
    def actions(self) -> list[Any]: ...
    @property
    def reward(self) -> Any: ...
    @property
    def terminated(self) -> Any: ...
    @property
    def truncated(self) -> Any: ...
    def reset(self, i: int = 0, seed: int | None = None, options: str = "") -> None:
        """Begins an episode in environment i; options are JSON, "" for none."""

    def step(self, lo: int = 0, hi: int | None = None) -> None:
        """Steps environments [lo, hi) with their rows of `actions`."""

    def state(self, i: int = 0) -> list[float]:
        """The numbers that, with the action, decide the next step."""

    def set_state(self, state: Sequence[float], i: int = 0) -> None: ...

class NpRandom:
    """The stream of numpy.random.Generator(numpy.random.PCG64(seed))."""

    @overload
    def __init__(self) -> None: ...
    @overload
    def __init__(self, seed: int) -> None: ...
    def random_raw(self) -> int: ...
    def random(self) -> float: ...
    def uniform(self, low: float = 0.0, high: float = 1.0) -> float: ...
    def integers(self, low: int, high: int) -> int: ...

class AtariScreen:
    """The pixels of one Atari game: src/shoal/env/atari/screen.h."""

    def __init__(
        self, frame: tuple[int, int], picture: tuple[int, int], gray: bool, pixels: str, stack: int, zero_start: bool
    ) -> None: ...
    @property
    def frames(self) -> tuple[Any, ...]:
        """
        Where the emulator writes palette indices: the earlier of two frames, and the later.
        """

    def grabbed(self, i: int) -> bool:
        """Frame i has been written. False: learn() has to tell of its colours."""

    def learn(self, i: int, gray: Any, rgb: Any) -> None:
        """
        What frame i is in grey, a byte a pixel, and in RGB, three: uint8 arrays.
        """

    def pool(self) -> None: ...
    def pool_one(self, i: int) -> None: ...
    def pool_more(self) -> None: ...
    def begin(self) -> None: ...
    def push(self) -> None: ...
    def observation(self) -> Any:
        """A copy of the stack of pictures."""
