"""A user's module as learners use it: what it must have, checked where it is used. The guide's page "Networks of your own" describes it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import nn

from shoal.collect.answers import parts_of
from shoal.learn.modules.moments import ObsNormalizer
from shoal.learn.modules.seeds import For, begin_at, derived, drawing_from
from shoal.learn.spaces import description_of, leaves
from shoal.serve.modes import switch
from shoal.serve.structure import tree_map
from shoal.vector.import_paths import Kind

__all__ = [
    "Evaluated",
    "Network",
    "RecurrentNetwork",
    "check_policy",
    "module_of",
    "network_of",
    "path_of",
    "policy_at",
]

GUIDE = 'the guide\'s page "Networks of your own"'
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

    Attributes:
        is_recurrent: whether it is a RecurrentNetwork.
    """

    is_recurrent = False

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
        self._schedule: tuple[int, int] | None = None
        self._calls = 0
        self._replayed: list[torch.Tensor] = []

    @property
    def name(self) -> str:
        return type(self.module).__name__

    def train(self, mode: bool = True) -> Network:
        """As any module's, but for parts that cannot be switched, such as a frozen encoder of torch.export."""
        self.training = mode
        for part in self.children():
            switch(part, mode)
        return self

    def forward(self, obs: Any) -> Any:
        """What module() gives: actions, log-probabilities, values.

        Raises:
            TypeError: where one of them is missing.
        """
        self._follow_schedule()
        if self._replayed:
            return self._answer_of_replay()
        self._begin_draws()
        with _naming_what_is_not_finite(obs):
            return self._complete(self.module(self.seen(obs)))

    def _answer_of_replay(self) -> dict[str, torch.Tensor]:
        action = self._replayed.pop()
        return {"action": action, "log_prob": torch.zeros(len(action)), "value": torch.zeros(len(action))}

    def _begin_draws(self) -> bool:
        """Whether this is the first call since draw_from()."""
        if self._seed is None:
            return False
        begin_at(self._seed)
        self._seed = None
        return True

    def _complete(self, answer: Any, *more: str) -> dict[str, Any]:
        """What the module answered, by name; TypeError where something is missing."""
        given = parts_of(answer)
        missing = [name for name in ("action", "log_prob", "value", *more) if name not in given]
        if missing:
            raise TypeError(
                f"forward() of {self.name} gave no {' and no '.join(missing)}: training needs "
                + (
                    "a dict of action, log_prob, value and state"
                    if more
                    else "(action, log_prob, value), or a dict of these"
                )
                + f"; {GUIDE} has an example"
            )
        return given

    def draw_from(self, seed: int) -> None:
        """What the next call draws from global generators, and those after it, begins at `seed`."""
        self._seed = seed

    def draw_each(self, seed: int, num_steps: int, first: int) -> None:
        """As draw_from() before each num_steps calls, those of replay() counted, with seeds that follow from `seed` and from how
        many rollouts there were before: `first` at the first call."""
        self._schedule, self._calls = (seed, num_steps), first * num_steps

    def _follow_schedule(self) -> None:
        if self._schedule is not None:
            seed, num_steps = self._schedule
            if self._calls % num_steps == 0:
                self._seed = derived(seed, For.ACTING, self._calls // num_steps)
            self._calls += 1

    def replay(self, actions: list[torch.Tensor]) -> None:
        """The next calls answer with these actions, one after the other."""
        self._replayed = actions[::-1]

    def seen(self, obs: Any) -> Any:
        """Observations as the module gets them: on its device, normalised."""
        if self.device.type != "cpu":
            obs = tree_map(lambda tensor: tensor.to(self.device, non_blocking=True), obs)
        return obs if self.normalizer is None else self.normalizer(obs)

    @torch.no_grad()
    def values(self, obs: Any, rows: torch.Tensor, seed: int) -> torch.Tensor:
        """Of the observations that these rows of the last rollout led to, on the CPU.

        Args:
            rows: counted over steps and environments.
            seed: of what forward() draws for them, which is thrown away.
        """
        with drawing_from(seed):
            given = self._complete(self._answer_for(self.seen(obs), rows))["value"]
        self._check("forward", "value", given, (len(rows),))
        value: torch.Tensor = given.float().cpu()
        return value

    def _answer_for(self, seen: Any, rows: torch.Tensor) -> Any:
        return self.module(seen)

    def evaluate(self, obs: Any, action: torch.Tensor) -> Evaluated:
        """Of actions in observations, both as the rollout has them but [rows, …]. `action` is on the device."""
        return self.evaluate_seen(self.seen(obs), action)

    def evaluate_seen(self, obs: Any, action: torch.Tensor) -> Evaluated:
        return self._evaluated(self._call("evaluate_actions", obs, action), (len(action),))

    def _call(self, method: str, *arguments: Any) -> Any:
        return getattr(self.module, method)(*arguments)

    def _evaluated(self, answer: Any, shape: tuple[int, ...]) -> Evaluated:
        if isinstance(answer, tuple) and 2 <= len(answer) <= 3:
            answer = dict(zip(("log_prob", "value", "entropy"), answer, strict=False))
        if not isinstance(answer, Mapping) or "log_prob" not in answer or "value" not in answer:
            raise TypeError(
                f"evaluate_actions() of {self.name} returns (log_prob, value) or (log_prob, value, entropy), or a dict of these; "
                f"got {_described(answer)}"
            )
        for name in ("log_prob", "value", "entropy"):
            if (tensor := answer.get(name)) is not None:
                self._check("evaluate_actions", name, tensor, shape)
        return Evaluated(answer["log_prob"].float(), answer["value"].float(), answer.get("entropy"))

    @torch.no_grad()
    def best(self, obs: Any, deterministic: bool | None, *memory: Any) -> dict[str, Any]:
        """Actions for evaluation: the most probable ones, or samples.

        Args:
            deterministic: None: the most probable ones where the module has mode().
            memory: of a recurrent module, its state and is_first; the answer has the next state.

        Raises:
            TypeError: for True where it has none.
        """
        if deterministic is None:
            deterministic = self.has_mode
        if deterministic and not self.has_mode:
            raise TypeError(
                f"deterministic=True: {self.name} has no mode(observation) that would give its most probable actions; give it "
                "one, or leave deterministic= out to sample"
            )
        answer = (self.module.mode if deterministic else self.module)(self.seen(obs), *memory)  # type: ignore[operator]  # has_mode
        return parts_of(answer)

    @property
    def has_mode(self) -> bool:
        return callable(getattr(self.module, "mode", None))

    def check_agreement(self, again: Evaluated, log_prob: torch.Tensor, value: torch.Tensor) -> None:
        """Raises ValueError where evaluate_actions(), which gave `again`, is of another distribution than forward(), which gave
        the rest."""
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

    def _check(self, method: str, name: str, given: Any, shape: tuple[int, ...]) -> None:
        if not isinstance(given, torch.Tensor) or given.shape != shape:
            raise ValueError(
                f"{method}() of {self.name} gave a {name} of {_described(given)}; here it is a tensor of shape {shape}"
                + (": squeeze its last dimension" if getattr(given, "shape", None) == (*shape, 1) else "")
            )


class RecurrentNetwork(Network):
    """Of a module with an initial_state(): it is called with observations, state, and whether they are an episode's first.

    Attributes:
        begun_with: the state that the last rollout began with.
    """

    is_recurrent = True
    begun_with: Any = None

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._after: list[Any] = []  # the states that the steps of the rollout led to
        self._resumed: Any = None

    def initial_state(self, num_envs: int) -> Any:
        """Raises ValueError where the environments are not the first dimension of its arrays."""
        state = self._call("initial_state", num_envs)

        def leaf(tensor: Any) -> torch.Tensor:
            if not isinstance(tensor, torch.Tensor) or tensor.ndim == 0 or len(tensor) != num_envs:
                raise ValueError(
                    f"initial_state({num_envs}) of {self.name} gave {_described(tensor)}: training takes tensors whose first "
                    "dimension is the environments"
                )
            return tensor.to(self.device)

        return tree_map(leaf, state)

    def state_of(self, leaves_of_state: list[torch.Tensor], num_envs: int) -> Any:
        """The state that has these leaves."""
        rest = iter(leaves_of_state)
        return tree_map(lambda leaf: next(rest).to(leaf), self.initial_state(num_envs))

    def replay(self, actions: list[torch.Tensor], state: Any = None) -> None:
        """The next calls answer with these actions, one after the other, the last one with this state."""
        super().replay(actions)
        self._resumed = state

    def forward(self, obs: Any, state: Any, is_first: torch.Tensor) -> Any:  # type: ignore[override]  # recurrent ones are asked so
        self._follow_schedule()
        if self._replayed:
            answer = self._answer_of_replay()
            return answer | {"state": state if self._replayed or self._resumed is None else self._resumed}
        if self._begin_draws():
            self.begun_with, self._after = state, []
        with _naming_what_is_not_finite(obs):
            given = self._complete(self.module(self.seen(obs), state, is_first.to(self.device)), "state")
        self._after.append(given["state"])
        return given

    @torch.no_grad()
    def follow(self, obs: Any, state: Any, is_first: torch.Tensor, seed: int) -> None:
        """Has been through a rollout that a copy of it has collected, which began with `state`.

        Args:
            seed: of what forward() draws meanwhile, which is thrown away.
        """
        self.begun_with = state = tree_map(lambda leaf: leaf.to(self.device), state)
        seen, is_first, self._after = self.seen(obs), is_first.to(self.device), []
        with drawing_from(seed):
            for t in range(len(is_first)):
                now = tree_map(lambda leaf, t=t: leaf[t], seen)
                state = self._complete(self.module(now, state, is_first[t]), "state")["state"]
                self._after.append(state)

    def _answer_for(self, seen: Any, rows: torch.Tensor) -> Any:
        rows = rows.to(self.device)
        state = tree_map(lambda *leaves: torch.stack(leaves).flatten(0, 1)[rows], *self._after)
        return self.module(seen, state, torch.zeros(len(rows), dtype=torch.bool, device=self.device))

    def evaluate_sequences(self, obs: Any, action: torch.Tensor, state: Any, is_first: torch.Tensor) -> Evaluated:
        """Of [steps, envs, …] that begin with `state`, all on the device and as the module sees them; flattened to rows."""
        answer = self._call("evaluate_actions", obs, action, state, is_first)
        found = self._evaluated(answer, (action.shape[0], action.shape[1]))
        return Evaluated(*(None if tensor is None else tensor.flatten(0, 1) for tensor in found))  # type: ignore[arg-type]  # entropy alone may be None


def network_of(module: nn.Module, observation_space: Any, config: Mapping[str, Any], device: torch.device) -> Network:
    """The network of the kind that the module is."""
    kind = RecurrentNetwork if callable(getattr(module, "initial_state", None)) else Network
    return kind(module, observation_space, config, device)


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
        with drawing_from(derived(seed, For.WEIGHTS)):
            module = make(observation_space, action_space)
        if not isinstance(module, nn.Module):
            raise TypeError(f"policy= made a {type(module).__name__} of the spaces, and no torch.nn.Module")
    check_policy(module)
    return module


def check_policy(module: nn.Module) -> None:
    name = type(module).__name__
    if not callable(getattr(module, "evaluate_actions", None)):
        raise TypeError(
            f"{name} has no evaluate_actions(observation, action), which gives (log_prob, value, entropy) of given actions: training "
            f"needs their gradients; {GUIDE} has an example"
        )
    if not any(parameter.requires_grad for parameter in module.parameters()):
        raise ValueError(f"{name} has no parameter that requires a gradient: there is nothing to train")


def _described(answer: Any) -> str:
    if isinstance(answer, torch.Tensor):
        return f"a tensor of shape {tuple(answer.shape)}"
    if isinstance(answer, Mapping):
        return f"a dict of {sorted(map(str, answer))}"
    if isinstance(answer, tuple):
        return f"a tuple of {len(answer)}"
    return f"a {type(answer).__name__}"


@contextlib.contextmanager
def _naming_what_is_not_finite(obs: Any) -> Iterator[None]:
    """Within, where forward() fails and a row of the observations is not finite, that is what is raised."""
    try:
        yield
    except Exception as error:
        wrong: list[int] = []

        def note(leaf: torch.Tensor) -> None:
            if leaf.is_floating_point():
                wrong.extend((~leaf.reshape(len(leaf), -1).isfinite().all(-1)).nonzero()[:1].flatten().tolist())

        tree_map(note, obs)
        if not wrong:
            raise
        raise ValueError(
            f"observation {wrong[0]} of the batch is not finite, and forward() failed: "
            f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        ) from error
