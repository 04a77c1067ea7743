"""What a run is to be, from what was asked: one that begins, or the recorded one that goes on."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from inspect import signature
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal._version import __version__
from shoal.learn import environments
from shoal.learn.config import algorithm_names, config_names, holds_run, override, preset_for, read_run
from shoal.learn.durable import found
from shoal.learn.ranks import Ranks, policy_on_ranks
from shoal.learn.remote import MAX_LAG
from shoal.runs import preset as preset_config
from shoal.vector.make import make_vec
from shoal.vector.options import WorkerOptions

if TYPE_CHECKING:
    from shoal.learn.zoo import Entry

__all__ = ["Request", "RunPlan", "new_run_dir"]

_LISTENING = ("appo", "impala")
_logger = logging.getLogger("shoal.learn")


@dataclass(frozen=True)
class RunPlan:
    """What a run is to be.

    Attributes:
        env: what its environments are built of.
        about: what its folder remembers of it.
        config: the options of its algorithm, all of them.
        overrides: those among them that were given.
        policy: a network of the user's; None: one of Shoal's.
        run_dir: where its files are, absolute: what is imported and stepped here may change the working directory.
        called: `run_dir` as it was given, for messages.
        goes_on: it is the run that `run_dir` holds.
        changed: the options of its environments that are not what they were when it began.
        listen: where collectors come to; None: the run steps its environments itself.
        entry: of rl-baselines3-zoo's, which it is told by; None: there is none.
        made: `run_dir`, which nobody has named, was made for it.
    """

    env: Any
    options: environments.EnvOptions
    about: dict[str, Any]
    config: dict[str, Any]
    overrides: Mapping[str, Any]
    policy: Any
    device: Any
    run_dir: Path
    called: Path
    goes_on: bool
    num_workers: int | None
    listen: str | None
    entry: Entry | None = None
    made: bool = False
    changed: Sequence[str] = ()

    def why_reset(self, more: str = "") -> str:
        """What to say where its environments could not be brought back to where they stood.

        Args:
            more: another cause that it may have.
        """
        if self.changed:
            return (
                f"the environments could not be brought back to where they stood, so they were reset: {' and '.join(self.changed)} "
                "changed. The run goes on with what it was given now, and is not the same as without the interruption."
            )
        return (
            "the environments could not be brought back to where they stood, so they were reset: what they do after reset(seed) does "
            f"not depend on the seed and the actions alone{more}. The run is a good one, but not the same as without the interruption."
        )

    def give_up(self) -> None:
        """For a run that could not be built: takes the folder away that was made for it, unless something is in it."""
        if self.made:
            with contextlib.suppress(OSError):
                self.run_dir.rmdir()


@dataclass
class Request:
    """What `train` was asked for, in its own words."""

    env: Any
    algorithm: str | None
    preset: str | None
    config: str | Path | None
    policy: Any
    device: Any
    run_dir: str | Path | None
    resume: bool | str
    nproc: int | None
    num_workers: int | None
    listen: str | None
    options: environments.EnvOptions
    overrides: dict[str, Any]
    as_told: bool = field(default=False, init=False)
    """The run goes on with what it was told when it began, whatever else is asked for."""
    folder: Path | None = field(default=None, init=False)
    """`run_dir`, absolute."""

    def __post_init__(self) -> None:
        if self.run_dir is not None:
            self.folder = Path(self.run_dir).absolute()
        self.num_workers = _plain(self.num_workers)
        self.overrides = {name: _plain(value) for name, value in self.overrides.items()}

    def check(self) -> None:
        """Raises ValueError or TypeError for what is wrong whatever other ranks and the run's folder say."""
        _refuse_arguments_of_environments(self.overrides)
        if self.preset is not None and not isinstance(self.preset, str):
            raise TypeError(f"preset is {self.preset!r}, it has to be a name: preset_names() has them")
        if self.listen is not None and not isinstance(self.listen, str):
            raise TypeError(f'listen is {self.listen!r}, it has to be text: "host:port", where collectors come to')
        if self.listen is not None and self.resume is not True:
            if self.algorithm not in _LISTENING:
                raise ValueError(f"listen= is for algorithm= 'appo' and 'impala', not for {self.algorithm or 'ppo'}")
            if self.policy is not None or self.nproc not in (None, 1):
                raise ValueError(
                    "listen= is for one process that trains a network of Shoal's: leave out policy= and nproc="
                )
        if self.algorithm is not None and self.algorithm not in algorithm_names():
            raise ValueError(f"there is no algorithm {self.algorithm!r}; there is {', '.join(algorithm_names())}")
        if self.resume not in (True, False, "auto"):
            raise ValueError(f"resume is {self.resume!r}, it has to be True, False or 'auto'")
        if self.run_dir is not None and not str(os.fspath(self.run_dir)):
            raise ValueError("run_dir is empty: name a directory, or leave it out for a new one in runs/")
        if self.resume == "auto" and self.run_dir is None:
            raise TypeError("resume='auto' needs run_dir=, the directory where the run is or will be")

    def plan(self, ranks: Ranks) -> RunPlan:
        """The same on all `ranks`: what depends on files and clocks, rank 0 tells the others."""
        if self.resume == "auto":
            self.resume = ranks.same(lambda: holds_run(Path(str(self.run_dir))))
            if self.resume:
                asked = {"algorithm": self.algorithm, "preset": self.preset}, self.overrides, self.options
                self.as_told = True
                self.algorithm = self.preset = self.config = None
                self.overrides = {}
        plan = self._recorded(ranks) if self.resume else self._anew(ranks)
        if self.as_told and ranks.first:
            _tell_what_is_left_out(plan, *asked)
        ranks.agree({name: plan.about.get(name) for name in ("shoal", "env", "algorithm", "atari")} | plan.config)
        return plan

    def of_a_rank(self, plan: RunPlan) -> dict[str, Any]:
        """Arguments of `Trainer` in another process, for the same run."""
        asked = {name: vars(self)[name] for name in ("env", "algorithm", "preset", "config")}
        of_the_run = {"run_dir": str(plan.run_dir), "resume": plan.goes_on}
        return {**asked, **vars(self.options), **self.overrides, **of_the_run}

    def _anew(self, ranks: Ranks) -> RunPlan:
        if self.env is None:
            raise TypeError("train needs an environment: an id such as 'CartPole-v1', a class or a factory")
        name = environments.name_of(self.env)
        env_id = name if isinstance(self.env, str) else ""
        algorithm, preset, options, overrides = self.algorithm, self.preset, self.options, self.overrides
        if self.listen is not None:
            overrides = {"max_lag": MAX_LAG, **overrides}
        about: dict[str, Any] = {}
        entry = None
        if self.config is not None:
            if preset is not None:
                raise ValueError("config= is instead of preset=: leave one of them out")
            entry = _read_zoo(self.config, name, algorithm)
            algorithm, preset, about["settings"] = entry.algorithm, entry.preset, entry.source
            options, rest = options.beside(entry.arguments)
            overrides = {**rest, **overrides}
        algorithm = algorithm if algorithm is not None else algorithm_names()[0]
        preset = preset if preset is not None else preset_for(env_id, algorithm)
        asked = options.atari
        options = options.with_preprocessing(self.env, preset)
        settings = preset_config(preset, algorithm)
        overrides = environments.sign_of_rewards(options, asked, settings, overrides)
        overrides = overrides | environments.enough_for_all(self.env, {**settings, **overrides}, told=self.overrides)
        about |= {"env": name, "env_is_id": isinstance(self.env, str), "env_path": environments.env_path_of(self.env)}
        about |= options.record()
        about |= {"algorithm": algorithm, "preset": preset}
        config = override(settings, overrides)
        environments.require_all_in_run(self.env, config)
        if self.device is not None and self.policy is None:
            raise ValueError("device= says where a policy= computes; Shoal's own networks compute on the CPU")
        run_dir, folder = self.run_dir, self.folder
        if run_dir is None or folder is None:
            run_dir = ranks.same(lambda: str(new_run_dir(name, algorithm, config["seed"])))
            folder = Path(run_dir).absolute()
        return RunPlan(
            self.env,
            options,
            about | {"shoal": __version__, "num_workers": self.num_workers},
            config,
            overrides,
            self.policy,
            self.device,
            folder,
            Path(run_dir),
            goes_on=False,
            num_workers=self.num_workers,
            listen=self.listen,
            entry=entry,
            made=self.run_dir is None and ranks.first,
        )

    def _recorded(self, ranks: Ranks) -> RunPlan:
        about, config, step = ranks.same(self._read)
        if self.as_told:
            self.options = self.options.only(about.get("unrecorded", []))
        policy, device = _network_of(about, self.policy, self.device)
        if policy is not None and ranks.size > 1:
            raise policy_on_ranks(ranks.size)
        env = environments.resumed_env(about, self.env)
        environments.require_all_in_run(env, config)
        num_workers = _recorded_workers(about, self.num_workers)
        options = self.options.over_run(about, "train(…, resume=True")
        given = self.options.changes_of(about).record()
        changed = _changed_at(step, about.pop("changed", {}), self.options.differing_from(about))
        if changed:
            about["changed"] = {"at_step": step, "options": changed}
        about |= {name: value for name, value in given.items() if self.options.says(name) or name == "unrecorded"}
        if self.listen is not None and "listen" not in about:
            raise ValueError(
                "this run steps its environments itself, and does not go on with collectors: leave out listen="
            )
        assert self.run_dir is not None and self.folder is not None  # _read() has refused that
        return RunPlan(
            env,
            options,
            about | {"shoal": __version__, "num_workers": num_workers},
            config,
            self.overrides,
            policy,
            device,
            self.folder,
            Path(self.run_dir),
            goes_on=True,
            num_workers=num_workers,
            listen=self.listen if self.listen is not None else about.get("listen"),
            changed=changed,
        )

    def _read(self) -> tuple[dict[str, Any], dict[str, Any], int | None]:
        """What the run's folder says of it, its options with some changed, and the step of its last checkpoint."""
        if self.run_dir is None or self.folder is None:
            raise TypeError("resume=True needs run_dir=, the directory of the run")
        if self.preset is not None or self.config is not None:
            raise ValueError("a resumed run keeps its options: leave out preset= and config=, and override single ones")
        about = read_run(Path(self.run_dir))
        its_own = about.get("algorithm", "ppo")
        if self.algorithm not in (None, its_own):
            raise ValueError(f"{self.run_dir} is a run of {its_own}, which does not become one of {self.algorithm}")
        overrides = self.overrides
        if not self.as_told:
            overrides = environments.sign_of_rewards_now(self.options, about, overrides)
        config = about.pop("config")
        config["pause_at_step"] = None
        seed = self.overrides.get("seed", config["seed"])
        if seed != config["seed"]:
            raise ValueError(
                f"seed={seed}: the run in {self.run_dir} began with seed={config['seed']}, and all that it draws follows from that: "
                "leave it out, or begin a new run"
            )
        return about, override(config, overrides), _step_of(self.folder / "checkpoints" / "last")


