"""Policies of rl-baselines3-zoo's files: which there are, and whether Shoal's network for some observations is one."""

from __future__ import annotations

import warnings
from typing import Any

from shoal.learn.encoding import MIN_IMAGE_SIDE, NATURE_FEATURES, image_order
from shoal.learn.spaces import Leaf, description_of, leaves

__all__ = ["PLAIN", "RECURRENT", "check", "extractor_of"]

PLAIN = ("MlpPolicy", "CnnPolicy", "MultiInputPolicy")
RECURRENT = ("MlpLstmPolicy", "CnnLstmPolicy", "MultiInputLstmPolicy")

_EXTRACTORS = {"Mlp": "FlattenExtractor", "Cnn": "NatureCNN", "MultiInput": "CombinedExtractor"}
_COMBINED_FEATURES = 256
"""What CombinedExtractor makes of a picture."""


def extractor_of(policy: str | None) -> str | None:
    """The class by which a policy looks at observations."""
    return _EXTRACTORS.get(_kind(policy or ""))


def check(policy: str, because: str, space: Any, *, takes_pictures: bool) -> None:
    """Warns of a network that differs from the policy's.

    Args:
        because: what says that it is this policy, "ppo.yml:Mine-v0 says policy: CnnPolicy".
        takes_pictures: whether the algorithm does. One that does not refuses them itself.

    Raises:
        ValueError: the policy is for pictures, and the observations are none; or it takes them for so many numbers.
    """
    kind = _kind(policy)
    description = description_of(space)
    is_picture = image_order(Leaf(description, ())) is not None
    if kind == "Cnn" and not is_picture:
        raise ValueError(
            f"{because}, which is for pictures, a Box of uint8 that is at least {MIN_IMAGE_SIDE} high and wide; this environment's "
            f"observations are {space}. Take policy: MlpPolicy, or MultiInputPolicy of a Dict, in a copy of the file"
        )
    if not takes_pictures or not any(image_order(leaf) for leaf in leaves(description)):
        return
    if kind == "Mlp":
        instead = policy.replace("Mlp", "Cnn" if is_picture else "MultiInput")
        raise ValueError(
            f"{because}, which takes a picture for so many numbers; Shoal's networks have convolutions for it, and this environment's "
            f"observations are {space}. Take policy: {instead} in a copy of the file, or give a network of your own, by policy= or "
            "--policy, where the algorithm trains one"
        )
    if kind == "MultiInput":
        warnings.warn(
            f"{because}, done otherwise here: a picture becomes {NATURE_FEATURES} features; there, {_COMBINED_FEATURES}",
            stacklevel=6,
        )


def _kind(policy: str) -> str:
    return policy.removesuffix("Policy").removesuffix("Lstm")
