"""One training run as the command line conducts it: from settings to results."""

from __future__ import annotations

import inspect
import os
import re
import signal
import time
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from shoal.cli.console import CommandError, closing_json, did_you_mean, fail, note, say, wrong_use
from shoal.cli.runs import command
from shoal.process.error_report import traceback_of

if TYPE_CHECKING:
    from shoal.learn import Result, Trainer

_UNKNOWN_KEYWORD = re.compile(r"__init__\(\) got an unexpected keyword argument '(\w+)'")


class Terminated(BaseException):
    """SIGTERM came: what batch systems send before they kill."""


@contextmanager
def terminable() -> Iterator[None]:
    """Within, the first SIGTERM raises Terminated, as Ctrl-C raises KeyboardInterrupt. Further ones change nothing, until the process
    ends: what stops a job may send several, to end what is ending."""
    came = False

    def raise_terminated(*_: object) -> None:
        nonlocal came
        if not came:
            came = True
            raise Terminated

    before = signal.signal(signal.SIGTERM, raise_terminated)
    try:
        yield
    finally:
        if not came:
            signal.signal(signal.SIGTERM, before)


class Training:
    """A run that is about to begin, or to go on.

    Args:
        settings: arguments of shoal.learn.Trainer, `env` among them unless the run goes on.
        run_dir: where results go; None: a new folder in ./runs.
        resume: whether `run_dir` holds a run that goes on; "auto": it does if it holds one.
    """

    def __init__(self, settings: dict[str, Any], run_dir: Path | None, resume: bool | str):
        self._settings = settings
        self._run_dir = run_dir
        self._resume = resume
        self._env: str | None = None  # the id of what it is on, where that has one

    def check(self) -> None:
        """Fails with one line for what can be seen to be wrong before anything heavy is loaded."""
        from shoal.cli import environments, runs

        env = self._settings.get("env")
        if self._resume is True:
            assert self._run_dir is not None
            recorded = runs.read_config(self._run_dir, to_build=True)
            if env is not None:
                env = self._settings["env"] = environments.resolve(env)
            env = _checked_env(self._run_dir, recorded, env)
            _check_checkpoint(self._run_dir, recorded, env)
            if env is not None:
                self._env = environments.resolve(env)
        else:
            if self._resume is False and self._run_dir is not None:
                _check_new(self._run_dir)
            if env is None:
                wrong_use("train needs an environment, such as CartPole-v1 (shoal envs lists them)")
            self._env = self._settings["env"] = environments.resolve(env)
        if "algorithm" in self._settings:
            _check_algorithm(str(self._settings["algorithm"]))

    def go(self, json: bool, quiet: bool) -> None:
        """Trains, shows how it goes on stderr, and what came of it on stdout."""
        from shoal.learn.config import rounded_steps

        trainer: Trainer | None = None
        try:
            with terminable():
                older = self._events_of_another()
                trainer = self._trainer()
                began_at = trainer.status()["step"]
                with trainer:
                    ranks = len(trainer.members)
                    rounded = rounded_steps(trainer.config, self._settings, began_at)
                    result = _conduct(trainer, quiet, older, rounded)
                if trainer.rank == 0:
                    if self._resume and result.steps == began_at and (was_over := self._why_over(result)):
                        (note if json else say)(was_over)
                    _report(result, trainer.run_dir, json, ranks)
        except (KeyboardInterrupt, Terminated) as signalled:
            raise CommandError(_how_to_go_on(trainer, self._run_dir), _status_of(signalled)) from None
        except OSError as error:
            if error.__cause__ is None:
                self._check_folder()
            raise

    def _why_over(self, result: Result) -> str | None:
        """Of a run that was resumed and made no step: what it had reached before, and how it goes on."""
        assert self._run_dir is not None
        if result.ending == "target":
            more = command("train", "--resume", self._run_dir, "--set", "target_return=null")
            return f"The run had reached its target_return already, and made no step; this goes on past it:  {more}"
        if result.ending == "budget":
            more = command("train", "--resume", self._run_dir, "--total-steps", 2 * result.steps)
            return (
                f"The run had made its {result.steps:,} steps already, and made none; this makes as many again:  {more}"
            )
        return None

    def _events_of_another(self) -> list[Path]:
        """The event files of a run that was in the folder before this one, which begins anew there."""
        from shoal.learn.config import holds_run, read_run

        if self._run_dir is None or holds_run(self._run_dir):
            return []
        try:
            read_run(self._run_dir)
        except (OSError, ValueError):
            return []  # no run was there: whose they are is unknown
        return sorted(self._run_dir.absolute().glob("events.out.tfevents.*"))

    def _check_folder(self) -> None:
        """Fails with one line where results cannot be written."""
        from shoal.cli.runs import why_unwritable

        folder = self._run_dir or Path("runs")
        lock = folder / "lock"  # the first file that is opened; another user's, where a run was another user's
        why = "it is no folder" if folder.exists() and not folder.is_dir() else why_unwritable(folder)
        why = why or (why_unwritable(lock) if lock.exists() else None)
        if why and self._resume is True:
            fail(f"cannot write to {str(folder)!r}: {why}; make it writable, or copy it elsewhere and resume the copy")
        if why:
            fail(f"cannot write to {str(folder)!r}: {why}; name another folder by --run-dir")

    def _trainer(self) -> Trainer:
        from shoal.learn import Trainer
        from shoal.stat.runs import is_trained_in

        try:
            with _warnings_as_notes() if "config" in self._settings else nullcontext():
                return Trainer(**self._settings, run_dir=self._run_dir, resume=self._resume)
        except ModuleNotFoundError as error:
            if "config" not in self._settings and error.name not in ("torch", "safetensors"):
                raise
            fail(str(error))  # of what reads the file, or trains a torch module
        except (TypeError, ValueError, FileNotFoundError) as error:
            self._refused(error)
        except RuntimeError as error:
            if type(error) is RuntimeError and self._run_dir is not None and is_trained_in(self._run_dir):
                remedy = "wait for its end" if self._resume is True else "name another --run-dir"
                fail(f"another process is training in {str(self._run_dir)!r}: {remedy}")
            raise

    def _refused(self, error: Exception) -> NoReturn:
        """Fails with one line for what the trainer does not take. To be called where `error` is handled."""
        if _is_of_policy(error):
            named = f"--policy {self._settings['policy']}" if "policy" in self._settings else "the run's policy"
            why = f"{named}: {type(error).__name__}: {error}"
        elif (unknown := self._unknown_env_kwarg(error)) is not None:
            why = f"--env-kwargs: {self._env or 'the environment'} takes no {unknown!r}{_what_it_takes(self._env, unknown)}"
        elif error.__cause__ is not None or traceback_of(error) is not None:
            raise  # an environment's own
        else:
            why = str(error)
        if os.environ.get("SHOAL_TRACEBACK"):
            traceback.print_exception(error)
        wrong_use(why)

    def _unknown_env_kwarg(self, error: Exception) -> str | None:
        """The one of --env-kwargs that a constructor does not know."""
        unknown = _UNKNOWN_KEYWORD.search(str(error)) if isinstance(error, TypeError) else None
        given = self._settings.get("env_kwargs")
        return unknown[1] if unknown and isinstance(given, Mapping) and unknown[1] in given else None


