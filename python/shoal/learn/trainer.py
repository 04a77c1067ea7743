"""Training runs: `train` for the whole of one, `Trainer` to look on."""

from __future__ import annotations

import atexit
import json
import time
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal import _learn
from shoal._version import __version__
from shoal.errors import PeerLost
from shoal.learn import environments, ranks
from shoal.learn.config import algorithm_names, override, preset_for, read_run
from shoal.learn.ranks import Ranks, policy_on_ranks
from shoal.runs import preset as preset_config

if TYPE_CHECKING:
    from shoal.atari.preprocessing import AtariPreprocessing
    from shoal.learn.actors import Actors
    from shoal.learn.modules.session import Session
    from shoal.learn.zoo import Entry
    from shoal.vector.wrappers import Wrapper

__all__ = ["Result", "Trainer", "train"]

_WHY_RESTARTED = (
    "the environments could not be brought back to where they stood, so they were reset: what they do after reset(seed) does not "
    "depend on the seed and the actions alone. The run is a good one, but not the same as without the interruption."
)


@dataclass(frozen=True)
class Result:
    """What came of a run."""

    run_dir: Path
    env: str
    seed: int
    ending: str  # "budget" (total_steps were made), "target" (target_return was reached), "stopped" (resumable)
    steps: int  # over all environments
    episodes: int
    seconds: float  # of training, evaluations included, earlier sessions of a resumed run too
    mean_return: float | None  # of the final evaluation's episodes; without one, see evaluated_episodes
    std_return: float | None
    evaluated_episodes: int  # that mean_return is over; 0: it is over the last 100 training episodes
    best_return: float | None  # the evaluation for which checkpoints/best was kept
    best_step: int


