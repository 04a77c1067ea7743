"""What objects of the public classes print as: what they are and how they stand, also half made and closed."""

from __future__ import annotations

import dataclasses
import enum
import importlib
import os
import pkgutil
import threading
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import shoal
import shoal.compat
import shoal.multiprocessing as mp
import shoal.trace
from public_surface import MODULES
from shoal.learn.policy import Policy
from shoal.multiprocessing.queues import JoinableQueue, Queue, SimpleQueue
from shoal.serve.local import LocalModels

FACES = sorted(f"shoal.compat.{each.name}" for each in pkgutil.iter_modules(shoal.compat.__path__) if each.ispkg)
ALL_MODULES = sorted({*MODULES, *FACES, "shoal.errors", "shoal.trace"} - {"shoal.compat.timesteps"})
"""Without the room that two of the faces share."""


def classes_of(module_name: str) -> list[type]:
    """Shoal's own among its public names; skips the test of a module whose library is missing."""
    try:
        module = importlib.import_module(module_name)
        named = [getattr(module, name) for name in module.__all__]
    except ImportError as missing:
        pytest.skip(str(missing))
    return [public for public in named if isinstance(public, type) and public.__module__.startswith("shoal")]


def prints_itself(kind: type) -> bool:
    return issubclass(kind, (BaseException, enum.Enum, tuple)) or dataclasses.is_dataclass(kind)


@pytest.mark.parametrize("module_name", ALL_MODULES)
def test_every_public_class_says_what_it_is(module_name: str) -> None:
    kinds = classes_of(module_name)
    silent = {kind.__qualname__ for kind in kinds if not prints_itself(kind) and kind.__repr__ is object.__repr__}
    assert silent == set()


@pytest.mark.filterwarnings("ignore:nanobind. attempted to access an uninitialized instance:RuntimeWarning")
@pytest.mark.parametrize("module_name", ALL_MODULES)
def test_a_half_made_object_says_its_class(module_name: str) -> None:
    for kind in classes_of(module_name):
        of = next(base for base in kind.__mro__ if "__repr__" in vars(base))
        if prints_itself(kind) or not of.__module__.startswith("shoal."):
            continue
        half_made = kind.__new__(kind)
        assert type(half_made).__name__ in repr(half_made)


