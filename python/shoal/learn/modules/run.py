"""One session of a training run, on the calling thread: iterations, evaluations, checkpoints, measurements.

What it does when follows src/shoal/learn/run/training_run.h, line by line: evaluations at steps that follow from the options,
saving at times, and neither these nor a request to stop has an influence on training.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from shoal._learn import RunDirectory
from shoal.errors import Error
from shoal.learn.durable import found
from shoal.learn.environments import LEAST_REPLAY, told_of_cuts
from shoal.learn.modules import scalars
from shoal.learn.modules.acting import Acting
from shoal.learn.modules.checkpoints import Checkpoint, read_checkpoint, write_checkpoint
from shoal.learn.modules.episodes import summary, whole_episodes
from shoal.learn.modules.journal import Journal
from shoal.learn.modules.learner import Learner, load_policy_into
from shoal.learn.modules.network import Network
from shoal.learn.modules.seeds import For, derived, drawing_from
from shoal.learn.spaces import description_of
from shoal.vector.vector_env import VectorEnv

__all__ = ["TrainingRun", "rest_between_saves"]

_logger = logging.getLogger("shoal.learn")
_RATE_SECONDS = 2.0
_UNSHOWN = ("finished", "action_std", "epochs")
"""What is measured, and is not in Trainer.status()."""


@dataclass
class _Standing:
    """What the evaluations have found; part of a checkpoint."""

    evaluated_step: int = 0
    eval_return: float | None = None
    eval_std: float | None = None
    eval_episodes: int = 0
    best_return: float | None = None
    best_step: int = 0
    reached_target: float | None = None


def rest_between_saves(every: float, took: float) -> float:
    """Seconds from the end of a periodic save, whose writing took `took`, to the next one: `every`, or 20 times as long as it took,
    so that it takes at most a twentieth of a run. With `every` 0 no such rest."""
    return 0.0 if every == 0 else max(every, 20 * took)


class TrainingRun:
    """
    Args:
        about: goes into config.json and state.json beside the options: the environment's id, the policy's path, …
        stopping: whether the run is asked to end.
    """

    def __init__(
        self,
        learner: Learner,
        eval_envs: VectorEnv,
        config: Mapping[str, Any],
        about: Mapping[str, Any],
        directory: RunDirectory,
        journal: Journal,
        stopping: Callable[[], bool],
        *,
        resume: bool,
    ) -> None:
        self._learner = learner
        self._eval_envs = eval_envs
        self._config = config
        self._about = about
        self._directory = directory
        self._journal = journal
        self._stopping = stopping
        self._standing = _Standing()
        self._last: dict[str, Any] = {"episodes": 0, "ep_return_mean": math.nan, "ep_length_mean": math.nan}
        self._ended: list[tuple[float, int]] = []
        self._confirmation: dict[str, Any] | None = None
        self._checkpoint: Checkpoint | None = None
        self._earlier_seconds = 0.0
        self._first_step = 0
        self._started = self._saved = time.monotonic()
        self._write_seconds = 0.0
        self._rate = 0.0
        self._has_told_of_cuts = False
        if resume:
            self._load()
        directory.write_config(json.dumps({**about, "config": dict(config)}))
        journal.update(total_steps=config["total_steps"], resume="pending" if resume else "none")
        self._publish()

    @property
    def network(self) -> Network:
        return self._learner.network

    @property
    def seconds(self) -> float:
        return self._earlier_seconds + time.monotonic() - self._started

    def run(self) -> dict[str, Any]:
        """Once. Returns the result, as result.json has it."""
        try:
            return self._run()
        finally:
            self._directory.release()

    def _run(self) -> dict[str, Any]:
        self._started = time.monotonic()
        self._journal.update(phase="training")
        self._directory.start_progress(self._learner.steps)
        complete = self._checkpoint is not None and self._over()
        self._place()
        self._saved = time.monotonic()
        ending = "stopped"
        while True:
            if self._evaluation_due():
                self._evaluate()
            if self._over():
                target = self._standing.reached_target
                ending = "target" if target is not None and target == self._config["target_return"] else "budget"
                break
            if self._stopping() or self._paused():
                break
            rest = rest_between_saves(self._config["save_every_seconds"], self._write_seconds)
            if self._learner.steps > self._first_step and time.monotonic() - self._saved >= rest:
                self._save()
            self._limit_replay()
            self._iterate()
        if not complete:
            self._save()
        return self._finish(ending)

    def _load(self) -> None:
        checkpoint = read_checkpoint(self._directory.last, resumable=True)
        state = checkpoint.state
        if state["learner"]["num_envs"] != self._config["num_envs"]:
            raise Error(
                f"{self._directory.last}: cannot resume: it has {state['learner']['num_envs']} environments, not "
                f"{self._config['num_envs']}: leave num_envs as it was"
            )
        try:
            self._learner.load(state["learner"], checkpoint.arrays)
        except (Error, ValueError) as error:
            raise type(error)(f"{error}{self._told_anew(state['config'])}") from error
        self._earlier_seconds = state["seconds"]
        self._standing = _Standing(**state["evaluation"])
        self._last = {name: math.nan if value is None else value for name, value in state["episodes"].items()}
        self._ended = [(float(a), int(b)) for a, b in state["unrecorded"]]
        self._first_step = self._learner.steps
        self._last |= {"step": self._learner.steps, "iteration": self._learner.iteration}
        self._checkpoint = checkpoint

    def _told_anew(self, recorded: Mapping[str, Any]) -> str:
        """What the options say otherwise than those of the checkpoint, but for how long the run goes on."""
        differ = {name: value for name, value in recorded.items() if self._config.get(name, value) != value}
        named = [name for name in differ if name not in ("pause_at_step", "total_steps")]
        return "".join(
            f"; its run had {name} = {json.dumps(differ[name])}, not {json.dumps(self._config[name])}" for name in named
        )

    def _place(self) -> None:
        resume = "none"
        if self._checkpoint is None:
            self._learner.begin()
        elif self._over():
            resume = "exact"  # nothing is left to train; the result is the same without environments
        else:
            resume = "exact" if self._learner.place(self._checkpoint.arrays) else "restarted"
        self._checkpoint = None
        if resume != "none":
            self._stand_by_best()
        self._journal.update(resume=resume)

    def _stand_by_best(self) -> None:
        """The evaluations after the last checkpoint may not be made again (where they are, they find the same): what is best
        stays so."""
        standing = self._standing
        try:
            kept = read_checkpoint(self._directory.best, resumable=False).state["evaluation"]
        except Error:  # there is none, or it is damaged: the next is the best
            standing.best_return, standing.best_step = None, 0
        else:
            if standing.best_return is None or kept["best_return"] > standing.best_return:
                standing.best_return, standing.best_step = kept["best_return"], kept["best_step"]
        self._publish()

    def _limit_replay(self) -> None:
        limit = self._config["replay_limit"]
        longest = max(limit // self._config["num_envs"], LEAST_REPLAY)
        if limit > 0 and self._learner.source.recorded_steps >= longest:
            self._learner.begin()

    def _iterate(self) -> None:
        begun, before = time.monotonic(), self._learner.steps
        self._last = stats = self._learner.iterate()
        if not math.isfinite(stats["loss"]):
            raise self._diverged(f"the loss of iteration {stats['iteration']} is {stats['loss']}")
        took = time.monotonic() - begun
        keep = math.exp(-took / _RATE_SECONDS) if self._rate > 0 else 0.0
        self._rate = keep * self._rate + (1 - keep) * (stats["step"] - before) / took
        self._ended += stats["finished"]
        if stats["iteration"] % self._config["log_interval"] == 0 or self._over():
            rate = (stats["step"] - self._first_step) / (self.seconds - self._earlier_seconds)
            self._record(scalars.of_iteration(stats, self._ended, self.seconds, rate))
            self._ended = []
        self._journal.update(**_shown(stats), seconds=self.seconds, steps_per_second=self._rate)

    def _evaluation_due(self) -> bool:
        steps, evaluated = self._learner.steps, self._standing.evaluated_step
        if steps == evaluated:
            return False
        every: int = self._config["eval_every"]
        if steps >= self._config["total_steps"]:
            return every > 0 or self._config["final_episodes"] > 0 or self._config["target_return"] is not None
        return every > 0 and steps // every > evaluated // every

    def _over(self) -> bool:
        target: float | None = self._config["target_return"]
        reached = target is not None and self._standing.reached_target == target
        return reached or self._learner.steps >= int(self._config["total_steps"])

    def _paused(self) -> bool:
        pause = self._config["pause_at_step"]
        return pause is not None and self._learner.steps >= pause

    def _episodes(self, episodes: int, purpose: For) -> dict[str, Any] | None:
        """Of the policy as it is; None where the run was asked to stop."""
        network, actions = self._learner.network, self._eval_envs.single_action_space
        seed = derived(self._config["seed"], purpose, self._learner.steps)
        self._journal.update(phase="evaluating")
        try:
            with drawing_from(seed):
                done = whole_episodes(self._eval_envs, Acting(network, actions), episodes, seed, self._stopping)
        finally:
            self._journal.update(phase="training")
        if done is None:
            return None
        if not self._has_told_of_cuts and (told := told_of_cuts(done[1])):
            self._has_told_of_cuts = True
            _logger.warning(told)
        return summary(*done)

    def _evaluate(self) -> None:
        target, final = self._config["target_return"], self._config["final_episodes"]
        evaluation = self._episodes(self._config["eval_episodes"], For.EVALUATION)
        if evaluation is not None and target is not None and evaluation["mean_return"] >= target and final > 0:
            evaluation = self._episodes(final, For.FINAL)
        if evaluation is None:
            return
        standing = self._standing
        standing.evaluated_step = self._learner.steps
        standing.eval_return, standing.eval_std = evaluation["mean_return"], evaluation["std_return"]
        standing.eval_episodes = len(evaluation["returns"])
        self._record(scalars.of_evaluation(evaluation))
        if standing.best_return is None or not standing.best_return > evaluation["mean_return"]:
            self._keep_best(evaluation["mean_return"])
        if target is not None and evaluation["mean_return"] >= target:
            standing.reached_target = target
            self._confirmation = evaluation
        self._publish()

    def _keep_best(self, mean_return: float) -> None:
        if math.isnan(mean_return):
            return
        self._require_finite()
        self._standing.best_return = mean_return
        self._standing.best_step = self._learner.steps
        write_checkpoint(self._directory.best, self._state(), self._learner.policy())

    def _save(self) -> None:
        self._require_finite()
        state, arrays = self._state(), self._learner.arrays()
        begun = time.monotonic()
        write_checkpoint(self._directory.last, state, arrays)
        self._saved = time.monotonic()
        self._write_seconds = self._saved - begun

    def _require_finite(self) -> None:
        """Raises Error where what is learned is no numbers; buffers of the module are its own matter."""
        own: list[Any] = [parameter for parameter in self.network.module.parameters() if parameter.requires_grad]
        if self.network.normalizer is not None:
            own += self.network.normalizer.buffers()
        if not all(bool(tensor.isfinite().all()) for tensor in own):
            raise self._diverged(f"iteration {self._learner.iteration} made parameters or moments that are not finite")

    def _diverged(self, how: str) -> Error:
        last = found(self._directory.last)
        return Error(
            f"training diverged: {how}. Too large a learning_rate does this, and very large observations or rewards. "
            + (f"{last} is from before" if last.exists() else "There is no checkpoint from before")
        )

    def _state(self) -> dict[str, Any]:
        envs = self._eval_envs
        counted = {name: self._last[name] for name in ("episodes", "ep_return_mean", "ep_length_mean")}
        return {
            **{name: self._about[name] for name in ("policy", "env", "algorithm")},
            "step": self._learner.steps,
            "iteration": self._learner.iteration,
            "seconds": self.seconds,
            "config": dict(self._config),
            "observation_space": description_of(envs.single_observation_space),
            "action_space": description_of(envs.single_action_space),
            "evaluation": asdict(self._standing),
            "episodes": {name: None if math.isnan(value) else value for name, value in counted.items()},
            "unrecorded": self._ended,
            "learner": self._learner.counters(),
        }

    def _finish(self, ending: str) -> dict[str, Any]:
        standing = self._standing
        mean: float | None = self._last["ep_return_mean"]
        result = {
            "ending": ending,
            "run_dir": str(self._directory.path),
            "steps": self._learner.steps,
            "episodes": self._last["episodes"],
            "mean_return": None if mean is None or math.isnan(mean) else mean,
            "std_return": None,
            "evaluated_episodes": 0,
        }
        if standing.eval_return is not None:
            result |= {"mean_return": standing.eval_return, "std_return": standing.eval_std}
            result["evaluated_episodes"] = standing.eval_episodes
        if self._config["final_episodes"] > 0 and ending != "stopped":
            evaluation = self._confirmation or self._final_evaluation()
            if evaluation is not None:
                result |= {name: evaluation[name] for name in ("mean_return", "std_return")}
                result["evaluated_episodes"] = len(evaluation["returns"])
        result |= {"best_return": standing.best_return, "best_step": standing.best_step, "seconds": self.seconds}
        self._directory.write_result(json.dumps({name: _or_none(value) for name, value in result.items()}))
        self._journal.update(seconds=result["seconds"])
        return result

    def _final_evaluation(self) -> dict[str, Any] | None:
        """Of the best policy, or of the last one where there is no best; the module has its last weights again afterwards."""
        if self._standing.best_return is None:
            return self._episodes(self._config["final_episodes"], For.FINAL)
        network, last = self._learner.network, self._learner.policy()
        last = {name: {key: value.clone() for key, value in arrays.items()} for name, arrays in last.items()}
        load_policy_into(network, read_checkpoint(self._directory.best, resumable=False).arrays)
        try:
            return self._episodes(self._config["final_episodes"], For.FINAL)
        finally:
            load_policy_into(network, last)

    def _publish(self) -> None:
        standing = self._standing
        self._journal.update(
            eval_return_mean=standing.eval_return,
            eval_step=standing.evaluated_step,
            best_return_mean=standing.best_return,
            best_step=standing.best_step,
            seconds=self.seconds,
            **_shown(self._last),
        )

    def _record(self, values: dict[str, float]) -> None:
        self._directory.append_progress(self._learner.steps, self.seconds, values)
        self._journal.add(self._learner.steps, values)


def _or_none(value: Any) -> Any:
    """JSON has no numbers that are not finite."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _shown(stats: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in stats.items() if name not in _UNSHOWN}