def _step_of(checkpoint: Path) -> int | None:
    """None of one that is damaged, which is told where it is loaded."""
    try:
        return int(json.loads((found(checkpoint) / "state.json").read_text())["step"])
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _changed_at(step: int | None, before: Mapping[str, Any], now: Sequence[str]) -> list[str]:
    """The options of environments that are not what they were at `step`.

    Args:
        before: those that changed in an earlier session, and at which step, as config.json has it: the session may have made none.
        now: those that change in this session.
    """
    return sorted({*now, *(before.get("options", ()) if before.get("at_step") == step else ())})


def _recorded_workers(run: Mapping[str, Any], num_workers: int | None) -> int | None:
    """`num_workers` of a run that is resumed. A3C in this process is another kind of learner than with actors."""
    if run.get("algorithm") == "a3c":
        alone = run.get("num_workers") == 0
        if num_workers is None and alone:
            return 0
        if num_workers == 0 and not alone:
            raise ValueError(
                "this run of a3c has actors in processes, and does not go on in this one: leave out num_workers=0"
            )
    return num_workers


def new_run_dir(env: str, algorithm: str, seed: int, parent: Path = Path("runs")) -> Path:
    """Makes a directory, which others that ask for one at the same moment do not get, named after what is trained and when."""
    task = "".join(c if c.isalnum() or c in "-_." else "-" for c in env)
    stem = f"{task}-{algorithm}-seed{seed}-{time.strftime('%Y%m%d-%H%M%S')}"
    parent.mkdir(parents=True, exist_ok=True)
    path, count = parent / stem, 1
    while True:
        try:
            path.mkdir()
        except FileExistsError:
            count += 1
            path = parent / f"{stem}-{count}"
        else:
            return path


