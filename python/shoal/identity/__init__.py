"""Who a worker is and what it shares: `shoal.worker()`, and what its answers are made of.

w = shoal.worker()
w.index, w.num_workers, w.env_index, w.seed      # which worker, which environment, its seed
with w.lease_port() as port: ...                 # a port that nobody else on this machine gets
w.counter("episodes").add()                      # counted over all workers; envs.counter("episodes").value
w.shared.setdefault("level", 1)                  # a small dict of all workers; envs.shared
w.config["settings"], w.context                  # of make_vec(config=…) and make_vec(setup=…)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.names import names_of

if TYPE_CHECKING:
    from shoal.identity.ports import PortLease
    from shoal.identity.shared import SharedDict
    from shoal.identity.snapshots import Snapshot
    from shoal.identity.this_worker import Worker, worker

__all__ = ["PortLease", "SharedDict", "Snapshot", "Worker", "worker"]

# Every worker imports this package: what it does not use is not loaded.
_MODULE_OF = {
    "PortLease": "shoal.identity.ports",
    "SharedDict": "shoal.identity.shared",
    "Snapshot": "shoal.identity.snapshots",
    "Worker": "shoal.identity.this_worker",
    "worker": "shoal.identity.this_worker",
}

__getattr__ = names_of(__name__, _MODULE_OF)


def __dir__() -> list[str]:
    return sorted(__all__)
