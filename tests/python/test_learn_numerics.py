"""The arithmetic of the learners in C++ is torch's: networks and their gradients, losses and their derivatives, steps of
optimisers, and all of it one after the other."""

from __future__ import annotations

import json
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from shoal import _learn
from shoal.learn.spaces import description_of

torch = pytest.importorskip("torch")
from shoal.learn.torch_module import TorchPolicy  # noqa: E402  # it imports torch


def box(*shape: int) -> spaces.Box:
    return spaces.Box(-1, 1, shape, np.float32)


def picture(*shape: int) -> spaces.Box:
    return spaces.Box(0, 255, shape, np.uint8)


HEADS_ALONE: dict[str, Any] = {"policy_hidden": [], "value_hidden": []}
NETWORKS: dict[str, tuple[gym.Space[Any], gym.Space[Any], dict[str, Any]]] = {
    "tanh": (box(4), spaces.Discrete(2), {}),
    "relu": (
        box(8),
        spaces.Discrete(4),
        {"policy_hidden": [256, 256], "value_hidden": [256, 256], "activation": "relu"},
    ),
    "odd widths": (box(17), box(3), {"policy_hidden": [50, 31], "value_hidden": [7, 33, 5]}),
    "shared": (box(6), spaces.MultiDiscrete([3, 4]), {"policy_hidden": [48, 40], "shared_hidden": True}),
    "linear": (box(3), box(2), HEADS_ALONE),
    "atari": (picture(4, 84, 84), spaces.Discrete(6), HEADS_ALONE),
    "channels last": (picture(84, 84, 4), spaces.Discrete(6), HEADS_ALONE),
    "gray": (picture(1, 36, 36), spaces.Discrete(3), {"policy_hidden": [32], "value_hidden": [32]}),
    "pictures and numbers": (
        spaces.Dict({"front": picture(3, 41, 54), "rear": picture(36, 44, 2), "speed": box(5)}),
        box(2),
        {"policy_hidden": [24], "shared_hidden": True, "activation": "relu"},
    ),
}


class Both:
    """The same network in C++ and in torch, and observations."""

    def __init__(
        self, network: tuple[gym.Space[Any], gym.Space[Any], dict[str, Any]], rows: int, algorithm: str = "ppo"
    ) -> None:
        observation, action, options = network
        options = {"orthogonal_init": False, **options}  # which takes seconds of the large layers
        self.config = json.loads(_learn.override_config(_learn.preset("sb3", algorithm), json.dumps(options)))
        self.spaces = [description_of(space) for space in (observation, action)]
        self.ours = _learn.NetworkArithmetic(*map(json.dumps, self.spaces), json.dumps(self.config), 3)
        random = np.random.default_rng(4)
        # Heads and biases that matter: their initial values nearly hide mistakes.
        moved = {
            name: (value + 0.02 * random.normal(size=value.shape)).astype(np.float32)
            for name, value in self.ours.weights().items()
        }
        self.ours.load_weights(moved)
        self.torch = TorchPolicy(*self.spaces, self.config)
        self.torch.load_state_dict({name: torch.from_numpy(value.copy()) for name, value in moved.items()})
        self.obs = sample(observation, rows, random)

    def arrays(self) -> list[np.ndarray]:
        """As the leaves of the space come: a Dict's by their names."""
        return [self.obs[name] for name in sorted(self.obs)] if isinstance(self.obs, dict) else [self.obs]


def sample(space: gym.Space[Any], rows: int, random: np.random.Generator) -> Any:
    if isinstance(space, spaces.Dict):
        return {name: sample(part, rows, random) for name, part in space.spaces.items()}
    assert isinstance(space, spaces.Box)
    if space.dtype == np.uint8:
        return random.integers(0, 256, (rows, *space.shape), np.uint8)
    return random.normal(size=(rows, *space.shape)).astype(np.float32)


def distance(ours: np.ndarray, theirs: Any) -> float:
    """Relative to the norm of `theirs`."""
    other = np.asarray(theirs, np.float64)
    return float(np.linalg.norm(ours.astype(np.float64) - other) / np.linalg.norm(other))


