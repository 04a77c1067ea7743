"""An environment of TorchRL in a worker, in a place where Shoal's engine steps one of Gymnasium's."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Sequence
from multiprocessing.synchronize import Lock
from typing import Any

import gymnasium
import numpy as np
import torch
from torchrl.envs import EnvBase
from torchrl.envs.batched_envs import BatchedEnvBase
from torchrl.envs.env_creator import EnvMetaData

from shoal.compat.torchrl.buffers import Buffer, event_of, finish_writes, rebuilt
from shoal.compat.torchrl.gym_steps import GymSteps
from shoal.vector.worker import EnvGroup

__all__ = ["NOTHING", "STEP", "STEP_AND_MAYBE_RESET", "Slot", "SlotGroup"]

NOTHING, STEP, STEP_AND_MAYBE_RESET = range(3)
"""What a slot is given as its action: what to do with what is in the buffer."""

_ROW = np.zeros(1, np.uint8)
_SEEDS = 2**32 - 1
"""TorchRL's own are below it."""


class Slot:
    """What the engine steps. All that an environment takes and gives lies in its buffer; where it has none, it comes and goes by
    messages."""

    metadata: dict[str, Any] = {}
    render_mode = None
    spec = None
    observation_space = gymnasium.spaces.Box(0, 255, (1,), np.uint8)
    action_space = gymnasium.spaces.Discrete(3)
    _seeded_torch = False  # of this process, whose slots draw from one generator

    def __init__(self, make_env: Any, kwargs: dict[str, Any], threads: int | None, buffer: Buffer | None) -> None:
        if threads is not None:
            torch.set_num_threads(threads)
        self.env = make_env(**kwargs)
        if not isinstance(self.env, EnvBase):
            raise TypeError(
                f"its function must return an environment of TorchRL; {make_env!r} returned "
                f"{'None' if self.env is None else 'a ' + type(self.env).__name__}"
            )
        self.env.set_spec_lock_()
        self._buffer = buffer
        self._steps: GymSteps | None = None
        self._event = None
        if buffer is not None:
            shared = rebuilt(buffer.portrait)
            self._next = shared.get("next")
            self._root = shared.exclude("next")
            self._shared = shared
            self._event = event_of(shared)
            self._steps = GymSteps.of(self.env, self._root, self._next)

    @torch.no_grad()
    def step(self, order: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if order == STEP_AND_MAYBE_RESET:
            self._step_and_maybe_reset({})
        elif order == STEP:
            self._step({})
        finish_writes(self._event)
        return _ROW, 0.0, False, False, {}

    @torch.no_grad()
    def reset(self, *, seed: int | None = None, **_: Any) -> tuple[Any, dict[str, Any]]:
        """The first of an environment that is in the place of a lost one."""
        if self._buffer is not None:
            if seed is not None:
                self._set_seed(seed % _SEEDS, False, torch_too=not Slot._seeded_torch)
            self._reset(False, {})
            finish_writes(self._event)
        return _ROW, {}

    def close(self) -> None:
        self.env.close(raise_if_closed=False)

    @torch.no_grad()
    def answer(self, command: Any, data: Any) -> Any:
        """What TorchRL's own worker answers to a message; None where it only signals."""
        if command == "metadata":
            BatchedEnvBase._validate_worker_env(self.env)
            return EnvMetaData.metadata_from_env(self.env)
        if command == "seed":
            return "seeded", self._set_seed(*data)
        if command == "state_dict":
            return "state_dict", _without_locks(self.env.state_dict())
        if command == "load_state_dict":
            self.env.load_state_dict(data)
            return None
        if command == "set_env_snapshot":
            return self._take_snapshot(data)
        if command in ("reset", "step", "step_and_maybe_reset"):
            if self._buffer is not None:
                method = getattr(self, f"_{command}")
                answer = method(*data) if command == "reset" else method(data)
                finish_writes(self._event)
                return answer
            return getattr(self, f"_{command}_alone")(data)
        return self._dispatched(command, *data)

    def _set_seed(self, seed: Any, is_static: bool, torch_too: bool = True) -> Any:
        """The next seed."""
        if self._buffer is not None and torch_too:
            torch.manual_seed(seed)
            Slot._seeded_torch = True
        return self.env.set_seed(seed, static_seed=is_static)

    # With a buffer: as TorchRL's worker does with its shared TensorDict.

    def _reset(self, keys: Any, kwargs: dict[str, Any]) -> Any:
        if self._steps is not None and not keys:
            self._steps.reset(kwargs)
            return None
        assert self._buffer is not None
        given = self._root.select(*keys, strict=False) if keys else None
        current = self.env.reset(tensordict=given, **kwargs)
        self._shared.update_(current, keys_to_update=self._buffer.reset_keys)
        return self._non_tensors(current)

    def _step(self, data: dict[str, Any]) -> Any:
        if self._steps is not None and not data:
            self._steps.step()
            return None
        given = self._with(self._root.copy(), data)
        given = self.env.step(given)
        following = given.get("next")
        self._next.update_(following)
        self._root.update_(self.env._step_mdp(given))
        return self._non_tensors(following)

    def _step_and_maybe_reset(self, data: dict[str, Any]) -> Any:
        if self._steps is not None and not data:
            self._steps.step_and_maybe_reset()
            return None
        # A copy: otherwise a StepCounter finds the done that this very step writes.
        td, root = self.env.step_and_maybe_reset(self._with(self._root.copy(), data))
        following = td.pop("next")
        self._next.update_(following)
        self._root.update_(root)
        assert self._buffer is not None
        if not self._buffer.non_tensor_keys:
            return None
        both = root.select(*self._buffer.non_tensor_keys)
        both.set("next", following.select(*self._buffer.non_tensor_keys))
        return "non_tensor", both

    def _with(self, given: Any, data: dict[str, Any]) -> Any:
        """The input of a step, with what the caller has for it beside the buffer."""
        keys = data.get("next_td_passthrough_keys")
        if keys is not None:
            given = given.set("next", self._next.select(*keys))
        if data.get("non_tensor_data") is not None:
            given.update(data["non_tensor_data"])
        return given

    def _non_tensors(self, td: Any) -> Any:
        assert self._buffer is not None
        if not self._buffer.non_tensor_keys:
            return None
        return "non_tensor", td.select(*self._buffer.non_tensor_keys, strict=False)

    # Without: TensorDicts come and go whole.

    def _reset_alone(self, data: Any) -> Any:
        td, kwargs = data
        return self.env.reset(tensordict=None if td is None else td.unlock_(), **kwargs)

    def _step_alone(self, td: Any) -> Any:
        return self.env._step(td)

    def _step_and_maybe_reset_alone(self, data: Any) -> Any:
        td, place = data
        return self.env.step_and_maybe_reset(td[place])

    def _take_snapshot(self, source: Any) -> tuple[str, str | None]:
        try:
            self.env[slice(None)] = source
        except (TypeError, NotImplementedError, AttributeError) as error:
            kind = type(self.env).__name__
            return "set_env_snapshot_error", f"Env workers of type {kind} do not support snapshot writeback: {error}"
        return "set_env_snapshot_done", None

    def _dispatched(self, name: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[str, Any]:
        path = name if isinstance(name, tuple | list) else (name,)
        try:
            value = functools.reduce(getattr, path, self.env)
            if callable(value):
                own = [argument for argument in args if not (isinstance(argument, str) and argument == "_self")]
                value = value(*own, **kwargs)
        except Exception as error:
            raise AttributeError(f"querying {name} from env resulted in an error.") from error
        return f"{'_'.join(path)}_done", None if name == "to" else value


class SlotGroup(EnvGroup):
    """The environments of one worker of a ParallelEnv."""

    def answer(self, messages: dict[int, tuple[Any, Any]]) -> list[Any]:
        """Of the environments that are named, in their order."""
        return [self._each(i - self.first, _answer, *message) for i, message in sorted(messages.items())]


def _answer(slot: Slot, command: Any, data: Any) -> Any:
    return slot.answer(command, data)


def _without_locks(state: OrderedDict[str, Any]) -> OrderedDict[str, Any]:
    return OrderedDict(
        (key, _without_locks(part) if isinstance(part, OrderedDict) else None if isinstance(part, Lock) else part)
        for key, part in state.items()
    )
