"""Hogwild: processes that train one shared module without locks learn what one process learns.

F. Niu, B. Recht, C. Ré, S. Wright, "Hogwild!: A lock-free approach to parallelizing stochastic gradient descent", 2011.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from mp_peer import Peer, peer

torch = pytest.importorskip("torch")

from shoal.ipc import tensors  # noqa: E402


def digits(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Images of 28 × 28 in ten classes, as large as MNIST's and about as noisy."""
    shapes = torch.rand(10, 784, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(10, (count,), generator=generator)
    return (shapes[labels] + torch.randn(count, 784, generator=generator)).float(), labels


def network() -> torch.nn.Module:
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(784, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))


def train(model: torch.nn.Module, images: torch.Tensor, labels: torch.Tensor, steps: int, seed: int) -> int:
    """Plain gradient steps on batches of 32; how many of the parameters have bytes of their own here."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(steps):
        rows = torch.randint(len(images), (32,), generator=generator)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images[rows]), labels[rows]).backward()
        optimizer.step()
    return sum(not tensors.is_shared(parameter) for parameter in model.parameters())


def accuracy(model: torch.nn.Module) -> float:
    images, labels = digits(1000, seed=9)
    with torch.no_grad():
        return (model(images).argmax(1) == labels).float().mean().item()


STEPS = 240
pytestmark = pytest.mark.keeps_processes


@pytest.fixture(scope="module")
def peers() -> Iterator[list[Peer]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(peer()) for _ in range(4)]


@pytest.fixture(scope="module")
def serial_accuracy(peers: list[Peer]) -> float:
    model = tensors.share_module(network())
    assert accuracy(model) < 0.5
    peers[0](train, model, *digits(2000, seed=5), STEPS, 0)
    reached = accuracy(model)
    assert reached > 0.9
    return reached


@pytest.mark.parametrize("processes", [1, 2, 4])
def test_processes_that_train_one_module_reach_serial_accuracy(
    processes: int, peers: list[Peer], serial_accuracy: float
):
    model = tensors.share_module(network())
    data = [tensors.share_memory_(part) for part in digits(2000, seed=5)]
    with ThreadPoolExecutor(processes) as pool:
        own = pool.map(lambda i: peers[i](train, model, *data, STEPS // processes, i), range(processes))
        assert list(own) == [0] * processes
    assert all(parameter.grad is None for parameter in model.parameters())
    assert accuracy(model) > serial_accuracy - 0.03
