"""The environments of one worker: how they are built, and all that is asked of them beyond reset and step."""

from __future__ import annotations

import inspect
import pickle
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gymnasium.vector.utils import batch_space

import shoal.identity
from shoal import _core
from shoal.ipc import cloudpickling
from shoal.process._importing import importing
from shoal.process._randomness import reseed
from shoal.vector import infos
from shoal.vector.preparation import Preparation
from shoal.vector.snapshots import Keeper, kind_of

__all__ = ["EnvGroup", "build_envs", "close_envs", "run", "warn_of_close"]

_REQUIRED = ("observation_space", "action_space", "reset", "step")


def build_envs(factories: Sequence[Callable[[], Any]], first: int) -> list[Any]:
    """Calls every factory; `first` is the number of the first environment. Those built are closed if a later one fails."""
    envs: list[Any] = []
    identity = _core.process.this_worker()
    try:
        for factory in factories:
            identity.enter(first + len(envs))
            env = factory()
            _check(env, factory, first + len(envs))
            _check_new(env, envs, first)
            envs.append(env)
    except BaseException as error:
        _note(error, f"environment {first + len(envs)}: while it was built")
        close_envs(envs, first)
        raise
    finally:
        identity.leave()
    return envs


def close_envs(envs: Sequence[Any], first: int) -> None:
    """Closes environments that nobody asked to close (another could not be built, or takes their place): what they raise
    becomes a warning."""
    for i, env in enumerate(envs):
        try:
            env.close()
        except Exception as error:
            warn_of_close([(first + i, error)])


def warn_of_close(failures: list[tuple[int | None, BaseException]]) -> None:
    """What EnvGroup.close() returned, where another exception is the one to raise."""
    for i, error in failures:
        who = "their worker" if i is None else f"environment {i}"
        warnings.warn(f"{who}: close() raised {type(error).__name__}: {error}", stacklevel=3)


def _note(error: BaseException, note: str) -> None:
    if hasattr(error, "add_note"):
        error.add_note(note)


def _check(env: Any, factory: Callable[[], Any], index: int) -> None:
    if inspect.isclass(env):
        raise TypeError(
            f"environment {index}: its factory must return a gymnasium.Env; {factory!r} returned the class {env.__name__}: "
            f"call it there, {env.__name__}(…), or give the class to make_vec() as it is"
        )
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


def _check_new(env: Any, envs: Sequence[Any], first: int) -> None:
    for i, other in enumerate(envs):
        if env is other:
            name = type(getattr(env, "unwrapped", env)).__name__
            raise TypeError(
                f"environment {first + len(envs)}: its factory returned the {name} that is environment {first + i} already. "
                f"Each environment is one of its own: write {name}(…) inside the function, not before it"
            )


