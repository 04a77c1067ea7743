"""What test_gpu_hygiene.py shows on a stand-in driver, on a real device: who holds memory of it, and what its users are told."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import shoal  # noqa: E402
from gpu_envs import Named, OnDevice  # noqa: E402
from shoal.errors import ForkRefused  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device, or a torch that was built without"),
]


@pytest.fixture
def contexts(descendants: Callable[[], set[int]]) -> Callable[[], int]:
    """How many processes under this one hold memory of a GPU."""
    command = ["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"]

    def count() -> int:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return len(descendants() & {int(pid) for pid in done.stdout.split()})

    return count


def contexts_of(worker: shoal.WorkerOptions, contexts: Callable[[], int], make: Callable[[], Any]) -> int:
    with shoal.make_vec(make, 4, num_workers=2, worker=worker) as envs:
        envs.reset(seed=0)
        for _ in range(5):
            envs.step([0] * 4)
        return contexts()


@pytest.mark.parametrize("careful", [True, False])
def test_workers_without_a_gpu_hold_none(contexts: Callable[[], int], careful: bool) -> None:
    options = shoal.WorkerOptions(preload=["torch"])
    assert contexts_of(options, contexts, lambda: OnDevice(careful=careful)) == 0


@pytest.mark.parametrize("gpu", ["own", "lease"])
def test_workers_with_a_gpu_hold_a_context_each(contexts: Callable[[], int], gpu: str) -> None:
    assert contexts_of(shoal.WorkerOptions(gpu=gpu, preload=["torch"]), contexts, Named) == 2


def test_a_leased_gpu_is_the_one_that_is_shown() -> None:
    with shoal.make_vec(OnDevice, 2, num_workers=2, worker=shoal.WorkerOptions(gpu="lease", preload=["torch"])) as envs:
        leased = envs.call("gpu")
        assert all(gpu is not None and gpu == shown for gpu, shown in leased)


def test_collectors_hold_none(contexts: Callable[[], int]) -> None:
    with shoal.Collector(
        OnDevice, lambda obs: np.zeros(len(obs), np.int64), num_envs=16, frames_per_batch=64, total_frames=128,
        mode="multi_sync", num_collectors=8, worker=shoal.WorkerOptions(preload=["torch"]),
    ) as collector:  # fmt: skip
        for _ in collector:
            assert contexts() == 0


def test_an_environment_that_shows_itself_a_gpu_is_an_error_that_names_it() -> None:
    with pytest.raises(RuntimeError, match="uses a GPU") as caught:
        contexts_of(shoal.WorkerOptions(preload=["torch"]), lambda: 0, lambda: OnDevice(shows="0"))
    text = str(caught.value)
    assert "sees 1 device" in text and 'gpu="lease"' in text
    assert "CUDA_VISIBLE_DEVICES=0 was set here" in text and "in choose_a_gpu" in text


def test_an_environment_that_names_the_gpu_is_told_how_to_have_one() -> None:
    torch.zeros(1, device="cuda")  # as a manager does that makes one environment here, to learn its spaces
    with pytest.raises(RuntimeError, match="No CUDA GPUs are available") as caught:
        shoal.make_vec(Named, 2, num_workers=2)
    assert any("gpu='own'" in note and "ModelService" in note for note in caught.value.__notes__)
    with pytest.raises(ForkRefused, match="CUDA is initialised in this process"):
        shoal.make_vec(Named, 2, num_workers=2, context="fork", worker=shoal.WorkerOptions(gpu="own"))
    with shoal.make_vec(Named, 2, num_workers=2, worker=shoal.WorkerOptions(gpu="own")) as envs:
        envs.reset(seed=0)
