"""What the tests of shoal.compat.ding make managers with."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import ding.envs as peer
from easydict import EasyDict

from shoal.compat import ding as ours
from timestep_envs import CountingEnv

V1 = {
    "base": (ours.BaseEnvManager, peer.BaseEnvManager),
    "sync": (ours.SyncSubprocessEnvManager, peer.SyncSubprocessEnvManager),
    "async": (ours.AsyncSubprocessEnvManager, peer.AsyncSubprocessEnvManager),
}
V2 = {
    "base": (ours.BaseEnvManagerV2, peer.BaseEnvManagerV2),
    "subprocess": (ours.SubprocessEnvManagerV2, peer.SubprocessEnvManagerV2),
}
PROCESSES = [ours.SyncSubprocessEnvManager, ours.AsyncSubprocessEnvManager, ours.SubprocessEnvManagerV2]


def settings(kind: Any, **more: Any) -> Any:
    return EasyDict({**kind.default_config(), **more})


def counting(count: int, kind: Any = CountingEnv, **arguments: Any) -> list[Any]:
    return [functools.partial(kind, i, **arguments) for i in range(count)]


@contextmanager
def managers() -> Iterator[Callable[..., Any]]:
    """Makes managers, which are closed after the test."""
    made = []

    def make(kind: Any, env_fn: Any, launched: bool = True, **more: Any) -> Any:
        made.append(kind(env_fn, settings(kind, **more)))
        if launched:
            made[-1].launch()
        return made[-1]

    yield make
    for one in made:
        closed(one)


def closed(envs: Any) -> None:
    """Closes a manager; the peer's processes are waited for, which it does not do."""
    envs.close()
    for process in envs.__dict__.get("_subprocesses", {}).values():
        process.join()
