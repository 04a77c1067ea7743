"""Shoal's learners. Use them through shoal.learn."""

import os
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy

import shoal._core
import shoal._core.collect
import shoal._core.group
import shoal._core.process

class Actors:
    """The processes of A3C's actors."""

    @property
    def pids(self) -> list[int]:
        """Of those that run."""

    @property
    def replaced(self) -> int:
        """How many took the place of one that had died."""

    def close(self) -> None:
        """Ends them. Idempotent."""

def start_actors(
    launcher: shoal._core.process.Launcher,
    payloads: list[Any],
    counts: Sequence[int],
    like: shoal._core.VectorEnv,
    start_timeout: float,
) -> Actors:
    """
    Starts an actor for each payload, with so many environments, which have the spaces of `like`.
    """

def run_actor(envs: shoal._core.VectorEnv, order: bytes, arena_fd: int) -> None:
    """
    In an actor's process: learns until its learner has it end. Takes the descriptor over.
    """

class NetworkActor(shoal._core.collect.Actor):
    @staticmethod
    def create(envs: shoal._core.VectorEnv, config_json: str, seed: int) -> NetworkActor: ...
    @staticmethod
    def load(envs: shoal._core.VectorEnv, checkpoint: str, seed: int) -> NetworkActor: ...
    def reseed(self, seed: int) -> None: ...
    @property
    def memory_size(self) -> int: ...
    def memory(self) -> numpy.ndarray: ...
    def load_memory(self, values: numpy.ndarray) -> None: ...
    def weights(self) -> dict[Any, Any]: ...
    def load_weights(self, weights: dict[str, numpy.ndarray]) -> None: ...

def algorithm_names() -> list[str]:
    """The default one first."""

def preset_names(algorithm: str = "ppo") -> list[str]: ...
def preset_for(env_id: str, algorithm: str = "ppo") -> str: ...
def preset(name: str, algorithm: str = "ppo") -> str:
    """All options of a preset, as JSON."""

def config_names(algorithm: str = "ppo") -> list[str]: ...
def envs_of_rank(config_json: str, group: shoal._core.group.Group | None) -> tuple[int, int]:
    """
    The environments of a run that are this rank's: the first, and how many.
    """

def override_config(config_json: str, overrides_json: str) -> str:
    """The configuration with some options changed, checked, as JSON."""

class RunDirectory:
    def __init__(self, path: str | os.PathLike[str], resume: bool) -> None: ...
    @property
    def path(self) -> pathlib.Path: ...
    @property
    def last(self) -> pathlib.Path: ...
    @property
    def best(self) -> pathlib.Path: ...
    def write_config(self, config_json: str) -> None: ...
    def write_result(self, result_json: str) -> None: ...
    def start_progress(self, step: int) -> None: ...
    def append_progress(self, step: int, seconds: float, values: dict[str, float]) -> None: ...
    def release(self) -> None: ...

class NetworkArithmetic:
    """What a network of these spaces computes."""

    def __init__(self, observation_space: str, action_space: str, config_json: str, seed: int) -> None: ...
    def weights(self) -> dict[str, numpy.ndarray]: ...
    def load_weights(self, weights: dict[str, numpy.ndarray]) -> None: ...
    def forward(self, observations: list[numpy.ndarray]) -> tuple[numpy.ndarray, numpy.ndarray]:
        """The actor's outputs and the values."""

    def differentiate(
        self,
        observations: list[numpy.ndarray],
        d_head: numpy.ndarray,
        d_value: numpy.ndarray,
        counts: list[int] = [],
        memory: numpy.ndarray | None = None,
    ) -> tuple[tuple[numpy.ndarray, numpy.ndarray], dict[str, numpy.ndarray]]:
        """
        The outputs once more, and the derivatives by each parameter. Of LSTMs: the rows are steps of sequences, the longest first, counts[k] of which have a step k.
        """

def loss_and_derivatives(
    config_json: str,
    action_space: str,
    head: numpy.ndarray,
    value: numpy.ndarray,
    log_std: numpy.ndarray,
    actions: numpy.ndarray,
    old_logp: numpy.ndarray,
    old_value: numpy.ndarray,
    advantage: numpy.ndarray,
    returns: numpy.ndarray,
) -> dict[str, Any]:
    """
    The loss of ppo or a2c, and its derivatives by head, value and log_std.
    """

def optimizer_steps(
    config_json: str, parameters: numpy.ndarray, gradients: list[numpy.ndarray], learning_rate: float
) -> numpy.ndarray:
    """The parameters after a step along each gradient."""

class Policy:
    @staticmethod
    def load(checkpoint: str) -> Policy: ...
    @property
    def observation_space(self) -> str: ...
    @property
    def action_space(self) -> str: ...
    @property
    def config(self) -> str: ...
    @property
    def step(self) -> int: ...
    @property
    def remembers(self) -> bool:
        """Whether what it did earlier in an episode changes what it does."""

    def act(
        self,
        observations: list[numpy.ndarray],
        actions: list[numpy.ndarray],
        deterministic: bool,
        step: int = 0,
        is_first: list[bool] = [],
    ) -> None: ...
    def evaluate(
        self, envs: shoal._core.VectorEnv, episodes: int, seed: int, deterministic: bool = True
    ) -> dict[Any, Any]: ...

class RemoteCollectors:
    """Collectors that come from other processes, on this host or others."""

    @property
    def port(self) -> int: ...
    @property
    def collectors(self) -> list[Any]:
        """Those that are there."""

    def end(self, over: bool) -> None:
        """
        Tells them that the run is over, or that this session of it is. Idempotent.
        """

def listen(
    address: str,
    like: shoal._core.VectorEnv,
    config_json: str,
    about_json: str,
    run: str,
    attempt: int,
    secret: str | None = None,
) -> RemoteCollectors:
    """
    Takes collectors at this address, for environments with the spaces of `like`.
    """

class RemoteCollector:
    """A collector whose learner is elsewhere."""

    @property
    def assignment(self) -> str:
        """What the learner says that is to be stepped, as JSON."""

    @property
    def run(self) -> str: ...
    @property
    def attempt(self) -> int: ...
    @property
    def number(self) -> int: ...
    @property
    def rollouts(self) -> int:
        """That the learner was sent."""

    @property
    def steps(self) -> int:
        """Of environments, in those."""

    def collect(self, envs: shoal._core.VectorEnv) -> dict[Any, Any]:
        """Until the learner takes leave: why, and whether the run is over."""

    def fail(self, why: str) -> None:
        """Takes leave, since something has gone wrong: what. Idempotent."""

def come_to(address: str, secret: str | None = None, run: str = "", timeout: float = 10.0) -> RemoteCollector:
    """Connects to the learner at this address."""

class Trainer:
    def __init__(
        self,
        envs: shoal._core.VectorEnv | None,
        eval_envs: shoal._core.VectorEnv | None,
        config_json: str,
        run_dir: str,
        resume: bool = False,
        about_json: str = "{}",
        actors: Actors | None = None,
        group: shoal._core.group.Group | None = None,
        collectors: RemoteCollectors | None = None,
    ) -> None: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def wait(self, timeout: float | None = None) -> bool: ...
    def status(self) -> dict[Any, Any]: ...
    def poll(self) -> list[Any]: ...
    def result(self) -> str: ...
