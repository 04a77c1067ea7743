"""Gymnasium as CleanRL's scripts know it, on the Gymnasium that is installed.

from shoal.compat.cleanrl import gym      # was: import gymnasium as gym

`gym.vector` has Shoal's vector environments with the resets and infos of Gymnasium 0.29, `gym.wrappers` the wrappers that have had other
names or arguments since. All else is Gymnasium's own.
"""

from __future__ import annotations

from gymnasium import __version__ as __version__

from shoal.compat import cleanrl as vector
from shoal.compat.cleanrl import wrappers
from shoal.names import names_of

__all__ = ["vector", "wrappers"]

__getattr__ = names_of("shoal.compat.cleanrl.gym", {}, ["gymnasium"], "")
