"""The environments of one worker of a SubprocVecEnv. Nothing here needs Stable-Baselines3."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium

from shoal.ipc import cloudpickling
from shoal.vector.worker import EnvGroup

__all__ = ["SlotGroup"]


class Slot:
    """In an environment's place for the stepper: the environment's own `step`, and a `reset` with the arguments that
    Stable-Baselines3 gives."""

    def __init__(self, env: Any) -> None:
        self.env = env
        self.observation_space = env.observation_space
        self.action_space = env.action_space
        self.options: dict[str, Any] | None = None  # of the next explicit reset

    @property
    def step(self) -> Any:
        return self.env.step

    def reset(self, **arguments: Any) -> Any:
        if not arguments:  # an episode has ended
            return self.env.reset()
        options, self.options = self.options, None
        if options:
            return self.env.reset(seed=arguments["seed"], options=options)
        return self.env.reset(seed=arguments["seed"])


class SlotGroup(EnvGroup):
    """What a SubprocVecEnv asks of its environments; `at` are their places in this worker, in the order of the answers."""

    def __init__(
        self,
        envs: list[Any],
        first: int,
        factories: Sequence[Callable[[], Any]] = (),
        same_observations: bool = True,
        episode_options: Mapping[str, Any] | None = None,
    ) -> None:
        envs = [_patched(env) for env in envs]
        super().__init__(envs, first, factories, same_observations, episode_options)
        self._slots = [Slot(env) for env in envs]

    def stepped(self) -> list[Any]:
        return list(self._slots)

    def hello(self) -> bytes:
        """Of the first worker: the others' spaces are not looked at, as in the peer."""
        return super().hello() if self.first == 0 else b""

    def rebuild(self, i: int) -> Any:
        self.envs[i] = _patched(super().rebuild(i))
        self._slots[i] = Slot(self.envs[i])
        return self._slots[i]

    def load(self, i: int, state: bytes) -> Any:
        self._slots[i] = Slot(super().load(i, state))
        return self._slots[i]

    def request(self, message: bytes) -> bytes:
        name, arguments = pickle.loads(message)
        answers = getattr(self, name)(*arguments)
        try:
            packed: bytes = cloudpickling.dumps(answers)
        except Exception as error:
            raise self._cannot_leave(name, arguments, answers, error) from error
        return packed

    def set_reset_options(self, options: Sequence[dict[str, Any]]) -> list[Any]:
        """For the next explicit reset, one dict an environment."""
        for slot, own in zip(self._slots, options, strict=True):
            slot.options = own
        return []

    def has(self, at: Sequence[int], name: str) -> list[bool]:
        return [self._each(i, _has, name) for i in at]

    def get(self, at: Sequence[int], name: str) -> list[Any]:
        return [self._each(i, _get, name) for i in at]

    def set(self, at: Sequence[int], name: str, value: Any) -> list[None]:
        return [self._each(i, setattr, name, value) for i in at]

    def call_method(self, at: Sequence[int], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        return [self._each(i, _call, name, args, kwargs) for i in at]

    def is_wrapped(self, at: Sequence[int], kind: Any) -> list[bool]:
        return [self._each(i, _is_wrapped, kind) for i in at]

    def _cannot_leave(self, asked: str, arguments: tuple[Any, ...], answers: list[Any], error: Exception) -> Exception:
        for i, answer in zip(arguments[0], answers, strict=True):
            try:
                cloudpickling.dumps(answer)
            except Exception as cause:
                what = f"{arguments[1]}()" if asked == "call_method" else f"{arguments[1]}"
                return TypeError(
                    f"environment {self.first + i}: {what} is a {type(answer).__name__} that cannot leave its worker "
                    f"process: {cause}. Ask for what you need of it"
                )
        return error


def _patched(env: Any) -> Any:
    """A Gymnasium environment, whatever it was, by Stable-Baselines3's own rules."""
    if isinstance(env, gymnasium.Env):
        return env
    from stable_baselines3.common.vec_env.patch_gym import _patch_env

    return _patch_env(env)


def _get(env: gymnasium.Env, name: str) -> Any:
    return env.get_wrapper_attr(name)


def _has(env: gymnasium.Env, name: str) -> bool:
    try:
        env.get_wrapper_attr(name)
    except AttributeError:
        return False
    return True


def _call(env: gymnasium.Env, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return env.get_wrapper_attr(name)(*args, **kwargs)


def _is_wrapped(env: Any, kind: Any) -> bool:
    kinds = kind if isinstance(kind, tuple) else (kind,)
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, kind) or any(_is_copy(own, one) for own in type(env).__mro__ for one in kinds):
            return True
        env = env.env
    return False


def _is_copy(own: type, kind: Any) -> bool:
    """Whether `kind` came as a copy of `own`: what `__main__` defines travels by value, and a forked worker has it already."""
    return (
        own.__module__ == kind.__module__ == "__main__"
        and own.__qualname__ == kind.__qualname__
        and "<locals>" not in own.__qualname__
    )