def train(
    env: Any = None,
    algorithm: str | None = None,
    *,
    policy: Any = None,
    device: Any = None,
    total_steps: int | None = None,
    seed: int | None = None,
    num_envs: int | None = None,
    num_workers: int | None = None,
    nproc: int | None = None,
    preset: str | None = None,
    config: str | Path | None = None,
    run_dir: str | Path | None = None,
    resume: bool = False,
    env_kwargs: Mapping[str, Any] | None = None,
    max_episode_steps: int | None = None,
    frame_stack: int | None = None,
    reward_clip: tuple[float, float] | None = None,
    wrappers: Sequence[Wrapper] | None = None,
    atari: bool | str | Mapping[str, Any] | AtariPreprocessing | None = None,
    backend: str = "auto",
    context: str = "auto",
    callback: Callable[[dict[str, Any]], None] | None = None,
    **overrides: Any,
) -> Result:
    """Trains a policy, and leaves everything in `run_dir`.

    Args:
        env: an environment's id, class or factory, or a list of factories: what `shoal.make_vec` takes.
        algorithm: "ppo" (the default), "a2c", "a3c", "impala", "appo", "dqn", "sac" or "recurrent_ppo", whose policy remembers what it
            saw of an episode. "impala" and "appo" collect beside the update; which weights a rollout is collected with then
            depends on timing, unless they are told `deterministic=True`. "ppo" and "a2c" do so with `overlap=True`, in a fixed
            order, with weights that are one update old. "a3c" learns in its worker processes, all of which step the same
            parameters at the same time; what comes of it depends on timing. "dqn" (Discrete actions) and "sac" (a Box with
            bounds) learn from a replay of `buffer_size` rows, which lies in memory from the start and in every resumable
            checkpoint.
        policy: a network of one's own: a torch.nn.Module, which is trained where it is, or what makes one of (observation_space,
            action_space), or the import path of that, "package.module:Class". It is trained by "ppo", "a2c" and "appo";
            docs/guides/own-networks.md says what it must have. None: a network of Shoal's, which options describe.
        device: where a `policy` computes, as torch names it; by default the CPU.
        total_steps: environment steps over all environments; by default the preset's.
        seed: of everything random, 0 by default. The same seed gives the same policy, bit for bit, on one machine, for
            any number of workers; with "impala" and "appo" where they are told `deterministic=True`, with "a3c" where
            num_workers is 0.
        num_envs: how many environments are trained on; by default the preset's.
        num_workers: worker processes (threads for native environments); see `shoal.make_vec`. With "a3c" the processes that
            step environments and learn, by default one a CPU; 0: one actor in this process. Of each rank where there are several.
        nproc: processes that train together, with "ppo" or "a2c", each on its share of the environments: this one, and as many
            more as it starts. By default those that torchrun, mpirun, srun or Ray Train has started as ranks of one job,
            which all call this with the same arguments; 1: this process alone. Only rank 0 evaluates, and reads and writes
            `run_dir`. `shards=8` among the options gives the same policy, bit for bit, for 1, 2, 4 and 8 ranks. docs/guides/scale-out.md.
        preset: a name of `preset_names(algorithm)`; by default the one tuned for the task, else the first of them.
        config: instead of a preset: a YAML file of rl-baselines3-zoo's, "hyperparams/ppo.yml", whose entry for `env` is taken,
            or "ppo.yml:LunarLander-v2" for that entry. Its algorithm is the one that the file is named after, unless
            `algorithm` says another. Other arguments go before what it says. What Shoal has not is an error that names it,
            what changes nothing here a warning. Needs PyYAML.
        run_dir: where results go; by default a new directory in ./runs.
        resume: continue the run in `run_dir`, with what it was told when it began. Training that was stopped, or killed,
            ends with the same policy, bit for bit, as if it never had been, where the environments follow the rule that
            what they do after reset(seed) depends on the seed and the actions alone. `env` is only needed where the run
            was not trained on an id, and `policy` where no import path leads to it; runs of "appo" that train a `policy` begin
            with environments that are reset, and say so, unless they are told `deterministic=True`. Those of "a3c" go on with the
            parameters and counts of the checkpoint, and with environments that are reset. Overrides may change options; then it
            is another training from there on.
        env_kwargs, max_episode_steps, frame_stack, wrappers: as of `shoal.make_vec`, for all environments of the run, which
            keeps them: a resumed run and evaluations use them again. What JSON cannot hold, and a wrapper that no import
            path leads to, has to be given again.
        atari: as of `shoal.make_vec`, but that by default ids of `ale_py` are preprocessed: as the library does it that the
            preset is named after ("cleanrl_atari", "zoo_atari"), else the usual way. Evaluations play whole games, whose own
            rewards they count; in training, episodes are lives. False: raw frames, as also where env_kwargs describe them
            (`frameskip`, `obs_type`, …) or `wrappers` has Gymnasium's AtariPreprocessing or Stable-Baselines3's AtariWrapper.
        reward_clip: as of `shoal.make_vec`, while training; evaluations count the environment's own rewards.
        backend, context: see `shoal.make_vec`.
        callback: called about five times a second with `Trainer.status()`. What it raises stops the run, resumable.
        overrides: any option of `config_names(algorithm)`.

    Returns:
        What came of it. Ctrl-C stops the run, resumable, and raises KeyboardInterrupt.

    Raises:
        ValueError: an option that does not exist (the message names the nearest), or has an impossible value.
        PeerLost: another rank was killed, stopped, or failed: within seconds, with its exit code and last lines where
            `nproc` started it.
    """
    trainer = Trainer(
        env,
        algorithm,
        policy=policy,
        device=device,
        total_steps=total_steps,
        seed=seed,
        num_envs=num_envs,
        num_workers=num_workers,
        nproc=nproc,
        preset=preset,
        config=config,
        run_dir=run_dir,
        resume=resume,
        env_kwargs=env_kwargs,
        max_episode_steps=max_episode_steps,
        frame_stack=frame_stack,
        reward_clip=reward_clip,
        wrappers=wrappers,
        atari=atari,
        backend=backend,
        context=context,
        **overrides,
    )
    with trainer:
        trainer.start()
        while not trainer.wait(0.2 if callback else None):
            if callback is not None:
                callback(trainer.status())
        return trainer.result()


