"""rl-baselines3-zoo's YAML files (`hyperparams/ppo.yml`, …) as presets: what an entry says, in Shoal's words.

What the entry leaves out are Stable-Baselines3's defaults, the preset "sb3". What Shoal has not is an error that names all of it;
what changes nothing here (`verbose`, …) is a note, and so is what is done otherwise. Nothing is left out without a word.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from shoal.learn import zoo_file, zoo_optimizer, zoo_policy
from shoal.learn.config import config_names
from shoal.learn.zoo_values import Name, NoSuchValue, literal, number, schedule
from shoal.runs import preset, preset_names
from shoal.vector.extras import is_atari

__all__ = ["Entry", "read"]

_ATARI_WRAPPERS = (
    "stable_baselines3.common.atari_wrappers.AtariWrapper",
    "rl_zoo3.wrappers.AtariWrapper",
)

# Keys whose value is taken as it is, and what they are called here.
_SAME = {
    "seed": "seed",
    "batch_size": "batch_size",
    "n_epochs": "epochs",
    "gamma": "gamma",
    "gae_lambda": "gae_lambda",
    "vf_coef": "value_coef",
    "max_grad_norm": "max_grad_norm",
    "target_kl": "target_kl",
    "buffer_size": "buffer_size",
    "learning_starts": "learning_starts",
    "gradient_steps": "gradient_steps",
    "tau": "tau",
    "exploration_fraction": "exploration_fraction",
    "exploration_initial_eps": "exploration_initial",
    "exploration_final_eps": "exploration_final",
    "env_kwargs": "env_kwargs",
}
_ARGUMENTS = frozenset({"seed", "env_kwargs"})  # of train(), for any algorithm
# Keys that say nothing where they are null.
_NULL = frozenset(
    "normalize callback env_wrapper vec_env_wrapper frame_stack env_kwargs policy_kwargs action_noise replay_buffer_class"
    " replay_buffer_kwargs rollout_buffer_class rollout_buffer_kwargs".split()
)
# Keys that say how a program looks, not what it learns.
_WITHOUT_EFFECT = {
    "verbose": "the command line shows progress",
    "tensorboard_log": "`shoal train` writes TensorBoard's files into the run",
    "monitor_kwargs": "statistics of episodes are the engine's",
    "device": "networks of Shoal's own compute on the CPU",
    "stats_window_size": "statistics are of the last 100 episodes",
    "optimize_memory_usage": "it is about memory alone",
}


@dataclass
class Entry:
    """An entry, translated.

    Attributes:
        source: where it stands, as "ppo.yml:CartPole-v1".
        algorithm: of Shoal's.
        preset: the one that it is laid over.
        arguments: of shoal.learn.train: options, and env_kwargs, frame_stack, wrappers, atari.
        policy: the one that it names, "CnnPolicy"; None: it names none.
        notes: what was left out since it changes nothing.
        otherwise: what is done in another way.
        instead: which entry this is instead of one of the environment's own; None: it is that, or was asked for.
    """

    source: str
    algorithm: str
    preset: str
    arguments: dict[str, Any] = field(default_factory=dict)
    policy: str | None = None
    notes: list[str] = field(default_factory=list)
    otherwise: list[str] = field(default_factory=list)
    instead: str | None = None

    def remarks(self) -> list[str]:
        """All that there is to know of how it was read."""
        found = [] if self.instead is None else [self.instead]
        if self.notes:
            found.append(f"{self.source}: left out, since it changes nothing here: {'; '.join(self.notes)}")
        if self.otherwise:
            found.append(f"{self.source}: done otherwise here: {'; '.join(self.otherwise)}")
        return found

    def check(self, space: Any) -> None:
        """Raises ValueError where its policy is for other observations than those of `space`; warns of another network."""
        if self.policy is not None:
            because = f"{self.source} says policy: {self.policy}"
            zoo_policy.check(self.policy, because, space, takes_pictures=self.algorithm != "sac")


def read(file: str | Path, env_id: str, algorithm: str | None = None) -> Entry:
    """The entry of `file` for an environment.

    Args:
        file: the path of a YAML file; "ppo.yml:LunarLander-v3" takes the entry of that name, whatever the environment.
        env_id: whose entry is taken; without one, "atari" for Atari's games, and "default".
        algorithm: by default the one that the file is named after.

    Raises:
        ValueError: a file that is no such file, has no such entry (the nearest is named), or says what Shoal has not.
        ModuleNotFoundError: PyYAML is not installed.
    """
    of_atari = bool(env_id) and is_atari(env_id)
    found = zoo_file.find(file, env_id, of_atari)
    algorithm = zoo_file.algorithm_of(found.path, algorithm)
    presets = preset_names(algorithm)
    entry = Entry(found.source, algorithm, "sb3" if "sb3" in presets else presets[0], instead=found.instead)
    if of_atari:
        entry.arguments["atari"] = False  # unless the entry has its wrapper
        if "atari" in presets:  # how often whole games are played is no part of the entry
            usual = preset("atari", algorithm)
            entry.arguments |= {name: usual[name] for name in ("eval_every", "final_episodes")}
    return _Reader(entry, dict(found.settings)).read()


class _Reader:
    """Goes through the keys of one entry."""

    def __init__(self, entry: Entry, settings: dict[str, Any]) -> None:
        self._entry = entry
        self._settings = settings
        self._options = frozenset(config_names(entry.algorithm))
        self._unsupported: list[str] = []
        self._num_envs = 1
        self._of_optimizer: dict[str, Any] = {}

    def read(self) -> Entry:
        settings, entry = self._settings, self._entry
        for key in [key for key, value in settings.items() if value is None and key in _NULL]:
            del settings[key]
        self._of_optimizer |= {key: settings.pop(key) for key in zoo_optimizer.KEYS if key in settings}
        # In this order: the wrapper says how frames are stacked, the policy what its keyword arguments are over, and how many
        # environments there are, how often they train.
        for key, take in (
            ("n_envs", self._envs),
            ("n_timesteps", self._steps),
            ("env_wrapper", self._wrappers),
            ("frame_stack", self._frames),
            ("policy", self._policy),
            ("policy_kwargs", self._policy_kwargs),
            ("normalize", self._normalize),
            ("learning_rate", self._scheduled),
            ("clip_range", self._scheduled),
            ("clip_range_vf", self._clip_range_vf),
            ("normalize_advantage", self._normalize_advantage),
            ("train_freq", self._train_freq),
            ("n_steps", self._n_steps),
            ("ent_coef", self._ent_coef),
            ("target_entropy", self._target_entropy),
            ("target_update_interval", self._target_update_interval),
            ("use_sde", self._use_sde),
        ):
            if key in settings:
                self._taken(take, key, settings.pop(key))
            elif key == "train_freq" and key in self._options:
                self._taken(take, key, preset(entry.preset, entry.algorithm)[key])
        for key, value in settings.items():
            self._taken(self._plain, key, value)
        if self._of_optimizer:
            self._taken(self._optimizer, "policy_kwargs: optimizer_kwargs", self._of_optimizer.get("optimizer_kwargs"))
        if self._unsupported:
            raise ValueError(
                f"{entry.source} says what Shoal's {entry.algorithm} has not: {'; '.join(self._unsupported)}. Take it out of a copy "
                "of the file to train without it"
            )
        return entry

    def _taken(self, take: Callable[[str, Any], None], key: str, value: Any) -> None:
        """A value that `take` can make nothing of is told with all else that is refused."""
        try:
            take(key, value)
        except NoSuchValue as error:
            self._unsupported.append(str(error))
        except (TypeError, ValueError, OverflowError):
            self._refuse(key, repr(value), "it takes no such value")

    def _refuse(self, key: str, value: Any, why: str = "") -> None:
        self._unsupported.append(f"{key}: {value}{f' ({why})' if why else ''}")

    def _differs(self, key: str, value: Any, how: str) -> None:
        self._entry.otherwise.append(f"{key}: {value} ({how})")

    def _note(self, key: str, value: Any, why: str) -> None:
        self._entry.notes.append(f"{key}: {value} ({why})")

    def _set(self, key: str, value: Any, option: str, to: Any) -> None:
        """`option` as an argument of train(), where the algorithm has it."""
        if option in self._options or option in _ARGUMENTS:
            self._entry.arguments[option] = to
        else:
            self._refuse(key, value)

    def _plain(self, key: str, value: Any) -> None:
        if key in _WITHOUT_EFFECT:
            self._note(key, value, _WITHOUT_EFFECT[key])
        elif key in ("sde_sample_freq", "use_sde_at_warmup") and not self._settings.get("use_sde"):
            self._note(key, value, "without use_sde it changes nothing")
        elif key == "env_kwargs":
            self._entry.arguments["env_kwargs"] = _mapping(key, value)
        elif key in _SAME:
            self._plain_number(key, value, _SAME[key])
        else:
            self._refuse(key, value)

    def _plain_number(self, key: str, value: Any, option: str) -> None:
        self._set(key, value, option, None if value is None else number(key, value))

    def _steps(self, key: str, value: Any) -> None:
        if isinstance(value, bool) or not float(value).is_integer():
            raise ValueError(value)
        self._entry.arguments["total_steps"] = int(float(value))

    def _envs(self, key: str, value: Any) -> None:
        count = number(key, value)
        if not float(count).is_integer():
            raise NoSuchValue(f"{key}: {value!r} is no number of environments")
        self._num_envs = self._entry.arguments["num_envs"] = int(count)

    def _scheduled(self, key: str, value: Any) -> None:
        initial, kind = schedule(key, value)
        self._set(key, value, key, initial)
        if key not in self._options:
            return
        if f"{key}_schedule" in self._options:
            self._entry.arguments[f"{key}_schedule"] = kind
        elif kind != "constant":
            self._refuse(key, value, "it does not change over the run")

    def _clip_range_vf(self, key: str, value: Any) -> None:
        if value is None or (isinstance(value, int | float) and value < 0):
            self._set(key, value, "clip_range_value", None)
            return
        initial, kind = schedule(key, value)
        if kind != "constant":
            self._refuse(key, value, "it does not change over the run")
            return
        self._set(key, value, "clip_range_value", initial)
        self._set(key, value, "pessimistic_value_clip", False)

    def _normalize_advantage(self, key: str, value: Any) -> None:
        self._set(key, value, "advantage_normalization", "minibatch" if value else "none")

    def _train_freq(self, key: str, value: Any) -> None:
        count, unit = value if isinstance(value, list | tuple) else (value, "step")
        if unit != "step":
            self._refuse(key, value, "steps only")
            return
        if not isinstance(count, int) or isinstance(count, bool):
            raise NoSuchValue(f"{key}: {count!r} is no number of steps")
        # There a step is one of all environments.
        self._set(key, value, "train_freq", count * self._num_envs)

    def _n_steps(self, key: str, value: Any) -> None:
        """Of a rollout; where there is a replay, of a return."""
        self._plain_number(key, value, "n_step" if "n_step" in self._options else "num_steps")

    def _ent_coef(self, key: str, value: Any) -> None:
        """A number, which SAC keeps; "auto" and "auto_0.1" are learned, from 1 and from 0.1 on."""
        if "automatic_entropy" not in self._options:
            self._plain_number(key, value, "entropy_coef")
            return
        automatic, _, first = str(value).partition("_")
        learned = automatic == "auto"
        try:
            coefficient = float(first or 1.0) if learned else float(value)
        except (TypeError, ValueError):
            self._refuse(key, value, 'a number, "auto", or "auto_" and the first one')
            return
        self._set(key, value, "automatic_entropy", learned)
        self._set(key, value, "entropy_coef", coefficient)

    def _target_entropy(self, key: str, value: Any) -> None:
        """ "auto" is -dimensions of the action, as None is here."""
        self._set(key, value, key, None if value == "auto" else number(key, value))

    def _target_update_interval(self, key: str, value: Any) -> None:
        if "automatic_entropy" in self._options and value == 1:
            self._note(key, value, "so it is")
        else:
            self._plain_number(key, value, key)

    def _use_sde(self, key: str, value: Any) -> None:
        if value:
            self._refuse(key, value, "state-dependent exploration")
            self._settings.pop("sde_sample_freq", None)
            self._settings.pop("use_sde_at_warmup", None)

    def _normalize(self, key: str, value: Any) -> None:
        value = literal(key, value)
        how = {} if isinstance(value, bool) else _mapping(key, value)
        on = bool(value)
        known = {"norm_obs": "normalize_obs", "norm_reward": "normalize_reward"}
        for name, option in known.items():
            self._set(key, value, option, on and bool(how.pop(name, True)))
        for name in ("clip_obs", "clip_reward"):
            if name in how:
                self._set(key, value, name, how.pop(name))
        if how.pop("gamma", None) not in (None, self._settings.get("gamma", 0.99)):
            self._refuse(key, value, "with another gamma than the algorithm's")
        for name, setting in how.items():
            self._refuse(f"{key}: {name}", setting)

    def _wrappers(self, key: str, value: Any) -> None:
        wrappers: list[str] = []
        for wrapper in value if isinstance(value, list) else [value]:
            [(path, kwargs)] = wrapper.items() if isinstance(wrapper, Mapping) else [(wrapper, None)]
            kwargs = _mapping(f"{key}: {path}", kwargs or {})
            module, _, name = str(path).rpartition(".")
            if path in _ATARI_WRAPPERS:
                self._entry.arguments["atari"] = self._atari(kwargs)
                for inner in wrappers:
                    why = f"it comes before {name}, so that it is inside; here wrappers are around it: list it after"
                    self._refuse(key, inner.partition("(")[0].replace(":", "."), why)
                continue
            if not module:
                raise NoSuchValue(f"{key}: {path!r} is no path of a wrapper, module.Name")
            given = ", ".join(f"{argument}={setting!r}" for argument, setting in kwargs.items())
            wrappers.append(f"{module}:{name}({given})" if given else f"{module}:{name}")
        if wrappers:
            self._entry.arguments["wrappers"] = wrappers

    def _atari(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Arguments of AtariWrapper, whose names are AtariPreprocessing's."""
        sticky = kwargs.pop("action_repeat_probability", 0.0)
        if sticky:
            self._refuse("env_wrapper: action_repeat_probability", sticky, "the emulator's own is env_kwargs'")
        return {"like": "sb3", "frame_stack": None, **kwargs}

    def _frames(self, key: str, value: Any) -> None:
        if value < 2:
            return
        if atari := self._entry.arguments.get("atari"):
            atari["frame_stack"] = value
            return
        self._entry.arguments["frame_stack"] = value
        self._differs(key, value, "an episode begins with copies of its first observation; there, with zeros")

    def _policy(self, key: str, value: Any) -> None:
        known = zoo_policy.RECURRENT if "lstm_size" in self._options else zoo_policy.PLAIN
        if value not in known:
            self._refuse(key, value, f"there is {', '.join(known)}")
            return
        self._entry.policy = value
        if value.startswith("Cnn"):
            self._layers([], [])

    def _layers(self, policy: list[int], value: list[int]) -> None:
        for option, widths in (("policy_hidden", policy), ("value_hidden", value)):
            if option in self._options:
                self._entry.arguments[option] = widths

    def _policy_kwargs(self, key: str, value: Any) -> None:
        kwargs = dict(_mapping(key, literal(key, value)))
        if kwargs.get("enable_critic_lstm") == (not kwargs.get("shared_lstm", False)):
            del kwargs["enable_critic_lstm"]  # an LSTM of its own, or the policy's; without any, it is refused
        self._of_optimizer |= {name: kwargs.pop(name) for name in zoo_optimizer.KWARGS if name in kwargs}
        for name, setting in kwargs.items():
            self._taken(partial(self._policy_kwarg, name), f"{key}: {name}", setting)

    def _policy_kwarg(self, name: str, key: str, value: Any) -> None:
        if name == "net_arch":
            self._net_arch(key, value)
        elif name == "activation_fn" and str(value).rpartition(".")[2] in ("Tanh", "ReLU"):
            self._set(key, value, "activation", str(value).rpartition(".")[2].lower())
        elif name == "log_std_init":
            self._set(key, value, "log_std_init", value)
        elif name == "lstm_hidden_size":
            self._set(key, value, "lstm_size", value)
        elif name == "shared_lstm":
            self._set(key, value, name, value)
            if value:
                self._differs(key, value, "it learns from the values, too; there, from the policy alone")
        elif name == "ortho_init":
            self._set(key, value, "orthogonal_init", value)
        elif name == "features_extractor_class":
            self._extractor(key, value)
        elif (name, value) in (("share_features_extractor", True), ("n_lstm_layers", 1)):
            self._note(key, value, "so it is")
        else:
            self._refuse(key, value)

    def _extractor(self, key: str, value: Any) -> None:
        policy = self._entry.policy
        own = zoo_policy.extractor_of(policy)
        if str(value).rpartition(".")[2] == own:
            self._note(key, value, "so it is")
        else:
            self._refuse(
                key, value, f"{policy} has {own}" if own else "which one it has is up to policy:, which is not said"
            )

    def _optimizer(self, key: str, value: Any) -> None:
        """What `_of_optimizer` says, where it differs from what is usual."""
        said, usual = self._of_optimizer, preset(self._entry.preset, self._entry.algorithm)
        if value is not None:
            said["optimizer_kwargs"] = _mapping(key, value)
        if "rms_prop_eps" in said:
            said["rms_prop_eps"] = number("rms_prop_eps", said["rms_prop_eps"])
        found = zoo_optimizer.optimizer_of(said, self._entry.algorithm, usual["optimizer"])
        for option, setting in found.options.items():
            if setting != usual[option]:
                self._set(key, setting, option, setting)
        for name, why in found.unused.items():
            self._note(name if name in zoo_optimizer.KEYS else f"policy_kwargs: {name}", said[name], why)
        for name, setting in found.refused.items():
            self._refuse(f"{key}: {name}", setting)

    def _net_arch(self, key: str, value: Any) -> None:
        networks = self._networks()
        if "vf" in networks and isinstance(value, list) and len(value) == 1 and isinstance(value[0], Mapping):
            value = value[0]  # as it was written before Stable-Baselines3 1.8
        if isinstance(value, Mapping) and networks and set(value) == set(networks):
            policy, other = (list(value[name]) for name in networks)
            self._layers(policy, other)
        elif isinstance(value, list) and all(isinstance(width, int) for width in value):
            self._layers(value, value)
        else:
            each = ", ".join(f"{name}=[…]" for name in networks)
            self._refuse(key, value, f"widths, or dict({each})" if networks else "widths")

    def _networks(self) -> tuple[str, ...]:
        """What a dict of widths has there: the policy's, and those of values or of critics; DQN takes no dict."""
        if "value_hidden" not in self._options:
            return ()
        return ("pi", "qf") if "automatic_entropy" in self._options else ("pi", "vf")


def _mapping(key: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping) or isinstance(value, Name):
        raise NoSuchValue(f"{key} is a dict, got {value!r}")
    return dict(value)
