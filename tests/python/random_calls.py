"""Random sequences of calls of vector environments, and what two implementations make of the same one.

A program is a list of calls drawn from a seed. It is played on an implementation of Shoal's and on
`gymnasium.vector.SyncVectorEnv`, and after every call both must have returned the same: values, dtypes, shapes, masks, order
of keys, or the same kind of exception.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics

import shoal
from same import assert_same
from sample_envs import SPACES, SpaceEnv
from shoal.compat import gymnasium as compat

# Where Gymnasium is wrong, or says it otherwise, and programs therefore do not go:
# - seeds that are NumPy integers are a TypeError there (openai/gym#3127 is the environments' side of it);
# - the first reset with a mask returns None, or fails, for the environments that it leaves out;
# - it takes `reset_mask` out of the caller's dict, which breaks wrappers (Gymnasium#1696): make_vec does not, the classes of
#   shoal.compat do; programs give every implementation a dict of its own;
# - what environments return and go on changing shows their later changes there: only Shoal's are given such environments;
# - make_vec hands actions on in the action space's dtype: only shoal.compat is given lists and other dtypes.


class VariedEnv(SpaceEnv):
    """Episodes of uneven lengths and infos of every kind, all drawn from the seed."""

    def __init__(self, observation: str, action: str, length: int) -> None:
        super().__init__(observation, action, render_mode="rgb_array")
        self.length = length
        self.elapsed = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.elapsed = 0
        if seed is None and self._np_random is None:
            seed = self.length  # drawn by nobody, so that both implementations see the same
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        self.elapsed += 1
        return observation, reward, terminated, truncated or self.elapsed >= self.length, info

    def _info(self, options: dict[str, Any] | None) -> dict[str, Any]:
        info = super()._info(options)
        draw = self.np_random.integers(0, 12)
        kinds: dict[int, dict[str, Any]] = {
            0: {"mixed": 1},
            1: {"mixed": 1.75},
            2: {"mixed": True},
            3: {"half": np.float16(0.5), "complex": 1j},
            4: {"deep": {"er": {"still": [self.elapsed]}, "array": np.full((2, 2), self.elapsed, np.uint8)}},
            5: {"deep": {"er": {"other": "text"}}},
            6: {"set": {1, 2}, "bytes": b"abc", "tuple": (1, "a")},
            7: {"strings": np.array(["a", "bc"]), "empty": {}},
        }
        return {**info, **kinds.get(int(draw), {})}


_EVERYBODYS: dict[str, Any] = {}


class ReusingEnv(gymnasium.Wrapper):
    """Returns the same as its environment, in containers and arrays that it uses again, and that all environments of a
    process may share; what it takes out of a reset's options, no other environment may miss."""

    def __init__(self, env: gymnasium.Env, shares: bool) -> None:
        super().__init__(env)
        self.kept = _EVERYBODYS if shares else {}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        own = None if options is None else dict(options)
        if options is not None:
            options.clear()
        observation, info = self.env.reset(seed=seed, options=own)
        return self._in_place("observation", observation), self._in_place("info", info)

    def step(self, action: Any) -> Any:
        observation, *rest, info = self.env.step(action)
        return (self._in_place("observation", observation), *rest, self._in_place("info", info))

    def _in_place(self, name: str, value: Any) -> Any:
        """`value`, in the object that has had this name, where that can be changed into it."""
        before = self.kept.get(name)
        if type(value) is dict and type(before) is dict:
            new = {key: self._in_place(f"{name}[{key}]", part) for key, part in value.items()}
            before.clear()
            before.update(new)
        elif type(value) is list and type(before) is list:
            before[:] = value
        elif type(value) is np.ndarray and type(before) is np.ndarray and value.shape and value.dtype != object:
            if (before.shape, before.dtype) != (value.shape, value.dtype):
                before = self.kept[name] = value.copy()
            before[...] = value
        else:
            before = self.kept[name] = copy.deepcopy(value)
        return before


class FinalInfoFirst(SyncVectorEnv):
    """The peer with its infos in the order of Gymnasium's AsyncVectorEnv."""

    def _add_info(self, vector_infos: dict[str, Any], env_info: dict[str, Any], env_num: int) -> dict[str, Any]:
        if "final_info" in env_info:
            env_info = {name: env_info[name] for name in ("final_info", "final_obs")}
        return super()._add_info(vector_infos, env_info, env_num)


class RecordedSyncVectorEnv(RecordEpisodeStatistics):
    """Statistics of the peer that know of the mask: SyncVectorEnv takes it out of the options before they look for it."""

    def __init__(self, envs: SyncVectorEnv) -> None:
        reset = envs.reset
        envs.reset = lambda *, seed=None, options=None: reset(seed=seed, options=options and dict(options))
        super().__init__(envs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.env, name)