def _is_of_policy(error: Exception) -> bool:
    """Whether the code of a policy raised it while it was made, and not what found or checked the policy."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return any(
        caller.f_code.co_name == "module_of" and not str(called.f_globals.get("__name__")).startswith("shoal.")
        for caller, called in pairwise(frames)
    )


def _what_it_takes(env: str | None, unknown: str) -> str:
    """The end of a line on a keyword argument that the class of an environment does not take."""
    from gymnasium.envs import registration

    try:
        entry: Any = registration.spec(str(env).rpartition(":")[2]).entry_point
        made_by = registration.load_env_creator(entry) if isinstance(entry, str) else entry
        parameters = inspect.signature(made_by).parameters.values()
    except Exception:  # what fails there is not what is told of
        return ""
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        return ""  # it hands them on
    names = [each.name for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
    return did_you_mean(unknown, names) or f"; it takes {', '.join(names) or 'none'}"


@contextmanager
def _warnings_as_notes() -> Iterator[None]:
    """Within, a warning is a line of its text alone: what a file of settings says in vain."""
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: note(str(message))
        yield


def _check_algorithm(algorithm: str) -> None:
    from shoal.learn.config import algorithm_names

    names = algorithm_names()
    if algorithm not in names:
        nearest = did_you_mean(algorithm, names) or f"; there is {', '.join(names)}"
        wrong_use(f"there is no algorithm {algorithm!r}{nearest}")


def _check_new(run_dir: Path) -> None:
    """Fails with one line where there is a run already."""
    from shoal.learn.config import holds_run
    from shoal.stat.runs import is_trained_in

    if holds_run(run_dir):
        if is_trained_in(run_dir):
            wrong_use(f"another process is training in {str(run_dir)!r}: name another --run-dir")
        again = command("train", "--resume", run_dir)
        wrong_use(f"{str(run_dir)!r} already holds a run; go on with it by  {again}  or name another --run-dir")


def _checked_env(run_dir: Path, recorded: dict[str, Any], env: str | None) -> str | None:
    """The id that a recorded run goes on with: its own, or of one that was trained on none the id that was given; None: what the
    run finds by an import path."""
    from shoal.learn.environments import same_id

    own: str = recorded["env"]
    if not recorded.get("env_is_id", True):
        if env is None and recorded.get("env_path") is None:
            again = command("train", "MODULE:ID", "--resume", run_dir)
            wrong_use(
                f"the run was trained on {own}, which is neither an id nor found by an import path: name an id,  {again}"
            )
        return env
    if env is not None and not same_id(env, own):
        wrong_use(f"{str(run_dir)!r} is a run on {own}, not on {env}")
    return env or own


def _check_checkpoint(run_dir: Path, recorded: dict[str, Any], env: str | None) -> None:
    """Fails with one line where the run has no checkpoint to go on from."""
    from shoal.learn.config import holds_run
    from shoal.stat.runs import is_trained_in

    if holds_run(run_dir):
        return
    if is_trained_in(run_dir):
        wrong_use(f"another process is training in {str(run_dir)!r}, and has written no checkpoint yet")
    seconds = recorded.get("config", {}).get("save_every_seconds", 60)
    settings = ["--set", "save_every_seconds=10"] if seconds > 10 else []
    again = "in Python, with the arguments that it had"
    if env is not None:
        again = f"with the flags that it had:  {command('train', env, '--run-dir', run_dir, *settings)}"
    wrong_use(
        f"{str(run_dir)!r} ended before its first checkpoint, which is written every save_every_seconds ({seconds:g}) seconds; "
        f"start it anew, {again}"
    )


def _conduct(trainer: Trainer, quiet: bool, older: Sequence[Path], rounded: str | None) -> Result:
    """Trains to the end. A signal stops the run after the iteration under way, resumable.

    Args:
        older: event files that the run's take the place of.
        rounded: rounded_steps() of the run.
    """
    from shoal.cli.events import EventLog
    from shoal.cli.progress import make_progress

    resumed_at = trainer.status()["step"] if trainer.status()["resume"] != "none" else None
    first = trainer.rank == 0
    log = EventLog(trainer.run_dir, resumed_at, instead_of=older) if first else None
    if trainer.address is not None:
        note(f"collectors come by:  {command('collect', _seen_from_elsewhere(trainer.address))}")
    if first and not quiet and rounded is not None:
        note(rounded)
    display = make_progress(trainer.status()["total_steps"], quiet or not first)
    signalled: BaseException | None = None
    try:
        with display:
            trainer.start()
            try:
                _watch(trainer, log, display)
            except (KeyboardInterrupt, Terminated) as error:
                signalled = error
                trainer.stop()
                note("stopping after this iteration …")
                _watch(trainer, log, display)
    finally:
        _drain(trainer, log)
        if log is not None:
            log.close()
    result = trainer.result()
    last = trainer.config["final_episodes"]
    if signalled is not None and result.ending != "stopped" and result.evaluated_episodes != last > 0:
        again = command("eval", result.run_dir, "--episodes", str(last))
        what = f"stopped in the last evaluation; all {result.steps:,} steps are made. Evaluate by:  {again}"
        raise CommandError(what, _status_of(signalled))
    if signalled is not None and result.ending == "stopped":
        again = command("train", "--resume", result.run_dir)
        raise CommandError(f"stopped after {result.steps:,} steps; go on with:  {again}", _status_of(signalled))
    return result


def _how_to_go_on(trainer: Trainer | None, run_dir: Path | None) -> str:
    """Of a run that a signal ended outside of its iterations: what to do about it.

    Args:
        run_dir: as it was given.
    """
    from shoal.learn.config import holds_run

    if trainer is None or not holds_run(trainer.run_dir):
        began = trainer is not None and trainer.status()["step"] > 0
        return f"stopped before the first {'checkpoint' if began else 'step'}"
    return f"stopped; go on with:  {command('train', '--resume', run_dir or trainer.run_dir)}"


def _seen_from_elsewhere(address: str) -> str:
    host, _, port = address.rpartition(":")
    return f"{os.uname().nodename}:{port}" if host in ("0.0.0.0", "[::]", "::") else address


def _watch(trainer: Trainer, log: Any, display: Any) -> None:
    while not trainer.wait(display.period):
        _drain(trainer, log)
        display.show(trainer.status())
    display.show(trainer.status())


def _drain(trainer: Trainer, log: Any) -> None:
    for step, scalars in trainer.poll():
        if log is not None:
            log.add(step, scalars)


def _status_of(signalled: BaseException) -> int:
    return 130 if isinstance(signalled, KeyboardInterrupt) else 143


def _report(result: Result, folder: Path, json: bool, ranks: int) -> None:
    tell = note if json else say
    tell(_summary(result, ranks))
    curve = _curve(result, folder)
    tell(f"  results   {result.run_dir}" + (f"   curve {result.run_dir / curve}" if curve else ""))
    tell(f"  evaluate  {command('eval', result.run_dir)}")
    if result.ending == "stopped":
        tell(f"  go on     {command('train', '--resume', result.run_dir)}")
    if json:
        closing_json(
            {
                "run_dir": str(result.run_dir),
                "env": result.env,
                "seed": result.seed,
                "steps": result.steps,
                "seconds": result.seconds,
                "mean_return": result.mean_return,
                "std_return": result.std_return,
                "ending": result.ending,
                "episodes": result.episodes,
                "evaluated_episodes": result.evaluated_episodes,
                "best_return": result.best_return,
                "best_step": result.best_step,
                "wall_seconds": _seconds_of_this_process(),
            }
        )


def _summary(result: Result, ranks: int) -> str:
    ending = {"budget": "trained for", "target": "reached its target after", "stopped": "stopped after"}[result.ending]
    line = f"{result.env} {ending} {result.steps:,} steps in {result.seconds:.1f} s" + (
        f" on {ranks} ranks" if ranks > 1 else ""
    )
    if result.mean_return is None:
        return f"{line}; no episode has ended"
    of = f"{result.evaluated_episodes} fresh episodes" if result.evaluated_episodes else "the last training episodes"
    spread = "" if result.std_return is None else f" ± {result.std_return:.1f}"
    return f"{line}: mean return {result.mean_return:.1f}{spread} over {of}"


def _curve(result: Result, folder: Path) -> str | None:
    """The name of the picture that it draws into the run's folder; nothing where no episode has ended."""
    from shoal.cli.curve import draw, read_curves

    curves = read_curves(folder)
    if not curves:
        return None
    draw({str(result.run_dir): curves}, folder / "curve.png", title=f"{result.env}, seed {result.seed}")
    return "curve.png"


def _seconds_of_this_process() -> float:
    """Since it began, as ./shoal: what the user has waited."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
