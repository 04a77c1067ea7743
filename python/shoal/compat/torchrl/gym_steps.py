"""Steps of Gymnasium's environments under a GymEnv, without the TensorDicts that a GymEnv makes of each: rows are written where the
caller reads them. Most of a GymEnv's time goes into these."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from torchrl.data import tensor_specs
from torchrl.envs import GymEnv, GymWrapper

__all__ = ["GymSteps"]

_DONES = ("done", "terminated", "truncated")
_OWN = ("read_action", "read_done", "read_reward", "read_obs", "_step", "_reset", "_compiled_step_and_maybe_reset")
"""What an environment may have beside its class, to be read or stepped in another way."""
_VALUES = (
    tensor_specs.Bounded,
    tensor_specs.BoundedContinuous,
    tensor_specs.BoundedDiscrete,
    tensor_specs.Unbounded,
    tensor_specs.UnboundedContinuous,
    tensor_specs.UnboundedDiscrete,
)
"""Specs whose tensors have the values of the arrays."""


class GymSteps:
    """What a GymEnv's own step, reset and step_and_maybe_reset write into a buffer, bit for bit."""

    def __init__(
        self, env: Any, action: tuple[str, np.ndarray], observations: list[str], root: Any, following: Any
    ) -> None:
        self._env = env
        kind, self._action = action
        self._is_one_hot, self._is_int = kind == "one-hot", kind == "int"
        self._names = observations
        self._roots = {name: root.get(name).numpy() for name in observations}
        self._nexts = {name: following.get(name).numpy() for name in observations}
        self._single = len(observations) == 1 and not isinstance(env._env.observation_space, gymnasium.spaces.Dict)
        self._reward = following.get("reward").numpy()
        self._root_dones = [root.get(name).numpy() for name in _DONES]
        self._next_dones = [following.get(name).numpy() for name in _DONES]

    @classmethod
    def of(cls, env: Any, root: Any, following: Any) -> GymSteps | None:
        """None for environments that are stepped by their own methods: with transforms, readers of infos, readers of their own,
        other spaces than Box for observations, or on a device."""
        if type(env) not in (GymEnv, GymWrapper) or tensor_specs._CHECK_SPEC_ENCODE:
            return None
        wrapped = env._env
        if not isinstance(wrapped, gymnasium.Env) or env.batch_size or env.device not in (None, torch.device("cpu")):
            return None
        if (
            env.info_dict_reader
            or env.wrapper_frame_skip != 1
            or not env._convert_actions_to_numpy
            or env.run_type_checks
        ):
            return None
        if any(env.__dict__.get(name) is not None for name in _OWN):
            return None
        names = list(env.observation_spec.keys(True, True))
        space = wrapped.observation_space
        boxes = space.spaces if isinstance(space, gymnasium.spaces.Dict) else {"": space}
        if not all(isinstance(box, gymnasium.spaces.Box) for box in boxes.values()):
            return None
        if len(names) != len(boxes) or not all(isinstance(name, str) for name in names):
            return None
        if not set(root.keys(True, True)) <= {"action", "_reset", *names, *_DONES}:
            return None
        if set(following.keys(True, True)) != {"reward", *names, *_DONES}:
            return None
        if any(type(env.observation_spec[name]) not in _VALUES for name in names):
            return None
        kind = _action_kind(env.full_action_spec["action"]) if list(env.action_keys) == ["action"] else ""
        if not kind or any(td.get(name).device.type != "cpu" for td, name in ((root, "action"), (following, "reward"))):
            return None
        return cls(env, (kind, root.get("action").numpy()), names, root, following)

    def reset(self, kwargs: dict[str, Any]) -> None:
        """A reset of the environment, whose first observation is at the root."""
        obs, _ = self._env._env.reset(**kwargs)
        self._write(obs, self._roots)
        for flag in self._root_dones:
            flag.fill(False)

    def step(self) -> None:
        """A step with the action at the root, whose outcome is under "next", and what a further step needs of it at the root."""
        self._advance()
        for name, row in self._roots.items():
            np.copyto(row, self._nexts[name])
        for flag, own in zip(self._root_dones, self._next_dones, strict=True):
            np.copyto(flag, own)

    def step_and_maybe_reset(self) -> None:
        """The same, and at the root the first observation of the next episode where this one has ended."""
        if self._advance():
            self.reset({})
            return
        for name, row in self._roots.items():
            np.copyto(row, self._nexts[name])
        for flag in self._root_dones:
            flag.fill(False)

    def _advance(self) -> bool:
        """Whether the episode has ended."""
        action = self._action
        given: Any
        if self._is_one_hot:
            given = int(action.argmax())
        else:
            given = int(action.item()) if self._is_int else action.copy()
        obs, reward, terminated, truncated, _ = self._env._env.step(given)
        done = terminated | truncated
        for flag, value in zip(self._next_dones, (done, terminated, truncated), strict=True):
            flag.fill(value)
        if isinstance(reward, float | np.floating):
            self._reward.fill(reward)
        else:
            own = self._env.read_reward(0 if reward is None else 0 + reward)
            np.copyto(self._reward, np.asarray(own).reshape(self._reward.shape))
        self._write(obs, self._nexts)
        return bool(done)

    def _write(self, obs: Any, rows: dict[str, np.ndarray]) -> None:
        if self._single:
            (row,) = rows.values()
            if type(obs) is np.ndarray and obs.shape == row.shape:
                np.copyto(row, obs, casting="unsafe")
                return
        for name, value in self._env.read_obs(obs).items():
            np.copyto(rows[name], np.asarray(value).reshape(rows[name].shape))


def _action_kind(spec: Any) -> str:
    """How an action is read: "one-hot", "int", "array", or nothing where the spec has a way of its own."""
    if type(spec) is tensor_specs.OneHot:
        return "" if spec.use_register or spec.ndim != 1 else "one-hot"
    if type(spec) is tensor_specs.Categorical and spec.shape.numel() == 1:
        return "int"
    return "array" if type(spec) in (*_VALUES, tensor_specs.Categorical) else ""
