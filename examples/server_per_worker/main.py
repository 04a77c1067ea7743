"""An environment with a server of its own, in several worker processes.

    python examples/server_per_worker/main.py [forkserver | spawn | fork | serial]

Four things that go wrong where environments move into processes, and what is done about each:

- two servers on one port: `shoal.worker().lease_port()`;
- settings changed under `if __name__ == "__main__"`, which workers that import the module anew do not see:
  `make_vec(config=[settings, settings.Physics])`;
- a class variable that counts episodes, in every process for itself: `shoal.worker().counter("episodes")`;
- what must happen once a worker, before its environments: `make_vec(setup=…)`.
"""

from __future__ import annotations

import sys
from typing import Any

import settings
from world import World

import shoal


def main(context: str = "forkserver") -> None:
    where: dict[str, Any] = {"backend": "serial"} if context == "serial" else {"context": context, "num_workers": 2}
    envs = shoal.make_vec(
        World,
        num_envs=4,
        config=[settings, settings.Physics],
        setup=lambda: shoal.worker().counter("workers").add(),
        seed=1,
        **where,
    )
    envs.reset()
    for _ in range(30):
        envs.step([1] * envs.num_envs)
    print(f"worlds: {sorted(set(envs.get_attr('world')))}, ports: {len(set(envs.get_attr('port')))} different ones")
    print(f"workers: {envs.counter('workers').value}, episodes: {envs.counter('episodes').value} in all")
    print(f"the goal was reached first in one of the episodes 1 to 4: {envs.shared['first'] <= 4}")
    envs.close()


if __name__ == "__main__":
    settings.WORLD = "ice"
    settings.GOAL = 4
    settings.Physics.friction = 0.2
    main(*sys.argv[1:])
