"""The stories in docs/stories: the program that failed fails as it did, and the one beside it works, says so, and leaves nothing."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from shoal.process.gpus import visible_gpus
from story_programs import beside, hangs, interrupt, run, with_our_import, works

# An environment with a server, a port and settings, in Stable-Baselines3


@pytest.mark.parametrize(
    ("way", "told"),
    [
        ("instance", r"TypeError: cannot pickle 'socket' object"),
        ("port", r"OSError: \[Errno 98\] Address already in use[\s\S]*(ConnectionResetError|EOFError|BrokenPipeError)"),
        ("settings", r"the main program set the world to 'ice', and the workers have \['empty'\]"),
    ],
)
def test_server_per_worker_failed(way: str, told: str) -> None:
    pytest.importorskip("stable_baselines3")
    done = run("server_per_worker/original.py", way)
    assert done.returncode == 1 and re.search(told, done.stderr), done.stderr


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_server_per_worker_works(method: str) -> None:
    pytest.importorskip("stable_baselines3")
    lines = works(
        "server_per_worker/with_sb3.py", "--envs", "3", "--steps", "192", "--start-method", method
    ).splitlines()
    assert re.fullmatch(r"3 workers ready after \d+\.\d\d s, \d+\.\d MiB each", lines[0])
    assert lines[1] == "worlds: ['ice'], ports: 3 different ones"
    assert re.fullmatch(r"192 steps and updates: \d+\.\d s, \d+ episodes of all workers", lines[2])


def test_server_per_worker_can_be_interrupted() -> None:
    pytest.importorskip("stable_baselines3")
    told = interrupt("server_per_worker/with_sb3.py", "--steps", "1000000")
    assert told.count("Traceback") <= 1 and "KeyboardInterrupt" in told


def test_server_per_worker_says_what_is_wrong_once_the_import_is_ours(tmp_path: Path) -> None:
    pytest.importorskip("stable_baselines3")
    name = "import SubprocVecEnv"
    copy = with_our_import(
        "server_per_worker/original.py",
        f"from stable_baselines3.common.vec_env {name}",
        f"from shoal.compat.sb3 {name}",
        tmp_path,
    )
    path = beside("server_per_worker")
    told = run(copy, "instance", **path).stderr
    assert "env[0].<default 0>._simulator._listener: cannot pickle 'socket' object" in told
    assert "each worker makes its own: write World(…) inside the function" in told
    told = run(copy, "port", **path).stderr
    assert re.search(r"OSError: \[Errno 98\] Address already in use\nenvironment \d: while it was built", told)


# Tensors through queues, buffers that are used again, Hogwild


THEIRS, OURS = "import torch.multiprocessing as mp", "import shoal.multiprocessing as mp"


@pytest.mark.parametrize(
    ("way", "told"),
    [
        ("gone", r"ConnectionRefusedError|FileNotFoundError"),
        ("descriptors", r"Too many open files|received 0 items of ancdata"),
        ("overwritten", r"\[0\.0, 1\.0, 2\.0\] was sent, and \[2\.0, 2\.0, 2\.0\] was read"),
        ("fork", r"the 2 processes wait, and nothing will wake them"),
    ],
)
def test_hogwild_failed(way: str, told: str) -> None:
    pytest.importorskip("torch")
    # With one CPU torch starts no threads for which a forked child would wait.
    done = run("hogwild/original.py", way, "--processes", "2", OMP_NUM_THREADS="2")
    assert done.returncode == 1 and re.search(told, done.stderr), done.stderr


def test_hogwild_needs_no_more_than_our_import(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    copy, path = with_our_import("hogwild/original.py", THEIRS, OURS, tmp_path), beside("hogwild")
    assert works(copy, "gone", **path) == "[0.0, 1.0, 2.0]\n"
    told = re.fullmatch(r"200 tensors are held, and (\d+) descriptors\n", works(copy, "descriptors", **path))
    assert told and int(told[1]) < 50
    refused = run(copy, "fork", **path, OMP_NUM_THREADS="2").stderr
    assert "ForkRefused" in refused and "thread is alive" in refused


def test_hogwild_works() -> None:
    pytest.importorskip("torch")
    accuracies, figures = works("hogwild/main.py", "--processes", "2", "--steps", "200").splitlines()
    alone, together = map(float, re.findall(r"\d\.\d\d", accuracies))
    assert alone > 0.9 and together > alone - 0.05
    assert re.fullmatch(r"\d+\.\d s with their start, \d+ MiB all processes together", figures)


def test_buffers_go_round() -> None:
    pytest.importorskip("torch")
    told = works("hogwild/buffers.py", "--batches", "60", "--buffers", "6")
    assert "60 batches, none overwritten" in told
    held = re.search(r"(\d+) descriptors", told)
    assert held and int(held[1]) < 40


def test_no_buffers_are_an_error_and_no_hang() -> None:
    pytest.importorskip("torch")
    done = run("hogwild/buffers.py", "--buffers", "0")
    assert done.returncode == 2 and "argument --buffers: '0' is no whole number from 1 on" in done.stderr


def test_buffers_can_be_interrupted() -> None:
    pytest.importorskip("torch")
    assert "KeyboardInterrupt" in interrupt("hogwild/buffers.py", "--batches", "1000000")


# Start methods, lambdas, preloading, pools, logs, a process for each device (MPI: test_mpi.py)


@pytest.mark.parametrize(
    ("way", "told"),
    [
        ("context", r"RuntimeError: context has already been set"),
        ("lambda", r"(AttributeError|PicklingError): Can't (pickle|get) local object .*<lambda>"),
        ("preload", r"the preload was ignored, and nobody said so"),
        ("pool", r"task 3 was killed, all others are done, and the result will never come"),
        ("port", r"(?i)address already in use"),
    ],
)
def test_start_methods_failed(way: str, told: str) -> None:
    if way == "port":
        pytest.importorskip("torch")
    done = run("start_methods/original.py", way)
    assert done.returncode == 1 and re.search(told, done.stderr), done.stderr


def test_logs_of_spawned_processes_were_lost() -> None:
    done = run("start_methods/original.py", "logs")
    assert (done.returncode, done.stdout, done.stderr) == (0, "from the program\n", "")


def test_start_methods_need_no_more_than_our_import(tmp_path: Path) -> None:
    theirs, ours = "import multiprocessing as mp", "import shoal.multiprocessing as mp"
    copy, path = with_our_import("start_methods/original.py", theirs, ours, tmp_path), beside("start_methods")
    assert works(copy, "context", **path) == ""
    assert works(copy, "lambda", **path) == "from a lambda\n"
    assert "PreloadError: preload: importing 'heavvy' failed" in run(copy, "preload", **path).stderr
    told = run(copy, "pool", **path).stderr
    assert re.search(r"WorkerDied: SpawnPoolWorker-\d \(pid \d+\) was killed by signal 9", told)


def test_start_methods_work_side_by_side() -> None:
    *methods, heavy, misspelt, tasks, log = works("start_methods/main.py", "--processes", "3").splitlines()
    for method, line in zip(("fork", "forkserver", "spawn"), methods, strict=True):
        assert re.fullmatch(rf"{method}: 3 processes answered after \d+\.\d\d s, \d+\.\d MiB each", line)
    assert heavy == "heavy was imported by 1 process for 3"
    assert "importing 'heavvy' failed with ModuleNotFoundError" in misspelt
    assert tasks == "tasks [0, 1, 2, 4, 5] are done, [3] was killed"
    assert log == "worker logs: from a process"


def test_a_process_for_each_device_trains_one_network() -> None:
    pytest.importorskip("torch")
    first, rows, loss, figures = works("start_methods/data_parallel.py").splitlines()
    assert re.fullmatch(r"\d processes, (Gloo|NCCL), port \d+", first)
    assert rows == "rows of the first epoch: 2048, each of them once: True"
    told = re.fullmatch(r"loss (\S+) at first, (\S+) at last; the same weights in all processes: True", loss)
    assert told and float(told[2]) < float(told[1]) / 2
    assert re.fullmatch(r"\d+\.\d s with their start, \d+ MiB all of them and their loaders together", figures)


def test_a_process_for_each_device_can_be_interrupted() -> None:
    pytest.importorskip("torch")
    assert "KeyboardInterrupt" in interrupt("start_methods/data_parallel.py", "--epochs", "1000")


# Many collectors on the CPU of a machine with a GPU (its driver is the example's stand-in)


needs_compiler = pytest.mark.skipif(not (shutil.which("cc") or shutil.which("gcc")), reason="there is no C compiler")
SMALL = ("--collectors", "2", "--envs", "4", "--frames", "512")


@needs_compiler
def test_many_collectors_ran_out_of_memory() -> None:
    """Ten processes, of which six get a context."""
    done = run("many_collectors/original.py", *SMALL, "--stand-in", "2400")
    assert done.returncode == 1 and "RuntimeError: CUDA error: out of memory" in done.stderr, done.stderr


@needs_compiler
def test_many_collectors_held_a_context_each() -> None:
    done = run("many_collectors/original.py", *SMALL, "--stand-in", "80000")
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == "4000 MiB of the GPU are held", done.stderr


@needs_compiler
def test_many_collectors_hold_no_memory_of_the_gpu() -> None:
    first, figures, held = works("many_collectors/main.py", *SMALL, "--stand-in", "300").splitlines()
    assert first == "2 collectors of 4 environments" and held == "0 MiB of the GPU are held"
    assert re.fullmatch(r"512 frames in \d+\.\d s with the start, \d+ MiB in [34] processes", figures)


@needs_compiler
def test_many_collectors_can_be_interrupted() -> None:
    told = interrupt("many_collectors/main.py", "--frames", "100000000", "--stand-in", "300")
    assert told.count("Traceback") == 1 and "KeyboardInterrupt" in told


# A segmentation model inside an environment (DI-engine: test_compat_ding_training.py)


def test_segmentation_waited_for_threads_that_a_fork_does_not_copy() -> None:
    pytest.importorskip("torch")
    if visible_gpus():
        assert "Cannot re-initialize CUDA in forked subprocess" in run("segmentation/original.py", "--envs", "2").stderr
    else:
        assert hangs("segmentation/original.py", "--envs", "2", OMP_NUM_THREADS="2")


@pytest.mark.parametrize("arguments", [[], ["--service"]], ids=["a model each", "one service"])
def test_segmentation_works(arguments: list[str]) -> None:
    pytest.importorskip("torch")
    told = works("segmentation/main.py", "--envs", "2", "--steps", "5", *arguments, OMP_NUM_THREADS="2")
    first, figures, held = told.splitlines()
    assert re.fullmatch(r"first observations after \d+\.\d s", first)
    assert re.fullmatch(r"\d+ steps/s, \d+ MiB all together", figures)
    assert re.fullmatch(r"\d+ MiB of the GPU are held", held)
    assert visible_gpus() or held.startswith("0 ")


def test_segmentation_with_a_service_can_be_interrupted() -> None:
    pytest.importorskip("torch")
    told = interrupt("segmentation/main.py", "--envs", "2", "--steps", "1000000", "--service")
    assert "KeyboardInterrupt" in told
