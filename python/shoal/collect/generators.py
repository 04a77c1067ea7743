"""Random generators that a process has one of, and what one user draws from them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from shoal.collect.answers import tensor_of

__all__ = ["Generators", "generators_of_devices"]


class Generators:
    """The global generators of torch (where it is imported; those of CUDA devices where CUDA is in use) and NumPy: inside of
    `with`, those of one user."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._numpy = np.random.RandomState(np.random.MT19937(np.random.SeedSequence(seed))).get_state(legacy=False)
        self._torch: Any = None
        self._cuda: list[Any] = []  # by device

    def __enter__(self) -> None:
        self._outer = np.random.get_state(legacy=False)
        np.random.set_state(self._numpy)
        torch = sys.modules.get("torch")
        self._outer_torch = None
        if torch is not None:
            self._outer_torch = torch.get_rng_state()
            torch.set_rng_state(self._own_torch(torch))
        self._of_devices = generators_of_devices(torch)
        self._outer_cuda = [generator.get_state() for generator in self._of_devices]
        for device, generator in enumerate(self._of_devices):
            if device < len(self._cuda):
                generator.set_state(self._cuda[device])
            else:
                generator.manual_seed(self._seed)

    def __exit__(self, *_: object) -> None:
        self._numpy = np.random.get_state(legacy=False)
        np.random.set_state(self._outer)
        if self._outer_torch is not None:
            torch = sys.modules["torch"]
            self._torch = torch.get_rng_state()
            torch.set_rng_state(self._outer_torch)
        if self._of_devices:
            self._cuda = [generator.get_state() for generator in self._of_devices]
            for generator, outer in zip(self._of_devices, self._outer_cuda, strict=True):
                generator.set_state(outer)

    def state(self) -> dict[str, Any]:
        return {
            "numpy": self._numpy,
            "torch": None if self._torch is None else self._torch.numpy().copy(),
            "cuda": [state.numpy().copy() for state in self._cuda],
        }

    def load_state(self, state: dict[str, Any]) -> None:
        self._numpy = state["numpy"]
        self._torch = None if state["torch"] is None else tensor_of(state["torch"])
        self._cuda = [tensor_of(of_device) for of_device in state["cuda"]]

    def _own_torch(self, torch: Any) -> Any:
        if self._torch is None:
            self._torch = torch.Generator().manual_seed(self._seed).get_state()
        return self._torch


def generators_of_devices(torch: Any) -> Sequence[Any]:
    """The global ones of CUDA devices. None where CUDA is not in use: whether a process uses it is not decided here."""
    if torch is None or not torch.cuda.is_initialized():
        return ()
    generators: Sequence[Any] = torch.cuda.default_generators
    return generators
