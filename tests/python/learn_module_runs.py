"""Short runs of networks of one's own, and what training computed in one."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

SMALL: dict[str, Any] = {
    "num_envs": 5,
    "total_steps": 1500,
    "num_steps": 20,
    "learning_rate_schedule": "linear",
    "entropy_coef": 0.01,
    "normalize_obs": True,
    "normalize_reward": True,
    "eval_every": 500,
    "eval_episodes": 3,
    "eval_envs": 2,
    "final_episodes": 0,
}
OF_PPO = {"batch_size": 32, "epochs": 2, "preset": "sb3"}
PPO = {**SMALL, **OF_PPO}


def small(algorithm: str) -> dict[str, Any]:
    """Options of a short run."""
    return {**SMALL, "preset": "sb3"} if algorithm == "a2c" else PPO


def digest(run_dir: Path) -> dict[str, str]:
    """sha256 of all that training computes."""
    files = ("policy", "normalizer", "optim", "envs")
    names = [f"last/{name}.safetensors" for name in files] + ["best/policy.safetensors"]
    return {name: hashlib.sha256((run_dir / "checkpoints" / name).read_bytes()).hexdigest() for name in names}


# --- learning