class EnvGroup:
    """What the C++ stepper (py_stepper.h) leaves to Python, for the environments it steps.

    The methods that a vector environment asks for by name (call, set_attr, …) return a list, one result an environment,
    or an empty one.
    """

    def __init__(
        self,
        envs: list[Any],
        first: int,
        factories: Sequence[Callable[[], Any]] = (),
        same_observations: bool = True,
        episode_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.envs = envs
        self.first = first
        self.factories = factories
        self.episode_options = dict(episode_options or {})
        self._keeper = Keeper()
        self.worker = shoal.identity.worker()
        self._same_observations = same_observations
        self._spaces = [(env.observation_space, env.action_space) for env in envs]
        self._kinds = [kind_of(env) for env in envs]
        self._actions: list[tuple[Any, ...]] | None = None
        self._own_actions: dict[int, bytes] = {}
        self._whole_actions: list[Any] | None = None
        self._reset_arguments: tuple[dict[str, Any] | None, Sequence[int | None] | None] | None = None
        self._own_reset_arguments: dict[int, bytes | tuple[dict[str, Any] | None, int | None]] = {}
        self._unclosed: Iterator[int] = iter(range(len(envs)))
        self._closed = False

    def stepped(self) -> list[Any]:
        """What the stepper steps: the environments, or objects with their `reset`, `step` and spaces in their places."""
        return self.envs

    def description(self) -> dict[str, Any]:
        """What the caller must know to stand for these environments. They all have the same spaces, unless
        `observation_spaces` lists those of each."""
        env = self.envs[0]
        several = {} if self._same_observations else {"observation_spaces": [e.observation_space for e in self.envs]}
        frames = self.episode_options.get("frame_stack")
        return {
            **several,
            "observation_space": batch_space(env.observation_space, frames) if frames else env.observation_space,
            "action_space": env.action_space,
            "metadata": dict(getattr(env, "metadata", None) or {}),
            "render_mode": getattr(env, "render_mode", None),
            "spec": getattr(env, "spec", None),
            "name": type(getattr(env, "unwrapped", env)).__name__,
        }

    def hello(self) -> bytes:
        """The description for the caller: of the first worker's environments, and of others' where the caller has to
        compare their spaces, because the engine cannot."""
        description = self.description()
        if self.first != 0 and self._same_observations:
            if not any(_core.has_objects(description[name]) for name in ("observation_space", "action_space")):
                return b""
        try:
            return cloudpickling.dumps(description)
        except Exception:  # keyword arguments of the spec may be anything
            return cloudpickling.dumps({**description, "spec": None})

    def request(self, message: bytes) -> bytes:
        name, arguments = pickle.loads(message)
        return cloudpickling.dumps(getattr(self, name)(*arguments))

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """The attribute `name` of every environment, or what it returns where it can be called."""
        return [self._each(i, self._call, name, args, kwargs) for i in range(len(self.envs))]

    def set_attr(self, name: str, values: Sequence[Any]) -> list[Any]:
        return [self._each(i, self._set_attr, name, value) for i, value in enumerate(values)]

    def set_reset_arguments(self, options: dict[str, Any] | None, seeds: Sequence[int | None] | None) -> list[Any]:
        """For the next explicit reset: options of all, and a seed for each (None: the seeds of the shared rows)."""
        self._reset_arguments = (options, seeds)
        return []

    def take_reset_arguments(self) -> tuple[dict[str, Any] | None, Sequence[int | None] | None] | None:
        arguments, self._reset_arguments = self._reset_arguments, None
        for i, seed in enumerate((arguments and arguments[1]) or ()):
            if seed is not None:
                self.worker.set_seed(self.first + i, seed)
        return arguments

    def set_own_reset_arguments(
        self, env: int, arguments: bytes | tuple[dict[str, Any] | None, int | None]
    ) -> list[Any]:
        """The same for the next explicit reset of environment `env` alone; as they are, or pickled."""
        self._own_reset_arguments[env - self.first] = arguments
        return []

    def take_own_reset_arguments(self, i: int) -> tuple[dict[str, Any] | None, int | None] | None:
        arguments = self._own_reset_arguments.pop(i, None)
        if isinstance(arguments, bytes):
            arguments = pickle.loads(arguments)
        if arguments is not None and arguments[1] is not None:
            self.worker.set_seed(self.first + i, arguments[1])
        return arguments

    def can_rebuild(self) -> bool:
        """Whether one environment can be replaced by a new one."""
        return bool(self.factories)

    def discard(self, i: int) -> None:
        """Lets environment `i` go, which has failed; its close() may fail too."""
        env, self.envs[i] = self.envs[i], None
        try:
            with self._inside(i):
                if hasattr(env, "close"):
                    env.close()
        except Exception:
            pass  # what it says has no reader: the failure before it is what counts

    def rebuild(self, i: int) -> Any:
        """A new environment in the place of `i`."""
        with self._inside():
            (env,) = build_envs(self.factories[i : i + 1], self.first + i)
        self._check_spaces(i, env, "built again it has")
        self.envs[i] = env
        return env

    def _check_spaces(self, i: int, env: Any, has: str) -> None:
        """Raises ValueError unless `env` can be in the place of `i`."""
        seen, acted = self._spaces[i]
        if not (_core.same_space(env.observation_space, seen) and _core.same_space(env.action_space, acted)):
            raise ValueError(
                f"environment {self.first + i}: {has} the spaces {env.observation_space} and {env.action_space}, before it "
                f"had {seen} and {acted}"
            )

    def hand_over(self) -> bytes:
        """The environments' generators, as `np_random` has them: all that an episode may take from the one before. And what
        was said for the reset that comes next."""
        generators = [getattr(getattr(env, "unwrapped", env), "_np_random", None) for env in self.envs]
        resets = self._reset_arguments, self._own_reset_arguments
        try:
            return cloudpickling.dumps((generators, resets))
        except Exception:  # options of a reset may be anything
            return cloudpickling.dumps((generators, (None, {})))

    def take_over(self, handed: bytes) -> None:
        generators, (self._reset_arguments, self._own_reset_arguments) = pickle.loads(handed)
        for env, generator in zip(self.envs, generators, strict=True):
            if generator is not None:
                getattr(env, "unwrapped", env)._np_random = generator

    def set_actions(self, actions: list[tuple[Any, ...]]) -> list[Any]:
        """For the next step: what an environment's action has that is no array of fixed size, one tuple an environment."""
        self._actions = actions
        return []

    def set_action(self, env: int, action: bytes) -> list[Any]:
        """The same for the next step of environment `env` alone; pickled."""
        self._own_actions[env - self.first] = action
        return []

    def take_actions(self) -> Sequence[tuple[Any, ...] | None] | None:
        """None for the environments whose action was not set."""
        if self._own_actions:
            own, self._own_actions = self._own_actions, {}
            return [pickle.loads(own[i]) if i in own else None for i in range(len(self.envs))]
        actions, self._actions = self._actions, None
        return actions

    def set_whole_actions(self, actions: list[Any]) -> list[Any]:
        """For the next step: an action an environment, given to it as it is in place of its row."""
        self._whole_actions = actions
        return []

    def take_whole_actions(self) -> list[Any] | None:
        actions, self._whole_actions = self._whole_actions, None
        return actions

    def encode(
        self,
        entries: list[infos.Entry] | None,
        observed: list[infos.Objects] | None,
        finals: list[infos.Objects] | None,
    ) -> bytes:
        return infos.encode(entries, observed, finals)

    def save(self, i: int) -> bytes:
        """The state of environment `i`, for load()."""
        with self._inside(i):
            return self._keeper.save(self.envs[i])

    def load(self, i: int, state: bytes) -> Any:
        """Puts an environment with this state in the place of `i`."""
        with self._inside(i):
            env = self._keeper.load(state)
            self._check_kind(i, env)
            gone, self.envs[i] = self.envs[i], env
            if gone is not env and hasattr(gone, "close"):
                close_envs([gone], self.first + i)
        return env

    def _check_kind(self, i: int, env: Any) -> None:
        """Raises ValueError where a snapshot's environment is of another kind than `i` was built as."""
        if (kind := kind_of(env)) != self._kinds[i]:
            raise ValueError(
                f"environment {self.first + i} is {' around '.join(self._kinds[i])}; the snapshot is of "
                f"{' around '.join(kind)}"
            )
        self._check_spaces(i, env, "restored it would have")

    def forget(self, keys: Sequence[bytes]) -> list[Any]:
        """Lets copies of environments go that save() has made and no snapshot names any more."""
        self._keeper.forget(keys)
        return []

    def close(self) -> list[tuple[int | None, BaseException]]:
        """Closes every environment, whatever others raise; what they raised, each with its environment's number.

        Where Ctrl-C comes between two of them, the next call goes on with those that are left.
        """
        failures: list[tuple[int | None, BaseException]] = []
        for i in self._unclosed:
            try:
                with self._inside(i):
                    if hasattr(self.envs[i], "close"):  # None, where it was discarded, has none
                        self.envs[i].close()
            except BaseException as error:
                _note(error, f"environment {self.first + i}: close()")
                failures.append((self.first + i, error))
        if not self._closed:
            self._closed = True
            try:
                with self._inside():
                    self.worker.close()
            except BaseException as error:
                failures.append((None, error))
        return failures

    def leave_to_parent(self) -> None:
        """In a forked child: close() closes nothing. What environments hold, a simulator's process say, is the parent's."""
        self._unclosed = iter(())
        self._closed = True

    def _inside(self, i: int | None = None) -> Any:
        """For a block that runs code of environment `i`, or of them all."""
        return self.worker.scope(None if i is None else self.first + i)

    def _each(self, i: int, function: Callable[..., Any], *arguments: Any) -> Any:
        if self.envs[i] is None:
            return None  # it has failed, and there is no new one yet
        try:
            with self._inside(i):
                return function(self.envs[i], *arguments)
        except Exception as error:
            _note(error, f"environment {self.first + i}: {arguments[0]!r}")
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


def run(
    context: Any,
    packed: Sequence[bytes | Callable[[], Any]],
    preparation: Preparation,
    episode_options: Mapping[str, Any] | None = None,
    same_observations: bool = True,
    exact: bool = False,
    kind: type[EnvGroup] = EnvGroup,
) -> None:
    """A worker's life, from building its environments to closing them.

    Args:
        context: shoal._core's WorkerContext.
        packed: a factory for each environment, pickled, or as it is in a forked worker.
        preparation: what comes before them.
        episode_options: see shoal.vector.episodes.
        same_observations: False lets observation spaces differ in all but dtypes and shapes.
        exact: hands final observations on as the environments returned them.
        kind: of the group, which a caller of its own kind asks more of.
    """
    import numpy.random  # noqa: F401  # which is to be seeded, too

    reseed()

    def build(_: bytes, first: int) -> tuple[list[Any], EnvGroup, bool, bool]:
        group = build_group(context, first, packed, preparation, episode_options, same_observations, kind)
        return group.stepped(), group, same_observations, exact

    _core.run_pool_worker(context, build)


def build_group(
    context: Any,
    first: int,
    packed: Sequence[bytes | Callable[[], Any]],
    preparation: Preparation,
    episode_options: Mapping[str, Any] | None = None,
    same_observations: bool = True,
    kind: type[EnvGroup] = EnvGroup,
) -> EnvGroup:
    """The environments that `packed` builds, for the worker that this thread is; `first` is the first one's number."""
    if context.hide_gpu and not preparation.gpus:
        _core.process.forbid_gpu()
    preparation.carry_out(shoal.identity.worker())
    with importing(f"{context.name} imported what its environments need"):
        unpacked = {id(factory): pickle.loads(factory) if isinstance(factory, bytes) else factory for factory in packed}
    factories = [unpacked[id(factory)] for factory in packed]
    envs = build_envs(factories, first)
    try:
        _core.process.check_gpu()
    except RuntimeError:
        close_envs(envs, first)
        raise
    return kind(envs, first, factories, same_observations, episode_options)
