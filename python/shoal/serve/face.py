"""What every service of models has for those who ask, wherever the models are."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from multiprocessing import util
from typing import Any, NoReturn, TypeVar

from shoal.serve.client import Directory, ServiceModel
from shoal.serve.manager import Manager
from shoal.serve.observing import scalars

__all__ = ["ServiceFace"]


_Own = TypeVar("_Own", bound="ServiceFace")


class ServiceFace(abc.ABC):
    """A service that can be asked, given to workers, looked at and closed.

    It ends with close(), with the program, or when nobody in this process has it any more: neither the service nor one of its
    models, nor what was given it for its workers, as a vector environment or a collector. Processes that were sent a
    model in another way do not keep it.
    """

    directory: Directory
    """Of its models; what travels to workers. Who has it keeps the service."""
    _manager: Manager
    _forgotten: util.Finalize

    @property
    def address(self) -> str:
        return self.directory.address

    def model(self, name: str) -> ServiceModel:
        """The model, to be asked from this process; what `shoal.worker().model(name)` is in a worker."""
        return self.directory.find(name)

    @abc.abstractmethod
    def stats(self) -> dict[str, dict[str, Any]]:
        """What has been counted, by model."""

    @abc.abstractmethod
    def update(self, name: str, state: Mapping[str, Any], *, version: int | None = None, mode: str = "barrier") -> int:
        """New weights for a model; returns their version."""

    def scalars(self) -> dict[str, float]:
        """stats() as flat names and numbers, such as "serve/segment/latency_p99_ms"; what write_scalars() writes."""
        return scalars(self.stats())

    def write_scalars(self, writer: Any, step: int) -> None:
        """Gives scalars() to a writer of TensorBoard (`torch.utils.tensorboard.SummaryWriter`), or another with its
        `add_scalar(name, value, step)`."""
        for name, value in self.scalars().items():
            writer.add_scalar(name, value, step)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} belongs to the process that made it, and cannot be pickled: send service.model(name), which "
            "every process of this machine may ask, or give the service to workers by WorkerOptions(models=service)"
        )

    def close(self) -> None:
        """Ends it, and returns when it has ended. Requests under way end with ServiceDied. May be called again."""
        self._manager.close()
        self._forgotten.cancel()

    def __enter__(self: _Own) -> _Own:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
