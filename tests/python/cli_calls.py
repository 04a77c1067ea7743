"""How tests of the command line make a call, and what they ask of it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from shoal.cli import main

__all__ = ["SHORT", "assert_one_line", "caller", "trained_run"]

SHORT = ["--total-steps", "512", "--num-envs", "4", "--quiet"]
SHORT += [
    f"--set={setting}"
    for setting in ("final_episodes=6", "eval_episodes=2", "eval_envs=2", "eval_every=256", "num_steps=32")
]
"""Of `shoal train`: a run of a second."""


def caller(
    capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str, str]]:
    """Calls the command in a folder: status, stdout, stderr."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path])

    def call(*arguments: str | Path) -> tuple[int, str, str]:
        status = main([str(argument) for argument in arguments])
        return (status, *capsys.readouterr())

    return call


def trained_run(folder: Path) -> Path:
    """The folder of a run that has ended."""
    run = folder / "run"
    assert main(["train", "shoal/CartPole-v1", *SHORT, "--seed", "3", "--run-dir", str(run)]) == 0
    return run


def assert_one_line(result: tuple[int, str, str], status: int, *parts: str) -> None:
    """The command failed with `status` and one line on stderr that has all `parts`; stdout is empty."""
    code, out, err = result
    assert (code, out) == (status, "")
    assert err.startswith("shoal: ") and err.count("\n") == 1, err
    for part in parts:
        assert part in err
