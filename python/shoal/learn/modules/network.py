"""A user's module as learners use it: what it must have, checked where it is used. docs/guides/own-networks.md describes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from shoal.collect.actors import parts_of
from shoal.learn.modules.moments import ObsNormalizer
from shoal.learn.modules.seeds import For, derived, drawing_from
from shoal.learn.spaces import description_of, leaves
from shoal.serve.structure import tree_map
from shoal.vector.import_paths import Kind

__all__ = ["Evaluated", "Network", "check_policy", "device_of", "module_of", "path_of", "policy_at"]

GUIDE = "docs/guides/own-networks.md"
_KIND = Kind("policy", ("an observation space", "an action space"))
_CLOSE = 1e-2
"""How far the log-probabilities and values that evaluate_actions() gives for a rollout may be from the rollout's own: what
low precision and other sizes of batches do, and no other distribution."""


class Evaluated(NamedTuple):
    """Of given actions, [rows] each; entropy is None where the module gives none."""

    log_prob: torch.Tensor
    value: torch.Tensor
    entropy: torch.Tensor | None


class Network(nn.Module):
    """A module, the normaliser of its observations included.

    Called with observations it acts, as a policy of shoal.Collector.

    Args:
        module: the user's, which is moved to the device and trained where it is.
    """

    def __init__(
        self, module: nn.Module, observation_space: Any, config: Mapping[str, Any], device: torch.device
    ) -> None:
        super().__init__()
        self.module = module.to(device)
        self.normalizer: ObsNormalizer | None = None
        if config["normalize_obs"]:
            self.normalizer = ObsNormalizer(list(leaves(description_of(observation_space))), config["clip_obs"])
            self.normalizer.to(device)
        self.device = device
        self._seed: int | None = None
        self._replayed: list[torch.Tensor] = []

    @property
    def name(self) -> str:
        return type(self.module).__name__

    def forward(self, obs: Any) -> Any:
        """What module() gives: actions, log-probabilities, values.

        Raises:
            TypeError: where one of them is missing.
        """
        if self._replayed:
            action = self._replayed.pop()
            return action, torch.zeros(len(action)), torch.zeros(len(action))
        if self._seed is not None:
            np.random.seed(self._seed)
            torch.default_generator.manual_seed(self._seed)
            self._seed = None
        given = parts_of(self.module(self.seen(obs)))
        missing = [name for name in ("action", "log_prob", "value") if name not in given]
        if missing:
            raise TypeError(
                f"forward() of {self.name} gave no {' and no '.join(missing)}: training needs (action, log_prob, value), or a "
                f"dict of these; {GUIDE} has an example"
            )
        return given

    def draw_from(self, seed: int) -> None:
        """What the next call draws from the CPU's global generators, and those after it, begins at `seed`."""
        self._seed = seed

    def replay(self, actions: list[torch.Tensor]) -> None:
        """The next calls answer with these actions, one after the other."""
        self._replayed = actions[::-1]

    def seen(self, obs: Any) -> Any:
        """Observations as the module gets them: on its device, normalised."""
        if self.device.type != "cpu":
            obs = tree_map(lambda tensor: tensor.to(self.device, non_blocking=True), obs)
        return obs if self.normalizer is None else self.normalizer(obs)

    @torch.no_grad()
    def values(self, obs: Any, rows: int, seed: int) -> torch.Tensor:
        """[rows], on the CPU; what forward() draws for them is `seed`'s, and thrown away."""
        with drawing_from(seed, self.device):
            given = self(obs)["value"]
        self._check("forward", "value", given, rows)
        return given.float().cpu()  # type: ignore[no-any-return]  # a tensor, or _check had raised

    def evaluate(self, obs: Any, action: torch.Tensor) -> Evaluated:
        """Of actions in observations, both as the rollout has them but [rows, …]. `action` is on the device."""
        return self.evaluate_seen(self.seen(obs), action)

    def evaluate_seen(self, obs: Any, action: torch.Tensor) -> Evaluated:
        answer = self.module.evaluate_actions(obs, action)  # type: ignore[operator]  # check_policy() has seen that it is there
        if isinstance(answer, tuple) and 2 <= len(answer) <= 3:
            answer = dict(zip(("log_prob", "value", "entropy"), answer, strict=False))
        if not isinstance(answer, Mapping) or "log_prob" not in answer or "value" not in answer:
            raise TypeError(
                f"evaluate_actions() of {self.name} returns (log_prob, value) or (log_prob, value, entropy), or a dict of these; "
                f"got {_described(answer)}"
            )
        rows = len(action)
        for name in ("log_prob", "value", "entropy"):
            if (tensor := answer.get(name)) is not None:
                self._check("evaluate_actions", name, tensor, rows)
        return Evaluated(answer["log_prob"].float(), answer["value"].float(), answer.get("entropy"))

    @torch.no_grad()
    def best(self, obs: Any, deterministic: bool | None) -> torch.Tensor:
        """Actions for evaluation: the most probable ones, or samples.

        Args:
            deterministic: None: the most probable ones where the module has mode().

        Raises:
            TypeError: for True where it has none.
        """
        if deterministic is None:
            deterministic = self.has_mode
        if not deterministic:
            action = parts_of(self.module(self.seen(obs)))["action"]
        elif self.has_mode:
            action = self.module.mode(self.seen(obs))  # type: ignore[operator]  # it is there
        else:
            raise TypeError(
                f"deterministic=True: {self.name} has no mode(observation) that would give its most probable actions; give it "
                "one, or leave deterministic= out to sample"
            )
        return torch.as_tensor(action).cpu()

    @property
    def has_mode(self) -> bool:
        return callable(getattr(self.module, "mode", None))

    def check_agreement(
        self, obs: Any, action: torch.Tensor, log_prob: torch.Tensor, value: torch.Tensor, seed: int
    ) -> None:
        """Raises ValueError where evaluate_actions() is of another distribution than forward(), whose answers the rest is."""
        with torch.no_grad(), drawing_from(seed, self.device):
            again = self.evaluate(obs, action.to(self.device))
        theirs = {"log_prob": again.log_prob.cpu(), "value": again.value.cpu()}
        for name, own, other in (("log_prob", log_prob, "value"), ("value", value, "log_prob")):
            if torch.allclose(theirs[name], own, rtol=_CLOSE, atol=_CLOSE):
                continue
            if torch.allclose(theirs[other], own, rtol=_CLOSE, atol=_CLOSE):
                raise ValueError(
                    f"evaluate_actions() of {self.name} gave the {name} where the {other} belongs: it returns "
                    "(log_prob, value, entropy), in this order"
                )
            raise ValueError(
                f"evaluate_actions() of {self.name} gave a {name} that is up to {(theirs[name] - own).abs().max():.3g} from what "
                "forward() gave for the same actions: in eval() mode both are of one distribution and one value"
            )

    def weights(self) -> dict[str, torch.Tensor]:
        """Of module and normaliser, copies on the CPU."""
        return {name: value.detach().cpu().clone() for name, value in self.state_dict().items()}

    def spread(self) -> float | None:
        """The mean standard deviation of continuous actions, where the module has a parameter `log_std` for it."""
        log_std = getattr(self.module, "log_std", None)
        return float(log_std.detach().exp().mean()) if isinstance(log_std, torch.Tensor) else None

    def _check(self, method: str, name: str, given: Any, rows: int) -> None:
        if not isinstance(given, torch.Tensor) or given.shape != (rows,):
            raise ValueError(
                f"{method}() of {self.name} gave a {name} of {_described(given)}; of {rows} rows it is a tensor of shape ({rows},)"
                + (": squeeze its last dimension" if getattr(given, "shape", None) == (rows, 1) else "")
            )


