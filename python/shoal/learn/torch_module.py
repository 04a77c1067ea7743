"""The same policy as a torch.nn.Module. The arrays of a checkpoint's policy.safetensors have its state_dict's names, so
they load into it, or into anything like it, by `module.load_state_dict(safetensors.torch.load_file(path))`."""

from __future__ import annotations

import json
from collections.abc import MutableMapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from shoal.learn.encoding import (
    NATURE_CONVOLUTIONS,
    NATURE_FEATURES,
    VARIANCE_FLOOR,
    choices,
    dense_size,
    image_order,
    image_shape,
    is_normalized,
    module_name,
    numel,
)
from shoal.learn.spaces import Leaf, leaves
from shoal.runs import checkpoint_dir, is_of_module

__all__ = ["TorchPolicy", "torch_policy"]

_ACTIVATIONS = {"tanh": nn.Tanh, "relu": nn.ReLU}


def torch_policy(run_dir: str | Path, which: str | None = None) -> TorchPolicy:
    """The policy of a run (as `load_policy`), as a torch module in evaluation mode."""
    from safetensors.torch import load_file

    directory = checkpoint_dir(run_dir, which)
    if is_of_module(directory):
        raise ValueError(f"{run_dir} trained a module of its own: shoal.learn.load_policy(…).module is it")
    state = json.loads((directory / "state.json").read_text())
    policy = TorchPolicy(state["observation_space"], state["action_space"], state["config"])
    policy.load_state_dict(load_file(directory / "policy.safetensors"))
    return policy.eval()


