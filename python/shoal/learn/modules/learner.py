"""Collects rollouts and learns from them, one iteration after the other: what PPO, A2C and APPO have in common."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import torch

from shoal.errors import Error
from shoal.learn.modules.episodes import EpisodeLog
from shoal.learn.modules.estimates import Worth
from shoal.learn.modules.moments import RewardScaler
from shoal.learn.modules.network import Network, RecurrentNetwork
from shoal.learn.modules.optimizers import make_optimizer
from shoal.learn.modules.seeds import For, derived, drawing_from
from shoal.learn.modules.sources import Source
from shoal.learn.modules.updates import Rollout, make_update
from shoal.serve.structure import tree_map

__all__ = ["Learner", "load_policy_into"]

_COMPARED_ROWS = 256
Arrays = dict[str, torch.Tensor]


class Learner:
    """Determinism: the same configuration, seed, weights and trajectories give the same bits on one machine, but for a source
    whose batches depend on timing.

    Attributes:
        steps, iteration: made so far.

    Raises:
        TypeError: for what no checkpoint of the module could keep.
    """

    def __init__(self, network: Network, source: Source, config: Mapping[str, Any]) -> None:
        self.network = network
        self.source = source
        self.steps = 0
        self.iteration = 0
        self._config = config
        self._seed: int = config["seed"]
        self._update = make_update(network, config, self._seed)
        self._rewards = RewardScaler(config["num_envs"], config)
        self._episodes = EpisodeLog(config["num_envs"])
        self._compared = False
        network.eval()
        self.policy()  # raises what a checkpoint could not keep, before anything is learned

    def begin(self) -> None:
        """Resets the environments."""
        self.source.begin(self.iteration)

    def iterate(self) -> dict[str, Any]:
        """One rollout and one update; returns what was measured, under the names of Trainer.status()."""
        remaining = 1 - self.steps / self._config["total_steps"]
        start = time.perf_counter()
        rollout = self._collect()
        collected = time.perf_counter()
        measured: dict[str, Any] = self._update.run(rollout, self.iteration, remaining)
        if self.network.normalizer is not None:
            self.network.normalizer.update(rollout.obs)
        self.steps += rollout.log_prob.numel()
        self.iteration += 1
        self.source.weights_changed()
        finished, self._episodes.finished = self._episodes.finished, []
        return measured | {
            "iteration": self.iteration,
            "step": self.steps,
            "episodes": self._episodes.count,
            "finished": finished,
            "ep_return_mean": self._episodes.mean_return,
            "ep_length_mean": self._episodes.mean_length,
            "policy_lag": rollout.lag,
            "action_std": self.network.spread(),
            "collect_seconds": collected - start,
            "update_seconds": time.perf_counter() - collected,
        }

    def _collect(self) -> Rollout:
        batch, lag = self.source.collect(self.iteration)
        _check_experience(batch)
        terminated, truncated = batch["terminated"].bool(), batch["truncated"].bool()
        reward, valid, value = batch["reward"], batch["valid"].bool(), batch["value"]
        ended, is_first = terminated | truncated, batch["is_first"].bool()
        self._episodes.add(reward.numpy(), ended.numpy(), valid.numpy(), is_first.numpy())
        self._check_finite(batch)
        if not self._compared and not lag > 0:
            self._compared = True
            self._check_agreement(batch)
        network = self.network
        state = network.begun_with if isinstance(network, RecurrentNetwork) else None
        worth = Worth(
            self._rewards.scale(reward, ended, is_first, valid),
            value,
            self._next_values(batch, ended),
            terminated,
            truncated,
            valid,
        )
        return Rollout(batch["obs"], batch["action"], batch["log_prob"], worth, lag, state, is_first)

    def _next_values(self, batch: Mapping[str, Any], ended: torch.Tensor) -> torch.Tensor:
        """V of where each step led: of the next row, or of its own where an episode was truncated or the rollout ends; 0 where
        it terminated, of which nobody asks."""
        value = batch["value"]
        following = torch.zeros_like(value)
        following[:-1] = value[1:]
        following[ended] = 0
        of_its_own = batch["truncated"].bool() & ~batch["terminated"].bool()
        if not self._config["bootstrap_truncated"]:
            of_its_own[:] = False
        of_its_own[-1] |= ~ended[-1]
        rows = of_its_own.flatten().nonzero().squeeze(1)
        if len(rows):
            obs = tree_map(lambda tensor: tensor.flatten(0, 1)[rows], batch["next_obs"])
            seed = derived(self._seed, For.VALUES, self.iteration)
            following[of_its_own] = self.network.values(obs, rows, seed)
        return following

    def _check_finite(self, batch: Mapping[str, Any]) -> None:
        for name in ("log_prob", "value"):
            if not bool(batch[name].isfinite().all()):
                raise ValueError(
                    f"forward() of {self.network.name} gave a {name} that is not finite, in iteration {self.iteration + 1}. "
                    "Too large a learning_rate does this, and very large observations or rewards"
                )

    def _check_agreement(self, batch: Mapping[str, Any]) -> None:
        """With the first rows, or all of a recurrent module's, that evaluate_actions() gives what forward() gave."""
        network, device = self.network, self.network.device
        count = batch["log_prob"].numel()
        with torch.no_grad(), drawing_from(derived(self._seed, For.CHECK)):
            if isinstance(network, RecurrentNetwork):
                obs, is_first = network.seen(batch["obs"]), batch["is_first"].bool().to(device)
                again = network.evaluate_sequences(obs, batch["action"].to(device), network.begun_with, is_first)
            else:
                count = min(count, _COMPARED_ROWS)
                obs = tree_map(lambda tensor: tensor.flatten(0, 1)[:count], batch["obs"])
                again = network.evaluate(obs, batch["action"].flatten(0, 1)[:count].to(device))
        network.check_agreement(again, *(batch[name].flatten()[:count] for name in ("log_prob", "value")))

    # What a checkpoint keeps

    def policy(self) -> dict[str, Arrays]:
        """What a policy is loaded from."""
        arrays = {"policy": _tensors(self.network.module.state_dict())}
        if self.network.normalizer is not None:
            arrays["normalizer"] = self.network.normalizer.state_dict()
        return arrays

    def arrays(self) -> dict[str, Arrays]:
        """All that counters() has not."""
        averages = {
            f"{number}.{name}": value
            for number, of in self._update.optimizer.state_dict()["state"].items()
            for name, value in of.items()
        }
        along = {"discounted": self._rewards.running, **self._episodes.arrays()}
        along |= {f"rewards.{name}": value for name, value in self._rewards.moments.state_dict().items()}
        envs = {f"along.{name}": value for name, value in along.items()}
        return self.policy() | {"optim": averages, "envs": envs | self.source.record()}

    def counters(self) -> dict[str, Any]:
        return {
            "steps": self.steps,
            "iteration": self.iteration,
            "num_envs": self._config["num_envs"],
            "episodes": self._episodes.state(),
        }

    def load(self, counters: Mapping[str, Any], arrays: Mapping[str, Arrays]) -> None:
        """What arrays() and counters() gave; place() brings the environments back.

        Raises:
            ValueError: where they are of another module.
            Error: where they are of an optimiser that keeps other averages.
        """
        load_policy_into(self.network, arrays)
        averages: dict[int, Arrays] = {}
        for key, value in arrays["optim"].items():
            number, _, name = key.partition(".")
            averages.setdefault(int(number), {})[name] = value
        _require_averages(averages, self._config)
        optimizer = self._update.optimizer
        optimizer.load_state_dict({"state": averages, "param_groups": optimizer.state_dict()["param_groups"]})
        along = {
            name.removeprefix("along."): value for name, value in arrays["envs"].items() if name.startswith("along.")
        }
        self._rewards.running = along["discounted"].clone()
        self._rewards.moments.load_state_dict({name: along[f"rewards.{name}"] for name in ("mean", "var", "count")})
        self._episodes.load(counters["episodes"], along)
        self.steps, self.iteration = counters["steps"], counters["iteration"]

    def place(self, arrays: Mapping[str, Arrays]) -> bool:
        """Brings the environments to where they stood, and goes on there; where they do not arrive, they begin anew. Returns
        whether they have arrived."""
        record = {name: value for name, value in arrays["envs"].items() if not name.startswith("along.")}
        if record and self.source.replay(record, self.iteration):
            return True
        self.begin()
        return False


