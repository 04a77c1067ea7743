"""The environments of one worker: how they are built, and all that is asked of them beyond reset and step."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any

import cloudpickle

from shoal.vector import infos

__all__ = ["EnvGroup", "build_envs", "run"]

_REQUIRED = ("observation_space", "action_space", "reset", "step")


def build_envs(factories: Sequence[Callable[[], Any]], first: int) -> list[Any]:
    """Calls every factory; `first` is the number of the first environment. Those built are closed if a later one fails."""
    envs: list[Any] = []
    try:
        for factory in factories:
            env = factory()
            _check(env, factory, first + len(envs))
            envs.append(env)
    except BaseException as error:
        if hasattr(error, "add_note"):
            error.add_note(f"environment {first + len(envs)}: while it was built")
        for env in envs:
            env.close()
        raise
    return envs


def _check(env: Any, factory: Callable[[], Any], index: int) -> None:
    missing = [name for name in _REQUIRED if not hasattr(env, name)]
    if missing:
        raise TypeError(
            f"environment {index}: its factory must return a gymnasium.Env; {factory!r} returned "
            f"{'None' if env is None else 'a ' + type(env).__name__}, which has no {missing[0]!r}"
        )
    if hasattr(env, "num_envs") and hasattr(env, "single_action_space"):
        raise TypeError(
            f"environment {index}: its factory must return a single gymnasium.Env; {factory!r} returned the vector "
            f"environment {env!r}"
        )


class EnvGroup:
    """What the C++ stepper (py_stepper.h) leaves to Python, for the environments it steps."""

    def __init__(self, envs: list[Any], first: int) -> None:
        self.envs = envs
        self.first = first
        self._reset_arguments: tuple[dict[str, Any] | None, Sequence[int | None] | None] | None = None
        self._closed = False

    def description(self) -> dict[str, Any]:
        """What the caller must know to stand for these environments. They all have the same spaces."""
        env = self.envs[0]
        return {
            "observation_space": env.observation_space,
            "action_space": env.action_space,
            "metadata": dict(getattr(env, "metadata", None) or {}),
            "render_mode": getattr(env, "render_mode", None),
            "spec": getattr(env, "spec", None),
        }

    def hello(self) -> bytes:
        description = self.description()
        try:
            return cloudpickle.dumps(description)
        except Exception:  # keyword arguments of the spec may be anything
            return cloudpickle.dumps({**description, "spec": None})

    def request(self, message: bytes) -> bytes:
        name, arguments = pickle.loads(message)
        return cloudpickle.dumps(getattr(self, name)(*arguments))

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """The attribute `name` of every environment, or what it returns where it can be called."""
        return [self._each(i, self._call, name, args, kwargs) for i in range(len(self.envs))]

    def set_attr(self, name: str, values: Sequence[Any]) -> None:
        for i, value in enumerate(values):
            self._each(i, self._set_attr, name, value)

    def set_reset_arguments(self, options: dict[str, Any] | None, seeds: Sequence[int | None] | None) -> None:
        """For the next explicit reset: options of all, and a seed for each (None: the seeds of the shared rows)."""
        self._reset_arguments = (options, seeds)

    def take_reset_arguments(self) -> tuple[dict[str, Any] | None, Sequence[int | None] | None] | None:
        arguments, self._reset_arguments = self._reset_arguments, None
        return arguments

    def encode_infos(self, entries: list[infos.Entry]) -> bytes:
        return infos.encode(entries)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for env in self.envs:
            if hasattr(env, "close"):
                env.close()

    def _each(self, i: int, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(self.envs[i], *arguments)
        except Exception as error:
            if hasattr(error, "add_note"):
                error.add_note(f"environment {self.first + i}: {arguments[0]!r}")
            raise

    @staticmethod
    def _call(env: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        get = getattr(env, "get_wrapper_attr", None)
        value = get(name) if get is not None else getattr(env, name)
        return value(*args, **kwargs) if callable(value) else value

    @staticmethod
    def _set_attr(env: Any, name: str, value: Any) -> None:
        set_ = getattr(env, "set_wrapper_attr", None)
        if set_ is not None:
            set_(name, value)
        else:
            setattr(env, name, value)


def run(context: Any, packed: Sequence[bytes | Callable[[], Any]]) -> None:
    """A worker's life, from building its environments to closing them.

    Args:
        context: shoal._core's WorkerContext.
        packed: a factory for each environment, pickled, or as it is in a forked worker.
    """
    import numpy as np

    from shoal import _core

    np.random.seed()  # workers forked from one process would all draw the same numbers from NumPy's global generator
    unpacked = {id(factory): pickle.loads(factory) if isinstance(factory, bytes) else factory for factory in packed}
    envs = build_envs([unpacked[id(factory)] for factory in packed], context.first_env)
    if context.hide_gpu and (use := _core.process.gpu_in_use()):
        raise RuntimeError(
            f"an environment of {context.name} uses a GPU although its workers were to hold none: {use}. Keep it on the "
            'CPU, or give the workers a GPU with worker=shoal.WorkerOptions(gpu="own").'
        )
    _core.run_vector_worker(context, envs, EnvGroup(envs, context.first_env))