def policy_at(policy: Any) -> Any:
    """What the path "package.module:Class" leads to, with its arguments where it has some; what is no path as it is."""
    return _KIND.at(policy) if isinstance(policy, str) else policy


def path_of(policy: Any) -> str | None:
    """What policy_at() finds it by; None where no path leads to it."""
    return None if isinstance(policy, nn.Module) else _KIND.path_of(policy)


def module_of(policy: Any, observation_space: Any, action_space: Any, seed: int) -> nn.Module:
    """The module that is to be trained: `policy` itself, or what it makes of the spaces, with weights that follow from `seed`.

    Raises:
        TypeError: for what is no such thing, or has not what training needs.
    """
    if isinstance(policy, nn.Module):
        module = policy
    else:
        make: Callable[[Any, Any], Any] = policy_at(policy)
        if not callable(make):
            raise TypeError(
                "policy= takes a torch.nn.Module, what makes one of (observation_space, action_space), or its path, "
                f"'package.module:Class'; got {policy!r}"
            )
        with drawing_from(derived(seed, For.WEIGHTS), torch.device("cpu")):
            module = make(observation_space, action_space)
        if not isinstance(module, nn.Module):
            raise TypeError(f"policy= made a {type(module).__name__} of the spaces, and no torch.nn.Module")
    check_policy(module)
    return module


def check_policy(module: nn.Module) -> None:
    name = type(module).__name__
    if callable(getattr(module, "initial_state", None)):
        raise TypeError(
            f"{name} is recurrent: it has an initial_state(). shoal.Collector collects with such modules; train() does not train them"
        )
    if not callable(getattr(module, "evaluate_actions", None)):
        raise TypeError(
            f"{name} has no evaluate_actions(observation, action), which gives (log_prob, value, entropy) of given actions: training "
            f"needs their gradients; {GUIDE} has an example"
        )
    if not any(parameter.requires_grad for parameter in module.parameters()):
        raise ValueError(f"{name} has no parameter that requires a gradient: there is nothing to train")


def device_of(device: Any) -> torch.device:
    """Raises ValueError for a device that torch does not know, or that is not there."""
    try:
        found = torch.device("cpu" if device is None else device)
        torch.empty(0, device=found)
    except Exception as error:  # RuntimeError, AssertionError: as torch was built
        line = str(error).strip().splitlines()[0]
        raise ValueError(f"device={str(device)!r}: {line}; device='cpu' is always there") from None
    return found


def _described(answer: Any) -> str:
    if isinstance(answer, torch.Tensor):
        return f"a tensor of shape {tuple(answer.shape)}"
    if isinstance(answer, Mapping):
        return f"a dict of {sorted(map(str, answer))}"
    if isinstance(answer, tuple):
        return f"a tuple of {len(answer)}"
    return f"a {type(answer).__name__}"
