"""What TorchRL's code for the caller's side holds in the places of its pipes and processes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from tensordict import is_tensor_collection

from shoal.compat.processes import Process
from shoal.compat.torchrl.team import Team

__all__ = ["Channel", "Exchange", "WorkerProcess"]


class Exchange:
    """Messages to the environments of a Team: all that were sent leave together, when the first answer is asked for."""

    def __init__(self, team: Team, timeout: float) -> None:
        self.team = team
        self.timeout = timeout
        self._waiting: dict[int, tuple[Any, Any]] = {}

    def send(self, index: int, command: Any, data: Any) -> None:
        if index in self._waiting:
            raise RuntimeError(
                f"environment {index} was told {self._waiting[index][0]!r}, whose answer nobody has taken"
            )
        self._waiting[index] = command, data

    def forget(self) -> None:
        """Drops what was sent and has not left."""
        self._waiting.clear()

    def flush(self, answers: dict[int, deque[Any]]) -> None:
        waiting, self._waiting = self._waiting, {}
        if waiting:
            for index, answer in self.team.ask(waiting, self.timeout).items():
                if answer is not None:  # then the peer's worker only signals
                    answers[index].append(answer)


class Channel:
    """One environment's end, with a pipe's `send` and `recv`."""

    def __init__(self, exchange: Exchange, index: int, answers: dict[int, deque[Any]]) -> None:
        self._exchange = exchange
        self._index = index
        self._answers = answers

    def send(self, message: tuple[Any, Any]) -> None:
        command, data = message
        self._exchange.send(self._index, command, _owned(data))

    def recv(self) -> Any:
        own = self._answers[self._index]
        if not own:
            self._exchange.flush(self._answers)
        if not own:
            raise RuntimeError(f"environment {self._index} was asked nothing")
        return own.popleft()

    def close(self) -> None:
        """Nothing: the Team is closed as a whole."""

    @classmethod
    def of_all(cls, team: Team, timeout: float) -> list[Channel]:
        exchange = Exchange(team, timeout)
        answers: dict[int, deque[Any]] = {i: deque() for i in range(team.num_envs)}
        return [cls(exchange, i, answers) for i in range(team.num_envs)]

    @staticmethod
    def flush(channels: Iterable[Channel]) -> None:
        """Has everything answered that was sent by these."""
        for channel in channels:
            channel._exchange.flush(channel._answers)

    @staticmethod
    def forget(channels: Iterable[Channel]) -> None:
        """Drops what was sent by these and has not left, and the answers that nobody has taken."""
        for channel in channels:
            channel._exchange.forget()
            channel._answers[channel._index].clear()


class WorkerProcess(Process):
    """A worker as TorchRL looks at one. `_closed` keeps its own look at the exit codes away: the engine's says what happened."""

    _closed = True

    def __init__(self, pid: int, index: int, daemon: bool, start_method: str) -> None:
        super().__init__(pid, f"Worker<ParallelEnv>-{index}", daemon)
        self._start_method = start_method


def _owned(data: Any) -> Any:
    """Without views of larger tensors, which a pickle would have whole."""
    if is_tensor_collection(data):
        return data.clone()
    if isinstance(data, tuple):
        return tuple(_owned(part) for part in data)
    return data