@dataclasses.dataclass(frozen=True)
class Setting:
    """What a program is played on."""

    implementation: str
    observation: str
    action: str
    lengths: tuple[int, ...]
    mode: str
    workers: int
    reuse: str = ""  # of what our environments return: "own" objects, or "shared" ones
    statistics: bool = False

    def factories(self) -> list[Any]:
        return [functools.partial(VariedEnv, self.observation, self.action, length) for length in self.lengths]

    def our_factories(self) -> list[Any]:
        if not self.reuse:
            return self.factories()
        return [functools.partial(_reusing, factory, self.reuse == "shared") for factory in self.factories()]

    def ours(self) -> shoal.VectorEnv:
        mode = AutoresetMode[self.mode.upper()]
        factories = self.our_factories()
        if self.implementation == "SyncVectorEnv":
            return compat.SyncVectorEnv(factories, autoreset_mode=mode)
        if self.implementation == "AsyncVectorEnv":
            return compat.AsyncVectorEnv(factories, shared_memory=False, autoreset_mode=mode, num_workers=self.workers)
        where = (
            {"backend": "serial"}
            if self.implementation == "serial"
            else {"backend": "process", "num_workers": self.workers}
        )
        return shoal.make_vec(factories, autoreset_mode=self.mode, episode_statistics=self.statistics, **where)

    def theirs(self) -> Any:
        kind = FinalInfoFirst if self.implementation == "AsyncVectorEnv" else SyncVectorEnv
        envs = kind(self.factories(), autoreset_mode=AutoresetMode[self.mode.upper()])
        return RecordedSyncVectorEnv(envs) if self.statistics else envs

    @property
    def exact(self) -> bool:
        return self.implementation.endswith("VectorEnv")


def _reusing(factory: Any, shares: bool) -> gymnasium.Env:
    return ReusingEnv(factory(), shares)


Call = tuple[str, Any]


def draw(seed: int) -> tuple[Setting, list[Call]]:
    """A setting and a program."""
    rng = np.random.default_rng(seed)
    names = list(SPACES)
    num_envs = int(rng.integers(1, 6))
    setting = Setting(
        implementation=str(rng.choice(["serial", "process", "process", "AsyncVectorEnv", "SyncVectorEnv"])),
        observation=str(rng.choice(names)),
        action=str(rng.choice(names)),
        lengths=tuple(int(n) for n in rng.integers(1, 9, num_envs)),
        mode=str(rng.choice(["next_step", "same_step", "disabled"])),
        workers=int(rng.integers(1, num_envs + 1)),
        reuse=str(rng.choice(["", "own", "shared"])),
    )
    if not setting.exact and rng.random() < 0.5:
        setting = dataclasses.replace(setting, statistics=True)
    program = [("action_space.seed", int(rng.integers(1000))), ("reset", (_seeds(rng, num_envs), None, None))]
    program += [_call(rng, setting) for _ in range(int(rng.integers(5, 40)))]
    return setting, program


def _seeds(rng: np.random.Generator, num_envs: int) -> Any:
    kind = rng.integers(0, 4)
    if kind == 0:
        return None
    if kind == 1:
        return int(rng.integers(0, 2**31))
    seeds = [int(seed) for seed in rng.integers(0, 2**31, num_envs)]
    return [None if kind == 3 and rng.random() < 0.4 else seed for seed in seeds]


def _call(rng: np.random.Generator, setting: Setting) -> Call:
    num_envs = len(setting.lengths)
    kind = rng.choice(
        ["step", "reset", "call", "get_attr", "set_attr", "render", "np_random_seed", "wrong"],
        p=[0.68, 0.12, 0.05, 0.03, 0.05, 0.02, 0.02, 0.03],
    )
    if kind == "step":
        return "step", str(rng.choice(["sample", "list", "tuple", "items"])) if setting.exact else "sample"
    if kind == "reset":
        mask = [bool(m) for m in rng.random(num_envs) < 0.5] if rng.random() < 0.6 else None
        options = [None, {}, {"level": 3, "name": "x"}, {"array": np.arange(2)}][int(rng.integers(0, 4))]
        return "reset", (_seeds(rng, num_envs), mask, options)
    if kind == "call":
        return "call", [("double", (int(rng.integers(9)),)), ("value", ()), ("length", ())][int(rng.integers(0, 3))]
    if kind == "set_attr":
        return "set_attr", int(rng.integers(9)) if rng.random() < 0.5 else list(range(num_envs))
    if kind == "wrong":
        return "wrong", str(rng.choice(["few seeds", "mask", "attribute", "few values", "no seed"]))
    return str(kind), None


