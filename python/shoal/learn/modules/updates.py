"""How a module changes with a rollout: PPO, A2C and APPO."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from shoal.learn.modules.estimates import Worth, explained_variance, gae, normalized, vtrace
from shoal.learn.modules.losses import Losses, Minibatch, a2c_loss, ppo_loss, total
from shoal.learn.modules.network import Evaluated, Network, RecurrentNetwork
from shoal.learn.modules.optimizers import make_optimizer
from shoal.learn.modules.seeds import For, derived, drawing_from
from shoal.serve.structure import tree_map

__all__ = ["ALGORITHMS", "A2cUpdate", "AppoUpdate", "PpoUpdate", "Rollout", "Update", "make_update", "scheduled"]

_NAN = float("nan")


@dataclass
class Rollout:
    """What was collected for one update: tensors [steps, envs, …] on the CPU.

    Attributes:
        obs: as the environments gave them, a tree for such spaces.
        worth: rewards as they are learned from, values and ends.
        lag: how many updates old the weights were that it was collected with.
        state: of a recurrent network, what it began with.
        is_first: whether rows are the first of an episode.
    """

    obs: Any
    action: torch.Tensor
    log_prob: torch.Tensor
    worth: Worth
    lag: float = _NAN
    state: Any = None
    is_first: torch.Tensor | None = None


class Update(ABC):
    """Changes a network's parameters. What it draws follows from the seed and the iteration alone."""

    def __init__(self, network: Network, config: Mapping[str, Any], seed: int) -> None:
        self.network = network
        self.config = config
        self.optimizer = make_optimizer([p for p in network.module.parameters() if p.requires_grad], config)
        self._parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        self._seed = seed

    def run(self, rollout: Rollout, iteration: int, remaining: float) -> dict[str, float]:
        """Learns from the rollout.

        Args:
            iteration: counted from 0.
            remaining: of the run, 1 at its start and 0 at its end: for schedules.

        Returns:
            means over the minibatches of what was measured; NaN for what the algorithm has not.
        """
        rate = scheduled(self.config["learning_rate"], self.config["learning_rate_schedule"], remaining)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self._entropy_coef = scheduled(self.config["entropy_coef"], self.config["entropy_coef_schedule"], remaining)
        rollout, advantage, returns = self.estimate(rollout)
        valid = rollout.worth.valid.flatten()
        stats = {
            "learning_rate": rate,
            "explained_variance": explained_variance(returns.flatten()[valid], rollout.worth.value.flatten()[valid]),
        }
        if self.config["advantage_normalization"] == "rollout":
            advantage = advantage.masked_scatter(rollout.worth.valid, normalized(advantage[rollout.worth.valid]))
        self.network.train()
        try:
            with drawing_from(derived(self._seed, For.UPDATE, iteration)):
                return stats | self.learn(self._parts(rollout, advantage, returns), iteration, remaining)
        finally:
            self.network.eval()

    def estimate(self, rollout: Rollout) -> tuple[Rollout, torch.Tensor, torch.Tensor]:
        """Advantages and returns of its rows, and the rollout that the update compares with."""
        config = self.config
        return rollout, *gae(rollout.worth, config["gamma"], config["gae_lambda"], config["bootstrap_truncated"])

    def _parts(self, rollout: Rollout, advantage: torch.Tensor, returns: torch.Tensor) -> _Parts:
        if isinstance(self.network, RecurrentNetwork):
            return _Sequences(self.network, rollout, advantage, returns)
        return _Rows(self.network, rollout, advantage, returns)

    @abstractmethod
    def learn(self, rows: _Parts, iteration: int, remaining: float) -> dict[str, float]:
        """Takes the steps. The network is in train() mode."""

    def differentiate(self, losses: Losses, entropy: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """The gradients of the loss, clipped; returns the loss and their norm before."""
        loss = total(losses, entropy, self.config["value_coef"], self._entropy_coef)
        if not loss.requires_grad:
            raise ValueError(
                f"evaluate_actions() of {self.network.name} gave tensors without a gradient: it must neither detach them nor be "
                "under torch.no_grad()"
            )
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        limit = self.config["max_grad_norm"]
        norm = torch.nn.utils.clip_grad_norm_(self._parameters, limit if limit > 0 else float("inf"))
        return loss.detach(), norm

    def entropy_of(self, evaluated: Evaluated) -> torch.Tensor | None:
        if evaluated.entropy is not None:
            return evaluated.entropy.float().mean()
        if self.config["entropy_coef"] != 0:
            raise ValueError(
                f"entropy_coef={self.config['entropy_coef']} needs an entropy: evaluate_actions() of {self.network.name} gives "
                "(log_prob, value) alone; let it return (log_prob, value, entropy), or set entropy_coef=0"
            )
        return None


class PpoUpdate(Update):
    """Epochs of minibatches over the clipped surrogate."""

    def learn(self, rows: _Parts, iteration: int, remaining: float) -> dict[str, float]:
        config = self.config
        clip = scheduled(config["clip_range"], config["clip_range_schedule"], remaining)
        normalize = config["advantage_normalization"] == "minibatch"
        measured: list[torch.Tensor] = []
        kl_of_epoch: list[torch.Tensor] = []
        too_far, epochs = False, 0
        for epoch in range(config["epochs"] if rows.count else 0):
            epochs, kl_of_epoch = epoch + 1, []
            for batch, evaluate in rows.split(config["batch_size"], derived(self._seed, For.SHUFFLE, iteration, epoch)):
                if normalize:
                    batch = batch._replace(advantage=normalized(batch.advantage))
                evaluated = evaluate()
                losses = ppo_loss(
                    evaluated.log_prob,
                    evaluated.value,
                    batch,
                    clip,
                    config["clip_range_value"],
                    config["pessimistic_value_clip"],
                )
                assert losses.approx_kl is not None and losses.clip_fraction is not None
                entropy = self.entropy_of(evaluated)
                loss, norm = self.differentiate(losses, entropy)
                kl_of_epoch.append(losses.approx_kl)
                measured.append(_numbers(losses, entropy, loss, norm, losses.clip_fraction))
                too_far = config["target_kl"] is not None and float(losses.approx_kl) > 1.5 * config["target_kl"]
                if too_far:
                    break
                self.optimizer.step()
            if too_far:
                break
        names = ("policy_loss", "value_loss", "entropy", "loss", "grad_norm", "clip_fraction")
        kl = float(torch.stack(kl_of_epoch).mean()) if kl_of_epoch else 0.0
        return _means(names, measured) | {"approx_kl": kl, "clip_range": clip, "epochs": epochs}


class A2cUpdate(Update):
    """One step along the gradient of all rows."""

    def learn(self, rows: _Parts, iteration: int, remaining: float) -> dict[str, float]:
        names = ("policy_loss", "value_loss", "entropy", "loss", "grad_norm")
        nothing = {"approx_kl": _NAN, "clip_fraction": _NAN, "clip_range": _NAN}
        if not rows.count:
            return _means(names, []) | nothing | {"epochs": 0}
        batch, evaluate = rows.all()
        if self.config["advantage_normalization"] == "minibatch":
            batch = batch._replace(advantage=normalized(batch.advantage))
        evaluated = evaluate()
        losses = a2c_loss(evaluated.log_prob, evaluated.value, batch)
        entropy = self.entropy_of(evaluated)
        loss, norm = self.differentiate(losses, entropy)
        self.optimizer.step()
        return _means(names, [_numbers(losses, entropy, loss, norm)]) | nothing | {"epochs": 1}


class AppoUpdate(PpoUpdate):
    """PPO's, with V-trace's advantages and targets. Values and log-probabilities become those of the policy that the update
    begins with: PPO's ratio tells how far it has gone, V-trace's how old the weights were."""

    def estimate(self, rollout: Rollout) -> tuple[Rollout, torch.Tensor, torch.Tensor]:
        config, shape = self.config, rollout.log_prob.shape
        with torch.no_grad():
            evaluated = self._evaluated(rollout)
        log_prob, value = (tensor.cpu().reshape(shape) for tensor in (evaluated.log_prob, evaluated.value))
        log_ratio = log_prob - rollout.log_prob
        next_value = rollout.worth.next_value.clone()
        flows = ~(rollout.worth.terminated | rollout.worth.truncated)[:-1]
        next_value[:-1] = torch.where(flows, value[1:], next_value[:-1])
        worth = rollout.worth._replace(value=value, next_value=next_value)
        rollout = replace(rollout, log_prob=log_prob, worth=worth)
        bars = {"rho_bar": config["rho_bar"], "c_bar": config["c_bar"]}
        return rollout, *vtrace(
            rollout.worth,
            log_ratio,
            config["gamma"],
            config["gae_lambda"],
            bootstrap_truncated=config["bootstrap_truncated"],
            **bars,
        )

    def _evaluated(self, rollout: Rollout) -> Evaluated:
        """All rows, by the policy of now."""
        network, action = self.network, rollout.action.to(self.network.device)
        if not isinstance(network, RecurrentNetwork):
            return network.evaluate(tree_map(_flat, rollout.obs), _flat(action))
        assert rollout.is_first is not None
        is_first = rollout.is_first.to(network.device)
        return network.evaluate_sequences(network.seen(rollout.obs), action, rollout.state, is_first)


ALGORITHMS: dict[str, type[Update]] = {"ppo": PpoUpdate, "a2c": A2cUpdate, "appo": AppoUpdate}


def make_update(network: Network, config: Mapping[str, Any], seed: int) -> Update:
    return ALGORITHMS[config["algorithm"]](network, config, seed)


def scheduled(initial: float, schedule: str, remaining: float) -> float:
    """The value of a scheduled number when `remaining` (1 at the start, 0 at the end) of the run is to come."""
    return initial * min(1.0, max(0.0, remaining)) if schedule == "linear" else initial


_Part = tuple[Minibatch, Callable[[], Evaluated]]
"""A minibatch, and what evaluates it with the weights of now."""


class _Parts(ABC):
    """The valid rows of a rollout, on the network's device, observations as the module sees them.

    Attributes:
        count: of the rows.
    """

    count: int

    @abstractmethod
    def all(self) -> _Part: ...

    @abstractmethod
    def split(self, batch_size: int, seed: int) -> Iterator[_Part]:
        """All of them in a new order, in as many minibatches of about batch_size rows as fit best: of equal size, give or take
        one row, or one environment of a recurrent network."""


class _Rows(_Parts):
    """One by one."""

    def __init__(self, network: Network, rollout: Rollout, advantage: torch.Tensor, returns: torch.Tensor) -> None:
        valid = rollout.worth.valid.flatten()
        chosen = None if bool(valid.all()) else valid.nonzero().squeeze(1)

        def rows(tensor: torch.Tensor) -> torch.Tensor:
            flat = _flat(tensor)
            return (flat if chosen is None else flat[chosen]).to(network.device)

        self._network = network
        self._batch = Minibatch(*map(rows, (rollout.log_prob, rollout.worth.value, advantage, returns)))
        self._action = rows(rollout.action)
        with torch.no_grad():
            self._obs = network.seen(tree_map(rows, rollout.obs))
        self.count = len(self._action)

    def all(self) -> _Part:
        return self._batch, lambda: self._network.evaluate_seen(self._obs, self._action)

    def split(self, batch_size: int, seed: int) -> Iterator[_Part]:
        for rows in _dealt(self.count, _nearest(self.count, batch_size), seed, self._action.device):
            obs, action = tree_map(lambda tensor, rows=rows: tensor[rows], self._obs), self._action[rows]
            yield (
                Minibatch(*(tensor[rows] for tensor in self._batch)),
                lambda obs=obs, action=action: self._network.evaluate_seen(obs, action),  # type: ignore[misc]  # a closure
            )


class _Sequences(_Parts):
    """By environment: a recurrent network goes through their steps in order."""

    def __init__(
        self, network: RecurrentNetwork, rollout: Rollout, advantage: torch.Tensor, returns: torch.Tensor
    ) -> None:
        device = network.device
        assert rollout.is_first is not None
        self._network, self._state = network, rollout.state
        self._batch = Minibatch(*(t.to(device) for t in (rollout.log_prob, rollout.worth.value, advantage, returns)))
        self._action, self._is_first = rollout.action.to(device), rollout.is_first.to(device)
        self._valid = rollout.worth.valid.to(device)
        with torch.no_grad():
            self._obs = network.seen(rollout.obs)
        self.count = int(self._valid.sum())

    def all(self) -> _Part:
        return self._of(torch.arange(self._action.shape[1], device=self._action.device))

    def split(self, batch_size: int, seed: int) -> Iterator[_Part]:
        there = self._valid.any(0).nonzero().squeeze(1)  # environments with a row to learn from
        parts = min(len(there), _nearest(len(self._valid) * len(there), batch_size))
        yield from (self._of(there[dealt]) for dealt in _dealt(len(there), parts, seed, there.device))

    def _of(self, envs: torch.Tensor) -> _Part:
        valid = self._valid[:, envs].flatten()

        def rows(tensor: torch.Tensor) -> torch.Tensor:
            return _flat(tensor)[valid]

        def evaluate() -> Evaluated:
            found = self._network.evaluate_sequences(
                tree_map(lambda tensor: tensor[:, envs], self._obs),
                self._action[:, envs],
                tree_map(lambda tensor: tensor[envs], self._state),
                self._is_first[:, envs],
            )
            return Evaluated(*(None if tensor is None else tensor[valid] for tensor in found))  # type: ignore[arg-type]  # entropy alone may be None

        return Minibatch(*(rows(tensor[:, envs]) for tensor in self._batch)), evaluate


def _nearest(count: int, batch_size: int) -> int:
    """In how many parts of about batch_size."""
    return max(1, (count + batch_size // 2) // batch_size)


def _dealt(count: int, parts: int, seed: int, device: torch.device) -> Iterator[torch.Tensor]:
    """The numbers below `count` in an order that follows from the seed, in parts of one size."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed)).to(device)
    for part in range(parts):
        yield order[count * part // parts : count * (part + 1) // parts]


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.flatten(0, 1)


def _numbers(losses: Losses, entropy: torch.Tensor | None, *more: torch.Tensor) -> torch.Tensor:
    nothing = losses.policy.new_full((), _NAN)
    given = (losses.policy, losses.value, nothing if entropy is None else entropy, *more)
    return torch.stack([number.detach().float() for number in given])


def _means(names: tuple[str, ...], measured: list[torch.Tensor]) -> dict[str, float]:
    if not measured:
        return dict.fromkeys(names, 0.0)
    return dict(zip(names, torch.stack(measured).double().mean(0).tolist(), strict=True))
