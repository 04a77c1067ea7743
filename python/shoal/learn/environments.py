"""The environments of a run: what to build, how it is called, what the run remembers of it, building and closing it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from shoal.atari.preprocessing import AtariPreprocessing, preprocessing_of
from shoal.vector.extras import is_atari
from shoal.vector.import_paths import Kind
from shoal.vector.make import make_vec
from shoal.vector.plan import worker_count
from shoal.vector.vector_env import VectorEnv
from shoal.vector.wrappers import Wrapper, import_path

__all__ = [
    "LEAST_REPLAY",
    "LONGEST_EPISODE",
    "EnvOptions",
    "build",
    "close",
    "enough_for_all",
    "env_path_of",
    "factories_of",
    "kill",
    "listed",
    "name_of",
    "pids_of",
    "recorded_env",
    "require_all",
    "require_all_in_run",
    "resumed_env",
    "same_id",
    "told_of_cuts",
    "warn_of_cut_episodes",
]


# Arguments of a game that describe its raw frames, and wrappers that preprocess them: who gives these does it himself.
_RAW = frozenset({"obs_type", "frameskip", "continuous", "sound_obs"})
_PREPROCESSING_WRAPPERS = frozenset({"AtariPreprocessing", "AtariWrapper"})
_OF_PRESET: dict[str, dict[str, Any]] = {
    "cleanrl_atari": {"like": "cleanrl"},
    "cleanrl_atari_lstm": {"like": "cleanrl", "frame_stack": 1},  # what went before is the network's to remember
    "zoo_atari": {"like": "sb3"},
}


_ENVIRONMENT = Kind("environment", None)


def _changed(switches: Mapping[str, Any], asked: Any) -> Any:
    """What `atari=` asks for; where it names no library, these switches with its own."""
    is_change = isinstance(asked, Mapping) and "like" not in asked
    return {**switches, **asked} if is_change else asked


def _preprocesses(wrapper: Wrapper) -> bool:
    name = wrapper.rpartition(":")[2].partition("(")[0] if isinstance(wrapper, str) else name_of(wrapper)
    return name in _PREPROCESSING_WRAPPERS


@dataclass(frozen=True)
class EnvOptions:
    """Arguments of `shoal.make_vec` that make an environment what it is; a run keeps them. None is make_vec's default.

    Attributes:
        reward_clip: of the environments that are trained on; evaluations count the environment's own rewards.
        atari: evaluations are of whole games. The sign of rewards is the learner's to take, who counts them as they are.
    """

    env_kwargs: Mapping[str, Any] | None = None
    max_episode_steps: int | None = None
    frame_stack: int | None = None
    reward_clip: tuple[float, float] | None = None
    wrappers: Sequence[Wrapper] | None = None
    atari: bool | str | Mapping[str, Any] | AtariPreprocessing | None = None

    @classmethod
    def of_run(cls, run: Mapping[str, Any]) -> EnvOptions:
        """What the run's config.json says."""
        return cls(**{option.name: run.get(option.name) for option in fields(cls)})

    def over_run(self, run: Mapping[str, Any], call: str, needless: Sequence[str] = ()) -> EnvOptions:
        """These, and where they say nothing what the run's config.json says.

        Args:
            call: what takes them, for the error: "evaluate(…".
            needless: those that are not asked for.

        Raises:
            ValueError: the run had some that config.json could not hold, and these say nothing of them.
        """
        lost = [f"{name}=" for name in run.get("unrecorded", ()) if name not in needless and not self.says(name)]
        if lost:
            what = f"{', '.join(lost[:-1])} and {lost[-1]}" if lost[1:] else lost[0]
            again = ", ".join(f"{name}…" for name in lost)
            raise ValueError(
                f"the run was trained with {what} that its config.json could not hold: give them again, "
                f"shoal.learn.{call}, {again})"
            )
        return self.over(EnvOptions.of_run(run))

    def says(self, name: str) -> bool:
        return getattr(self, name, None) is not None

    def only(self, names: Sequence[str]) -> EnvOptions:
        """Those of these that are named."""
        return EnvOptions(**{name: value for name, value in vars(self).items() if name in names})

    def over(self, recorded: EnvOptions) -> EnvOptions:
        """These, and those of `recorded` where these say nothing. Switches of `atari` that name no library change those that are
        recorded."""
        given = {name: value for name, value in vars(self).items() if value is not None}
        if self.atari is not None and isinstance(recorded.atari, Mapping):
            given["atari"] = _changed(recorded.atari, self.atari)
        return replace(recorded, **given)

    def changes_of(self, run: Mapping[str, Any]) -> EnvOptions:
        """These alone, with all switches of `atari` as they are over those of the run."""
        return replace(self, atari=self.over(EnvOptions.of_run(run)).atari if self.says("atari") else None)

    def differing_from(self, run: Mapping[str, Any]) -> list[str]:
        """The names of those that the run's config.json has otherwise. What it cannot hold does not count."""
        recorded = self.changes_of(run)._as_recorded()
        return [name for name, value in recorded.items() if value is not None and value != run.get(name)]

    def beside(self, arguments: Mapping[str, Any]) -> tuple[EnvOptions, dict[str, Any]]:
        """These, and where they say nothing those among `arguments`; the rest of which come second."""
        names = [option.name for option in fields(self)]
        ours = EnvOptions(**{name: value for name, value in arguments.items() if name in names})
        return self.over(ours), {name: value for name, value in arguments.items() if name not in names}

    def record(self) -> dict[str, Any]:
        """For config.json. What it cannot hold is None there, is named under "unrecorded", and is warned of."""
        record = self._as_recorded()
        unrecorded = [name for name, value in record.items() if value is None and self.says(name)]
        for name in unrecorded:
            what = "that no import path leads to" if name == "wrappers" else "that JSON cannot hold"
            warnings.warn(
                f"{name} {what} are not recorded: give them again to resume or evaluate the run",
                RuntimeWarning,
                stacklevel=6,
            )
        return record | {"unrecorded": unrecorded}

    def _as_recorded(self) -> dict[str, Any]:
        """As config.json holds them; None, too, for what it cannot."""
        given = dict(vars(self))
        if self.wrappers is not None:
            paths = [import_path(wrapper) for wrapper in self.wrappers]
            given["wrappers"] = None if None in paths else paths
        if (atari := preprocessing_of(self.atari)) is not None:
            given["atari"] = atari.as_dict()
        return {
            name: _as_json(dict(value) if isinstance(value, Mapping) else value, exact=name == "env_kwargs")
            for name, value in given.items()
        }

    def for_evaluation_of(self, run: Mapping[str, Any]) -> EnvOptions:
        """As `over_run`, without what is for training alone."""
        return self.over_run(run, "evaluate(…", needless=["reward_clip"]).for_evaluation()

    def for_evaluation(self) -> EnvOptions:
        atari = preprocessing_of(self.atari)
        return replace(self, reward_clip=None, atari=atari and atari.for_evaluation())

    def for_training(self) -> EnvOptions:
        atari = preprocessing_of(self.atari)
        return replace(self, atari=atari and replace(atari, clip_reward=False))

    def with_preprocessing(self, env: Any, preset: str) -> EnvOptions:
        """These for a new run on `env`: games of ale_py are preprocessed as their preset's library does it, with the switches
        of `atari` where these name no library, unless something else is said: by `atari`, by arguments that describe raw
        frames, or by wrappers that preprocess them."""
        if not isinstance(env, str) or not is_atari(env):
            return self
        if self.atari is not None:
            return replace(self, atari=_changed(_OF_PRESET.get(preset, {}), self.atari))
        if _RAW.intersection(self.env_kwargs or ()) or any(_preprocesses(wrapper) for wrapper in self.wrappers or ()):
            return self
        return replace(self, atari=_OF_PRESET.get(preset, True))


