"""Where rollouts come from: collectors, in step with the learner, or ahead of it in a process of their own."""

from __future__ import annotations

import contextlib
import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from shoal.collect.collector import Collector
from shoal.learn.modules.network import Network, RecurrentNetwork
from shoal.learn.modules.seeds import For, derived, drawing_from
from shoal.learn.spaces import description_of, leaves

__all__ = ["Ahead", "InStep", "Source"]

Arrays = dict[str, torch.Tensor]
_STATE = "state."
"""Begins the names of a recurrent module's state in a record."""


class Source(ABC):
    """Gives a batch of `num_steps` steps of all environments for each update.

    Args:
        given: the arguments of Collector that say which environments these are, and where they run.
    """

    def __init__(self, network: Network, config: Mapping[str, Any], seed: int) -> None:
        self.network = network
        self.config = config
        self.seed = seed

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

    def replay(self, record: Arrays) -> bool:
        """Brings the environments to where they stood when record() was called; whether they have arrived there."""
        return False

    @abstractmethod
    def close(self) -> None:
        """Ends environments and processes."""


class InStep(Source):
    """Environments of this process, or of its workers, stepped when a batch is asked for.

    Environments are brought back by repeating their actions since the last seeded reset, as src/shoal/learn/run does:
    what they do after it depends on the seed and on the actions alone, or the comparison at the end notices.
    """

    def __init__(self, network: Network, config: Mapping[str, Any], seed: int, given: Mapping[str, Any]) -> None:
        super().__init__(network, config, seed)
        self._collector = self.collector(network, given)
        self._packing = _Packing(self._collector.single_action_space)
        self._leaves = list(leaves(description_of(self._collector.single_observation_space)))
        self._reset_seed = 0
        self._actions: list[torch.Tensor] = []
        self._last: Arrays = {}

    def begin(self, iteration: int) -> None:
        self._reset(derived(self.seed, For.RESET, iteration))

    def _reset(self, seed: int) -> None:
        self._collector.reset(seed)
        self._reset_seed = seed
        self._actions, self._last = [], {}
        if isinstance(self.network, RecurrentNetwork):
            self.network.forget()

    def collect(self, iteration: int) -> tuple[dict[str, Any], float]:
        seed = derived(self.seed, For.ACTING, iteration)
        self.network.draw_from(seed)
        on_device = self.network.device.type != "cpu"  # the collector keeps the generators of the CPU apart
        with drawing_from(seed, self.network.device) if on_device else contextlib.nullcontext():
            return self._next(), float("nan")

    def _next(self) -> dict[str, Any]:
        batch = next(self._collector)
        self._actions.append(self._packing.pack(batch["action"]))
        self._last = {f"obs/{leaf.path}": leaf.pick(batch["next_obs"])[-1].clone() for leaf in self._leaves}
        self._last["reward"] = batch["reward"][-1].clone()
        return batch

    @property
    def recorded_steps(self) -> int:
        return len(self._actions) * int(self.config["num_steps"])

    def record(self) -> Arrays:
        if not self._actions:
            return {"reset_seed": torch.tensor([self._reset_seed])}
        record = {"reset_seed": torch.tensor([self._reset_seed]), "actions": torch.cat(self._actions), **self._last}
        if isinstance(self.network, RecurrentNetwork):
            record |= {f"{_STATE}{number}": leaf for number, leaf in enumerate(self.network.leaves_of_state())}
        return record

    def replay(self, record: Arrays) -> bool:
        self._reset(int(record["reset_seed"][0]))
        if "actions" not in record:
            return True
        steps = self.config["num_steps"]
        actions = record["actions"]
        if len(actions) % steps or actions.shape[1] != self.config["num_envs"]:
            return False  # another number of steps a rollout was asked for
        for part in actions.split(steps):
            self.network.replay(list(self._packing.unpack(part)))
            self._next()
        if isinstance(self.network, RecurrentNetwork):
            count = sum(name.startswith(_STATE) for name in record)
            self.network.go_on_with([record[f"{_STATE}{number}"] for number in range(count)], self.config["num_envs"])
        # Bytes, so that NaN is itself.
        return all(
            name in record and tensor.numpy().tobytes() == record[name].numpy().tobytes()
            for name, tensor in self._last.items()
        )

    def close(self) -> None:
        self._collector.close()


class Ahead(Source):
    """Environments in a process of their own, stepped with weights that are at most `max_lag` updates old."""

    def __init__(self, network: Network, config: Mapping[str, Any], seed: int, given: Mapping[str, Any]) -> None:
        super().__init__(network, config, seed)
        network.eval()
        copied = copy.deepcopy(network).cpu()
        copied.device = torch.device("cpu")
        self._collector = self.collector(
            copied,
            given,
            mode="multi_async",
            num_collectors=1,
            ahead=config["max_lag"],
            policy_batch=config["num_envs"],
        )

    def begin(self, iteration: int) -> None:
        self._collector.update_weights(self.network.weights())
        self._collector.reset(derived(self.seed, For.RESET, iteration))

    def collect(self, iteration: int) -> tuple[dict[str, Any], float]:
        batch = next(self._collector)
        return batch, float(batch["staleness"].max())

    def weights_changed(self) -> None:
        if self.config["deterministic"]:
            self._collector.pause()  # all that was ordered is collected with the weights from before this update
        self._collector.update_weights(self.network.weights())
        if self.config["deterministic"]:
            self._collector.resume()

    def close(self) -> None:
        self._collector.close()


class _Packing:
    """Actions as a checkpoint has them: a byte each, where they are among fewer than 257."""

    def __init__(self, space: Any) -> None:
        self._start = int(space.start) if isinstance(space, spaces.Discrete) and space.n <= 256 else None
        self._dtype = getattr(torch, np.dtype(space.dtype).name)

    def pack(self, actions: torch.Tensor) -> torch.Tensor:
        return actions.clone() if self._start is None else (actions - self._start).to(torch.uint8)

    def unpack(self, packed: torch.Tensor) -> torch.Tensor:
        return packed if self._start is None else packed.to(self._dtype) + self._start
