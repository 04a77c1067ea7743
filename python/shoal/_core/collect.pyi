"""Experience of vector environments."""

from collections.abc import Sequence
from typing import Any

import numpy

import shoal._core
import shoal._core.ipc

class Actor:
    """Chooses actions in C++."""

class Experience:
    """The arrays of one batch, in one shared block."""

    @property
    def block(self) -> shoal._core.ipc.Block: ...

class ExperienceLayout:
    """
    Where the arrays of some environments' experience lie: the same in every process for the same arguments.
    """

    def __init__(self, observation_space: object, action_space: object, envs: int, next_obs: bool) -> None: ...
    def allocate(self, steps: int) -> Experience: ...
    def attach(self, block: shoal._core.ipc.Block, steps: int) -> Experience: ...
    def arrays(self, experience: Experience) -> dict[Any, Any]: ...

class ProgressBoard:
    """
    How far collectors in other processes are, and where they are to stop; see src/shoal/collect/progress_board.h.
    """

    def __init__(self, block: shoal._core.ipc.Block) -> None: ...
    @staticmethod
    def create(collectors: int) -> ProgressBoard: ...
    @property
    def block(self) -> shoal._core.ipc.Block: ...
    def rows(self, collector: int) -> int: ...
    def signs(self, collector: int) -> int: ...
    def give_sign(self, collector: int) -> None: ...
    def stop(self, collector: int, number: int) -> None: ...

class WeightStore:
    """
    Weights of fixed size in shared memory, published by version; see src/shoal/collect/weight_store.h.
    """

    @staticmethod
    def create(nbytes: int, slots: int = 3) -> WeightStore: ...
    @staticmethod
    def attach(fd: int) -> WeightStore:
        """That of another process; takes over the descriptor."""

    @property
    def fd(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def version(self) -> int:
        """The newest; 0: none was published yet."""

    def publish(self, weights: numpy.ndarray) -> int:
        """Makes these bytes the newest weights; returns their version."""

    def read(self, weights: numpy.ndarray) -> int:
        """Copies the newest weights, whole; returns their version."""

class Collector:
    def __init__(
        self, envs: shoal._core.VectorEnv, timeout: float | None, first_env: int = 0, total_envs: int = 0
    ) -> None: ...
    def reset(self, seeds: Sequence[int | None]) -> None: ...
    def collect(
        self,
        actor: object,
        experience: Experience,
        first: int,
        count: int,
        policy_version: int,
        *,
        column: int = 0,
        stage: Experience | None = None,
        stage_column: int = 0,
        board: ProgressBoard | None = None,
        place: int = 0,
        number: int = 0,
    ) -> int:
        """
        Fills rows first … first + count - 1, and returns how many of them are steps. `actor`: an Actor, or a function that is called with each row's number and writes that row's actions. The rest as in src/shoal/collect/experience_collector.h.
        """

    def leave_out(self, experience: Experience, first: int, count: int, policy_version: int, column: int = 0) -> None:
        """Makes rows of its environments zeros that are not valid."""

    @staticmethod
    def collect_in_turn(
        collectors: Sequence[Collector],
        actors: list[Any],
        columns: Sequence[int],
        experience: Experience,
        first: int,
        count: int,
        policy_version: int,
    ) -> None:
        """
        Fills rows of all of them: while the environments of one are stepped, the next one's actor decides.
        """

    def state(self) -> dict[Any, Any]: ...
    def load_state(self, state: dict[Any, Any]) -> None: ...
    @property
    def resets(self) -> int: ...
    @property
    def faults(self) -> int: ...
    @property
    def episodes(self) -> int: ...
    @property
    def mean_return(self) -> float: ...
    @property
    def mean_length(self) -> float: ...