class Trainer:
    """A training run in the background: a C++ thread that needs Python only to step environments of this process; with
    `policy=`, a thread of Python.

    Arguments as `train`. Use it as a context manager, or call close(): leaving stops the run, resumable.

        with Trainer("CartPole-v1") as trainer:
            trainer.start()
            while not trainer.wait(1.0):
                print(trainer.status()["ep_return_mean"])
            print(trainer.result().mean_return)

    Threads: any one may call status(), poll(), wait() and stop().
    """

    _actors: Actors | None = None

    def __init__(
        self,
        env: Any = None,
        algorithm: str | None = None,
        *,
        policy: Any = None,
        device: Any = None,
        total_steps: int | None = None,
        seed: int | None = None,
        num_envs: int | None = None,
        num_workers: int | None = None,
        nproc: int | None = None,
        preset: str | None = None,
        config: str | Path | None = None,
        run_dir: str | Path | None = None,
        resume: bool = False,
        env_kwargs: Mapping[str, Any] | None = None,
        max_episode_steps: int | None = None,
        frame_stack: int | None = None,
        reward_clip: tuple[float, float] | None = None,
        wrappers: Sequence[Wrapper] | None = None,
        atari: bool | str | Mapping[str, Any] | AtariPreprocessing | None = None,
        backend: str = "auto",
        context: str = "auto",
        **overrides: Any,
    ) -> None:
        if algorithm is not None and algorithm not in algorithm_names():
            raise ValueError(f"there is no algorithm {algorithm!r}; there is {', '.join(algorithm_names())}")
        named = {"total_steps": total_steps, "seed": seed, "num_envs": num_envs}
        overrides |= {name: value for name, value in named.items() if value is not None}
        options = environments.EnvOptions(env_kwargs, max_episode_steps, frame_stack, reward_clip, wrappers, atari)
        given = {"env": env, "algorithm": algorithm, "preset": preset, "config": config, **vars(options), **overrides}
        where = {"num_workers": num_workers, "backend": backend, "context": context}
        self._ranks = Ranks(nproc, alone=policy is not None)
        with self._ranks.ending_together():
            if resume:
                if atari is not None:
                    overrides = environments.sign_of_rewards(options, atari, {}, overrides)
                about, self.config = self._ranks.same(
                    lambda: _recorded(run_dir, overrides, preset or config, algorithm)
                )
                policy, device = _network_of(about, policy, device)
                if policy is not None and self._ranks.size > 1:
                    raise policy_on_ranks(self._ranks.size)
                env = environments.recorded_env(about, env)
                where["num_workers"] = num_workers = _recorded_workers(about, num_workers)
                asked, options = options, options.over(environments.EnvOptions.of_run(about))
                about |= {name: value for name, value in asked.record().items() if value is not None}
            else:
                about, options, overrides = _new_run(env, algorithm, preset, config, options, overrides)
                self.config = override(preset_config(about["preset"], about["algorithm"]), overrides)
                if device is not None and policy is None:
                    raise ValueError("device= says where a policy= computes; Shoal's own networks compute on the CPU")
                if run_dir is None:
                    folder = new_run_dir(about["env"], about["algorithm"], self.config["seed"])
                    run_dir = self._ranks.same(lambda: str(folder))
            about |= {"shoal": __version__, "num_workers": num_workers}
            self.env: str = about["env"]
            self.seed: int = self.config["seed"]
            assert run_dir is not None  # _recorded() has refused to resume without
            self.run_dir = Path(run_dir)
            self._ended = False
            if policy is None:
                self._ranks.start(_live_as_rank, {**given, **where, "run_dir": str(run_dir), "resume": resume}, context)
                self._begin(env, options, about, resume, where)
            else:
                self._begin_with(policy, device, env, options, about, resume, where, overrides)

    def _begin(
        self, env: Any, options: environments.EnvOptions, about: dict[str, Any], resume: bool, where: dict[str, Any]
    ) -> None:
        """With a network of Shoal's."""
        config = json.dumps(self.config)
        first, count = _learn.envs_of_rank(config, self._ranks.group)
        if self._ranks.group is not None and where["num_workers"] is None:
            where = {**where, "num_workers": self._ranks.workers()}
        built: list[Any] = []
        try:
            envs = eval_envs = None
            if self.config["algorithm"] != "a3c" or where["num_workers"] == 0:
                mine = environments.factories_of(env, first + count)
                mine = mine[first:] if isinstance(mine, list) else mine
                envs = environments.build(mine, count, options.for_training(), **where)
                built.append(envs)
            if self._ranks.first:
                eval_envs = environments.build(env, self.config["eval_envs"], options.for_evaluation(), **where)
                built.append(eval_envs)
            if envs is None:
                from shoal.learn.actors import Actors

                assert eval_envs is not None
                self._actors = Actors(env, self.config["num_envs"], options.for_training(), eval_envs, **where)
                built.append(self._actors)
            trainer = _learn.Trainer(
                None if envs is None else envs._engine,
                None if eval_envs is None else eval_envs._engine,
                config_json=config,
                run_dir=str(self.run_dir),
                resume=resume,
                about_json=json.dumps(about),
                actors=None if self._actors is None else self._actors.handle,
                group=self._ranks.group,
            )
        except BaseException:
            _close(built)
            raise
        # In this order: what nobody holds any more loses its attributes one by one, and the end of the first waits for the
        # thread that steps the second.
        self._trainer: _learn.Trainer | Session = trainer
        self._envs = built

    def _begin_with(
        self,
        policy: Any,
        device: Any,
        env: Any,
        options: environments.EnvOptions,
        about: dict[str, Any],
        resume: bool,
        where: dict[str, Any],
        overrides: Mapping[str, Any],
    ) -> None:
        """With a network of the user's."""
        from shoal.learn.modules.session import OF_SHOALS_UPDATES, Session, check_options

        check_options(self.config["algorithm"], overrides)
        self.config |= {name: False for name in OF_SHOALS_UPDATES if name in self.config}
        trainer = Session(
            policy,
            device,
            env,
            options,
            config=self.config,
            about=about,
            run_dir=self.run_dir,
            resume=resume,
            **where,
        )
        self._trainer = trainer  # in this order, as above
        self._envs = trainer.environments

    @property
    def rank(self) -> int:
        """Which of the processes that train together this is; 0 is the one that evaluates and writes."""
        return self._ranks.rank

    @property
    def members(self) -> list[tuple[int, str, int]]:
        """The processes that train together, by rank: rank, host and process id; none after close()."""
        group = self._ranks.group
        return [] if group is None else list(group.members)

    def start(self) -> None:
        """Begins. Once."""
        _running.add(self)
        self._trainer.start()

    def stop(self) -> None:
        """Asks the run to end after the iteration under way, with a checkpoint to resume from. Returns at once."""
        self._trainer.stop()

    def wait(self, timeout: float | None = None) -> bool:
        """True once the run has ended. Raises what made it fail, and KeyboardInterrupt on Ctrl-C."""
        try:
            ended = self._trainer.wait(timeout)
        except PeerLost as lost:
            raise self._ranks.explained(lost) from None
        if ended and not self._ended:
            self._ended = True
            if self.status()["resume"] == "restarted":
                warnings.warn(getattr(self._trainer, "why_restarted", _WHY_RESTARTED), RuntimeWarning, stacklevel=2)
        return ended

    def status(self) -> dict[str, Any]:
        """Where the run stands: "phase" (ready, training, evaluating, ended), "resume" (none, pending,
        exact, restarted; anew: those of actors, which begin with environments that were reset), "step", "total_steps", "iteration", "episodes", "seconds", "seconds_left", "steps_per_second", "ep_return_mean" and
        "ep_length_mean" (of the last 100 training episodes), the losses of the last update, "policy_lag" (how many updates old the
        weights of its rollout were; "a3c", "impala", "appo", and where they overlap "ppo" and "a2c"), "q_value" (mean of what was
        sampled) and "updates" (so far; both of "dqn" and "sac"), "exploration" (share of random actions, "dqn"), "temperature" ("sac"), "eval_return_mean",
        "eval_step", "best_return_mean", "best_step". None where there is nothing yet."""
        return self._trainer.status()

    def poll(self) -> list[tuple[int, dict[str, float]]]:
        """What was measured since the last call: (step, {name: value}), under the names of Stable-Baselines3 (rollout/,
        train/, time/, eval/) and CleanRL (charts/, losses/)."""
        return self._trainer.poll()

    def result(self) -> Result:
        """What came of it. Raises RuntimeError before the end."""
        result = json.loads(self._trainer.result())
        return Result(**{**result, "run_dir": self.run_dir, "env": self.env, "seed": self.seed})

    def close(self) -> None:
        """Stops the run where it has not ended, waits for it, and closes the environments. Idempotent; never raises what
        made the run fail."""
        if self in _running:
            self._trainer.stop()
            while self._trainer.status()["phase"] != "ended":
                self._wait_quietly()
            _running.discard(self)
        _close(self._envs)
        self._ranks.close()

    def _wait_quietly(self) -> None:
        try:
            self._trainer.wait(0.2)
        except KeyboardInterrupt:
            raise
        except Exception:
            pass  # wait() has told, or nobody asked

    def __enter__(self) -> Trainer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _live_as_rank(context: Any, rank: int, size: int, attempt: str, arguments: dict[str, Any]) -> None:
    """The life of a process that `nproc=` started."""
    ranks.begin(rank, size, attempt)
    try:
        with Trainer(**arguments) as trainer:
            trainer.start()
            trainer.wait()
    except PeerLost:
        raise SystemExit(1) from None  # rank 0 tells why