@pytest.mark.parametrize("case", NETWORKS)
def test_networks_and_their_gradients_are_those_of_autograd(case: str) -> None:
    rows = 5 if "atari" in case or "channels" in case else 37
    both = Both(NETWORKS[case], rows)
    head, value = both.torch(both.obs)
    ours = both.ours.forward(both.arrays())
    assert distance(ours[0], head.detach()) < 1e-5 and distance(ours[1], value.detach()) < 1e-5

    random = np.random.default_rng(5)
    d_head, d_value = (random.normal(size=shape).astype(np.float32) for shape in (head.shape, value.shape))
    again, gradient = both.ours.differentiate(both.arrays(), d_head, d_value)
    for one, other in zip(again, ours, strict=True):
        np.testing.assert_array_equal(one, other)
    torch.autograd.backward([head, value], [torch.from_numpy(d_head), torch.from_numpy(d_value)])
    for name, parameter in both.torch.named_parameters():
        if name == "log_std":  # losses read it, not the network
            assert parameter.grad is None and not gradient[name].any()
        else:
            assert parameter.grad is not None
            assert distance(gradient[name], parameter.grad) < 1e-5, name
    assert set(gradient) == {name for name, _ in both.torch.named_parameters()}


# --- recurrent networks

RECURRENT: dict[str, tuple[gym.Space[Any], gym.Space[Any], dict[str, Any]]] = {
    "two": (box(4), spaces.Discrete(2), {"lstm_size": 64, "policy_hidden": [64], "value_hidden": [64]}),
    "odd widths": (box(19), box(3), {"lstm_size": 37, "activation": "relu"}),
    "shared": (box(6), spaces.Discrete(3), {**HEADS_ALONE, "lstm_size": 128, "shared_lstm": True}),
    "pictures": (picture(1, 36, 36), spaces.Discrete(3), {**HEADS_ALONE, "lstm_size": 32, "shared_lstm": True}),
}
# Sequences that are not of one length, the longest first, and how many of them have each step.
LENGTHS = [9, 6, 6, 3, 1]
COUNTS = [sum(length > step for length in LENGTHS) for step in range(LENGTHS[0])]


@pytest.mark.parametrize("case", RECURRENT)
def test_gradients_through_time_are_those_of_autograd(case: str) -> None:
    both = Both(RECURRENT[case], sum(LENGTHS), "recurrent_ppo")
    random = np.random.default_rng(6)
    lstms = 1 if RECURRENT[case][2].get("shared_lstm") else 2
    before = (0.5 * random.normal(size=(len(LENGTHS), 2 * lstms * both.config["lstm_size"]))).astype(np.float32)

    memory = torch.from_numpy(before)
    heads, values = [], []
    for rows in np.split(np.arange(sum(COUNTS)), np.cumsum(COUNTS)[:-1]):
        head, value, memory = both.torch(both.obs[rows], memory[: len(rows)])
        heads.append(head)
        values.append(value)
    head, value = torch.cat(heads), torch.cat(values)
    d_head, d_value = (random.normal(size=shape).astype(np.float32) for shape in (head.shape, value.shape))
    ours, gradient = both.ours.differentiate(both.arrays(), d_head, d_value, COUNTS, before)
    assert distance(ours[0], head.detach()) < 1e-5 and distance(ours[1], value.detach()) < 1e-5
    torch.autograd.backward([head, value], [torch.from_numpy(d_head), torch.from_numpy(d_value)])
    for name, parameter in both.torch.named_parameters():
        if name != "log_std":
            assert parameter.grad is not None
            assert distance(gradient[name], parameter.grad) < 1e-5, name


def test_sequences_that_do_not_fit_are_refused() -> None:
    both = Both(RECURRENT["two"], 3, "recurrent_ppo")
    d_head, d_value, memory = (np.zeros(shape, np.float32) for shape in ((3, 2), 3, (2, 256)))
    for counts, before in (([2, 1], memory[:1]), ([1, 2], memory[:1]), ([2], memory), ([], None)):
        with pytest.raises(ValueError, match="sequences"):
            both.ours.differentiate(both.arrays(), d_head, d_value, counts, before)


# --- losses

ACTIONS: dict[str, gym.Space[Any]] = {
    "categorical": spaces.Discrete(5),
    "multi-categorical": spaces.MultiDiscrete([3, 2, 4]),
    "gaussian": box(3),
}
LOSSES: dict[str, dict[str, Any]] = {
    "ppo": {"algorithm": "ppo", "clip_range": 0.1, "value_coef": 0.25, "entropy_coef": 0.03},
    "ppo, clipped values": {"algorithm": "ppo", "clip_range_value": 0.3, "entropy_coef": 0.01},
    "ppo, the other clip": {"algorithm": "ppo", "clip_range_value": 0.3, "pessimistic_value_clip": False},
    "a2c": {"algorithm": "a2c", "value_coef": 0.25, "entropy_coef": 0.03},
}


