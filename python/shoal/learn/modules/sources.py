"""Where rollouts come from: collectors, in step with the learner, or ahead of it in a process of their own."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from shoal.collect.collector import Collector
from shoal.learn.modules.network import Network, RecurrentNetwork
from shoal.learn.modules.seeds import For, derived
from shoal.learn.spaces import Leaf, description_of, leaves, nested
from shoal.serve.structure import tree_map

__all__ = ["Ahead", "AheadInOrder", "InStep", "Source", "source_of"]

Arrays = dict[str, torch.Tensor]
_STATE = "state."
"""Begins the names of a recurrent module's state in a record."""
_WAITING = "waiting."
"""Begins those of a batch that waits."""
_OF_A_ROW = "action log_prob value reward terminated truncated valid is_first".split()


class Source(ABC):
    """Gives a batch of `num_steps` steps of all environments for each update.

    Args:
        given: the arguments of Collector that say which environments these are, and where they run.
    """

    def __init__(self, network: Network, config: Mapping[str, Any], seed: int) -> None:
        self.network = network
        self.config = config
        self.seed = seed

    def follow(self, batch: Mapping[str, Any], iteration: int) -> None:
        """A recurrent network goes through a batch that a copy of it has collected."""
        if isinstance(self.network, RecurrentNetwork):
            seed = derived(self.seed, For.FOLLOWING, iteration)
            self.network.follow(batch["obs"], batch["state"], batch["is_first"].bool(), seed)

    def collector(self, policy: Network, given: Mapping[str, Any], **more: Any) -> Collector:
        return Collector(
            given["env"],
            policy,
            num_envs=self.config["num_envs"],
            frames_per_batch=self.config["num_envs"] * self.config["num_steps"],
            next_obs=True,
            output="torch",
            seed=derived(self.seed, For.ACTING),
            **{name: value for name, value in given.items() if name != "env"},
            **more,
        )

    @abstractmethod
    def begin(self, iteration: int) -> None:
        """Resets all environments, with seeds that follow from the run's and from `iteration`."""

    @abstractmethod
    def collect(self, iteration: int) -> tuple[dict[str, Any], float]:
        """A batch, and how many updates old its weights are; NaN where they are always the newest."""

    def weights_changed(self) -> None:  # noqa: B027  # most act with the network itself
        """The network has been updated."""

    @property
    def recorded_steps(self) -> int:
        """Steps of each environment that replay() would repeat."""
        return 0

    def record(self) -> Arrays:
        """What replay() brings the environments back with; empty where it cannot."""
        return {}

    def replay(self, record: Arrays, iteration: int) -> bool:
        """Brings the environments to where they stood when record() was called, in this iteration; whether they have arrived
        there."""
        return False

    @abstractmethod
    def close(self) -> None:
        """Ends environments and processes."""


class InStep(Source):
    """Environments of this process, or of its workers, stepped when a batch is asked for."""

    def __init__(self, network: Network, config: Mapping[str, Any], seed: int, given: Mapping[str, Any]) -> None:
        super().__init__(network, config, seed)
        self._collector = self.collector(network, given)
        self._trail = _Trail(self._collector)

    def begin(self, iteration: int) -> None:
        self._reset(derived(self.seed, For.RESET, iteration))

    def _reset(self, seed: int) -> None:
        self._collector.reset(seed)
        self._trail.begin(seed)

    def collect(self, iteration: int) -> tuple[dict[str, Any], float]:
        self.network.draw_from(derived(self.seed, For.ACTING, iteration))
        batch = next(self._collector)
        self._trail.add(batch)
        return batch, float("nan")

    @property
    def recorded_steps(self) -> int:
        return self._trail.steps

    def record(self) -> Arrays:
        return self._trail.record()

    def replay(self, record: Arrays, iteration: int) -> bool:
        parts = self._trail.parts_of(record, self.config)
        if parts is None:
            return False
        self._reset(int(record["reset_seed"][0]))
        _replay(self.network, parts, record)
        for _ in parts:
            self._trail.add(next(self._collector))
        return self._trail.has_arrived(record)

    def close(self) -> None:
        self._collector.close()


