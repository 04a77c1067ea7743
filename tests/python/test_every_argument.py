"""Every argument of the public callables changes something or is refused, and a test says so: argument_proofs.py names it.

An argument without an entry fails, and so does an entry without its argument, and one whose test is not there or does not
pass the argument. Arguments that no other test is about have one here, in test_mp_arguments.py or in test_vector_arguments.py.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import multiprocessing
import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import public_surface
import shoal
import shoal.errors
import shoal.multiprocessing
import shoal.serve
from argument_proofs import ALSO_CALLED, COMMANDS, OWN, PROOF, Because
from argument_sources import passes, passes_more
from public_surface import Argument
from sample_envs import CounterEnv, GatedResetEnv, SpaceEnv
from shoal.cli import main
from shoal.compat import gymnasium as compat
from shoal.multiprocessing.start_methods import Options

HERE = Path(__file__).parent
OPTIONS = "multiprocessing.Options"
APP = importlib.import_module("shoal.cli.app").app

CALLABLES = {f"shoal {info.callback.__name__}": info.callback for info in APP.registered_commands}
LONG = 60.0
"""Seconds that no passing test comes near."""


def arguments_of(name: str) -> dict[str, Argument]:
    """With the fields of Options for what get_context() takes by **options."""
    arguments = public_surface.arguments_of(Options) if name == OPTIONS else public_surface.surface()[name]
    return {argument.name: argument for argument in arguments}


def proofs_of(name: str) -> dict[str, str]:
    """By argument."""
    found: dict[str, str] = {}
    for arguments, test in PROOF[name].items():
        for argument in arguments.split():
            assert argument not in found, f"{name}: {argument} is there twice"
            found[argument] = test
    return found


def test_every_public_callable_is_in_the_table() -> None:
    assert {*public_surface.surface(), OPTIONS} == set(PROOF)


def test_what_is_left_out_is_there() -> None:
    """Names in the lists of what users do not make or call that nothing has any more."""
    names = public_surface.names()
    assert public_surface.HANDED_OUT | public_surface.FOR_SHOAL <= names
    assert set(ALSO_CALLED) <= set(PROOF)


@pytest.mark.parametrize("name", PROOF)
def test_every_argument_has_a_test(name: str) -> None:
    arguments, tests = arguments_of(name), proofs_of(name)
    assert set(arguments) == set(tests)
    called = frozenset({name.split(".")[-1], *ALSO_CALLED.get(name, ())})
    for argument, test in tests.items():
        if isinstance(test, Because):
            continue
        file, _, function = test.partition("::")
        _, position, kind = arguments[argument]
        if kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            shown = passes_more(file, function, called, frozenset(arguments) - {argument}, position)
        else:
            shown = passes(file, function, called, argument, position)
        assert shown is not None, f"{name}({argument}=…): there is no test {test}"
        assert shown, f"{name}({argument}=…): {test} does not pass it"


def test_a_test_that_does_not_pass_an_argument_is_noticed() -> None:
    """On tests of this file."""
    make_vec = frozenset({"make_vec"})
    assert passes(OWN, "test_a_seed_is_that_of_the_first_reset", make_vec, "seed", None)
    assert passes(OWN, "test_a_seed_is_that_of_the_first_reset", make_vec, "num_envs", 1)
    assert not passes(OWN, "test_a_seed_is_that_of_the_first_reset", make_vec, "timeout", None)
    assert not passes(OWN, "test_a_seed_is_that_of_the_first_reset", make_vec, "num_workers", 2)
    assert not passes(OWN, "test_a_seed_is_that_of_the_first_reset", frozenset({"launcher"}), "seed", None)
    assert passes(OWN, "no_such_test", make_vec, "seed", None) is None
    faults = "test_faults_outside_the_restart_window_are_forgotten"
    assert passes(OWN, faults, frozenset({"FaultPolicy"}), "restart_window", None)
    assert not passes(OWN, faults, make_vec, "restart_window", None)  # another call has it
    steps = frozenset({"step"})
    assert passes(OWN, faults, steps, "actions", 0)  # through functools.partial()
    assert not passes(OWN, faults, steps, "env_ids", 1)
    unknown = "test_an_unknown_argument_is_refused"
    assert passes_more(OWN, unknown, make_vec, frozenset({"env", "num_envs"}), None)
    assert not passes_more(OWN, unknown, make_vec, frozenset({"num_wokers"}), None)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_flag_has_a_test(command: str) -> None:
    callback = CALLABLES[f"shoal {command}"]
    sources = "\n".join(
        source for module in COMMANDS[command] for source in (HERE / f"{module}.py").read_text().split()
    )
    for name, parameter in inspect.signature(callback).parameters.items():
        flags = [flag for flag in parameter.default.param_decls or () if flag.startswith("-")]
        if flags:
            said = any(re.search(rf"{re.escape(flag)}(?![\w-])", sources) for flag in flags)
            assert said, f"no test of shoal {command} has {' or '.join(flags)} ({name})"


def test_every_command_is_in_the_table() -> None:
    assert {f"shoal {command}" for command in COMMANDS} == set(CALLABLES)


# --- arguments that no other test is about


def test_a_seed_is_that_of_the_first_reset() -> None:
    first = []
    for arguments in ({"seed": 3}, {}):
        envs = shoal.make_vec("shoal/CartPole-v1", 2, **arguments)
        first.append(envs.reset(seed=None if arguments else 3)[0].tolist())
        envs.close()
    assert first[0] == first[1]


def test_an_unknown_argument_is_refused() -> None:
    with pytest.raises(TypeError, match=r"make_vec\(\) has no argument 'num_wokers'. Did you mean 'num_workers'\?"):
        shoal.make_vec(CounterEnv, 2, num_wokers=2)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("start_method", "as Stable-Baselines3's SubprocVecEnv has: say context='forkserver', 'spawn' or 'fork'"),
        ("num_threads", "as EnvPool has: say num_workers"),
        ("wait_num", "as tianshou's BaseVectorEnv has: say batch_size"),
        ("vectorization_mode", "as gymnasium.make_vec() has: say backend='process'"),
    ],
)
def test_arguments_of_others_are_refused_with_what_stands_for_them(name: str, says: str) -> None:
    with pytest.raises(TypeError) as caught:
        shoal.make_vec(CounterEnv, 2, **{name: 1})
    assert str(caught.value).startswith(f"make_vec() has no argument {name!r}, {says}")


@pytest.mark.parametrize("option", dataclasses.fields(shoal.WorkerOptions), ids=lambda option: option.name)
def test_an_option_of_workers_is_refused_with_where_it_belongs(option: Any) -> None:
    if option.name in inspect.signature(shoal.make_vec).parameters:
        return  # config is both
    with pytest.raises(TypeError) as caught:
        shoal.make_vec(CounterEnv, 2, **{option.name: True})
    assert f"worker=shoal.WorkerOptions({option.name}=True)" in str(caught.value)


def test_a_preload_is_there_before_the_environments() -> None:
    class Env(CounterEnv):
        def __init__(self) -> None:
            import sys

            super().__init__()
            self.there = "colorsys" in sys.modules

    for preload, there in (((), False), (["colorsys"], True)):
        envs = shoal.make_vec(Env, 1, num_workers=1, worker=shoal.WorkerOptions(preload=preload))
        assert envs.get_attr("there") == (there,)
        envs.close()


class NeverBuilt(CounterEnv):
    def __init__(self) -> None:
        time.sleep(3600)


def test_an_environment_that_is_not_built_within_start_timeout_is_an_error() -> None:
    with pytest.raises(Exception, match="start_timeout"):
        shoal.make_vec(NeverBuilt, 1, worker=shoal.WorkerOptions(start_timeout=0.3))


class Failing(CounterEnv):
    def step(self, action: Any) -> Any:
        raise LookupError("always")


@pytest.mark.parametrize("restart_window", [0.0, 3600.0])
def test_faults_outside_the_restart_window_are_forgotten(restart_window: float) -> None:
    policy = shoal.FaultPolicy("restart", max_restarts=2, restart_window=restart_window, backoff=0.0)
    envs = shoal.make_vec(Failing, 1, on_fault=policy)
    envs.reset()
    steps = functools.partial(envs.step, [0])
    if restart_window == 0:
        for _ in range(8):
            steps()
    else:
        with pytest.raises(shoal.TooManyFaults):
            for _ in range(8):
                steps()
    envs.close()


@pytest.mark.parametrize("context", ["forkserver", "spawn"])
def test_the_workers_of_a_pool_start_as_asked(context: str) -> None:
    with shoal.WorkerPool(1, context=context) as pool:
        parent = int(re.search(r"PPid:\s+(\d+)", Path(f"/proc/{pool.pids[0]}/status").read_text())[1])
        assert (parent == os.getpid()) == (context == "spawn")


def settings(rows: np.ndarray) -> np.ndarray:
    import sys

    return np.array([[int(os.environ["OMP_NUM_THREADS"]), "colorsys" in sys.modules]] * len(rows))


def test_a_server_has_the_threads_and_modules_it_was_given() -> None:
    with shoal.ModelService({"settings": settings}, threads=3, preload=["colorsys"]) as service:
        assert service.model("settings")(np.zeros(1)).tolist() == [3, 1]


class NeverLoaded:
    def __init__(self) -> None:
        time.sleep(3600)


def test_a_model_that_is_not_loaded_within_start_timeout_is_an_error() -> None:
    with pytest.raises((shoal.StartFailed, TimeoutError), match=r"\(start_timeout\)"):
        shoal.ModelService({"never": NeverLoaded}, start_timeout=0.3)


def tell_modules(queue: Any) -> None:
    import sys

    queue.put("colorsys" in sys.modules)


def test_a_context_preloads() -> None:
    for preload, there in (((), False), (["colorsys"], True)):
        context = shoal.multiprocessing.get_context("forkserver", preload=preload)
        queue = context.Queue()
        process = context.Process(target=tell_modules, args=(queue,))
        process.start()
        assert queue.get(timeout=60) is there
        process.join()


def test_an_unknown_algorithm_is_refused() -> None:
    with pytest.raises(ValueError, match="there is no algorithm 'pppo'"):
        shoal.learn.train("shoal/CartPole-v1", algorithm="pppo")


def test_training_is_where_and_how_it_was_asked_to_be(tmp_path: Path) -> None:
    small = {"total_steps": 64, "num_envs": 2, "num_steps": 16, "num_workers": 1}
    for i, (arguments, parent) in enumerate(
        [({"backend": "thread"}, None), ({"context": "spawn"}, os.getpid()), ({"backend": "process"}, -1)]
    ):
        with shoal.learn.Trainer("shoal/CartPole-v1", run_dir=tmp_path / str(i), **arguments, **small) as trainer:
            (pid,) = (worker["pid"] for worker in trainer._envs[0].stats()["workers"])
            if parent is None:
                assert pid == 0
            else:
                found = int(re.search(r"PPid:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1])
                assert (found == os.getpid()) == (parent == os.getpid())


def test_evaluate_takes_the_checkpoint_that_was_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shoal.learn.train(
        "shoal/CartPole-v1", total_steps=64, num_envs=2, num_steps=16, final_episodes=1, run_dir=tmp_path / "run"
    )
    assert shoal.learn.evaluate(tmp_path / "run", 2, which="last").episodes == 2
    with pytest.raises(ValueError, match="'best' and 'last', not 'first'"):
        shoal.learn.evaluate(tmp_path / "run", 2, which="first")
    returns = []
    for more in ([], ["--stochastic"]):
        assert main(["eval", str(tmp_path / "run"), "--episodes", "30", "--checkpoint", "last", *more]) == 0
        returns.append(capsys.readouterr().out)
    assert returns[0] != returns[1]


def test_register_hands_its_arguments_on() -> None:
    import gymnasium

    compat.register("CartPole-v1", num_workers=0, autoreset_mode="same_step")
    try:
        envs = gymnasium.make_vec("CartPole-v1", 2)
        assert isinstance(envs, shoal.VectorEnv) and envs.metadata["autoreset_mode"].name == "SAME_STEP"
        envs.close()
    finally:
        compat.unregister("CartPole-v1")


def test_wrong_jobs_of_the_tests_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["test", "--jobs", "0"]) == 2
    assert "--jobs" in capsys.readouterr().err


def test_bench_takes_its_workers_and_plugins(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--num-workers", "0"]) == 2
    assert "--num-workers" in capsys.readouterr().err
    assert main(["bench", "--beside", "-1"]) == 2
    assert "--beside" in capsys.readouterr().err
    assert main(["bench", "--plugin", "no.so"]) == 2
    assert "--plugin" in capsys.readouterr().err


# --- models


def gated(gate: threading.Event) -> Any:
    """A model that answers when the gate is open."""

    def model(x: np.ndarray) -> np.ndarray:
        gate.wait(LONG)
        return x

    return model


def test_a_service_has_a_deadline_for_requests_that_name_none() -> None:
    gate = threading.Event()
    with shoal.ModelService({"gated": gated(gate)}, context="thread", timeout=0.01) as service:
        with pytest.raises(shoal.errors.DeadlineExceeded):
            service.model("gated")(1.0)
        gate.set()
        assert service.model("gated")(1.0, timeout=LONG) == 1.0


def test_a_service_is_waited_for_as_long_as_is_said() -> None:
    gate = threading.Event()
    with shoal.ModelService({"gated": gated(gate)}, context="thread") as service:
        model = service.model("gated")
        gate.set()
        model(1.0, timeout=LONG)  # the first of a kind waits until the model has been tried
        gate.clear()
        reply = model.submit(1.0)
        with pytest.raises(TimeoutError, match=r"has not answered after 0\.01 s"):
            reply.result(timeout=0.01)
        with pytest.raises(TimeoutError, match=r"has not answered 1 requests after 0\.02 s"):
            model.gather([reply], timeout=0.02)
        with pytest.raises(shoal.errors.DeadlineExceeded):
            model.batch(np.ones(2), timeout=0.01)
        with pytest.raises(shoal.errors.DeadlineExceeded):
            model.submit(1.0, timeout=0.01).result()
        gate.set()
        assert reply.result() == 1.0


def scaled(x: np.ndarray, by: np.ndarray) -> np.ndarray:
    return x * by


@pytest.fixture(params=["service", "local"])
def model(request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param == "service":
        with shoal.ModelService({"scaled": scaled}, context="thread") as service:
            yield service.model("scaled")
    else:
        shoal.serve.use({"scaled": scaled})
        yield shoal.worker().model("scaled")
        shoal.serve.use(None)


def test_every_way_to_ask_takes_keywords(model: Any) -> None:
    rows, by = np.arange(3.0), np.full(3, 2.0)
    assert model(3.0, by=2.0) == 6
    assert model.batch(rows, by=by).tolist() == [0, 2, 4]
    assert model.submit(3.0, by=2.0).result() == 6
    assert model.submit(rows, by=by, batched=True).result().tolist() == [0, 2, 4]


def test_a_local_model_has_one_version() -> None:
    shoal.serve.use({"scaled": scaled})
    try:
        model = shoal.worker().model("scaled")
        assert model.pin(model.version) is model
        with pytest.raises(ValueError, match="are not kept"):
            model.pin(model.version + 1)
    finally:
        shoal.serve.use(None)


# --- processes


@pytest.mark.parametrize("hide_gpu", [True, False])
def test_a_launcher_that_is_kept_starts_workers_as_asked(hide_gpu: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    names = ("CUDA_VISIBLE_DEVICES", "SHOAL_TEST_OPTION", "OMP_NUM_THREADS")
    kept = shoal.process.launcher("spawn", hide_gpu=hide_gpu, env={"SHOAL_TEST_OPTION": "on"}, threads=3)
    worker = kept.start([(lambda context: context.send(repr([os.environ.get(name) for name in names]).encode()),)])[0]
    assert worker.recv(LONG) == repr(["" if hide_gpu else "0", "on", "3"]).encode()
    assert worker.join(LONG)


@pytest.mark.parametrize("kept", [True, False])
def test_a_zygote_that_is_not_ready_within_start_timeout_is_an_error(
    kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "endless_module.py").write_text("import time\ntime.sleep(3600)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    make = shoal.process.launcher if kept else shoal.process.Launcher
    slow = make("forkserver", preload=["endless_module"], start_timeout=0.3)
    try:
        with pytest.raises(TimeoutError, match=r"\(start_timeout\)"):
            slow.start([(print,)])
    finally:
        shoal.process.close_launchers()
        slow.close()


@pytest.mark.parametrize("relay_output", [True, False])
def test_what_workers_print_is_relayed_where_that_is_asked_for(
    relay_output: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    with shoal.process.Launcher("spawn", relay_output=relay_output) as launcher:
        worker = launcher.start([(lambda context: print("from a worker"),)])[0]
        assert worker.join(LONG) and worker.log_tail == ["from a worker"]
    said = capfd.readouterr().out
    while relay_output and "from a worker" not in said:  # a thread passes it on
        said += capfd.readouterr().out
    assert ("from a worker" in said) == relay_output


def test_a_zygote_may_begin_before_its_preload_is_known() -> None:
    wanted = {"colorsys", "wave"}
    with shoal.process.Launcher("forkserver", ahead="colorsys") as own:
        own.begin(["wave"])
        worker = own.start([(lambda context: context.send(repr(wanted <= set(sys.modules)).encode()),)])[0]
        assert worker.recv(LONG) == b"True"
        assert worker.join(LONG)


def test_a_worker_waits_for_its_parent_as_long_as_is_said() -> None:
    def wait(context: Any) -> None:
        def send_all() -> None:
            for _ in range(100_000):
                context.send(b"x" * 60_000, 0.01)

        for call in (lambda: context.recv(0.01), send_all):
            try:
                call()
            except TimeoutError:
                continue
            sys.exit(1)

    with shoal.process.Launcher("spawn") as launcher:
        worker = launcher.start([(wait,)])[0]
        assert worker.join(LONG) and worker.exitcode == 0


def test_threads_are_no_hazard_where_they_are_left_out() -> None:
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    try:
        told, without = shoal.process.fork_hazards(), shoal.process.fork_hazards(threads=False)
    finally:
        end.set()
        thread.join()
    assert any("other thread" in hazard for hazard in told)
    assert not any("other thread" in hazard for hazard in without)


# --- policies


def test_a_torch_policy_is_of_the_checkpoint_that_was_named(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    run = tmp_path / "run"
    shoal.learn.train("shoal/CartPole-v1", total_steps=64, num_envs=2, num_steps=16, final_episodes=1, run_dir=run)
    with pytest.raises(ValueError, match="'best' and 'last', not 'first'"):
        shoal.learn.torch_policy(run, which="first")
    policy = shoal.learn.torch_policy(run, which="last")
    observations = torch.rand(5, 4)
    actor, values = policy.forward(observations)
    assert actor.shape == (5, 2) and values.shape == (5,)
    (distribution,) = policy.distribution(observations)
    assert torch.allclose(distribution.probs, actor.softmax(-1))
    assert torch.equal(distribution.probs.argmax(-1), policy.predict(observations))


# --- Gymnasium's classes

KINDS = pytest.mark.parametrize("kind", [compat.SyncVectorEnv, compat.AsyncVectorEnv])


@KINDS
@pytest.mark.parametrize("copy", [True, False])
def test_compats_copy_says_whether_observations_are_views(kind: Any, copy: bool) -> None:
    envs = kind([CounterEnv] * 2, copy=copy)
    first = envs.reset()[0]
    assert np.shares_memory(first, envs.step([0, 0])[0]) == (not copy)
    envs.close()


def test_compat_refuses_spaces_without_arrays_for_shared_memory_alone() -> None:
    factories = [functools.partial(SpaceEnv, "custom")] * 2
    with pytest.raises(ValueError, match="shared_memory=False"):
        compat.AsyncVectorEnv(factories, shared_memory=True)
    envs = compat.AsyncVectorEnv(factories, shared_memory=False)
    assert len(envs.reset(seed=0)[0]) == 2
    envs.close()


@pytest.mark.parametrize("daemon", [True, False])
def test_compats_daemon_is_shown_of_its_processes(daemon: bool) -> None:
    envs = compat.AsyncVectorEnv([CounterEnv] * 2, daemon=daemon)
    assert [process.daemon for process in envs.processes] == [daemon] * 2
    envs.close()


@KINDS
def test_compats_halves_take_what_the_whole_takes(kind: Any) -> None:
    envs = kind([functools.partial(SpaceEnv, "box")] * 2)
    envs.reset_async(seed=[5, 6], options={"level": 7})
    assert envs.reset_wait()[1]["options"]["level"].tolist() == [7, 7]
    assert envs.np_random_seed == (5, 6)
    envs.call_async("double", 4, plus=1)
    assert envs.call_wait() == (9, 9)
    envs.close()
    counting = kind([CounterEnv] * 2)
    counting.reset()
    counting.step_async([1, 2])
    assert counting.step_wait()[1].tolist() == [1.0, 2.0]
    counting.close()


def test_compats_reset_and_close_have_their_timeouts(tmp_path: Path) -> None:
    envs = compat.AsyncVectorEnv([functools.partial(GatedResetEnv, tmp_path / "gate")] * 2)
    envs.reset()
    envs.reset_async()
    with pytest.raises(multiprocessing.TimeoutError, match=r"after 0\.01 second"):
        envs.reset_wait(timeout=0.01)
    envs.close(timeout=0.01)  # the gate never opens
    assert envs.closed
