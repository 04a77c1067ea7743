"""How the arrays of observations and actions become the numbers of a network, as src/shoal/collect/observation_encoder.h has it."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.learn.spaces import Leaf

__all__ = [
    "MIN_IMAGE_SIDE",
    "NATURE_CONVOLUTIONS",
    "NATURE_FEATURES",
    "VARIANCE_FLOOR",
    "choices",
    "dense_size",
    "image_order",
    "image_shape",
    "is_normalized",
    "module_name",
    "numel",
]

NATURE_CONVOLUTIONS = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
"""Channels out, side of the kernel, stride (Mnih et al., 2015)."""
NATURE_FEATURES = 512
VARIANCE_FLOOR = 1e-8
"""Added to the variance of normalised observations."""
_MAX_CHANNELS = 32
_MAX_FRAMES = 32
MIN_IMAGE_SIDE = 36


def image_order(leaf: Leaf) -> str | None:
    """Where the channels of an image, or of each of stacked images, are, "first" or "last"; None: the leaf is neither."""
    if leaf.description["type"] != "Box" or leaf.dtype != "uint8":
        return None
    shape = leaf.shape[1:] if len(leaf.shape) == 4 and leaf.shape[0] <= _MAX_FRAMES else leaf.shape
    if len(shape) != 3:
        return None
    if shape[0] <= _MAX_CHANNELS and min(shape[1:]) >= MIN_IMAGE_SIDE:
        return "first"
    return "last" if shape[2] <= _MAX_CHANNELS and min(shape[:2]) >= MIN_IMAGE_SIDE else None


def image_shape(leaf: Leaf) -> tuple[int, int, int]:
    """Of what the network takes: channels first, those of one frame after the other's."""
    first, second, third = leaf.shape[-3:]
    channels, height, width = (first, second, third) if image_order(leaf) == "first" else (third, first, second)
    return numel(leaf.shape[:-3]) * channels, height, width


def module_name(leaf: Leaf) -> str:
    return leaf.path.replace(".", "_").replace("/", "_") or "image"


def numel(shape: Sequence[int]) -> int:
    size = 1
    for side in shape:
        size *= side
    return size


def choices(leaf: Leaf) -> list[int]:
    """The number of choices of each component; none for a Box."""
    kind = leaf.description["type"]
    if kind == "Discrete":
        return [leaf.description["n"]]
    if kind == "MultiDiscrete":
        return list(leaf.description["nvec"])
    return [2] * numel(leaf.shape) if kind == "MultiBinary" else []


def dense_size(leaf: Leaf) -> int:
    """Elements of the dense vector that the leaf gives."""
    if image_order(leaf) is not None:
        return 0
    return sum(choices(leaf)) if leaf.description["type"] in ("Discrete", "MultiDiscrete") else numel(leaf.shape)


def is_normalized(leaf: Leaf) -> bool:
    return leaf.description["type"] == "Box" and leaf.dtype != "uint8" and image_order(leaf) is None