def _close(envs: list[Any]) -> None:
    while envs:
        environments.close(envs.pop())


_running: weakref.WeakSet[Trainer] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Ends the threads of runs that nobody closed, before the interpreter that they may need is gone."""
    for trainer in list(_running):
        trainer.close()


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
    """A directory that is not there yet, named after what is trained and when."""
    task = "".join(c if c.isalnum() or c in "-_." else "-" for c in env)
    stem = f"{task}-{algorithm}-seed{seed}-{time.strftime('%Y%m%d-%H%M%S')}"
    path, count = parent / stem, 1
    while path.exists():
        count += 1
        path = parent / f"{stem}-{count}"
    return path


def _new_run(
    env: Any,
    algorithm: str | None,
    preset: str | None,
    config: str | Path | None,
    options: environments.EnvOptions,
    overrides: Mapping[str, Any],
) -> tuple[dict[str, Any], environments.EnvOptions, dict[str, Any]]:
    """What a run remembers of how it began, its environments, and its options beyond the preset's."""
    if env is None:
        raise TypeError("train needs an environment: an id such as 'CartPole-v1', a class or a factory")
    name = environments.name_of(env)
    env_id = name if isinstance(env, str) else ""
    asked = options.atari
    about: dict[str, Any] = {}
    if config is not None:
        if preset is not None:
            raise ValueError("config= is instead of preset=: leave one of them out")
        entry = _read_zoo(config, env_id, algorithm)
        algorithm, preset, about["settings"] = entry.algorithm, entry.preset, entry.source
        options, rest = options.beside(entry.arguments)
        overrides = {**rest, **overrides}
        asked = options.atari
    algorithm = algorithm if algorithm is not None else algorithm_names()[0]
    preset = preset if preset is not None else preset_for(env_id, algorithm)
    options = options.with_preprocessing(env, preset)
    overrides = environments.sign_of_rewards(options, asked, preset_config(preset, algorithm), overrides)
    about |= {"env": name, "env_is_id": isinstance(env, str), **options.record()}
    return about | {"algorithm": algorithm, "preset": preset}, options, overrides


def _read_zoo(config: str | Path, env_id: str, algorithm: str | None) -> Entry:
    from shoal.learn import zoo

    entry = zoo.read(config, env_id, algorithm)
    if entry.notes:
        warnings.warn(
            f"{entry.source}: left out, since it changes nothing here: {'; '.join(entry.notes)}", stacklevel=5
        )
    return entry


def _recorded(
    run_dir: str | Path | None, overrides: Mapping[str, Any], preset: Any, algorithm: str | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a run directory says of its run, and its options with some changed."""
    if run_dir is None:
        raise TypeError("resume=True needs run_dir=, the directory of the run")
    if preset is not None:
        raise ValueError("a resumed run keeps its options: leave out preset= and config=, and override single ones")
    about = read_run(Path(run_dir))
    its_own = about.get("algorithm", "ppo")
    if algorithm not in (None, its_own):
        raise ValueError(f"{run_dir} is a run of {its_own}, which does not become one of {algorithm}")
    config = about.pop("config")
    config["pause_at_step"] = None
    return about, override(config, overrides)


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
