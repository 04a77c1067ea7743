"""A checkpoint of a module: a directory that appears whole or not at all, and opens without pickle.

policy.safetensors       the module's state_dict
normalizer.safetensors   that of the normaliser of its observations, where it has one
optim.safetensors        the optimiser's averages; only in a resumable checkpoint
envs.safetensors         what brings environments back to where they were, and what runs along with their episodes;
                         only in a resumable checkpoint
state.json               {"format": "shoal.module_checkpoint", "version": 1, "files": {name: {"bytes", "sha256"}},
                         the policy's path, options, spaces, step, counters, …}
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from shoal.errors import Error
from shoal.learn.durable import read_directory, replace_directory
from shoal.runs import MODULE_FORMAT

__all__ = ["Checkpoint", "read_checkpoint", "write_checkpoint"]

VERSION = 1
Arrays = Mapping[str, torch.Tensor]


class Checkpoint(NamedTuple):
    """`arrays` by the name of their file, without its ending."""

    state: dict[str, Any]
    arrays: dict[str, dict[str, torch.Tensor]]


def write_checkpoint(directory: Path, state: Mapping[str, Any], arrays: Mapping[str, Arrays]) -> None:
    """Replaces the directory."""
    files = {
        f"{name}.safetensors": save({key: _plain(value) for key, value in of.items()}, {"format": "pt"})
        for name, of in arrays.items()
    }
    listed = {name: _fingerprint(data) for name, data in files.items()}
    text = json.dumps({"format": MODULE_FORMAT, "version": VERSION, "files": listed, **state}, indent=1)
    replace_directory(directory, files | {"state.json": text.encode()})


def read_checkpoint(directory: Path, *, resumable: bool) -> Checkpoint:
    """All of it, or what a policy needs.

    Raises:
        shoal.Error: for one that is damaged, of another version, or no such checkpoint.
    """
    return read_directory(directory, lambda place: _read(place, resumable))


def _read(directory: Path, resumable: bool) -> Checkpoint:
    state = _read_state(directory)
    names = ["policy"] + ["normalizer"] * ("normalizer.safetensors" in state["files"])
    if resumable:
        if "optim.safetensors" not in state["files"]:
            raise Error(
                f"{directory}: not a usable checkpoint: it holds a policy alone: it can be evaluated, not resumed"
            )
        names += ["optim", "envs"]
    return Checkpoint(state, {name: _read_arrays(directory, f"{name}.safetensors", state["files"]) for name in names})


def _read_state(directory: Path) -> dict[str, Any]:
    try:
        state = json.loads((directory / "state.json").read_text())
    except (OSError, ValueError) as error:
        raise Error(f"{directory}: not a usable checkpoint: its state.json: {error}") from None
    if not isinstance(state, dict) or state.get("format") != MODULE_FORMAT:
        raise Error(f"{directory}: not a usable checkpoint: it is none of a module")
    if state.get("version") != VERSION:
        raise Error(
            f"{directory}: not a usable checkpoint: it has version {state.get('version')}, this Shoal reads version {VERSION}"
        )
    return state


def _read_arrays(directory: Path, name: str, listed: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    try:
        data = (directory / name).read_bytes()
    except OSError as error:
        raise Error(f"{directory}: not a usable checkpoint: {error}") from None
    if _fingerprint(data) != listed.get(name):
        raise Error(f"{directory}: not a usable checkpoint: its {name} is damaged, or of another checkpoint")
    try:
        arrays: dict[str, torch.Tensor] = load(data)
    except SafetensorError as error:
        raise Error(f"{directory}: not a usable checkpoint: its {name}: {error}") from None
    return arrays


def _fingerprint(data: bytes) -> dict[str, Any]:
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of its own, on the CPU: parameters may share memory."""
    return tensor.detach().cpu().contiguous().clone()
