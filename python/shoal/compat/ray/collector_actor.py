"""The actor that holds a `shoal.Collector`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import ray

from shoal.collect import Collector
from shoal.collect.weights import Layout
from shoal.compat.ray.resources import workers_here
from shoal.serve.structure import tree_map
from shoal.vector import registrations

__all__ = ["CollectorActor", "Described", "Filled", "Share", "Weights"]


@dataclass(frozen=True)
class Share:
    """What one collector collects of.

    Attributes:
        env: its environments, as `shoal.Collector` takes them.
        first, count, total: its environments among all.
        frames: rows of a batch of its.
        seed: environment i of all begins with seed + i.
        options: further arguments of its `shoal.Collector`.
        registered: ids that the caller knows, of shoal.vector.registrations.
    """

    env: Any
    first: int
    count: int
    total: int
    frames: int
    seed: int
    options: dict[str, Any]
    registered: bytes | None


@dataclass(frozen=True)
class Weights:
    """Of a policy, in Ray's object store: the bytes of a state_dict, and where its parts lie in them."""

    version: int
    layout: Layout
    flat: np.ndarray


@dataclass(frozen=True)
class Described:
    """What a collector says of its environments."""

    single_observation_space: Any
    single_action_space: Any


@dataclass(frozen=True)
class Filled:
    """What came of one order.

    Attributes:
        batch: as of `shoal.Collector`, but that environments, episodes and versions are counted over all collectors.
        stats: of its collector.
        pid, node_id: where it is.
    """

    batch: dict[str, Any]
    stats: dict[str, Any]
    pid: int
    node_id: str


class CollectorActor:
    """Collects when it is asked to. Environments and policy are built with the first call, so that what they raise is raised there."""

    _collector: Collector | None = None
    _version = 0
    _episodes_before = 0  # that environments of this place may have begun in actors that were there before this one

    def __init__(self, share: Share, policy: Any) -> None:
        self._share = share
        self._policy = policy

    def describe(self) -> Described:
        collector = self._open(0)
        return Described(collector.single_observation_space, collector.single_action_space)

    def collect(self, weights: Weights | None, number: int) -> Filled:
        """A batch.

        Args:
            weights: the newest; None: there are none but the policy's own.
            number: of this batch among those that this place was asked for, counted from 0. An actor that is started again
                begins with a later one.
        """
        collector = self._open(number)
        if weights is not None and weights.version != self._version:
            collector.update_weights(weights.layout.unpack(weights.flat.copy()))
            self._version = weights.version
        batch = next(collector)
        share = self._share
        own = batch["episode_id"] // share.count
        batch["episode_id"] = (own + self._episodes_before) * share.total + batch["env_id"] + share.first
        batch["env_id"] = batch["env_id"] + batch["env_id"].dtype.type(share.first)
        batch["policy_version"][...] = self._version
        return Filled(
            tree_map(np.ascontiguousarray, batch),
            collector.stats(),
            os.getpid(),
            ray.get_runtime_context().get_node_id(),
        )

    def _open(self, number: int) -> Collector:
        if self._collector is None:
            share = self._share
            if share.registered is not None:
                registrations.restore(share.registered)
            self._collector = Collector(
                share.env,
                self._policy,
                num_envs=share.count,
                frames_per_batch=share.frames,
                seed=None if number else share.seed + share.first,  # not the same episodes once more
                output="numpy",
                **{"num_workers": workers_here(), **share.options},
            )
            self._collector.frames = number * share.frames  # of which init_random_frames are the first
            self._episodes_before = number * (share.frames // share.count)  # one in each step, at most
        return self._collector