class Ahead(Source):
    """Environments in a process of their own, stepped with weights that are at most `max_lag` updates old, as they come."""

    def __init__(self, network: Network, config: Mapping[str, Any], seed: int, given: Mapping[str, Any]) -> None:
        super().__init__(network, config, seed)
        self._given = given
        self._collector = self.beside(given, config["max_lag"])
        self._begun = False

    def beside(
        self,
        given: Mapping[str, Any],
        ahead: int,
        first: int = 0,
        parts: Sequence[torch.Tensor] = (),
        record: Mapping[str, torch.Tensor] | None = None,
    ) -> Collector:
        """A collector with a copy of the network, which first answers with the actions of `parts`, those of `record`, and whose first
        rollout is the run's of this number."""
        self.network.eval()
        copied = copy.deepcopy(self.network).cpu()
        copied.device = torch.device("cpu")
        copied.draw_each(self.seed, self.config["num_steps"], first)
        _replay(copied, parts, record or {})
        count = self.config["num_envs"]
        return self.collector(copied, given, mode="multi_async", num_collectors=1, ahead=ahead, policy_batch=count)

    def begin(self, iteration: int) -> None:
        if iteration and not self._begun:  # of a resumed run, which is not to draw what it drew at its start
            self._collector.close()
            self._collector = self.beside(self._given, self.config["max_lag"], iteration)
        self._begun = True
        self._collector.update_weights(self.network.weights())
        self._collector.reset(derived(self.seed, For.RESET, iteration))

    def collect(self, iteration: int) -> tuple[dict[str, Any], float]:
        batch = next(self._collector)
        self.follow(batch, iteration)
        return batch, float(batch["staleness"].max())

    def weights_changed(self) -> None:
        self._collector.update_weights(self.network.weights())

    def close(self) -> None:
        self._collector.close()


class AheadInOrder(Ahead):
    """The same in a fixed order: one batch is collected beside each update, with the weights from before it, so that each is
    exactly max_lag updates old (one, where PPO or A2C overlaps), but for the first ones. Between two iterations nothing is under
    way."""

    def __init__(self, network: Network, config: Mapping[str, Any], seed: int, given: Mapping[str, Any]) -> None:
        Source.__init__(self, network, config, seed)
        self._given = given
        self._lag: int = config.get("max_lag", 1)
        self._waiting: deque[tuple[dict[str, Any], int]] = deque()  # batches, and the updates before their weights
        self._open(0, 0)

    def _open(
        self,
        iteration: int,
        first: int,
        parts: Sequence[torch.Tensor] = (),
        record: Mapping[str, torch.Tensor] | None = None,
    ) -> None:
        self._collector = self.beside(self._given, 1, first, parts, record)
        self._trail = _Trail(self._collector)
        self._updates_before = iteration - self._collector.update_weights(self.network.weights())

    def begin(self, iteration: int) -> None:
        seed = derived(self.seed, For.RESET, iteration)
        self._collector.reset(seed)
        self._trail.begin(seed)

    def collect(self, iteration: int) -> tuple[dict[str, Any], float]:
        self._collector.resume()
        while len(self._waiting) < self._lag:
            self._take()
        batch, version = self._waiting.popleft()
        self.follow(batch, iteration)
        return batch, float(iteration - version)

    def weights_changed(self) -> None:
        self._collector.pause()
        while self._collector.stats()["pending"]:
            self._take()
        self._collector.update_weights(self.network.weights())

    def _take(self) -> None:
        batch = next(self._collector)
        self._trail.add(batch)
        self._waiting.append((batch, self._updates_before + int(batch["policy_version"].max())))

    @property
    def recorded_steps(self) -> int:
        return self._trail.steps

    def record(self) -> Arrays:
        record = self._trail.record()
        for number, (batch, version) in enumerate(self._waiting):
            arrays = self._trail.arrays_of(batch) | {"version": torch.tensor([version])}
            record |= {f"{_WAITING}{number}.{name}": value for name, value in arrays.items()}
        return record

    def replay(self, record: Arrays, iteration: int) -> bool:
        parts = self._trail.parts_of(record, self.config)
        waiting = sum(name.endswith(".version") for name in record)
        self._collector.close()
        if parts is None:
            self._open(iteration, iteration)
            return False
        self._open(iteration, iteration + waiting - len(parts), parts, record)
        seed = int(record["reset_seed"][0])
        self._collector.reset(seed)
        self._trail.begin(seed)
        for _ in parts:
            self._collector.resume()
            self._collector.pause()  # that one batch, and no other
            self._trail.add(next(self._collector))
        if not self._trail.has_arrived(record):
            return False
        for number in range(waiting):
            begin = f"{_WAITING}{number}."
            arrays = {name.removeprefix(begin): value for name, value in record.items() if name.startswith(begin)}
            batch = self._trail.batch_of(arrays)
            if isinstance(self.network, RecurrentNetwork):
                batch["state"] = self.network.state_of(_states_in(arrays), self.config["num_envs"])
            self._waiting.append((batch, int(arrays["version"][0])))
        return True