def play(setting: Setting, program: list[Call]) -> None:
    """Raises AssertionError at the first difference."""
    ours, theirs = setting.ours(), setting.theirs()
    try:
        ended = np.zeros(len(setting.lengths), np.bool_)
        kept: list[tuple[Any, Any, str]] = []  # what the calls returned stays as it was
        for name in ("observation_space", "single_observation_space", "action_space", "single_action_space"):
            assert getattr(ours, name) == getattr(theirs, name), name
        assert (ours.metadata, ours.render_mode, ours.num_envs) == (
            theirs.metadata,
            theirs.render_mode,
            theirs.num_envs,
        )
        for i, (name, argument) in enumerate(program):
            where = f"call {i}: {name}"
            if name == "step" and setting.mode == "disabled" and ended.any():
                both = [envs.reset(options={"reset_mask": ended}) for envs in (ours, theirs)]
                assert_same(*both, where + ", reset before it")
            results = [without_times(outcome(envs, name, argument)) for envs in (ours, theirs)]
            kept.append((copy.deepcopy(results[1]), results[0], where))
            assert_same(*results, where)
            if name == "step":
                ended = results[1][2] | results[1][3]
            elif name == "reset":
                mask = argument[1]
                ended = ended & ~np.array(mask) if mask is not None and any(mask) else np.zeros_like(ended)
        for theirs_then, ours_now, where in kept:
            assert_same(ours_now, theirs_then, where + ", after all other calls")
    finally:
        ours.close()
        theirs.close()


def without_times(result: Any) -> Any:
    """The seconds that episodes took are nobody's to compare."""
    infos = result[-1] if isinstance(result, tuple) and result else None
    if not isinstance(infos, dict) or "t" not in infos.get("episode", {}):
        return result
    episode = {key: value for key, value in infos["episode"].items() if key != "t"}
    return (*result[:-1], {**infos, "episode": episode})


def outcome(envs: Any, name: str, argument: Any) -> Any:
    """What a call returns, or the kind of what it raises."""
    if name == "action_space.seed":
        envs.action_space.seed(argument)
        return None
    if name == "step":
        return envs.step(_actions(envs, argument))
    if name == "reset":
        seed, mask, options = copy.deepcopy(argument)
        if mask is not None and any(mask):
            options = {**(options or {}), "reset_mask": np.array(mask)}
        return envs.reset(seed=seed, options=options)
    if name == "call":
        return envs.call(argument[0], *argument[1])
    if name == "get_attr":
        return envs.get_attr("elapsed")
    if name == "set_attr":
        envs.set_attr("value", copy.deepcopy(argument))
        return envs.get_attr("value")
    if name == "render":
        return envs.render()
    if name == "np_random_seed":
        return envs.np_random_seed
    return _wrong(envs, argument)


def _actions(envs: Any, form: str) -> Any:
    actions = envs.action_space.sample()
    if (
        form == "sample"
        or not isinstance(actions, np.ndarray | tuple)
        or envs.action_space.__class__.__name__ == "Tuple"
    ):
        return actions
    if form == "items":
        return list(actions)
    return actions.tolist() if form == "list" and actions.ndim == 1 else tuple(actions)


def _wrong(envs: Any, how: str) -> str:
    calls = {
        "few seeds": lambda: envs.reset(seed=[1] * (envs.num_envs + 1)),
        "mask": lambda: envs.reset(options={"reset_mask": np.zeros(envs.num_envs + 1, np.bool_)}),
        "attribute": lambda: envs.get_attr("there_is_no_such_thing"),
        "few values": lambda: envs.set_attr("value", [1] * (envs.num_envs + 1)),
        "no seed": lambda: envs.reset(options={"reset_mask": [True] * envs.num_envs}),
    }
    try:
        calls[how]()
    except Exception as error:
        return type(error).__name__
    return "nothing"


def shrunk(setting: Setting, program: list[Call], patience: int = 60) -> list[Call]:
    """A shorter program that still fails, found by leaving out one call after the other."""
    kept = list(program)
    for i in reversed(range(2, len(kept))):
        if patience == 0:
            break
        patience -= 1
        candidate = kept[:i] + kept[i + 1 :]
        try:
            play(setting, candidate)
        except Exception:
            kept = candidate
    return kept


def check(seed: int) -> None:
    """Plays the program of `seed`; a failure shows it, shortened."""
    setting, program = draw(seed)
    try:
        play(setting, program)
    except Exception as error:
        calls = "\n  ".join(map(repr, shrunk(setting, program)))
        raise AssertionError(f"program {seed} on {setting}: {error}\nshortened to\n  {calls}") from error
