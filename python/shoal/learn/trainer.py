"""Training runs: `train` for the whole of one, `Trainer` to look on."""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import shlex
import sys
import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal import _learn
from shoal.errors import PeerLost, WorkerDied
from shoal.learn import environments, failures, ranks
from shoal.learn.config import holds_run, rounded_steps
from shoal.learn.ranks import Ranks
from shoal.learn.remote import Listening
from shoal.learn.run_plan import Request, RunPlan
from shoal.names import needs_torch
from shoal.reprs import never_raises
from shoal.vector.vector_env import VectorEnv

if TYPE_CHECKING:
    from shoal.atari.preprocessing import AtariPreprocessing
    from shoal.learn.actors import Actors
    from shoal.learn.modules.session import Session
    from shoal.vector.wrappers import Wrapper

__all__ = ["Result", "Trainer", "train"]

_logger = logging.getLogger("shoal.learn")

_PATIENCE = 5.0
"""Seconds for a run to end whose workers have been killed."""


@dataclass(frozen=True)
class Result:
    """What came of a run."""

    run_dir: Path  # as it was given
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
    listen: str | None = None,
    preset: str | None = None,
    config: str | Path | None = None,
    run_dir: str | Path | None = None,
    resume: bool | str = False,
    env_kwargs: Mapping[str, Any] | None = None,
    max_episode_steps: int | None = None,
    frame_stack: int | None = None,
    reward_clip: tuple[float, float] | None = None,
    wrappers: Sequence[Wrapper] | None = None,
    atari: bool | str | Mapping[str, Any] | AtariPreprocessing | None = None,
    backend: str = "auto",
    context: str = "auto",
    callback: Callable[[dict[str, Any]], Any] | None = None,
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
            the guide's page "Networks of your own" says what it must have. None: a network of Shoal's, which options describe.
        device: where a `policy` computes, as torch names it; by default the CPU.
        total_steps: environment steps over all environments; by default the preset's. A run makes whole iterations, of num_envs
            times num_steps steps, so it ends with up to one of them more (with "a3c" with the rollouts that are under way);
            the logger "shoal.learn" says at the start, as info, how many steps that are.
        seed: of everything random, 0 by default. The same seed gives the same policy, bit for bit, on one machine, for
            any number of workers; with "impala" and "appo" where they are told `deterministic=True`, with "a3c" where
            num_workers is 0.
        num_envs: how many environments are trained on; by default the preset's, and at least as many as a list of factories has.
            So are the environments and the episodes of evaluations (`eval_envs`, `eval_episodes`, `final_episodes`).
        num_workers: worker processes (threads for native environments); see `shoal.make_vec`. With "a3c" the processes that
            step environments and learn, by default one a CPU; 0: one actor in this process. Of each rank where there are several.
        nproc: processes that train together, with "ppo" or "a2c", each on its share of the environments: this one, and as many
            more as it starts, 16 for each CPU at most. By default those that torchrun, mpirun, srun or Ray Train has started as
            ranks of one job, which all call this with the same arguments; 1: this process alone. Only rank 0 evaluates, and
            reads and writes `run_dir`. `shards=8` among the options gives the same policy, bit for bit, for 1, 2, 4 and 8 ranks. See
            the guide's page "Several processes, several machines".
        listen: "host:port", with "impala" and "appo": the run learns from collectors that come there, from this host or others, each
            started by `shoal.learn.collect` or `shoal collect`, and steps no training environments itself. Each collector steps
            `num_envs` of its own; they may come and go. Port 0 takes a free one (`Trainer.address`). Where the host is not the
            loopback, SHOAL_GROUP_SECRET has to be set. `max_lag`, 8 by default here, bounds how many are at work at once: one
            more. `env` has to be an id. See the guide's page "Several processes, several machines".
        preset: a name of `preset_names(algorithm)`; by default the one tuned for the task, else the first of them.
        config: instead of a preset: a YAML file of rl-baselines3-zoo's, "hyperparams/ppo.yml", whose entry for `env` is taken,
            or "ppo.yml:LunarLander-v3" for that entry. Its algorithm is the one that the file is named after, unless
            `algorithm` says another. Other arguments go before what it says. What Shoal has not is an error that names it,
            what changes nothing here, or is done otherwise, a warning. Needs PyYAML.
        run_dir: where results go; by default a new directory in ./runs. A relative one is of the working directory at this call.
        resume: continue the run in `run_dir`, with what it was told when it began. Training that was stopped, or killed,
            ends with the same policy, bit for bit, as if it never had been, where the environments follow the rule that
            what they do after reset(seed) depends on the seed and the actions alone. `env` is only needed where the run
            was not trained on an id, else it has to be that, and `policy` where no import path leads to it; runs of "appo" that train a `policy` begin
            with environments that are reset, and say so, unless they are told `deterministic=True`. Those of "a3c" go on with the
            parameters, counts and reward normalisers of the checkpoint, and with environments that are reset. Overrides may
            change options, but not the seed; then it is another training from there on. "auto": where `run_dir` holds a run, that goes on with what it was told, whatever
            the options say (what it could not record is taken from them), and else one begins; for a launcher that starts the
            same command again.
            A run that listens does so again where it did, and goes on with what had arrived and with collectors that come.
        env_kwargs, max_episode_steps, frame_stack, wrappers: as of `shoal.make_vec`, for all environments of the run, which
            keeps them: a resumed run and evaluations use them again. What JSON cannot hold, and a wrapper that no import
            path leads to, has to be given again.
        atari: as of `shoal.make_vec`, but that by default ids of `ale_py` are preprocessed: as the library does it that the
            preset is named after ("cleanrl_atari", "zoo_atari"), else the usual way. Evaluations play whole games, whose own
            rewards they count; in training, episodes are lives. False: raw frames, as also where env_kwargs describe them
            (`frameskip`, `obs_type`, …) or `wrappers` has Gymnasium's AtariPreprocessing or Stable-Baselines3's AtariWrapper.
        reward_clip: as of `shoal.make_vec`, while training; evaluations count the environment's own rewards.
        backend, context: see `shoal.make_vec`.
        callback: called about five times a second with `Trainer.status()`, and once more when the run has ended. Where it
            returns False the run stops, as in Stable-Baselines3; so it does where it raises. It can be resumed.
        overrides: any option of `config_names(algorithm)`.

    Returns:
        What came of it. Ctrl-C stops the run after the iteration under way, resumable, and raises KeyboardInterrupt; once more
        meanwhile ends it at once, and its last checkpoint is what it goes on from.

    Raises:
        ValueError: an option that does not exist (the message names the nearest), or has an impossible value.
        TypeError: an option or a callback of the wrong kind.
        PeerLost: another rank was killed, stopped, or failed: within seconds, with its exit code and last lines where
            `nproc` started it.
    """
    if callback is not None and not callable(callback):
        raise TypeError(f"train(callback=…) takes a function of Trainer.status(), got {callback!r}")
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
        listen=listen,
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
    return run_to_end(trainer, callback)


def run_to_end(trainer: Trainer, callback: Callable[[dict[str, Any]], Any] | None) -> Result:
    """Starts the run, waits for its end, and closes it; `callback` as of `train`."""
    with trainer:
        trainer.start()
        ended = False
        while not ended:
            ended = trainer.wait(None if callback is None else 0.2)
            if callback is not None and _says_stop(callback(trainer.status())):
                trainer.stop()
        return trainer.result()


def _says_stop(answer: Any) -> bool:
    """False stops the run, as in Stable-Baselines3; None and anything else does not."""
    return isinstance(answer, bool | np.bool_) and not answer


class Trainer:
    """A training run in the background: a C++ thread that needs Python only to step environments of this process; with
    `policy=`, a thread of Python.

    Arguments as `train`. Use it as a context manager, or call close(): leaving stops the run, resumable. Ctrl-C
    that leaves it after stop() ends the run at once.

        with Trainer("CartPole-v1") as trainer:
            trainer.start()
            while not trainer.wait(1.0):
                print(trainer.status()["ep_return_mean"])
            print(trainer.result().mean_return)

    Threads: any one may call status(), poll(), wait() and stop().
    """

    _actors: Actors | None = None
    _listening: Listening | None = None
    _stopping = False
    _cut_short = False  # by Ctrl-C: what fails from then on is its doing
    _error: Exception | None = None  # what made the run fail; a session's is kept there, until close()
    _failure: str | None = None  # its first line
    _secret: str | None = None  # of those that collect; None: SHOAL_GROUP_SECRET's

    def __init__(
        self,
        /,  # overrides may have any name
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
        listen: str | None = None,
        preset: str | None = None,
        config: str | Path | None = None,
        run_dir: str | Path | None = None,
        resume: bool | str = False,
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
        named = {"total_steps": total_steps, "seed": seed, "num_envs": num_envs}
        overrides |= {name: value for name, value in named.items() if value is not None}
        options = environments.EnvOptions(env_kwargs, max_episode_steps, frame_stack, reward_clip, wrappers, atari)
        asked = Request(
            env,
            algorithm,
            preset,
            config,
            policy,
            device,
            run_dir,
            resume,
            nproc,
            num_workers,
            listen,
            options,
            overrides,
        )
        asked.check()
        self._ranks = Ranks(1 if listen is not None else nproc, alone=policy is not None)
        with self._ranks.ending_together():
            plan = asked.plan(self._ranks)
            self.config = plan.config
            self.env: str = plan.about["env"]
            self.seed: int = plan.config["seed"]
            self.run_dir = plan.run_dir
            self._called = plan.called
            self._given = frozenset(overrides)
            self._why_reset = plan.why_reset()
            self._ended = False
            where = {"num_workers": plan.num_workers, "backend": backend, "context": context}
            try:
                if plan.policy is None:
                    self._ranks.start(_live_as_rank, {**asked.of_a_rank(plan), **where}, context)
                    self._begin(plan, where)
                else:
                    self._begin_with(plan, where)
            except BaseException as error:
                plan.give_up()
                if isinstance(error, WorkerDied):
                    error.remedy = ""  # there is no on_fault=, and nothing to go on with
                raise

    def _begin(self, plan: RunPlan, where: dict[str, Any]) -> None:
        """With a network of Shoal's."""
        config = json.dumps(self.config)
        first, count = _learn.envs_of_rank(config, self._ranks.group)
        if self._ranks.group is not None and where["num_workers"] is None:
            where = {**where, "num_workers": self._ranks.workers()}
        env, options, about, listen = plan.env, plan.options, plan.about, plan.listen
        if listen is not None:
            Listening.check(about, options)
        built: list[Any] = []
        try:
            envs = eval_envs = None
            if listen is None and (self.config["algorithm"] != "a3c" or where["num_workers"] == 0):
                mine = environments.factories_of(env, first + count)
                mine = mine[first:] if isinstance(mine, list) else mine
                envs = environments.build(mine, count, options.for_training(), **where)
                built.append(envs)
            if self._ranks.first:
                eval_envs = environments.build(env, self.config["eval_envs"], options.for_evaluation(), **where)
                built.append(eval_envs)
                if envs is not None:
                    environments.warn_of_cut_episodes(options, eval_envs, self.config)
            if plan.entry is not None:
                plan.entry.check(built[0].single_observation_space)
            if listen is not None:
                assert eval_envs is not None
                self._listening = Listening(listen, about, self.config, eval_envs._engine, self._secret)
            elif envs is None:
                from shoal.learn.actors import Actors

                assert eval_envs is not None
                self._actors = Actors(env, self.config["num_envs"], options.for_training(), eval_envs, **where)
                built.append(self._actors)
            trainer = _learn.Trainer(
                None if envs is None else envs._engine,
                None if eval_envs is None else eval_envs._engine,
                config_json=config,
                run_dir=str(self.run_dir),
                resume=plan.goes_on,
                about_json=json.dumps(about),
                actors=None if self._actors is None else self._actors.handle,
                group=self._ranks.group,
                collectors=None if self._listening is None else self._listening.handle,
            )
        except BaseException:
            if self._listening is not None:
                self._listening.handle.end(False)
            _close(built)
            raise
        # In this order: what nobody holds any more loses its attributes one by one, and the end of the first waits for the
        # thread that steps the second.
        self._trainer: _learn.Trainer | Session = trainer
        self._envs = built

    def _begin_with(self, plan: RunPlan, where: dict[str, Any]) -> None:
        """With a network of the user's."""
        with needs_torch("policy="):
            from shoal.learn.modules.session import OF_SHOALS_UPDATES, Session, check_options

        check_options(self.config["algorithm"], plan.overrides)
        self.config |= {name: False for name in OF_SHOALS_UPDATES if name in self.config}
        trainer = Session(
            plan.policy,
            plan.device,
            plan.env,
            plan.options,
            config=self.config,
            about=plan.about,
            run_dir=self.run_dir,
            resume=plan.goes_on,
            **where,
        )
        self._why_reset = trainer.why_reset or plan.why_reset(", or num_steps is another")
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

    @property
    def address(self) -> str | None:
        """Where collectors come to, with the port that was taken; None without `listen`."""
        return None if self._listening is None else self._listening.address

    @property
    def collectors(self) -> list[dict[str, Any]]:
        """The collectors that are there: "number" (in the order in which they came), "host", "pid", "rollouts" (that have come from
        it), "collecting" (it is at one). Those that have gone are counted in status()."""
        return [] if self._listening is None else self._listening.handle.collectors

    def __reduce__(self) -> Any:
        raise TypeError(
            f"a Trainer is not pickled: its run belongs to the process that made it. Hand its run_dir on, {str(self._called)!r}"
        )

    def start(self) -> None:
        """Begins. Once."""
        if self.rank == 0 and (rounded := rounded_steps(self.config, self._given, self.status()["step"])):
            _logger.info(rounded)
        if self._ranks.first:
            failures.forget(self.run_dir)
        _running.add(self)
        self._trainer.start()

    def stop(self) -> None:
        """Asks the run to end after the iteration under way, with a checkpoint to resume from. Returns at once."""
        self._stopping = True
        self._trainer.stop()

    def wait(self, timeout: float | None = None) -> bool:
        """True once the run has ended. Raises what made it fail, and KeyboardInterrupt on Ctrl-C."""
        try:
            with self._failing():
                ended = self._trainer.wait(timeout)
        except PeerLost as lost:
            told = f"{self._ranks.explained(lost)}\n{self._how_to_go_on()}"
            raise PeerLost(told, rank=lost.rank, host=lost.host, pid=lost.pid) from None
        if ended and not self._ended:
            self._ended = True
            if self.status()["resume"] == "restarted":
                warnings.warn(self._why_reset, RuntimeWarning, stacklevel=2)
        return ended

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        """Within, what made the run fail is raised, each time, as sessions do by themselves: the C++ thread hands an exception of
        Python's out once. It is in the run's folder then."""
        if self._error is not None:
            raise self._error
        if self._failure is not None and isinstance(self._trainer, _learn.Trainer):
            raise RuntimeError(f"the run has failed: {self._failure}")
        try:
            yield
        except Exception as error:
            if self._is_over and self._failure is None:
                self._failure = failures.first_line(error)
                if isinstance(self._trainer, _learn.Trainer):
                    self._error = error
                if self._ranks.first and not self._cut_short:
                    failures.record(self.run_dir, self.status(), error)
                if isinstance(error, WorkerDied):
                    error.remedy = self._how_to_go_on()
            raise

    def _how_to_go_on(self) -> str:
        """After the death of a process that the run needs."""
        if holds_run(self.run_dir):
            again = shlex.join(["shoal", "train", "--resume", str(self._called)])
            return f"The run goes on from its last checkpoint by resume=True, or:  {again}"
        return f"The run had no checkpoint yet, which is written every save_every_seconds={self.config['save_every_seconds']:g}: start it anew."

    def status(self) -> dict[str, Any]:
        """Where the run stands: "phase" (ready, training, evaluating, ended), "resume" (none, pending,
        exact, restarted; anew: those of actors, which begin with environments that were reset), "step", "total_steps", "iteration", "episodes", "seconds", "seconds_left", "steps_per_second", "ep_return_mean" and
        "ep_length_mean" (of the last 100 training episodes), the losses of the last update, "policy_lag" (how many updates old the
        weights of its rollout were; "a3c", "impala", "appo", and where they overlap "ppo" and "a2c"), "collectors" (that are there), "stale_steps" and
        "lost_rollouts" (so far: too old to be learned from; gone with their collectors; all three with `listen`), "q_value" (mean of what was
        sampled) and "updates" (so far; both of "dqn" and "sac"), "splits_update" (whether several ranks share the gradients of an update
        out) and "steps_cut" (with `sync_fraction`, of the last rollout those that slow ranks were not waited for), "exploration" (share of random actions, "dqn"), "temperature" ("sac"), "eval_return_mean",
        "eval_step", "best_return_mean", "best_step". None where there is nothing yet."""
        return self._trainer.status()

    def poll(self) -> list[tuple[int, dict[str, float]]]:
        """What was measured since the last call: (step, {name: value}), under the names of Stable-Baselines3 (rollout/,
        train/, time/, eval/) and CleanRL (charts/, losses/)."""
        return self._trainer.poll()

    def result(self) -> Result:
        """What came of it. Raises what made the run fail, and RuntimeError before the end, which wait() waits for."""
        if not self._is_over:
            raise RuntimeError("Trainer.result: the run has not ended: wait() for its end first")
        with self._failing():
            result = json.loads(self._trainer.result())
        return Result(**{**result, "run_dir": self._called, "env": self.env, "seed": self.seed})

    def close(self) -> None:
        """Stops the run where it has not ended, waits for it, and closes the environments. Idempotent; never raises what
        made the run fail. Ctrl-C meanwhile ends the run at once, and raises KeyboardInterrupt."""
        try:
            self._finish()
        finally:
            if self not in _running:
                self._clean_up()

    @never_raises
    def __repr__(self) -> str:
        status = self.status()
        closed = "" if self._envs else ", closed"
        return (
            f"<Trainer of {self.env} with {self.config['algorithm']}, seed {self.seed}: {status['phase']}, "
            f"{status['step']:,} of {status['total_steps']:,} steps, in {self._called}{closed}>"
        )

    def _finish(self) -> None:
        """Stops the run, and waits for its thread, unless Ctrl-C has given that up."""
        if self not in _running:
            return
        self.stop()
        try:
            while self._failure is None and self not in _given_up:
                self._wait_quietly()
                if self._is_over:
                    break
        except KeyboardInterrupt:
            self._end_now()
            raise
        finally:
            if self._is_over:
                _running.discard(self)
                _given_up.discard(self)

    def _clean_up(self) -> None:
        if self._listening is not None:
            self._listening.handle.end(False)  # a run that is over has said so
        _close(self._envs)
        if not isinstance(self._trainer, _learn.Trainer):
            self._trainer.close()
        self._ranks.close()

    @property
    def _is_over(self) -> bool:
        return bool(self._trainer.status()["phase"] == "ended")

    def _end_now(self) -> None:
        """After Ctrl-C while the run was stopping: what its thread waits for may never come. The processes that step its
        environments are killed, and the thread is told of their death. A thread that is in an environment of this process goes
        on, and the run is held: letting go of it would be to wait for the thread."""
        if self not in _running or self._is_over:
            return
        self._cut_short = True
        environments.kill(self._pids())
        end = time.monotonic() + _PATIENCE
        try:
            while not self._is_over and time.monotonic() < end:
                self._wait_quietly()
        finally:
            if not self._is_over:
                _given_up.add(self)

    def _pids(self) -> list[int]:
        """Of the workers of its environments; A3C's actors end by themselves."""
        if not isinstance(self._trainer, _learn.Trainer):
            return self._trainer.pids()
        return [pid for envs in self._envs if isinstance(envs, VectorEnv) for pid in environments.pids_of(envs)]

    def _wait_quietly(self) -> None:
        try:
            with self._failing():
                self._trainer.wait(0.2)
        except KeyboardInterrupt:
            raise
        except Exception:
            pass  # wait() has told, or nobody asked

    def __enter__(self) -> Trainer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is KeyboardInterrupt and self._stopping:
                self._end_now()
        finally:
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
_given_up: set[Trainer] = set()
"""Those that Ctrl-C has left while their threads were in environments of this process."""


@atexit.register
def _close_all() -> None:
    """Ends the threads of runs that nobody closed, before the interpreter that they may need is gone. Where one does not end, the
    process does, with the status of Ctrl-C, and the interpreter stays."""
    for trainer in list(_running):
        with contextlib.suppress(KeyboardInterrupt):  # which has ended it
            trainer.close()
    if any(not trainer._is_over for trainer in _given_up):
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(130)