def _plain(value: Any) -> Any:
    """NumPy's numbers as Python's own, which JSON holds."""
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, bool) or not isinstance(value, Real):
        return value
    return int(value) if isinstance(value, Integral) else float(value)


def _refuse_arguments_of_environments(overrides: Mapping[str, Any]) -> None:
    """Raises TypeError for what make_vec takes, or WorkerOptions, and no algorithm has an option of that name."""
    theirs = {
        name: "shoal.make_vec" for name, it in signature(make_vec).parameters.items() if it.kind is it.KEYWORD_ONLY
    }
    theirs |= {option.name: "shoal.WorkerOptions" for option in fields(WorkerOptions)}
    options = {name for algorithm in algorithm_names() for name in config_names(algorithm)}
    for name in overrides:
        if name in theirs and name not in options:
            instead = "a run that ends goes on with resume='auto'; or " if name == "on_fault" else ""
            raise TypeError(
                f"train has no {name}=, which is an argument of {theirs[name]}: {instead}write the loop over make_vec"
            )


def _tell_what_is_left_out(
    plan: RunPlan, asked: Mapping[str, str | None], overrides: Mapping[str, Any], options: environments.EnvOptions
) -> None:
    """Warns of what a run that goes on as it was told does not take."""
    told = plan.config | {name: plan.about.get(name) for name in asked}
    wanted = override(plan.config, overrides) | {name: value for name, value in asked.items() if value is not None}
    differs = [f"{name}={told[name]} and not {value}" for name, value in wanted.items() if told[name] != value]
    differs += [f"{name}= as it was" for name in options.differing_from(plan.about)]
    if differs:
        _logger.warning(
            "the run %s goes on as it was told when it began, with %s; resume=True or --resume RUN changes the options of a run",
            plan.called,
            ", ".join(differs),
        )


def _read_zoo(config: str | Path, env_id: str, algorithm: str | None) -> Entry:
    from shoal.learn import zoo

    entry = zoo.read(config, env_id, algorithm)
    for remark in entry.remarks():
        warnings.warn(remark, stacklevel=6)
    return entry


def _network_of(about: Mapping[str, Any], policy: Any, device: Any) -> tuple[Any, Any]:
    """The policy and the device that a recorded run goes on with; None for one of Shoal's own networks."""
    if "policy" not in about:
        for name, value in (("policy", policy), ("device", device)):
            if value is not None:
                raise ValueError(f"{name}= is of a network of one's own; this is a run of one of Shoal's")
        return None, None
    if policy is None:
        policy = about["policy"]
    if policy is None:
        raise ValueError(
            f"no import path leads to the run's policy, a {about['policy_name']}: give it as policy=, as when the run began"
        )
    return policy, device if device is not None else about["device"]
