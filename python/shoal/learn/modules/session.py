"""A training run of a module in a thread of its own: what `shoal._learn.Trainer` is for C++ networks."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from shoal._learn import RunDirectory
from shoal.collect.collector import Collector
from shoal.learn import environments
from shoal.learn.environments import EnvOptions
from shoal.learn.modules.journal import Journal
from shoal.learn.modules.learner import Learner
from shoal.learn.modules.network import Network, module_of, network_of, path_of
from shoal.learn.modules.run import TrainingRun
from shoal.learn.modules.sources import Ahead, AheadInOrder, InStep, Source, source_of
from shoal.learn.modules.updates import ALGORITHMS
from shoal.serve.in_python import device_of
from shoal.vector.plan import worker_count

__all__ = ["OF_SHOALS_UPDATES", "Session", "check_options"]

_SMALL = 1_000_000
"""Parameters below which a network without convolutions computes no faster on several threads than on one."""
_OF_SHOALS_NETWORKS = "policy_hidden value_hidden shared_hidden activation orthogonal_init value_gain log_std_init precision pixel_mean".split()
_OF_RANKS = ("shards", "split_update", "sync_fraction")
"""Of updates that several ranks share."""
OF_SHOALS_UPDATES = ("recompute_advantages", "normalize_returns")
"""Switches of PPO that modules are trained without, whatever a preset says of them."""


@dataclass
class _Outcome:
    """What the thread and its owner share."""

    stop: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)
    result: dict[str, Any] | None = None
    error: BaseException | None = None
    forgotten: str | None = None

    def raise_error(self) -> None:
        """Raises what ended the run; once that is forgotten, what it said."""
        if self.error is not None:
            raise self.error
        if self.forgotten is not None:
            raise RuntimeError(f"the run has failed: {self.forgotten}")

    def forget_error(self) -> None:
        """Its traceback holds the frames that it came through, and these hold this object: a batch that is in one of them would outlive
        what frees its memory."""
        if self.error is not None:
            self.forgotten, self.error = f"{type(self.error).__name__}: {self.error}", None


class Session:
    """
    Args:
        policy: a module, or what makes one of the spaces.
        options: of the environments.
        about: for config.json; gets the policy's path, and the device.

    Attributes:
        environments: to be closed when the run has ended.
        why_reset: what to say where a resumed run resets its environments; None: they could not be brought back.

    Threads: any one may call stop(), wait(), status() and poll().
    """

    def __init__(
        self,
        policy: Any,
        device: Any,
        env: Any,
        options: EnvOptions,
        *,
        config: Mapping[str, Any],
        about: dict[str, Any],
        run_dir: Path,
        resume: bool,
        num_workers: int | None,
        backend: str,
        context: str,
    ) -> None:
        where = {"num_workers": num_workers, "backend": backend, "context": context}
        self.environments: list[Any] = []
        self._journal = Journal()
        self._outcome = _Outcome()
        self._thread: threading.Thread | None = None
        on = device_of(device)
        directory: RunDirectory | None = None
        try:
            eval_envs = environments.build(env, config["eval_envs"], options.for_evaluation(), **where)  # type: ignore[arg-type]  # one dict of all
            self.environments.append(eval_envs)
            spaces = eval_envs.single_observation_space, eval_envs.single_action_space
            module = module_of(policy, *spaces, config["seed"])
            about |= {"policy": path_of(policy), "policy_name": type(module).__name__, "device": str(on)}
            network = network_of(module, spaces[0], config, on)
            network.eval()
            factories = environments.factories_of(env, config["num_envs"])
            given = {"env": factories, **vars(options.for_training()), **where}
            if num_workers is not None:
                given["num_workers"] = worker_count(num_workers, config["num_envs"])
            source = source_of(network, config, given)
            self.environments.append(source)
            if not isinstance(source, Ahead) or isinstance(source, AheadInOrder):  # the others repeat nothing
                environments.warn_of_cut_episodes(options, eval_envs, config)
            self.why_reset = _why_reset(source, config["algorithm"])
            learner = Learner(network, source, config)
            directory = RunDirectory(run_dir, resume)
            self._run: TrainingRun | None = TrainingRun(
                learner, eval_envs, config, about, directory, self._journal, self._outcome.stop.is_set, resume=resume
            )
        except BaseException:
            if directory is not None:
                directory.release()
            while self.environments:
                environments.close(self.environments.pop())
            raise

    def start(self) -> None:
        if self._thread is not None:
            raise RuntimeError("Trainer.start: this run has been started; make a new Trainer to resume it")
        run, self._run = self._run, None
        assert run is not None
        # The interpreter waits at its end for other threads before it runs what closes trainers that nobody closed.
        self._thread = threading.Thread(
            target=_train, args=(run, self._outcome, self._journal), name="shoal training", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        self._outcome.stop.set()

    def wait(self, timeout: float | None = None) -> bool:
        if self._thread is None:
            raise RuntimeError("Trainer.wait: the run has not been started")
        if not self._outcome.ended.wait(timeout):
            return False
        self._thread.join()
        self._outcome.raise_error()
        return True

    def status(self) -> dict[str, Any]:
        return self._journal.status()

    def poll(self) -> list[tuple[int, dict[str, float]]]:
        return self._journal.poll()

    def result(self) -> str:
        self._outcome.raise_error()
        if self._outcome.result is None:
            raise RuntimeError("Trainer.result: the run has not ended")
        return json.dumps(self._outcome.result)

    def pids(self) -> list[int]:
        """The processes that step its environments, but for this one. Threads: any."""
        found: list[int] = []
        for envs in self.environments:
            found += _pids_of(envs._collector) if isinstance(envs, InStep | Ahead) else environments.pids_of(envs)
        return found

    def close(self) -> None:
        """For a run that has ended: what ended it is not kept any longer."""
        self._outcome.forget_error()

    def __del__(self) -> None:
        self._outcome.stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()


def check_options(algorithm: str, given: Mapping[str, Any]) -> None:
    """Raises ValueError for an algorithm that does not train modules, and for options of Shoal's own networks."""
    if algorithm not in ALGORITHMS:
        raise ValueError(
            f"policy= is trained by {', '.join(ALGORITHMS)}; {algorithm!r} trains Shoal's own networks alone"
        )
    for name in _OF_SHOALS_NETWORKS:
        if name in given:
            raise ValueError(f"{name}= is of Shoal's own networks, and policy= brings its own: leave one of them out")
    for name in _OF_RANKS:
        if name in given:
            raise ValueError(
                f"{name}= is of updates that several ranks share, and a policy= is trained by one: leave it out"
            )
    for name in OF_SHOALS_UPDATES:
        if given.get(name):
            raise ValueError(f"{name}=True is for Shoal's own networks; a policy= of your own is trained without")


