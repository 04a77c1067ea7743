"""One model for all workers: a service that answers the rows of all of them in batches.

with shoal.ModelService({"segment": load_segmenter}, max_batch=64) as service:
    envs = shoal.make_vec(SegmentedWorld, 16, worker=shoal.WorkerOptions(models=service))

mask = shoal.worker().model("segment")(image)       # in the environment: NumPy in, NumPy out
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.names import names_of

if TYPE_CHECKING:
    from shoal.serve.client import Reply, ServiceModel
    from shoal.serve.local import LocalModel
    from shoal.serve.models import use
    from shoal.serve.recurrent import Recurrent
    from shoal.serve.remote import RemoteService
    from shoal.serve.service import ModelService

__all__ = ["LocalModel", "ModelService", "Recurrent", "RemoteService", "Reply", "ServiceModel", "use"]

_MODULE_OF = {
    "LocalModel": "shoal.serve.local",
    "ModelService": "shoal.serve.service",
    "Recurrent": "shoal.serve.recurrent",
    "RemoteService": "shoal.serve.remote",
    "Reply": "shoal.serve.client",
    "ServiceModel": "shoal.serve.client",
    "use": "shoal.serve.models",
}

__getattr__ = names_of(__name__, _MODULE_OF)


def __dir__() -> list[str]:
    return sorted(__all__)
