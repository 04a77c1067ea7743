"""What `make_vec(env, …)` is given, as one way to build each environment, checked before any process starts."""

from __future__ import annotations

import difflib
import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium
from gymnasium.envs import registration

from shoal import _core
from shoal.atari.env import AtariEnv
from shoal.atari.preprocessing import AtariPreprocessing
from shoal.vector.extras import lacks, provide
from shoal.vector.wrappers import wrapped

__all__ = ["Recipe", "recipe_of"]


class Recipe(NamedTuple):
    """How to build the environments.

    Attributes:
        native_id: of Shoal's own registry, or "" for Python environments.
        factories: one for each environment; the same object again where they are built alike.
        preload: modules that building them will import.
    """

    native_id: str
    factories: list[Callable[[], Any]]
    preload: list[str]


def recipe_of(
    env: Any,
    num_envs: int | None,
    env_kwargs: Mapping[str, Any],
    wrappers: Sequence[Callable[[Any], Any]] = (),
    atari: AtariPreprocessing | None = None,
) -> Recipe:
    """Throws TypeError or a gymnasium.error.Error for what cannot be built; builds nothing.

    Args:
        atari: the environments are games of ale_py, so preprocessed.
    """
    recipe = _unwrapped(env, num_envs, env_kwargs, atari)
    if not wrappers:
        return recipe
    if recipe.native_id:
        raise ValueError(
            f"wrappers are Python, and {recipe.native_id!r} is stepped in C++: leave the wrappers out, or let Gymnasium make "
            f"single ones: import shoal.envs, and lambda: gymnasium.make({recipe.native_id!r})"
        )
    around = {id(factory): functools.partial(wrapped, factory, wrappers) for factory in recipe.factories}
    modules = [module for wrapper in wrappers for module in _modules_of(wrapper)]
    return recipe._replace(
        factories=[around[id(factory)] for factory in recipe.factories],
        preload=list(dict.fromkeys([*recipe.preload, *modules])),
    )


def _unwrapped(
    env: Any, num_envs: int | None, env_kwargs: Mapping[str, Any], atari: AtariPreprocessing | None
) -> Recipe:
    if isinstance(env, list | tuple):
        return _of_list(env, num_envs, env_kwargs, atari)
    count = _checked_count(1 if num_envs is None else num_envs)
    if isinstance(env, str) and _core.env.is_registered(env):
        if atari is not None:
            raise _no_game(env)
        return Recipe(env, [], [])
    factory, preload = _factory_of(env, env_kwargs, atari)
    return Recipe("", [factory] * count, preload)


def _of_list(
    envs: Sequence[Any], num_envs: int | None, env_kwargs: Mapping[str, Any], atari: AtariPreprocessing | None
) -> Recipe:
    if not envs:
        raise ValueError("make_vec() got an empty list of factories")
    if num_envs not in (None, len(envs)):
        raise ValueError(f"make_vec() got a list of {len(envs)} factories and num_envs={num_envs}; leave num_envs out")
    factories, preload = [], []
    for i, env in enumerate(envs):
        if _is_instance(env):
            raise _instance_error(env, f"make_vec() got, as element {i} of the list,")
        if isinstance(env, str) and _core.env.is_registered(env):
            raise ValueError(
                f"make_vec() takes a native id by itself, not in a list (element {i}): make_vec({env!r}, num_envs=…)"
            )
        factory, modules = _factory_of(env, env_kwargs, atari, f", as element {i} of the list,")
        factories.append(factory)
        preload += [module for module in modules if module not in preload]
    return Recipe("", factories, preload)


def _checked_count(num_envs: Any) -> int:
    if isinstance(num_envs, bool) or not hasattr(num_envs, "__index__"):
        raise TypeError(f"make_vec(num_envs=…) takes an int, got {num_envs!r}")
    if not 1 <= num_envs < 2**31:
        raise ValueError(f"make_vec(num_envs=…) takes at least 1 and at most 2**31 - 1, got {num_envs}")
    return int(num_envs)


def _factory_of(
    env: Any, env_kwargs: Mapping[str, Any], atari: AtariPreprocessing | None, place: str = ""
) -> tuple[Callable[[], Any], list[str]]:
    """A way to build `env`, and the modules that it needs; `place` is where it stands, as an error tells it."""
    modules: list[str] = []
    if isinstance(env, str):
        module, _, name = env.rpartition(":")
        modules = [module] if module else []
        env = _spec_of(module, name)
    if atari is not None:
        return _preprocessed(env, env_kwargs, atari), [*modules, AtariEnv.__module__, "ale_py"]
    if isinstance(env, registration.EnvSpec):
        # The spec itself travels, so that what the caller registered exists in the workers too.
        return functools.partial(gymnasium.make, env, **env_kwargs), [*modules, *_modules_of(env.entry_point)]
    if _is_instance(env):
        raise _instance_error(env)
    if not callable(env):
        is_several = not place and isinstance(env, Iterable) and not isinstance(env, Mapping | bytes)
        fix = ": write make_vec(list(…))" if is_several else ""
        raise TypeError(
            "make_vec() takes an environment's id, its class, a function that returns one, or a list of these; "
            f"got{place} {env!r}{fix}"
        )
    return functools.partial(env, **env_kwargs) if env_kwargs else env, _modules_of(env)