class LossRows:
    """Random rows, some of them far from the old policy, so that every branch of a loss is taken."""

    def __init__(self, action: gym.Space[Any], count: int, head: torch.Tensor | None = None) -> None:
        random = torch.Generator().manual_seed(8)

        def normal(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, generator=random)

        self.choices = [int(n) for n in np.atleast_1d(getattr(action, "nvec", getattr(action, "n", [])))]
        width = sum(self.choices) or int(np.prod(action.shape or ()))
        self.head = 2 * normal(count, width) if head is None else head
        self.log_std = 0.5 * normal(0 if self.choices else width)
        self.value, self.old_value, self.advantage, self.returns = (normal(count) for _ in range(4))
        if self.choices:
            drawn = [torch.randint(n, (count,), generator=random) for n in self.choices]
            self.actions = torch.stack(drawn, dim=1).int()
        else:
            self.actions = self.head.detach() + self.log_std.exp() * normal(count, width)
        log_prob, _ = self.distribution(self.head.detach(), self.log_std)
        self.old_logp = (log_prob + 0.3 * normal(count)).float()

    def distribution(self, head: torch.Tensor, log_std: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The log-probabilities of the actions, and the entropies."""
        if not self.choices:
            normal = torch.distributions.Normal(head, log_std.exp().expand_as(head))
            return normal.log_prob(self.actions).sum(1), normal.entropy().sum(1)
        parts = [torch.distributions.Categorical(logits=part) for part in head.split(self.choices, dim=1)]
        log_prob = sum(part.log_prob(self.actions[:, k]) for k, part in enumerate(parts))
        return log_prob, sum(part.entropy() for part in parts)

    def arrays(self) -> list[np.ndarray]:
        """As loss_and_derivatives takes them."""
        given = (self.head, self.value, self.log_std, self.actions)
        given += (self.old_logp, self.old_value, self.advantage, self.returns)
        return [tensor.detach().numpy() for tensor in given]


def loss_by_torch(
    rows: LossRows, config: dict[str, Any], head: torch.Tensor, value: torch.Tensor, log_std: torch.Tensor
) -> dict[str, torch.Tensor]:
    log_prob, entropy = rows.distribution(head, log_std)
    advantage, returns = rows.advantage.to(head.dtype), rows.returns.to(head.dtype)
    error = (value - returns).square()
    if config["algorithm"] == "a2c":
        policy = -(advantage * log_prob)
    else:
        ratio = (log_prob - rows.old_logp).exp()
        clip = config["clip_range"]
        policy = torch.maximum(-advantage * ratio, -advantage * ratio.clamp(1 - clip, 1 + clip))
        if config["clip_range_value"] is not None:
            reach = config["clip_range_value"]
            old = rows.old_value.to(head.dtype)
            clipped = (old + (value - old).clamp(-reach, reach) - returns).square()
            error = torch.maximum(error, clipped) if config["pessimistic_value_clip"] else clipped
    parts = {"policy_loss": policy.mean(), "value_loss": error.mean(), "entropy": entropy.mean()}
    total = parts["policy_loss"] + config["value_coef"] * parts["value_loss"]
    return {**parts, "loss": total - config["entropy_coef"] * parts["entropy"]}


def configured(options: dict[str, Any]) -> dict[str, Any]:
    algorithm = options.get("algorithm", "ppo")
    config: dict[str, Any] = json.loads(_learn.override_config(_learn.preset("sb3", algorithm), json.dumps(options)))
    return config


@pytest.mark.parametrize("actions", ACTIONS)
@pytest.mark.parametrize("case", LOSSES)
def test_losses_and_their_derivatives_are_those_of_autograd(case: str, actions: str) -> None:
    config = configured(LOSSES[case])
    rows = LossRows(ACTIONS[actions], 300)
    ours = _learn.loss_and_derivatives(json.dumps(config), json.dumps(description_of(ACTIONS[actions])), *rows.arrays())
    leaves = [tensor.double().requires_grad_() for tensor in (rows.head, rows.value, rows.log_std)]
    theirs = loss_by_torch(rows, config, *leaves)
    for name, number in theirs.items():
        assert ours[name] == pytest.approx(number.item(), abs=1e-5), name
    derivatives = torch.autograd.grad(theirs["loss"], leaves, allow_unused=True)
    for name, by in zip(("d_head", "d_value", "d_log_std"), derivatives, strict=True):
        if by is not None and by.numel() > 0:
            assert distance(ours[name], by) < 1e-5, name


# --- optimisers


@pytest.mark.parametrize("max_grad_norm", [0.0, 5.0])
@pytest.mark.parametrize("optimizer", ["adam", "rmsprop"])
def test_steps_of_optimisers_are_those_of_torch(optimizer: str, max_grad_norm: float) -> None:
    numbers: dict[str, Any] = {"adam_eps": 1e-5, "adam_beta1": 0.8, "rmsprop_alpha": 0.9, "rmsprop_eps": 1e-3}
    config = configured({"optimizer": optimizer, "max_grad_norm": max_grad_norm, **numbers})
    random = np.random.default_rng(9)
    start = random.normal(size=1003).astype(np.float32)
    gradients = [random.normal(size=1003).astype(np.float32) for _ in range(50)]
    ours = _learn.optimizer_steps(json.dumps(config), start, gradients, 1e-2)
    parameter = torch.from_numpy(start.copy()).requires_grad_()
    theirs: torch.optim.Optimizer
    if optimizer == "adam":
        theirs = torch.optim.Adam([parameter], lr=1e-2, betas=(0.8, 0.999), eps=1e-5)
    else:
        theirs = torch.optim.RMSprop([parameter], lr=1e-2, alpha=0.9, eps=1e-3)
    for gradient in gradients:
        parameter.grad = torch.from_numpy(gradient.copy())
        if max_grad_norm:
            torch.nn.utils.clip_grad_norm_([parameter], max_grad_norm)
        theirs.step()
    assert distance(ours, parameter.detach()) < 1e-5
    assert distance(ours, start) > 0.01


def test_minibatches_of_pictures_move_a_network_as_torch_moves_it() -> None:
    both = Both(NETWORKS["gray"], 64)
    config = configured({"learning_rate": 1e-3, "batch_size": 64, "entropy_coef": 0.01})
    optimizer = torch.optim.Adam(both.torch.parameters(), lr=1e-3, eps=config["adam_eps"])
    names = [name for name, _ in both.torch.named_parameters()]
    start = {name: value.copy() for name, value in both.ours.weights().items()}
    gradients: list[np.ndarray] = []
    rows = LossRows(spaces.Discrete(3), 64, torch.from_numpy(both.ours.forward(both.arrays())[0]))
    for _ in range(5):
        head, value = map(torch.from_numpy, both.ours.forward(both.arrays()))
        rows.head, rows.value = head, value
        ours = _learn.loss_and_derivatives(json.dumps(config), json.dumps(both.spaces[1]), *rows.arrays())
        _, gradient = both.ours.differentiate(both.arrays(), ours["d_head"], ours["d_value"])
        gradients.append(np.concatenate([gradient[name].ravel() for name in names]))
        flat = np.concatenate([start[name].ravel() for name in names])
        moved = np.split(
            _learn.optimizer_steps(json.dumps(config), flat, gradients, 1e-3),
            np.cumsum([start[name].size for name in names])[:-1],
        )
        both.ours.load_weights(dict(zip(names, map(np.ascontiguousarray, moved), strict=True)))

        theirs = loss_by_torch(rows, config, *both.torch(both.obs), rows.log_std)
        optimizer.zero_grad()
        theirs["loss"].backward()
        torch.nn.utils.clip_grad_norm_(both.torch.parameters(), config["max_grad_norm"])
        optimizer.step()
        assert ours["loss"] == pytest.approx(theirs["loss"].item(), rel=1e-4)
    weights = both.ours.weights()
    for name, parameter in both.torch.named_parameters():
        # Adam's first steps are as long for gradients that are rounding alone as for others.
        np.testing.assert_allclose(weights[name], parameter.detach().numpy(), atol=2e-4, err_msg=name)
        assert distance(weights[name] - start[name], parameter.detach().numpy() - start[name]) < 1e-2, name


def test_arrays_that_do_not_fit_are_refused() -> None:
    both = Both(NETWORKS["gray"], 2)
    for wrong in ([], both.arrays() * 2, [both.arrays()[0][:, :, :30]], [both.arrays()[0].astype(np.float32)]):
        with pytest.raises(ValueError, match="lea(f|ves)"):
            both.ours.forward(wrong)
    with pytest.raises(ValueError, match="other sizes"):
        both.ours.differentiate(both.arrays(), np.zeros((3, 3), np.float32), np.zeros(2, np.float32))
    rows = LossRows(spaces.Discrete(3), 4).arrays()
    rows[1] = rows[1][:3]
    with pytest.raises(ValueError, match="same rows"):
        _learn.loss_and_derivatives(json.dumps(both.config), json.dumps(both.spaces[1]), *rows)
    with pytest.raises(ValueError, match="another size"):
        _learn.optimizer_steps(json.dumps(both.config), rows[0].ravel(), [rows[1]], 0.1)