def test_a_training_run(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    trainer = shoal.learn.Trainer(
        "shoal/CartPole-v1", run_dir=folder, seed=3, total_steps=64, num_envs=2, num_workers=0
    )
    steps = trainer.status()["total_steps"]
    told = f"<Trainer of shoal/CartPole-v1 with ppo, seed 3: {{}} of {steps:,} steps, in {folder}{{}}>"
    assert repr(trainer) == told.format("ready, 0", "")
    with trainer:
        trainer.start()
        trainer.wait()
        assert repr(trainer) == told.format(f"ended, {steps:,}", "")
    assert repr(trainer) == told.format(f"ended, {steps:,}", ", closed")
    policy = shoal.learn.load_policy(folder)
    assert isinstance(policy, Policy) and repr(policy) == f"<Policy of ppo, trained for {policy.step:,} steps>"


def test_a_policy_of_a_module(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    shoal.learn.train(
        "shoal/CartPole-v1",
        policy="learn_modules:ActorCritic",
        run_dir=tmp_path / "run",
        total_steps=1,
        num_envs=2,
        num_workers=0,
    )
    policy = shoal.learn.load_policy(tmp_path / "run")
    assert repr(policy) == f"<ModulePolicy ActorCritic of ppo, trained for {policy.step:,} steps>"


def test_replies_and_models_of_a_service() -> None:
    answers = threading.Event()

    def patient(rows: np.ndarray) -> np.ndarray:
        answers.wait()
        return rows

    with shoal.ModelService({"patient": patient}, context="thread") as service:
        model = service.model("patient")
        answers.set()
        model(np.zeros(1))
        answers.clear()
        reply = model.submit(np.zeros(1))
        waiting = threading.Thread(target=reply.result)
        waiting.start()
        try:
            assert repr(reply) == "<Reply of the model 'patient', not taken yet>", "another thread waits for it"
        finally:
            answers.set()
            waiting.join()
    assert repr(reply) == "<Reply of the model 'patient', answered by version 1>"
    assert repr(service) == f"<ModelService of patient at {service.address}>"


def test_models_of_this_process() -> None:
    model = LocalModels({"same": np.abs}).find("same")
    assert repr(model) == "<model 'same' of this process, version 1>"
    assert repr(shoal.serve.Recurrent(test_models_of_this_process, 0)) == (
        "<Recurrent model test_models_of_this_process>"
    )
    assert repr(shoal.serve.Recurrent("policy.pt", 0)) == "<Recurrent model 'policy.pt'>"


@pytest.mark.parametrize("kind", [Queue, JoinableQueue, SimpleQueue])
def test_queues(kind: Any) -> None:
    queue = kind()
    queue.put(1)
    told = f"<shoal.multiprocessing.queues.{kind.__name__} qsize=1{{}}>"
    assert repr(queue) == told.format("")
    queue.close()
    assert repr(queue) == told.format(" closed")


def test_a_bounded_queue() -> None:
    assert repr(mp.Queue(3)) == "<shoal.multiprocessing.queues.Queue qsize=0 maxsize=3>"


def test_connections() -> None:
    first, second = mp.Pipe()
    receives, sends = mp.Pipe(duplex=False)
    told = "<shoal.multiprocessing.connection.Connection {}>"
    assert [repr(each) for each in (first, receives, sends)] == [
        told.format(state) for state in ("readable and writable", "readable", "writable")
    ]
    for each in (first, second, receives, sends):
        each.close()
        assert repr(each) == told.format("closed")


def test_a_log_relay() -> None:
    with mp.LogRelay() as relay:
        assert repr(relay) == "<LogRelay of 0 processes>"
        with mp.Pool(1, relay=relay) as pool:
            pool.apply(os.getpid)
            assert repr(relay) == "<LogRelay of 1 processes>"
    assert repr(relay) == "<LogRelay of 1 processes, closed>"


def test_results_of_a_pool() -> None:
    with mp.Pool(1) as pool:
        result = pool.apply_async(os.getpid)
        result.wait()
        assert repr(result) == "<ApplyResult ready>"
        values = pool.imap(abs, [-1, -2])
        assert next(values) == 1 and repr(values) == "<IMapIterator, chunks taken: 1>"
        assert [*values] == [2] and repr(values) == "<IMapIterator, chunks taken: 2, exhausted>"


def test_processes_that_were_started_together() -> None:
    group = mp.start_processes(abs, nprocs=2, join=False, start_method="forkserver")
    assert repr(group) == "<ProcessContext of 2 processes, 2 not joined>"
    while not group.join():
        pass
    assert repr(group) == "<ProcessContext of 2 processes, 0 not joined>"


def test_launchers_and_their_workers() -> None:
    with shoal.process.Launcher("forkserver") as launcher:
        assert repr(launcher) == "<Launcher with the method 'forkserver'>"
        (worker,) = launcher.start([(say_what_it_got,)])
        assert repr(worker) == f"<WorkerProcess name={worker.name!r} pid={worker.pid} started>"
        assert (worker.recv() or b"").decode() == f"<WorkerContext of {worker.name!r}, worker 0>"
        worker.send(b"end")
        worker.join()
        assert repr(worker) == f"<WorkerProcess name={worker.name!r} pid={worker.pid} ended: exit code 0>"
    assert repr(launcher) == "<Launcher with the method 'forkserver', closed>"


def say_what_it_got(context: Any) -> None:
    context.send(repr(context).encode())
    context.recv()


def test_a_snapshot() -> None:
    assert repr(shoal.Snapshot(threading)) == "<Snapshot of threading>"
    assert repr(shoal.Snapshot(threading, ["b", "a"])) == "<Snapshot of threading without a, b>"
    assert repr(shoal.Snapshot([], "unpicklable")) == "<Snapshot of list without unpicklable>"


def test_those_who_listen() -> None:
    assert repr(shoal.trace.Listener(tuple)) == "<Listener to 0 processes>"


def test_vector_environments_of_stable_baselines3() -> None:
    pytest.importorskip("stable_baselines3")
    from shoal.compat.sb3 import DummyVecEnv, SubprocVecEnv

    makers: Any = [lambda: gymnasium.make("CartPole-v1")] * 2
    assert repr(DummyVecEnv(makers)) == "<DummyVecEnv of 2 environments>"
    envs = SubprocVecEnv(makers)
    assert repr(envs) == "<SubprocVecEnv of 2 environments>"
    envs.close()
    assert repr(envs) == "<SubprocVecEnv of 2 environments, closed>"


def test_batches_of_moolib() -> None:
    pytest.importorskip("torch")
    from shoal.compat.moolib import EnvPool

    with EnvPool(lambda: gymnasium.make("CartPole-v1"), 2, 3, 1) as pool:
        assert repr(pool) == "<EnvPool of 1 batches of 3 environments, 2 workers>"
        step = pool.step(0, np.zeros(3, np.int64))
        assert repr(step) == "<EnvStepperFuture of 3 environments, not taken yet>"
        step.result()
        assert repr(step) == "<EnvStepperFuture of 3 environments, done>"
    assert repr(pool) == "<EnvPool, closed>"


def test_an_atari_game() -> None:
    pytest.importorskip("ale_py")
    game = shoal.atari.AtariEnv("ALE/Pong-v5")
    assert repr(game) == "<AtariEnv<ALE/Pong-v5>>"
    game.close()
    assert repr(game) == "<AtariEnv<ALE/Pong-v5>>"