class _Trail:
    """The actions of all environments since the last seeded reset, and where these led.

    Environments are brought back by repeating them, as src/shoal/learn/run does: what environments do after it depends on the
    seed and on the actions alone, or the comparison at the end notices.
    """

    def __init__(self, collector: Collector) -> None:
        self._packing = _Packing(collector.single_action_space)
        self._description = description_of(collector.single_observation_space)
        self._leaves = list(leaves(self._description))
        known: dict[str, Leaf] = {}
        for leaf in self._leaves:
            other = known.setdefault(leaf.path, leaf)
            if other is not leaf:
                raise ValueError(
                    f"the observations {other.keys} and {leaf.keys} are both {leaf.path!r} in a checkpoint: give one of them a key "
                    'without "/"'
                )
        self.begin(0)

    def begin(self, seed: int) -> None:
        self._seed = seed
        self._actions: list[torch.Tensor] = []
        self._last: Arrays = {}
        self._state: Arrays = {}

    def add(self, batch: dict[str, Any]) -> None:
        self._actions.append(self._packing.pack(batch["action"]))
        self._last = {f"obs/{leaf.path}": leaf.pick(batch["next_obs"])[-1].clone() for leaf in self._leaves}
        self._last["reward"] = batch["reward"][-1].clone()
        self._state = _states_of(batch.get("next_state"))

    @property
    def steps(self) -> int:
        return sum(map(len, self._actions))

    def record(self) -> Arrays:
        seed = {"reset_seed": torch.tensor([self._seed])}
        return seed | {"actions": torch.cat(self._actions), **self._last, **self._state} if self._actions else seed

    def parts_of(self, record: Arrays, config: Mapping[str, Any]) -> list[torch.Tensor] | None:
        """The actions of each rollout; None where they were of another number of steps or environments."""
        if "actions" not in record:
            return []
        actions, steps = record["actions"], config["num_steps"]
        if len(actions) % steps or actions.shape[1] != config["num_envs"]:
            return None
        return list(self._packing.unpack(actions).split(steps))

    def has_arrived(self, record: Arrays) -> bool:
        # Bytes, so that NaN is itself.
        return all(
            name in record and tensor.numpy().tobytes() == record[name].numpy().tobytes()
            for name, tensor in self._last.items()
        )

    def arrays_of(self, batch: dict[str, Any]) -> Arrays:
        """What an update reads of a batch, by names."""
        arrays = {name: batch[name] for name in _OF_A_ROW} | _states_of(batch.get("state"))
        for name in ("obs", "next_obs"):
            arrays |= {f"{name}/{leaf.path}": leaf.pick(batch[name]) for leaf in self._leaves}
        return arrays

    def batch_of(self, arrays: Arrays) -> dict[str, Any]:
        """What arrays_of() gave."""
        batch: dict[str, Any] = {name: arrays[name] for name in _OF_A_ROW}
        for name in ("obs", "next_obs"):
            batch[name] = nested(self._description, iter([arrays[f"{name}/{leaf.path}"] for leaf in self._leaves]))
        return batch


def _replay(network: Network, parts: Sequence[torch.Tensor], record: Mapping[str, torch.Tensor]) -> None:
    """The network answers with these actions, and then, where it is recurrent, goes on with the record's state."""
    actions = [action for part in parts for action in part]
    if isinstance(network, RecurrentNetwork) and actions:
        network.replay(actions, network.state_of(_states_in(record), len(actions[0])))
    else:
        network.replay(actions)


def _states_of(state: Any) -> Arrays:
    """The leaves of a recurrent module's state by name; none where there is no state."""
    found: list[torch.Tensor] = []
    if state is not None:
        tree_map(found.append, state)
    return {f"{_STATE}{number}": leaf for number, leaf in enumerate(found)}


def _states_in(record: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
    return [record[f"{_STATE}{number}"] for number in range(sum(name.startswith(_STATE) for name in record))]


class _Packing:
    """Actions as a checkpoint has them: a byte each, where they are among fewer than 257."""

    def __init__(self, space: Any) -> None:
        self._start = int(space.start) if isinstance(space, spaces.Discrete) and space.n <= 256 else None
        self._dtype = getattr(torch, np.dtype(space.dtype).name)

    def pack(self, actions: torch.Tensor) -> torch.Tensor:
        return actions.clone() if self._start is None else (actions - self._start).to(torch.uint8)

    def unpack(self, packed: torch.Tensor) -> torch.Tensor:
        return packed if self._start is None else packed.to(self._dtype) + self._start


def source_of(network: Network, config: Mapping[str, Any], given: Mapping[str, Any]) -> Source:
    """Of the kind that the algorithm asks for."""
    kind: type[InStep | Ahead] = InStep
    if config["algorithm"] == "appo":
        kind = AheadInOrder if config["deterministic"] else Ahead
    elif config["overlap"]:
        kind = AheadInOrder
    return kind(network, config, config["seed"], given)