def _preprocessed(env: Any, env_kwargs: Mapping[str, Any], atari: AtariPreprocessing) -> Callable[[], Any]:
    if not (isinstance(env, registration.EnvSpec) and str(env.entry_point).startswith("ale_py")):
        raise _no_game(env.id if isinstance(env, registration.EnvSpec) else env)
    kwargs = dict(env_kwargs)
    return functools.partial(AtariEnv, env, atari, kwargs.pop("max_episode_steps", env.max_episode_steps), **kwargs)


def _no_game(env: Any) -> TypeError:
    return TypeError(
        f"make_vec(atari=…) preprocesses games of ale_py, given by their id, such as 'ALE/Pong-v5'; got {env!r}: leave it out"
    )


def _is_instance(env: Any) -> bool:
    if inspect.isclass(env):
        return False
    return isinstance(env, gymnasium.Env | gymnasium.vector.VectorEnv) or (
        hasattr(env, "reset") and hasattr(env, "step") and not inspect.isroutine(env)
    )


def _instance_error(env: Any, got: str = "make_vec() got") -> TypeError:
    inner = getattr(env, "unwrapped", env)
    name = type(inner).__name__
    spec = getattr(env, "spec", None)
    wrappers = _wrappers_of(env, spec)
    if wrappers:
        base = f"gymnasium.make({spec.id!r})" if spec is not None else f"{name}(…)"
        for wrapper in wrappers:  # the innermost first
            base = f"{wrapper}({base}, …)"
        fix = f"make_vec(lambda: {base}, …)"
    elif spec is not None:
        kwargs = f", env_kwargs={spec.kwargs!r}" if spec.kwargs else ""
        fix = f"make_vec({spec.id!r}, …{kwargs})"
    else:
        fix = f"make_vec({name}, …)  or  make_vec(lambda: {name}(…), …)"
    return TypeError(
        f"{got} an environment (a {name}) where it needs a way to build them: each worker builds its own. Write  {fix}"
    )


def _wrappers_of(env: Any, spec: Any) -> list[str]:
    """The names of an environment's wrappers, the innermost first; of one that gymnasium.make() has made, of those around it."""
    if spec is not None:
        return [wrapper.name for wrapper in spec.additional_wrappers]
    names: list[str] = []
    while isinstance(env, gymnasium.Wrapper):
        names.insert(0, type(env).__name__)
        env = env.env
    return names


def _spec_of(module: str, name: str) -> registration.EnvSpec:
    if module:
        _import(module, name)
    provide(name)
    spec = registration.registry.get(name) or _latest(name)
    if need := lacks(spec.id if spec else name):
        raise gymnasium.error.DependencyNotInstalled(
            f"{name!r} needs {need}, which is not installed:  {sys.executable} -m pip install '{need}'"
        )
    if spec is None:
        raise _unknown_id(module, name)
    return spec


def _import(module: str, name: str) -> None:
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise ModuleNotFoundError(
            f"{module}:{name}: there is no module {error.name!r} to import: run the program in the folder that has it, or put "
            "that folder into PYTHONPATH",
            name=error.name,
        ) from None


def _latest(name: str) -> registration.EnvSpec | None:
    """The newest version of an id given without one."""
    try:
        namespace, base, version = registration.parse_env_id(name)
    except gymnasium.error.Error:
        return None
    if version is not None:
        return None
    newest = registration.find_highest_version(namespace, base)
    return registration.registry.get(registration.get_env_id(namespace, base, newest))


def _unknown_id(module: str, name: str) -> gymnasium.error.NameNotFound:
    if module:
        return gymnasium.error.NameNotFound(_not_registered(module, name))
    return no_such_id(name, [*registration.registry, *(spec.id for spec in _core.env.registered())])


def no_such_id(name: str, known: Iterable[str]) -> gymnasium.error.NameNotFound:
    """The error for an id that is not there, which names the nearest of those that are."""
    by_lower = {known_id.lower(): known_id for known_id in known}
    nearest = difflib.get_close_matches(name.lower(), by_lower, n=3, cutoff=0.5)
    hint = f" Did you mean {' or '.join(repr(by_lower[n]) for n in nearest)}?" if nearest else ""
    plugin = " One of a plug-in is there after shoal.envs.load_plugin(…)." if "/" in name else ""
    return gymnasium.error.NameNotFound(
        f"There is no environment {name!r}.{hint}{plugin} An id of another package is written 'package:{name}'; "
        "`shoal envs` lists what is there."
    )


def _not_registered(module: str, name: str) -> str:
    if callable(getattr(sys.modules[module], name, None)):
        return (
            f"{module!r} registers no environment {name!r}; it has that as a class or a function, which make_vec() takes as it "
            f"is, not as text. For an id, write into the module: gymnasium.register('{name}-v0', entry_point='{module}:{name}')"
        )
    near = difflib.get_close_matches(name, registration.registry, n=1, cutoff=0.8)
    meant = f" Did you mean {near[0]!r}?" if near else ""
    return (
        f"{module!r} registers no environment {name!r}.{meant} Write into it: gymnasium.register({name!r}, entry_point='{module}:…'), "
        "with the environment's class after the colon"
    )


def _modules_of(target: Any) -> list[str]:
    """The module that building `target` needs, if a fresh interpreter can import it by name."""
    while isinstance(target, functools.partial):
        target = target.func
    if isinstance(target, str):
        return [target.partition(":")[0]]
    name = getattr(target, "__module__", None) or ""
    module = sys.modules.get(name)
    if module is None or name in ("__main__", "builtins") or getattr(module, "__spec__", None) is None:
        return []
    return [name]