def _check_experience(batch: Mapping[str, Any]) -> None:
    """Raises Error where an environment gave an observation or a reward that is not finite, in a step that counts."""

    def check(what: str, values: torch.Tensor) -> None:
        rows = values.flatten(2) if values.ndim > 2 else values[..., None]
        wrong = ~rows.isfinite().all(-1) & batch["valid"].bool()
        if bool(wrong.any()):
            t, env = wrong.nonzero()[0].tolist()
            number = rows[t, env][~rows[t, env].isfinite()][0].item()
            raise Error(f"environment {env} gave {what} that is not finite: {number}. Nothing was learned from it")

    check("a reward", batch["reward"])
    tree_map(lambda leaf: check("an observation", leaf) if leaf.is_floating_point() else None, batch["obs"])


def load_policy_into(network: Network, arrays: Mapping[str, Arrays]) -> None:
    """Raises ValueError where the arrays are not those of such a module."""
    normalizer: Mapping[str, Any] = arrays.get("normalizer", {})
    if bool(normalizer) != (network.normalizer is not None):
        raise ValueError(f"the checkpoint is of a network with{'' if normalizer else 'out'} normalised observations")
    try:
        network.module.load_state_dict(arrays["policy"])
        if network.normalizer is not None:
            network.normalizer.load_state_dict(normalizer)
    except RuntimeError as error:
        raise ValueError(f"the checkpoint is not of this {network.name}: {error}") from None


def _require_averages(averages: Mapping[int, Arrays], config: Mapping[str, Any]) -> None:
    """Raises Error where some are missing that the optimiser of these options goes on from."""
    kept = _averages_of(config)
    for saved in averages.values():
        if not kept <= set(saved):
            raise Error(
                f"cannot resume with optimizer={config['optimizer']!r}, which keeps {', '.join(sorted(kept))}: the checkpoint has "
                f"{', '.join(sorted(saved))}, of another one. Give the optimizer= that the run was trained with"
            )


def _averages_of(config: Mapping[str, Any]) -> set[str]:
    """What the optimiser of these options keeps of each parameter, by its names."""
    parameter = torch.nn.Parameter(torch.zeros(1))
    parameter.grad = torch.zeros(1)
    optimizer = make_optimizer([parameter], config)
    optimizer.step()
    return set(optimizer.state[parameter])


def _tensors(state: Mapping[str, Any]) -> Arrays:
    for name, value in state.items():
        if not isinstance(value, torch.Tensor):
            raise TypeError(
                f"the module's state_dict() has {name!r}, a {type(value).__name__}: a checkpoint keeps tensors; make it a buffer"
            )
    return dict(state)
