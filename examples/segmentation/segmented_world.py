"""An environment that looks at its world through a segmentation network.

    shoal train SegmentedWorld-v0        # in this folder

It is written as environments with a model of their own are (opendilab/DI-engine#816): the model is loaded in `__init__` and
called there, in `reset` and in `step`. With `segmenter="service"` one model serves all workers, and nothing else changes.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from world import AGENT, FRUIT, GROUND, SIDE, THORN, World

import shoal

__all__ = ["SegmentedWorld", "features", "load_model"]

_SCALE = 32.0  # pixels that are 1 in an observation
_SOME = 40  # pixels that are averaged: less than half of what one object covers


class SegmentedWorld(World):
    """Observations are where the agent is, and how far it is to the nearest fruit and thorn: float32 [6], all of it read
    from the mask that the segmenter predicts.

    Args:
        segmenter: "own": a model of this environment's; "service": the one that the workers' model service calls "segment";
            "truth": no model, but the true mask.
        model: "unet" or "maskrcnn": which one, where it is the environment's own.
        render_mode: None or "rgb_array".

    Attributes:
        predicted: the last predicted mask, uint8 [128, 128]; `mask` is the true one.
    """

    def __init__(self, segmenter: str = "own", model: str = "unet", render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self.observation_space = spaces.Box(-4.0, 4.0, (6,), np.float32)
        if segmenter == "own":
            from segmenter import InProcess, load_segmenter  # torch, which nobody else needs

            self._segment: Any = InProcess(load_segmenter(model))
        elif segmenter == "service":
            self._segment = shoal.worker().model("segment")
        elif segmenter == "truth":
            self._segment = lambda rgb: self.mask
        else:
            raise ValueError(f"segmenter is 'own', 'service' or 'truth', not {segmenter!r}")
        self.predicted = self._segment(self.rgb)  # the first call is the slow one

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        rgb, info = super().reset(seed=seed, options=options)
        self.predicted = self._segment(rgb)
        return features(self.predicted), info

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        rgb, reward, terminated, truncated, info = super().step(action)
        self.predicted = self._segment(rgb)
        return features(self.predicted), reward, terminated, truncated, info


def load_model(kind: str = "unet") -> Any:
    """What a model service loads, in its own process: no other one imports torch."""
    from segmenter import load_segmenter

    return load_segmenter(kind)


def features(mask: np.ndarray) -> np.ndarray:
    """What SegmentedWorld observes: x and y of the agent, x and y to the nearest fruit, x and y to the nearest thorn.

    Args:
        mask: uint8 [128, 128], a class for each pixel; noise of single pixels does no harm.
    """
    things = np.flatnonzero(mask.ravel() != GROUND)
    kinds, (y, x) = mask.ravel()[things], divmod(things, SIDE)
    is_agent = kinds == AGENT
    agent = np.array([x[is_agent].mean(), y[is_agent].mean()]) if is_agent.any() else np.full(2, SIDE / 2)
    parts = [(agent - SIDE / 2) / _SCALE]
    for kind in (FRUIT, THORN):
        dx, dy = x[kinds == kind] - agent[0], y[kinds == kind] - agent[1]
        if len(dx) == 0:
            parts.append(np.full(2, 4.0))
            continue
        nearest = np.argpartition(dx * dx + dy * dy, min(_SOME, len(dx) - 1))[:_SOME]
        parts.append(np.array([dx[nearest].mean(), dy[nearest].mean()]) / _SCALE)
    return np.clip(np.concatenate(parts), -4.0, 4.0).astype(np.float32)


gymnasium.register(
    "SegmentedWorld-v0",
    entry_point="segmented_world:SegmentedWorld",
    max_episode_steps=100,
    reward_threshold=10.0,
)
