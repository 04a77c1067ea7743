"""Environments of test_gpu_hygiene_gpu.py: apart, since that file asks CUDA for its devices, after which a process sees no others."""

from __future__ import annotations

import os

import shoal
from test_gpu_hygiene import Synchronizing


class OnDevice(Synchronizing):
    def replace_driver(self) -> None:
        pass

    def gpu(self) -> tuple[str | None, str]:
        return shoal.worker().gpu, os.environ["CUDA_VISIBLE_DEVICES"]


class Named(OnDevice):
    """Its model is on the GPU, whether there is one or not."""

    def __init__(self) -> None:
        super().__init__()
        self.model = self.torch.nn.Linear(3, 3).to("cuda")
