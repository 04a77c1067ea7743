"""Workers and GPUs, on a stand-in for the CUDA driver that writes down every context.

Torch is built for the CPU here, so its `torch.cuda` is given what it would do with the driver: the calls of a CUDA build, in
its order, through ctypes.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import stat
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import shoal
from shoal.doctor import accelerators
from shoal.process.gpus import visible_gpus
from test_process_zygote import compile_library

DRIVER = (Path(__file__).parents[2] / "examples" / "many_collectors" / "stand_in_driver.c").read_text()

TORCH = ["torch"]  # imported once for all workers

needs_the_stand_in = pytest.mark.skipif(
    bool(visible_gpus()), reason="a torch for CUDA loads the driver of the GPU that is here: test_gpu_hygiene_gpu.py"
)


@pytest.fixture
def contexts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of contexts, with the stand-in at STAND_IN_DRIVER."""
    monkeypatch.setenv("STAND_IN_DRIVER", str(compile_library(tmp_path, "libcuda.so.1", DRIVER)))
    monkeypatch.setenv("STAND_IN_CONTEXTS", str(tmp_path / "contexts"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    (tmp_path / "contexts").touch()
    return tmp_path / "contexts"


class StandInCuda:
    """`torch.cuda` of a CUDA build: is_available() counts devices, synchronize() initialises the driver and makes the
    context of device 0."""

    def __init__(self) -> None:
        self.driver = ctypes.CDLL(os.environ["STAND_IN_DRIVER"])

    def is_initialized(self) -> bool:
        return False

    def is_available(self) -> bool:
        count = ctypes.c_int(0)
        return self.driver.cuInit(0) == 0 and self.driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0

    def synchronize(self) -> None:
        if not self.is_available():
            raise RuntimeError("No CUDA GPUs are available")
        assert self.driver.cuDevicePrimaryCtxRetain(ctypes.byref(ctypes.c_void_p()), 0) == 0
        assert self.driver.cuCtxSynchronize() == 0


class Synchronizing(gymnasium.Env[np.ndarray, int]):
    """As tensor libraries did after every transfer (tensordict before its "Sync cuda only if initialized").

    Args:
        careful: asks is_available() first.
        shows: the value that it sets CUDA_VISIBLE_DEVICES to, as code does that knows which GPU it wants.
        at: the call that does it: "init", or the number of the step.
    """

    observation_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, careful: bool = True, shows: str | None = None, at: str | int = "init") -> None:
        import torch

        self.torch = torch
        self.replace_driver()
        self.careful, self.shows, self.at, self.steps = careful, shows, at, 0
        if at == "init":
            self.choose_a_gpu()
            self.sync()

    def replace_driver(self) -> None:
        self.torch.cuda = StandInCuda()

    def choose_a_gpu(self) -> None:
        if self.shows is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = self.shows

    def sync(self) -> np.ndarray:
        tensor = self.torch.zeros(3)
        if not self.careful or self.torch.cuda.is_available():
            try:
                self.torch.cuda.synchronize()
            except RuntimeError as error:
                assert "No CUDA GPUs" in str(error)
        return tensor.numpy()

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        return self.sync(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        if self.steps == self.at:
            self.choose_a_gpu()
        return self.sync(), 0.0, False, False, {}


def play(worker: shoal.WorkerOptions, steps: int = 5, **kwargs: Any) -> None:
    envs = shoal.make_vec(lambda: Synchronizing(**kwargs), 4, num_workers=2, worker=worker)
    try:
        envs.reset(seed=0)
        for _ in range(steps):
            envs.step([0] * 4)
    finally:
        envs.close()


@pytest.mark.parametrize("careful", [True, False])
def test_code_that_synchronises_with_a_gpu_makes_no_context_in_workers_without_one(
    contexts: Path, careful: bool
) -> None:
    play(shoal.WorkerOptions(preload=TORCH), careful=careful)
    assert contexts.read_text() == ""


@needs_the_stand_in
def test_collectors_make_no_context_and_one_that_would_is_an_error(contexts: Path) -> None:
    def collect(**kwargs: Any) -> None:
        with shoal.Collector(
            lambda: Synchronizing(**kwargs), lambda obs: np.zeros(len(obs), np.int64), num_envs=16, frames_per_batch=64,
            total_frames=128, mode="multi_sync", num_collectors=8, worker=shoal.WorkerOptions(preload=TORCH),
        ) as collector:  # fmt: skip
            assert sum(batch["reward"].size for batch in collector) == 128

    collect()
    assert contexts.read_text() == ""
    with pytest.raises(RuntimeError, match=r"uses a GPU[\s\S]*in choose_a_gpu"):
        collect(shows="0", at=2)


def test_the_stand_in_counts_the_contexts_of_workers_with_gpus(contexts: Path) -> None:
    play(shoal.WorkerOptions(gpu="own", preload=TORCH))
    assert len(set(contexts.read_text().split())) == 2


@needs_the_stand_in
def test_an_environment_that_shows_itself_a_gpu_is_an_error_that_names_it(contexts: Path) -> None:
    with pytest.raises(RuntimeError) as caught:
        play(shoal.WorkerOptions(preload=TORCH), shows="0")
    text = str(caught.value)
    assert re.search(r"worker \d uses a GPU .* sees 1 device", text) and 'gpu="lease"' in text
    assert "CUDA_VISIBLE_DEVICES=0 was set here" in text and "in choose_a_gpu" in text
    assert "libcuda.so.1 was loaded here" in text and "StandInCuda()" in text


@needs_the_stand_in
def test_a_gpu_that_is_taken_later_is_seen_too(contexts: Path) -> None:
    with pytest.raises(RuntimeError, match=r"uses a GPU[\s\S]*in choose_a_gpu"):
        play(shoal.WorkerOptions(preload=TORCH), steps=10_000_000, shows="0", at=40)


def names_of(count: int) -> list[str]:
    """Devices that no other test of this machine leases."""
    return [f"GPU-test-{os.getpid()}-{i}" for i in range(count)]


class Leasing(Synchronizing):
    def __init__(self) -> None:
        super().__init__()
        assert self.torch.cuda.is_available()

    def gpu(self) -> tuple[str | None, str]:
        return shoal.worker().gpu, os.environ["CUDA_VISIBLE_DEVICES"]


def test_leased_gpus_are_spread_over_workers_and_come_back_from_the_dead(
    contexts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = names_of(2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", ",".join(names))
    options = shoal.WorkerOptions(gpu="lease", preload=TORCH)
    envs = shoal.make_vec(Leasing, 4, num_workers=4, worker=options, on_fault="restart")
    envs.reset(seed=0)
    leased = envs.call("gpu")
    assert Counter(gpu for gpu, _ in leased) == {names[0]: 2, names[1]: 2}
    assert all(gpu == shown for gpu, shown in leased)
    others = shoal.make_vec(Leasing, 2, num_workers=2, worker=options)  # another program would be counted as well
    assert Counter(gpu for gpu, _ in others.call("gpu")) == {names[0]: 1, names[1]: 1}
    others.close()
    os.kill(envs.stats()["workers"][1]["pid"], signal.SIGKILL)
    while not any(fault is not None for fault in envs.step([0] * 4)[4].get("fault", ())):
        pass
    assert Counter(gpu for gpu, _ in envs.call("gpu")) == {names[0]: 2, names[1]: 2}
    envs.close()


def test_a_worker_pool_leases_too(contexts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = names_of(2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", ",".join(names))
    with shoal.WorkerPool(2, worker=shoal.WorkerOptions(gpu="lease", preload=TORCH)) as pool:
        for _ in range(2):
            envs = shoal.make_vec(Leasing, 2, pool=pool)
            assert sorted(gpu for gpu, _ in envs.call("gpu")) == names
            envs.close()


def test_a_lease_where_there_is_no_gpu_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(ValueError, match="there is no NVIDIA GPU here"):
        shoal.make_vec(Leasing, 2, num_workers=2, worker=shoal.WorkerOptions(gpu="lease", preload=TORCH))
    assert shoal.worker().gpu is None


def test_visible_gpus_are_those_that_cuda_would_show(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (tmp_path / "dev" / name).touch()
    assert visible_gpus({}, tmp_path) == ["0", "1"]
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "3, 1"}, tmp_path) == ["3", "1"]
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "GPU-12ab,MIG-GPU-1/2/0"}, tmp_path) == ["GPU-12ab", "MIG-GPU-1/2/0"]
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "2,-1,0"}, tmp_path) == ["2"]
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": ""}, tmp_path) == []
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, tmp_path) == []


