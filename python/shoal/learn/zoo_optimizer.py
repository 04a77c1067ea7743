"""The optimiser of an entry of rl-baselines3-zoo's: the one that Stable-Baselines3 2.9 makes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shoal.learn.zoo_values import NoSuchValue

__all__ = ["KEYS", "KWARGS", "Optimizer", "optimizer_of"]

KEYS = ("use_rms_prop", "rms_prop_eps")
"""What an entry says of it, and what its `policy_kwargs` do:"""
KWARGS = ("optimizer_class", "optimizer_kwargs")

_CLASSES = {"Adam": "adam", "RMSprop": "rmsprop", "RMSpropTFLike": "rmsprop_tf"}
_TORCHS_EPS = 1e-8  # of all three
_ALPHA = 0.99  # of both kinds of RMSprop
_A2CS_EPS = 1e-5
_POLICYS_EPS = 1e-5
_SETTING_EPS = ("ppo", "a2c", "recurrent_ppo")
"""Whose policies set Adam's eps, where they are given no `optimizer_kwargs`."""


@dataclass
class Optimizer:
    """
    Attributes:
        options: of shoal.learn.train.
        unused: those of KEYS and KWARGS that Stable-Baselines3 does not look at, with the reason.
        refused: keyword arguments that Shoal's optimiser has not.
    """

    options: dict[str, Any]
    unused: dict[str, str] = field(default_factory=dict)
    refused: dict[str, Any] = field(default_factory=dict)


def optimizer_of(said: Mapping[str, Any], algorithm: str, usual: str) -> Optimizer:
    """As A2C has it, of which PPO's and the others' way is a part: RMSprop with `rms_prop_eps` where `use_rms_prop` says so and
    no class is given, whatever the keyword arguments say; else the class with those, and what they leave out is torch's.

    Args:
        said: those of KEYS and KWARGS that there are.
        usual: the algorithm's own optimiser.

    Raises:
        NoSuchValue: for a class that Shoal has not.
    """
    cls, kwargs = said.get("optimizer_class", "Adam"), said.get("optimizer_kwargs")
    unused: dict[str, str] = {}
    if said.get("use_rms_prop", usual != "adam") and "optimizer_class" not in said:
        if kwargs is not None:
            unused["optimizer_kwargs"] = "they are of an optimizer_class; without one it is RMSprop, with rms_prop_eps"
        cls, kwargs = "RMSprop", {"eps": said.get("rms_prop_eps", _A2CS_EPS)}
    elif "rms_prop_eps" in said:
        unused["rms_prop_eps"] = "it is of use_rms_prop without an optimizer_class"
    name = _CLASSES.get(str(cls).rpartition(".")[2])
    if name is None:
        raise NoSuchValue(f"policy_kwargs: optimizer_class: {cls} (there is {', '.join(_CLASSES)})")
    if kwargs is None:
        kwargs = {"eps": _POLICYS_EPS} if name == "adam" and algorithm in _SETTING_EPS else {}
    options, refused = _arguments(name, dict(kwargs))
    return Optimizer({"optimizer": name, **options}, unused, refused)


def _arguments(name: str, kwargs: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Keyword arguments as options, and those that there are not."""
    eps = kwargs.pop("eps", _TORCHS_EPS)
    if not kwargs.get("weight_decay"):
        kwargs.pop("weight_decay", None)
    if name != "adam":
        return {"rmsprop_eps": eps, "rmsprop_alpha": kwargs.pop("alpha", _ALPHA)}, kwargs
    options = {"adam_eps": eps}
    if "betas" in kwargs:
        options["adam_beta1"], options["adam_beta2"] = kwargs.pop("betas")
    return options, kwargs
