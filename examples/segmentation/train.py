"""Trains the U-Net on pictures of the world, and keeps it with the figures that it reaches.

    python examples/segmentation/train.py [--frames 48000] [--out examples/segmentation]

It takes some minutes on two cores. The pictures come from the native world, which tells the true mask; those that the
figures are measured on begin with other seeds than those that are trained on.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from safetensors.torch import save_file
from segmenter import UNet
from torch.nn import functional
from world import CLASSES

import shoal

HELD_OUT_SEED = 1_000_000_000
_BATCH = 32
_LONGEST_WALK = 16  # steps: three quarters of the way across, so that the agent comes to lie on things


class Pictures:
    """Pictures and true masks of fresh worlds, in which the agent has walked straight on for a while."""

    def __init__(self, seed: int, batch: int = _BATCH) -> None:
        kwargs = {"observation": "both"}
        self._envs = shoal.make_vec(
            "shoal/SegmentedWorld-v0", batch, backend="serial", env_kwargs=kwargs, autoreset_mode="disabled"
        )
        self._random = np.random.default_rng(seed)
        self._seed = seed

    def take(self) -> tuple[torch.Tensor, torch.Tensor]:
        """uint8 [batch, 128, 128, 3] and int64 [batch, 128, 128]."""
        count = self._envs.num_envs
        seeds = [self._seed + i for i in range(count)]
        self._seed += count
        obs, _ = self._envs.reset(seed=seeds)
        actions = self._random.integers(4, size=count)
        for _ in range(self._random.integers(_LONGEST_WALK)):
            obs, *_ = self._envs.step(actions)
        return torch.from_numpy(obs["rgb"].copy()), torch.from_numpy(obs["mask"].astype(np.int64))

    def close(self) -> None:
        self._envs.close()


def iou(model: UNet, frames: int = 1024) -> np.ndarray:
    """Intersection over union of each class (float64 [5]), over all pixels of held-out pictures together."""
    pictures = Pictures(HELD_OUT_SEED)
    classes = len(CLASSES)
    confusion = torch.zeros(classes * classes, dtype=torch.int64)
    model.eval()
    for _ in range(max(1, frames // _BATCH)):
        rgb, mask = pictures.take()
        with torch.inference_mode():
            predicted = model(rgb).long()
        confusion += torch.bincount((mask * classes + predicted).flatten(), minlength=classes * classes)
    pictures.close()
    table = confusion.reshape(classes, classes).double()
    union = table.sum(0) + table.sum(1) - table.diag()
    return (table.diag() / union.clamp(min=1)).numpy()


def train(frames: int, seed: int = 1, progress: Progress | None = None) -> UNet:
    """A U-Net trained on `frames` pictures, each of them seen once. The same seed gives the same network."""
    torch.manual_seed(seed)
    model = UNet()
    steps = max(1, frames // _BATCH)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=8e-3, total_steps=steps)
    pictures = Pictures(seed)
    weights = torch.tensor([0.3, 1.0, 1.0, 1.0, 1.0])  # nine pixels of ten are ground
    task = progress.add_task("training", total=steps, loss=float("nan")) if progress else None
    model.train()
    for _ in range(steps):
        rgb, mask = pictures.take()
        loss = functional.cross_entropy(model.logits(rgb), mask, weights)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        if progress is not None and task is not None:
            progress.update(task, advance=1, loss=loss.item())
    pictures.close()
    return model.eval()


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the U-Net of the segmentation example.")
    parser.add_argument("--frames", type=int, default=48_000, help="pictures to train on")
    parser.add_argument("--held-out", type=int, default=1024, help="pictures to measure on")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2, help="of torch")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder for the weights")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)

    began = time.monotonic()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("loss {task.fields[loss]:.4f}")) as progress:
        model = train(arguments.frames, arguments.seed, progress)
    seconds = time.monotonic() - began
    reached = iou(model, arguments.held_out)
    arguments.out.mkdir(parents=True, exist_ok=True)
    weights = arguments.out / "unet.safetensors"
    save_file({name: tensor.contiguous() for name, tensor in model.state_dict().items()}, weights)
    figures = {
        "mean_iou": round(float(reached.mean()), 4),
        "iou": {name: round(float(value), 4) for name, value in zip(CLASSES, reached, strict=True)},
        "held_out_frames": arguments.held_out,
        "trained_on_frames": arguments.frames,
        "seed": arguments.seed,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "bytes": weights.stat().st_size,
        "seconds": round(seconds, 1),
        "threads": arguments.threads,
        "torch": torch.__version__,
    }
    (arguments.out / "unet.json").write_text(json.dumps(figures, indent=2) + "\n")
    print(f"mean IoU {figures['mean_iou']:.3f} on {arguments.held_out} held-out pictures; {weights}")


if __name__ == "__main__":
    main()