def _as_json(value: Any, *, exact: bool) -> Any:
    """What JSON makes of it; None where it cannot hold it.

    Args:
        exact: None, too, where it makes something else of it: a list of a tuple, a text of a key that is a number. Bounds and
            sizes need not be exact: they are pairs either way.
    """
    try:
        kept = json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError):
        return None
    return kept if not exact or _is_same(kept, value) else None


def _is_same(kept: Any, given: Any) -> bool:
    """Whether both are equal, and of equal types; NumPy's float64 is a float."""
    if isinstance(kept, float):
        return isinstance(given, float) and kept == given
    if type(kept) is not type(given):
        return False
    if isinstance(kept, dict):
        return kept.keys() == given.keys() and all(_is_same(value, given[name]) for name, value in kept.items())
    if isinstance(kept, list):
        return all(map(_is_same, kept, given))
    return bool(kept == given)


def sign_of_rewards_now(options: EnvOptions, run: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """As `sign_of_rewards`, of a run that goes on with `options`: where these say another preprocessing than the run had, or another
    way of scaling."""
    recorded = EnvOptions.of_run(run)
    now = options.over(recorded)
    is_as_before = preprocessing_of(now.atari) == preprocessing_of(recorded.atari)
    if is_as_before and options.reward_clip is None:
        return dict(overrides)
    return sign_of_rewards(now, options.atari, run["config"], overrides)


def sign_of_rewards(
    options: EnvOptions, asked: Any, config: Mapping[str, Any], overrides: Mapping[str, Any]
) -> dict[str, Any]:
    """`overrides`, with the learner's `sign_reward` as the games' preprocessing says, unless they say it.

    Args:
        asked: the preprocessing that the caller asked for. Unless it names `clip_reward` itself, other ways of scaling go before.

    Raises:
        ValueError: it names `clip_reward`, and rewards are normalised.
    """
    atari = preprocessing_of(options.atari)
    if atari is None:
        return dict(overrides)
    is_named = isinstance(asked, AtariPreprocessing) or (isinstance(asked, Mapping) and "clip_reward" in asked)
    normalized = {**config, **overrides}.get("normalize_reward")
    if atari.clip_reward and is_named and normalized and "sign_reward" not in overrides:
        raise ValueError(
            "atari= says clip_reward=True, which learns from the sign of rewards (sign_reward=True), and normalize_reward=True scales "
            "them: choose one, by atari={'clip_reward': False} or normalize_reward=False"
        )
    scaled = options.reward_clip is not None or normalized
    return {"sign_reward": atari.clip_reward and (is_named or not scaled), **overrides}


def name_of(env: Any) -> str:
    """What the environment is called in reports: its id, or the name of the class or factory."""
    if isinstance(env, str):
        return env
    if isinstance(env, Sequence) and env:
        return name_of(env[0])
    return str(getattr(env, "__name__", type(env).__name__))


def listed(env: Any) -> int:
    """How many factories a list of them has; 0 of what is no list.

    Raises:
        ValueError: for an empty list.
    """
    if isinstance(env, str) or not isinstance(env, Sequence):
        return 0
    if not env:
        raise ValueError("env= is an empty list: give it the factory of one environment or more")
    return len(env)


_OF_EVALUATIONS = ("eval_envs", "eval_episodes", "final_episodes")


def enough_for_all(env: Any, config: Mapping[str, Any], told: Iterable[str]) -> dict[str, int]:
    """Options of a run that a list of factories needs more of than `config` has, so that each is trained on and has an episode in
    each evaluation.

    Args:
        told: options that are left as they are.
    """
    count = listed(env)
    names = {"num_envs", *_OF_EVALUATIONS}.difference(told)
    return {name: count for name in sorted(names) if 0 < config[name] < count}  # 0: no final evaluation


def require_all(env: Any, **numbers: int) -> None:
    """Raises ValueError where some factories of a list would have no environment, or no episode of an evaluation.

    Args:
        numbers: of environments or episodes, by their options' names.
    """
    count = listed(env)
    for name, number in numbers.items():
        if count and 0 < number < count:
            what = "have no environment" if name == "num_envs" else "are not evaluated"
            raise ValueError(
                f"env= is a list of {count}, and with {name}={number} some of them {what}: give {name}={count} or more, or a shorter list"
            )


def require_all_in_run(env: Any, config: Mapping[str, Any]) -> None:
    """The same of the options of a run."""
    require_all(env, **{name: config[name] for name in ("num_envs", *_OF_EVALUATIONS)})


def factories_of(env: Any, num_envs: int) -> Any:
    """Of a list of factories, one for each environment, in turn; anything else as it is."""
    count = listed(env)
    return [env[i % count] for i in range(num_envs)] if count else env


def build(
    env: Any,
    num_envs: int,
    options: EnvOptions,
    *,
    num_workers: int | None,
    backend: str = "auto",
    context: str = "auto",
) -> VectorEnv:
    """`num_envs` of them; of a list of factories, in turn."""
    env = factories_of(env, num_envs)
    if num_workers is not None:
        num_workers = worker_count(num_workers, num_envs)
    return make_vec(
        env, num_envs, num_workers=num_workers, backend=backend, context=context, copy=False, **vars(options)
    )


LEAST_REPLAY = 10_000
"""Steps of each environment between two resets of all, whatever replay_limit says."""


def warn_of_cut_episodes(options: EnvOptions, envs: VectorEnv, config: Mapping[str, Any]) -> None:
    """Where a run is told, by an id or by the caller, of a time limit that its `replay_limit` lets no episode reach."""
    limit = options.max_episode_steps or getattr(envs.spec, "max_episode_steps", None)
    longest = max(config["replay_limit"] // config["num_envs"], LEAST_REPLAY)
    steps = config["total_steps"] // config["num_envs"]
    if not config["replay_limit"] or limit is None or limit <= longest or steps <= longest:
        return
    warnings.warn(
        f"an episode may have {limit:,} steps, and this run resets all of its environments every {longest:,} steps of each, which a "
        "resumed one may have to repeat: longer episodes are cut there. A greater replay_limit, which counts the steps of all "
        f"num_envs={config['num_envs']} together, resets them more seldom, replay_limit=0 never",
        RuntimeWarning,
        stacklevel=4,
    )


LONGEST_EPISODE = 200_000
"""Steps after which an episode of an evaluation is cut, counted, and reset: none runs for ever."""


def told_of_cuts(lengths: Sequence[int]) -> str | None:
    """A sentence on the episodes of an evaluation that were cut; None where none was."""
    cut = sum(length >= LONGEST_EPISODE for length in lengths)
    if not cut:
        return None
    return (
        f"{cut} of {len(lengths)} episodes of an evaluation were cut after {LONGEST_EPISODE:,} steps, and count as they were then: "
        "give the environment a time limit, max_episode_steps="
    )


def pids_of(envs: VectorEnv) -> list[int]:
    """The processes that step them, but for this one. Threads: any."""
    pids = [worker["pid"] for worker in envs.health()]
    return [pid for pid in pids if pid not in (None, os.getpid())]


def kill(pids: Iterable[int]) -> None:
    """Those that have ended are no error."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def close(envs: VectorEnv) -> None:
    """What environments raise then is a warning: a run's result, or what ended it, counts more."""
    try:
        envs.close()
    except Exception as error:
        notes = "; ".join(getattr(error, "__notes__", ()))
        warnings.warn(
            f"while the environments were closed: {type(error).__name__}: {error} ({notes})",
            RuntimeWarning,
            stacklevel=3,
        )


def same_id(one: str, other: str) -> bool:
    """Whether two ids are of one environment; a module in front is only where it is registered."""
    return one.rpartition(":")[2] == other.rpartition(":")[2]


def resumed_env(run: Mapping[str, Any], env: Any) -> Any:
    """The environment that a recorded run goes on with: as `recorded_env`, but none other than the one that the run is on, as far as
    names tell. An id may be of the class that the run is on."""
    if env is not None and not _may_be(env, run["env"], run.get("env_is_id", True)):
        raise ValueError(
            f"the run was trained on {run['env']}, and does not go on with {name_of(env)}: a run on that needs a run_dir of its own"
        )
    return recorded_env(run, env)


def env_path_of(env: Any) -> str | list[str] | None:
    """The import path of a class or a factory, or of each of a list, by which a resumed run finds it again. None for an id, and
    where one of them has none."""
    if isinstance(env, str):
        return None
    if not listed(env):
        return _ENVIRONMENT.path_of(env)
    paths = [path for each in env if (path := _ENVIRONMENT.path_of(each)) is not None]
    return paths if len(paths) == len(env) else None


def _may_be(env: Any, own: str, is_id: bool) -> bool:
    if is_id:
        return isinstance(env, str) and same_id(env, own)
    return isinstance(env, str) or name_of(env) == own


def recorded_env(run: Mapping[str, Any], env: Any) -> Any:
    """The environment to build for a recorded run: `env` where it is given, else what the run recorded."""
    if env is not None:
        return env
    if run.get("env_is_id", True):
        return run["env"]
    path = run.get("env_path")
    if path is None:
        raise ValueError(
            f"the run was trained on {run['env']}, which is neither an id nor found by an import path: give it as env="
        )
    try:
        return _ENVIRONMENT.at(path) if isinstance(path, str) else [_ENVIRONMENT.at(each) for each in path]
    except ValueError as error:
        raise ValueError(f"the run was trained on {run['env']}: {error}. Give it as env=") from None