def _pids_of(collector: Collector) -> list[int]:
    """Of its workers, or of the processes that collect."""
    stats = collector.stats()
    steppers = stats["collectors"] or stats["envs"]["workers"]
    return [each["pid"] for each in steppers if each["pid"]]


def _train(run: TrainingRun, outcome: _Outcome, journal: Journal) -> None:
    try:
        with _few_threads(run.network):
            outcome.result = run.run()
    except BaseException as error:
        outcome.error = error
    finally:
        del run
        journal.update(phase="ended")
        outcome.ended.set()


@contextlib.contextmanager
def _few_threads(network: Network) -> Iterator[None]:
    """One thread for a small network; the process's own number again afterwards."""
    parameters = list(network.parameters())
    small = sum(p.numel() for p in parameters) < _SMALL and all(p.ndim <= 2 for p in parameters)
    before = torch.get_num_threads()
    if small:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        if small:
            torch.set_num_threads(before)


def _why_reset(source: Source, algorithm: str) -> str | None:
    if isinstance(source, Ahead) and not isinstance(source, AheadInOrder):
        return (
            f"a run of {algorithm} with policy= goes on with its environments reset, and without the rollouts that waited, unless it "
            "is deterministic=True: it is a good one, but not the same as without the interruption."
        )
    return None
