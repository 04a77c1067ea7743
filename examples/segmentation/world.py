"""SegmentedWorld in plain Python: pixel for pixel what `shoal/SegmentedWorld-v0` is in C++.

An agent on a meadow collects fruit (reward 1 each, it grows again elsewhere) and keeps off thorns (reward -1, the end).
It is seen from above: 128×128 pixels, RGB. The rules are in src/shoal/env/segmented/world.h, the drawing in scene.cc.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

__all__ = ["AGENT", "CLASSES", "FRUIT", "GROUND", "SIDE", "THORN", "World"]

CLASSES = ("ground", "rock", "fruit", "thorn", "agent")
GROUND, ROCK, FRUIT, THORN, AGENT = range(len(CLASSES))
SIDE = 128

_CELL, _CELLS = 16, 8
_RADIUS, _SPEED, _CLEARING, _SHIFT = 6, 6, 24, 2
_REACH = {FRUIT: 12, THORN: 8}
_KINDS = (ROCK,) * 3 + (FRUIT,) * 6 + (THORN,) * 3
_DARKEST = np.array([(60, 80, 50), (90, 80, 60), (130, 40, 40), (110, 50, 60), (30, 70, 110)], np.uint32)


def _scramble(x: np.ndarray) -> np.ndarray:
    """C. Wellons, "Prospecting for Hash Functions" (2018), lowbias32; of an array of uint32."""
    x = x ^ (x >> 16)
    x = x * np.uint32(0x7FEB352D)
    x = x ^ (x >> 15)
    x = x * np.uint32(0x846CA68B)
    return np.asarray(x ^ (x >> 16))


def _colour(kind: int, key: int) -> np.ndarray:
    keys = np.array([(key + c + 1) % 2**32 for c in range(3)], np.uint32)
    return np.asarray(_DARKEST[kind] + _scramble(keys) % 64)


_Y, _X = np.mgrid[0:SIDE, 0:SIDE].astype(np.uint32)
_PATCH = 1024 + _Y // 8 * 16 + _X // 8
_GRAIN = 2048 + _Y * SIDE + _X
_DY, _DX = np.mgrid[-_RADIUS : _RADIUS + 1, -_RADIUS : _RADIUS + 1]
_PLACE = ((1 << 20) + (_DY + _RADIUS) * (2 * _RADIUS + 1) + _DX + _RADIUS).astype(np.uint32)
_DISC = _DX**2 + _DY**2 <= _RADIUS**2
_COVERED = {
    ROCK: np.maximum(abs(_DX), abs(_DY)) < _RADIUS,
    FRUIT: _DISC,
    THORN: abs(_DX) + abs(_DY) <= _RADIUS,
    AGENT: _DISC,
}
_SHADE = {
    ROCK: np.where(((_DX + 8) ^ (_DY + 8)) & 4, 20, 0),
    FRUIT: np.where((_DX + 2) ** 2 + (_DY + 2) ** 2 <= 4, 40, 0),
    THORN: np.where((_DX - _DY + 16) & 2, 40, 0),
    AGENT: np.where(_DX**2 + _DY**2 <= 16, 50, 0),
}


class Thing:
    """A rock, fruit, thorn or the agent: where its middle is, and its pixels."""

    def __init__(self, kind: int, x: int, y: int, key: int) -> None:
        self.kind, self.x, self.y = kind, x, y
        light = _SHADE[kind] + (_scramble(np.uint32(key) ^ _PLACE) & 15)
        self._covered = _COVERED[kind]
        self._pixels = (_colour(kind, key) + light[..., np.newaxis]).astype(np.uint8)[self._covered]

    def paint(self, rgb: np.ndarray, mask: np.ndarray) -> None:
        place = slice(self.y - _RADIUS, self.y + _RADIUS + 1), slice(self.x - _RADIUS, self.x + _RADIUS + 1)
        rgb[place][self._covered] = self._pixels
        mask[place][self._covered] = self.kind


class World(gymnasium.Env[np.ndarray, int]):
    """Observations are pictures, uint8 [128, 128, 3]; `mask`, uint8 [128, 128], says of what class each pixel is.

    Args:
        render_mode: None or "rgb_array": the last picture.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(self, render_mode: str | None = None) -> None:
        self.observation_space: spaces.Space[Any] = spaces.Box(0, 255, (SIDE, SIDE, 3), np.uint8)
        self.action_space: spaces.Space[Any] = spaces.Discrete(4)  # up, down, left, right
        self.render_mode = render_mode
        self.rgb = np.zeros((SIDE, SIDE, 3), np.uint8)
        self.mask = np.zeros((SIDE, SIDE), np.uint8)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        key = self._draw(0, 2**32)
        patch, grain = _scramble(np.uint32(key) ^ _PATCH) & 31, _scramble(np.uint32(key) ^ _GRAIN) & 15
        self._ground = (_colour(GROUND, key) + (patch + grain)[..., np.newaxis]).astype(np.uint8)
        self._agent = self._settle(AGENT, self._draw(0, _CELLS * _CELLS))
        self._objects: list[Thing] = []
        for kind in _KINDS:
            self._objects.append(self._grow(kind))
        self._paint()
        return self._look(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        way = -_SPEED if action % 2 == 0 else _SPEED
        name = "y" if action < 2 else "x"
        setattr(self._agent, name, min(max(getattr(self._agent, name) + way, _RADIUS), SIDE - 1 - _RADIUS))
        reward, terminated, regrown = 0.0, False, False
        for i, thing in enumerate(self._objects):
            if thing.kind == ROCK or not self._touches(thing):
                continue
            if thing.kind == THORN:
                reward, terminated = reward - 1, True
            else:
                reward, regrown = reward + 1, True
                self._objects[i] = self._grow(FRUIT)
        if regrown:
            self._paint()
        return self._look(), reward, terminated, False, {}

    def render(self) -> np.ndarray:
        return self.rgb.copy()

    def _draw(self, low: int, high: int) -> int:
        return int(self.np_random.integers(low, high))

    def _touches(self, thing: Thing) -> bool:
        return (thing.x - self._agent.x) ** 2 + (thing.y - self._agent.y) ** 2 < _REACH[thing.kind] ** 2

    def _settle(self, kind: int, cell: int) -> Thing:
        x = cell % _CELLS * _CELL + _CELL // 2 + self._draw(-_SHIFT, _SHIFT)
        y = cell // _CELLS * _CELL + _CELL // 2 + self._draw(-_SHIFT, _SHIFT)
        return Thing(kind, x, y, self._draw(0, 2**32))

    def _grow(self, kind: int) -> Thing:
        """In a cell that is free and not within reach of the agent."""
        taken = {(thing.y // _CELL, thing.x // _CELL) for thing in self._objects}
        free = [
            row * _CELLS + column
            for row in range(_CELLS)
            for column in range(_CELLS)
            if (row, column) not in taken
            and max(abs(column * _CELL + _CELL // 2 - self._agent.x), abs(row * _CELL + _CELL // 2 - self._agent.y))
            >= _CLEARING
        ]
        return self._settle(kind, free[self._draw(0, len(free))])

    def _paint(self) -> None:
        """The picture without the agent, which is all that changes in most steps."""
        self._scene = self._ground.copy()
        self._scene_mask = np.full((SIDE, SIDE), GROUND, np.uint8)
        for thing in self._objects:
            thing.paint(self._scene, self._scene_mask)

    def _look(self) -> np.ndarray:
        self.rgb, self.mask = self._scene.copy(), self._scene_mask.copy()
        self._agent.paint(self.rgb, self.mask)
        return self.rgb
