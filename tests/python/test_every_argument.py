"""Every argument of the public callables changes something or is refused, and a test says so: the table below names it.

An argument without an entry fails, and so does an entry without its argument, and one whose test is not there. Arguments that no other test was about have one here.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shoal
import shoal.cli
import shoal.multiprocessing
import shoal.serve
from sample_envs import CounterEnv
from shoal.cli import main
from shoal.compat import gymnasium as compat
from shoal.multiprocessing.context import Options

HERE = Path(__file__).parent
APP = importlib.import_module("shoal.cli.main").app
shoal.cli.main = main  # the module of that name has taken the function's place, which other tests import from there

CALLABLES: dict[str, Callable[..., Any]] = {
    "make_vec": shoal.make_vec,
    "WorkerOptions": shoal.WorkerOptions,
    "FaultPolicy": shoal.FaultPolicy,
    "WorkerPool": shoal.WorkerPool,
    "ModelService": shoal.ModelService,
    "serve.use": shoal.serve.use,
    "multiprocessing.get_context": Options,
    "learn.train": shoal.learn.train,
    "learn.Trainer": shoal.learn.Trainer,
    "learn.load_policy": shoal.learn.load_policy,
    "learn.evaluate": shoal.learn.evaluate,
    "compat.gymnasium.AsyncVectorEnv": compat.AsyncVectorEnv.__init__,
    "compat.gymnasium.SyncVectorEnv": compat.SyncVectorEnv.__init__,
    "compat.gymnasium.register": compat.register,
    **{f"shoal {info.callback.__name__}": info.callback for info in APP.registered_commands},
}

OWN = "test_every_argument"
COMPAT = "test_compat_gymnasium"
PROOF: dict[str, dict[str, str]] = {
    "make_vec": {
        "env": "test_vector_errors::test_an_instance_is_refused_with_the_fix",
        "num_envs": "test_vector_errors::test_a_wrong_argument_is_named_with_its_choices",
        "num_workers": "test_async::test_every_environment_has_the_trajectory_of_synchronous_steps",
        "context": "test_vector_processes::test_every_start_method_gives_the_same_trajectory",
        "backend": "test_worker_options::test_wrappers_are_put_around_every_environment_the_first_innermost",
        "autoreset_mode": "test_vector_conformance::test_same_step_mode_keeps_the_last_observation_as_a_copy_of_its_own",
        "env_kwargs": "test_vector_native::test_keyword_arguments_reach_the_environments",
        "seed": "test_every_argument::test_a_seed_is_that_of_the_first_reset",
        "copy": "test_vector_conformance::test_copy_false_gives_live_views_that_outlive_the_environments",
        "timeout": "test_worker_options::test_one_environment_that_hangs_is_late",
        "on_fault": "test_async::test_with_restart_what_fails_comes_back_as_a_fault",
        "setup": "test_config::test_setup_runs_once_in_each_worker_before_its_environments",
        "config": "test_config::test_what_the_parent_has_set_is_in_place_in_the_workers",
        "episode_statistics": "test_vector_episodes::test_all_of_it_on_an_environment_of_ones_own",
        "max_episode_steps": "test_vector_episodes::test_all_of_it_on_an_environment_of_ones_own",
        "frame_stack": "test_vector_episodes::test_all_of_it_on_an_environment_of_ones_own",
        "reward_clip": "test_vector_episodes::test_all_of_it_on_an_environment_of_ones_own",
        "wrappers": "test_worker_options::test_wrappers_are_put_around_every_environment_the_first_innermost",
        "batch_size": "test_async::test_the_first_that_are_ready_come_first",
        "cohorts": "test_async::test_every_environment_has_the_trajectory_of_synchronous_steps",
        "max_in_flight": "test_async::test_max_in_flight_bounds_what_is_out",
        "pool": "test_gpu_hygiene::test_a_worker_pool_leases_too",
        "worker": "test_vector_processes::test_workers_have_the_threads_and_variables_they_were_given",
        "unknown": f"{OWN}::test_an_unknown_argument_is_refused",
    },
    "WorkerOptions": {
        "threads": "test_vector_processes::test_workers_have_the_threads_and_variables_they_were_given",
        "gpu": "test_gpu_hygiene::test_leased_gpus_are_spread_over_workers_and_come_back_from_the_dead",
        "affinity": "test_worker_options::test_a_list_of_cpus_is_dealt_out_to_the_workers",
        "preload": f"{OWN}::test_a_preload_is_there_before_the_environments",
        "env": "test_worker_options::test_native_workers_have_the_variables_and_threads_they_were_given",
        "config": "test_config::test_options_take_it_too_but_not_twice",
        "models": "test_serve_local::test_workers_load_theirs_on_the_device_that_was_named",
        "model_device": "test_serve_local::test_workers_load_theirs_on_the_device_that_was_named",
        "nested": "test_worker_options::test_workers_without_nested_start_no_processes",
        "shared_bytes": "test_identity::test_what_does_not_fit_is_refused_and_nothing_is_lost",
        "memory_limit": "test_worker_options::test_native_workers_over_their_memory_limit_are_replaced",
        "memory_hard_limit": "test_worker_options::test_native_workers_over_their_hard_limit_are_killed",
        "start_timeout": f"{OWN}::test_an_environment_that_is_not_built_within_start_timeout_is_an_error",
        "allow_unsafe_fork": "test_vector_processes::test_fork_inherits_what_cannot_be_pickled",
    },
    "FaultPolicy": {
        "on_fault": "test_async_faults::test_restart_ends_the_rows_as_truncated_with_a_record",
        "max_restarts": "test_vector_faults::test_too_many_faults_tell_of_each_with_its_cause",
        "restart_window": f"{OWN}::test_faults_outside_the_restart_window_are_forgotten",
        "backoff": "test_vector_faults::test_a_place_that_fails_again_waits_while_the_others_go_on",
        "max_backoff": "test_vector_faults::test_a_place_that_fails_again_waits_while_the_others_go_on",
        "start_timeout": "test_vector_faults::test_an_environment_that_hangs_while_it_is_built_is_an_error_with_its_stack",
        "reset_timeout": "test_vector_faults::test_a_hung_reset_has_a_deadline_of_its_own",
        "step_timeout": "test_async_faults::test_a_hang_raises_with_the_python_stack",
    },
    "WorkerPool": {
        "num_workers": "test_async::test_arguments_that_do_not_go_together_are_refused",
        "context": f"{OWN}::test_the_workers_of_a_pool_start_as_asked",
        "worker": "test_worker_options::test_a_list_of_cpus_is_dealt_out_to_the_workers",
    },
    "ModelService": {
        "models": "test_example_segmentation::test_models_in_workers_and_one_for_all_of_them_see_the_same",
        "device": "test_serve_cuda::test_no_device_is_one_clear_error",
        "max_batch": "test_serve::test_buckets_pad_with_the_first_row",
        "max_delay": "test_serve::test_max_delay_waits_for_the_quorum",
        "instances": "test_serve::test_several_instances_share_the_clients",
        "buckets": "test_serve::test_buckets_pad_with_the_first_row",
        "keep_versions": "test_serve_weights::test_a_pinned_version_stays",
        "timeout": "test_serve::test_the_deadline_of_a_request",
        "context": "test_serve_local::test_a_service_in_a_thread_refuses_what_only_a_process_could_honour",
        "threads": f"{OWN}::test_a_server_has_the_threads_and_modules_it_was_given",
        "preload": f"{OWN}::test_a_server_has_the_threads_and_modules_it_was_given",
        "on_fault": "test_serve_death::test_with_restart_another_server_takes_its_place",
        "start_timeout": f"{OWN}::test_a_model_that_is_not_loaded_within_start_timeout_is_an_error",
    },
    "serve.use": {
        "models": "test_serve_local::test_a_call_that_takes_longer_than_its_timeout_is_exceeded",
        "device": "test_serve_local::test_models_compute_on_the_device_that_was_named",
    },
    "multiprocessing.get_context": {
        "threads": "test_mp_context::test_options_of_a_context",
        "gpu": "test_mp_context::test_options_of_a_context",
        "env": "test_mp_context::test_options_of_a_context",
        "preload": f"{OWN}::test_a_context_preloads",
        "allow_unsafe_fork": "test_mp_context::test_fork_is_refused_where_native_threads_run",
    },
    "learn.train": {
        "env": "test_learn_train::test_a_factory_that_is_no_id_is_given_again_for_evaluation",
        "algorithm": f"{OWN}::test_an_unknown_algorithm_is_refused",
        "total_steps": "test_learn_env_options::test_train_takes_them_and_evaluate_may_be_told_others",
        "seed": "test_learn_train::test_a_run_leaves_its_directory_behind",
        "num_envs": "test_learn_env_options::test_train_takes_them_and_evaluate_may_be_told_others",
        "num_workers": "test_learn_resume::test_the_number_of_workers_changes_nothing",
        "preset": "test_learn_resume::test_resume_says_what_is_wrong",
        "run_dir": "test_learn_train::test_a_run_leaves_its_directory_behind",
        "resume": "test_learn_resume::test_stopped_and_resumed_in_workers_equals_uninterrupted",
        "env_kwargs": "test_learn_env_options::test_train_takes_them_and_evaluate_may_be_told_others",
        "max_episode_steps": "test_learn_env_options::test_train_takes_them_and_evaluate_may_be_told_others",
        "frame_stack": "test_learn_env_options::test_train_takes_them_and_evaluate_may_be_told_others",
        "reward_clip": "test_learn_env_options::test_train_takes_them_and_evaluate_may_be_told_others",
        "wrappers": "test_learn_env_options::test_train_takes_them_and_evaluate_may_be_told_others",
        "backend": f"{OWN}::test_training_is_where_and_how_it_was_asked_to_be",
        "context": f"{OWN}::test_training_is_where_and_how_it_was_asked_to_be",
        "callback": "test_learn_train::test_callback_sees_the_status_and_may_stop_the_run",
        "overrides": "test_learn_train::test_a_bad_option_is_one_clear_error_before_anything_starts",
    },
    "learn.load_policy": {
        "run_dir": "test_learn_policy::test_which_policy",
        "which": "test_learn_policy::test_which_policy",
    },
    "learn.evaluate": {
        "run_dir": "test_learn_policy::test_evaluate_is_a_function_of_its_arguments",
        "episodes": "test_learn_policy::test_evaluate_is_a_function_of_its_arguments",
        "seed": "test_learn_policy::test_evaluate_is_a_function_of_its_arguments",
        "which": f"{OWN}::test_evaluate_takes_the_checkpoint_that_was_named",
        "deterministic": "test_learn_policy::test_evaluate_is_a_function_of_its_arguments",
        "env": "test_learn_policy::test_evaluate_refuses_another_task",
        "env_kwargs": "test_learn_env_options::test_train_takes_them_and_evaluate_may_be_told_others",
        "max_episode_steps": "test_learn_env_options::test_train_takes_them_and_evaluate_may_be_told_others",
        "frame_stack": "test_learn_env_options::test_train_takes_them_and_evaluate_may_be_told_others",
        "wrappers": "test_learn_env_options::test_train_takes_them_and_evaluate_may_be_told_others",
        "num_envs": "test_learn_policy::test_evaluate_is_a_function_of_its_arguments",
        "num_workers": "test_learn_policy::test_evaluate_is_a_function_of_its_arguments",
    },
    "compat.gymnasium.AsyncVectorEnv": {
        "env_fns": f"{COMPAT}::test_what_users_read_is_what_they_gave",
        "shared_memory": f"{COMPAT}::test_spaces_that_shared_memory_of_the_peer_refuses_are_refused",
        "copy": f"{COMPAT}::test_what_users_read_is_what_they_gave",
        "context": f"{COMPAT}::test_every_context_starts",
        "daemon": f"{COMPAT}::test_what_users_read_is_what_they_gave",
        "worker": f"{COMPAT}::test_a_custom_worker_is_run_by_gymnasiums_own_class",
        "observation_mode": f"{COMPAT}::test_spaces_may_differ_in_their_bounds_where_that_is_said",
        "autoreset_mode": f"{COMPAT}::test_what_users_read_is_what_they_gave",
        "max_concurrency": f"{COMPAT}::test_workers_may_share_environments",
        "num_workers": f"{COMPAT}::test_workers_may_share_environments",
    },
    "compat.gymnasium.SyncVectorEnv": {
        "env_fns": f"{COMPAT}::test_what_users_read_is_what_they_gave",
        "copy": f"{COMPAT}::test_what_users_read_is_what_they_gave",
        "observation_mode": f"{COMPAT}::test_spaces_may_differ_in_their_bounds_where_that_is_said",
        "autoreset_mode": f"{COMPAT}::test_the_serial_class_refuses_to_step_what_has_ended",
    },
    "compat.gymnasium.register": {
        "env_id": f"{OWN}::test_register_hands_its_arguments_on",
        "arguments": f"{OWN}::test_register_hands_its_arguments_on",
    },
}

# Flags of commands: the commands' own tests, by file.
COMMANDS: dict[str, tuple[str, ...]] = {
    "train": ("test_cli", "test_cli_train", "test_learn_env_options", "test_examples_cpp"),
    "evaluate": ("test_cli_train", "test_examples_cpp", OWN),
    "plot": ("test_cli", "test_cli_train"),
    "envs": ("test_cli", "test_examples_cpp"),
    "doctor": ("test_doctor",),
    "stat": ("test_serve_observing",),
    "bench": ("test_bench", "test_cli", OWN),
    "test": ("test_cli", "test_test_all", OWN),
}


@functools.cache
def sources_of(module: str) -> dict[str, str]:
    """The source of every test of a file, with its decorators."""
    text = (HERE / f"{module}.py").read_text()
    lines = text.splitlines()
    found = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            found[node.name] = "\n".join(lines[first - 1 : node.end_lineno])
    return found


def arguments_of(name: str) -> list[str]:
    return [argument for argument in inspect.signature(CALLABLES[name]).parameters if argument != "self"]


IN_PYTHON = [name for name in CALLABLES if not name.startswith("shoal ") and name != "learn.Trainer"]


@pytest.mark.parametrize("name", IN_PYTHON)
def test_every_argument_has_a_test(name: str) -> None:
    assert sorted(arguments_of(name)) == sorted(PROOF[name])
    for argument, proof in PROOF[name].items():
        module, _, test = proof.partition("::")
        source = sources_of(module).get(test)
        assert source is not None, f"{name}({argument}=…): there is no test {proof}"


def test_a_trainer_takes_what_train_does() -> None:
    """train() hands all of it on, and keeps the callback."""
    assert arguments_of("learn.Trainer") == [name for name in arguments_of("learn.train") if name != "callback"]


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
    assert {f"shoal {command}" for command in COMMANDS} == {name for name in CALLABLES if name.startswith("shoal ")}


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
