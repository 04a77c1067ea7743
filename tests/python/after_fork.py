"""A module whose object has to be renewed in each fork, as a connection has."""

from __future__ import annotations

import os
from multiprocessing import util


class Renewed:
    """Attributes:
    pids: the processes in which it was renewed.
    """

    def __init__(self) -> None:
        self.pids: list[int] = []
        util.register_after_fork(self, Renewed._renew)

    def _renew(self) -> None:
        self.pids.append(os.getpid())


one = Renewed()