def process(proc: Path, pid: int, command: str, *opened: str) -> None:
    (proc / str(pid) / "fd").mkdir(parents=True)
    (proc / str(pid) / "cmdline").write_bytes(command.replace(" ", "\0").encode())
    for number, target in enumerate(opened):
        (proc / str(pid) / "fd" / str(number)).symlink_to(target)


def test_doctor_lists_every_process_that_holds_gpu_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proc = tmp_path / "proc"
    process(proc, 7, "python train.py", "/dev/null", "/dev/nvidia1", "/dev/nvidia-uvm", "/dev/nvidiactl")
    process(proc, 8, "nvidia-smi", "/dev/nvidiactl")
    process(proc, 9, "shell", "/dev/null")
    process(proc, 10, "hip", "/dev/kfd")
    smi = tmp_path / "bin" / "nvidia-smi"
    smi.parent.mkdir()
    smi.write_text("#!/bin/sh\necho '7, 512'\necho '7, 100'\necho '9, 3'\necho '99, 20'\necho '98, [N/A]'\n")
    smi.chmod(smi.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{smi.parent}:{os.environ['PATH']}")
    assert accelerators.holders(proc, accelerators._used_memory()) == [
        (7, "python train.py", ("/dev/nvidia-uvm", "/dev/nvidia1"), 612),
        (9, "shell", (), 3),
        (10, "hip", ("/dev/kfd",), None),
        (99, "not of this container", (), 20),
    ]
    assert accelerators.holders(tmp_path) == []
    finding = accelerators._holders()
    assert finding.name == "GPU memory" and "20 MiB" in finding.value
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: (_ for _ in ()).throw(subprocess.TimeoutExpired("", 10)))
    assert accelerators._used_memory() == {}