class TorchPolicy(nn.Module):
    """Actor and critic, the observation normaliser included; of DQN the Q-network, of SAC the actor.

    `forward` takes raw observations as tensors, rows of a batch: one tensor, or a dict or tuple of tensors for such
    spaces. A single observation is a row by `observation[None]`; another shape is a ValueError. It gives the actor's output
    (logits of all components concatenated, or means) and the values. Of DQN: the value of each action, and the best one's. Of
    SAC: means and logarithms of standard deviations before the tanh, concatenated, and NaN: it has no values.

    Of recurrent PPO, `forward` and `predict` also take what the policy remembers of each row's episode, float32 [rows, …], None
    where episodes begin; and give, last, what it remembers after the step.
    """

    def __init__(self, observation_space: dict[str, Any], action_space: dict[str, Any], config: dict[str, Any]) -> None:
        super().__init__()
        self._leaves = list(leaves(observation_space))
        dense = sum(map(dense_size, self._leaves))
        images = [leaf for leaf in self._leaves if image_order(leaf) is not None]
        normalized = sum(dense_size(leaf) for leaf in self._leaves if is_normalized(leaf))
        if config["normalize_obs"] and normalized:
            self.normalizer = nn.ModuleDict({"obs": _Moments(normalized, config["clip_obs"])})
        self._has_normalizer = config["normalize_obs"] and normalized > 0
        self._pixel_mean = config.get("pixel_mean", 0.0)
        if images:
            self.cnn = _Pictures({module_name(leaf): _nature_cnn(image_shape(leaf)) for leaf in images})
        width = dense + NATURE_FEATURES * len(images)
        activation = _ACTIVATIONS[config["activation"]]
        (self._action,) = leaves(action_space)
        self.is_continuous = action_space["type"] == "Box"
        self.choices = [] if self.is_continuous else choices(self._action)
        outputs = numel(self._action.shape) if self.is_continuous else sum(self.choices)
        self._algorithm = config.get("algorithm", "ppo")
        self._is_recurrent = self._algorithm == "recurrent_ppo"
        self._exploration = config.get("exploration_final", 0.0)
        if self._algorithm == "dqn":
            self._add_q_network(width, config, outputs, activation)
        elif self._algorithm == "sac":
            self.actor = _mlp(width, config["policy_hidden"], 2 * outputs, activation)
        else:
            self._add_actor_critic(width, config, outputs, activation)

    def _add_actor_critic(self, width: int, config: dict[str, Any], outputs: int, activation: type[nn.Module]) -> None:
        if self._is_recurrent:
            self._lstm_names = ["lstm"] if config["shared_lstm"] else ["actor_lstm", "critic_lstm"]
            for name in self._lstm_names:
                self.add_module(name, nn.LSTM(width, config["lstm_size"]))
            width = self._lstm_size = config["lstm_size"]
        policy_hidden, value_hidden = config["policy_hidden"], config["value_hidden"]
        self._has_trunk = bool(config["shared_hidden"] and policy_hidden)
        if self._has_trunk:
            self.trunk = _mlp(width, policy_hidden, None, activation)
            width, policy_hidden, value_hidden = policy_hidden[-1], [], []
        self.actor = _mlp(width, policy_hidden, outputs, activation)
        self.critic = _mlp(width, value_hidden, 1, activation)
        if self.is_continuous:
            self.log_std = nn.Parameter(torch.zeros(outputs))

    def _add_q_network(self, width: int, config: dict[str, Any], outputs: int, activation: type[nn.Module]) -> None:
        hidden = config["policy_hidden"]
        self._is_dueling = config["dueling"]
        if not self._is_dueling:
            self.q = _mlp(width, hidden, outputs, activation)
            return
        shared, own = hidden[:-1], hidden[-1:]  # the streams take over the last hidden layer
        self.trunk = _mlp(width, shared, None, activation)
        width = shared[-1] if shared else width
        self.value = _mlp(width, own, 1, activation)
        self.advantage = _mlp(width, own, outputs, activation)

    def forward(self, observation: Any, memory: torch.Tensor | None = None) -> tuple[torch.Tensor, ...]:
        features = self._features(observation)
        if self._is_recurrent:
            remembered, after = self._remembered(features, memory)
            return self.actor(remembered[0]), self.critic(remembered[-1]).squeeze(-1), after
        if self._algorithm == "dqn":
            q = self._q_values(features)
            return q, q.max(-1).values
        if self._algorithm == "sac":
            head = self.actor(features)
            return head, torch.full(head.shape[:-1], torch.nan)
        if self._has_trunk:
            features = self.trunk(features)
        return self.actor(features), self.critic(features).squeeze(-1)

    def _remembered(
        self, features: torch.Tensor, memory: torch.Tensor | None
    ) -> tuple[list[torch.Tensor], torch.Tensor]:
        """The outputs of each LSTM, and what they remember after them."""
        lstms = [self.get_submodule(name) for name in self._lstm_names]
        if memory is None:
            memory = features.new_zeros(len(features), 2 * self._lstm_size * len(lstms))
        outputs: list[torch.Tensor] = []
        after: list[torch.Tensor] = []
        for lstm, part in zip(lstms, memory.chunk(len(lstms), dim=-1), strict=True):
            state = tuple(half[None].contiguous() for half in part.chunk(2, dim=-1))
            output, state = lstm(features[None], state)
            outputs.append(output[0])
            after += [state[0][0], state[1][0]]
        return outputs, torch.cat(after, dim=-1)

    def _q_values(self, features: torch.Tensor) -> torch.Tensor:
        if not self._is_dueling:
            plain: torch.Tensor = self.q(features)
            return plain
        features = self.trunk(features)
        advantage: torch.Tensor = self.advantage(features)
        value: torch.Tensor = self.value(features)
        return value + advantage - advantage.mean(-1, keepdim=True)

    def distribution(self, observation: Any, memory: torch.Tensor | None = None) -> Any:
        """Of the actions: Independent(Normal) for a Box (before it is clipped to the bounds), else a list of
        Categoricals, one a component, counted from the space's start. Of DQN: one Categorical, as it explores at the end of
        training. Of SAC: the Normal through tanh and the scale of the bounds."""
        head = self(observation, memory)[0]
        if self._algorithm == "dqn":
            best = nn.functional.one_hot(head.argmax(-1), head.shape[-1])
            share = self._exploration
            return [torch.distributions.Categorical(probs=share / head.shape[-1] + (1 - share) * best)]
        if self._algorithm == "sac":
            return self._squashed(head)
        if self.is_continuous:
            return torch.distributions.Independent(torch.distributions.Normal(head, self.log_std.exp()), 1)
        return [torch.distributions.Categorical(logits=part) for part in head.split(self.choices, dim=-1)]

    def _squashed(self, head: torch.Tensor) -> Any:
        mean, log_std = head.chunk(2, dim=-1)
        low, high = self._bounds()
        inner = torch.distributions.Normal(mean, log_std.clamp(-20, 2).exp())
        through = [
            torch.distributions.TanhTransform(cache_size=1),
            torch.distributions.AffineTransform((high + low) / 2, (high - low) / 2),
        ]
        return torch.distributions.Independent(torch.distributions.TransformedDistribution(inner, through), 1)

    def _bounds(self, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
        low, high = (
            torch.tensor([float(bound) for bound in self._action.description[name]], dtype=dtype)
            for name in ("low", "high")
        )
        return low, high

    @torch.no_grad()
    def predict(self, observation: Any, memory: torch.Tensor | None = None) -> Any:
        """The deterministic actions for a batch, as the environment takes them; of recurrent PPO, what it remembers, too."""
        return self.best_actions(observation, memory)

    def best_actions(self, observation: Any, memory: torch.Tensor | None = None) -> Any:
        """As predict(), and gradients are the caller's matter: what torch.export takes in every release."""
        head, _, *after = self(observation, memory)
        actions = self._actions(head)
        return (actions, *after) if after else actions

    def _actions(self, head: torch.Tensor) -> torch.Tensor:
        description, shape = self._action.description, self._action.shape
        dtype = getattr(torch, self._action.dtype.name)
        if self.is_continuous:
            if self._algorithm == "sac":
                low, high = self._bounds()
                head = low + (head.chunk(2, dim=-1)[0].tanh() + 1) / 2 * (high - low)
            low, high = self._bounds(torch.float64)
            bounded = torch.maximum(torch.minimum(head.double(), high), low).reshape(-1, *shape)
            return (bounded.round() if self._action.dtype.kind in "iu" else bounded).to(dtype)
        best = torch.stack([part.argmax(-1) for part in head.split(self.choices, dim=-1)], dim=-1)
        start = description.get("start", 0)
        first = start if isinstance(start, int) else torch.as_tensor(start).reshape(-1)
        actions: torch.Tensor = best + first
        return actions.reshape(-1, *shape).to(dtype)

    def _features(self, observation: Any) -> torch.Tensor:
        dense, images = [], []
        offset = 0
        for leaf in self._leaves:
            value = torch.as_tensor(leaf.pick(observation))
            _require_rows(leaf, value)
            if image_order(leaf) is not None:
                value = value.reshape(-1, *leaf.shape[-3:])
                if image_order(leaf) == "last":
                    value = value.permute(0, 3, 1, 2)
                value = value.reshape(-1, *image_shape(leaf))
                images.append(self.cnn.of(module_name(leaf))(value.float() / 255 - self._pixel_mean))
            else:
                flat = _dense(leaf, value)
                if self._has_normalizer and is_normalized(leaf):
                    flat = self.normalizer["obs"](flat, offset)
                    offset += flat.shape[-1]
                dense.append(flat)
        return torch.cat([*dense, *images], dim=-1)


def _require_rows(leaf: Leaf, value: torch.Tensor) -> None:
    shape = tuple(value.shape)
    if len(shape) == len(leaf.shape) + 1 and shape[1:] == leaf.shape:
        return
    rows = f"({', '.join(map(str, ('n', *leaf.shape)))}{'' if leaf.shape else ','})"
    text = f"{leaf.called} has shape {shape}; this module takes a batch, n rows of shape {rows}"
    if shape == leaf.shape:
        text += f". One alone is a row by {'array' if leaf.keys else 'observation'}[None]"
        text += ", of each array of the observation" if leaf.keys else ""
        text += "; shoal.learn.load_policy(…).predict() takes one as it is, too"
    raise ValueError(text)


class _Pictures(nn.ModuleDict):
    """The networks of pictures, by their names in a checkpoint. One that is called as an attribute of every module, as "type", is
    a submodule of a longer name, which load_state_dict() finds."""

    def __init__(self, networks: dict[str, nn.Module]) -> None:
        super().__init__()
        self._renamed: dict[str, str] = {}
        for name, network in networks.items():
            key = name
            while hasattr(self, key) or (key != name and key in networks):
                key += "_"
            if key != name:
                self._renamed[name] = key
            self[key] = network
        self.register_load_state_dict_pre_hook(_rename)  # type: ignore[no-untyped-call]  # torch has no types for it

    def of(self, name: str) -> nn.Module:
        return self[self._renamed.get(name, name)]


def _rename(pictures: _Pictures, state: MutableMapping[str, Any], prefix: str, *_: Any) -> None:
    """The arrays of a checkpoint, as the submodules are called."""
    for name, key in pictures._renamed.items():
        of_name = f"{prefix}{name}."
        for path in [path for path in state if path.startswith(of_name)]:
            state[f"{prefix}{key}.{path.removeprefix(of_name)}"] = state.pop(path)


class _Moments(nn.Module):
    """Running moments, and what they do to observations."""

    mean: torch.Tensor
    var: torch.Tensor

    def __init__(self, size: int, clip: float) -> None:
        super().__init__()
        self._clip = clip
        self.register_buffer("mean", torch.zeros(size, dtype=torch.float64))
        self.register_buffer("var", torch.ones(size, dtype=torch.float64))
        self.register_buffer("count", torch.zeros(1, dtype=torch.float64))

    def forward(self, values: torch.Tensor, offset: int) -> torch.Tensor:
        part = slice(offset, offset + values.shape[-1])
        normal = (values.double() - self.mean[part]) / torch.sqrt(self.var[part] + VARIANCE_FLOOR)
        return normal.clamp(-self._clip, self._clip).float()


def _mlp(width: int, hidden: Sequence[int], outputs: int | None, activation: type[nn.Module]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for size in hidden:
        layers += [nn.Linear(width, size), activation()]
        width = size
    if outputs is not None:
        layers.append(nn.Linear(width, outputs))
    return nn.Sequential(*layers)


def _nature_cnn(shape: Sequence[int]) -> nn.Sequential:
    """Mnih et al., 2015."""
    channels, height, width = shape
    layers: list[nn.Module] = []
    for out, kernel, stride in NATURE_CONVOLUTIONS:
        layers += [nn.Conv2d(channels, out, kernel, stride), nn.ReLU()]
        channels, height, width = out, (height - kernel) // stride + 1, (width - kernel) // stride + 1
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels * height * width, NATURE_FEATURES), nn.ReLU())


def _dense(leaf: Leaf, value: torch.Tensor) -> torch.Tensor:
    """[rows, elements], as float32."""
    rows = value.shape[0]
    if leaf.description["type"] in ("Discrete", "MultiDiscrete"):
        sizes = choices(leaf)
        start = torch.as_tensor(leaf.description["start"]).reshape(-1)
        index = value.reshape(rows, len(sizes)) - start
        parts = [nn.functional.one_hot(index[:, i], n) for i, n in enumerate(sizes)]
        return torch.cat(parts, dim=-1).float()
    flat = value.reshape(rows, numel(leaf.shape)).float()
    return flat / 255 if leaf.dtype == "uint8" else flat
