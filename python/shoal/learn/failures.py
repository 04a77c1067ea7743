"""What the folder of a run tells of one that failed: a result.json like that of others, with the error."""

from __future__ import annotations

import contextlib
import fcntl
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shoal.learn.durable import replace_file
from shoal.process.error_report import traceback_of

__all__ = ["first_line", "forget", "record"]

_ENDING = "failed"


def record(run_dir: Path, status: Mapping[str, Any], error: BaseException) -> None:
    """Writes it, unless another process trains there by now. A folder that cannot be written to stays as it is: the error is what
    the caller is to hear of.

    Args:
        status: `Trainer.status()` at the end.
    """
    result = {
        "ending": _ENDING,
        "error": first_line(error),
        "traceback": traceback_of(error),
        "run_dir": str(run_dir),
        "steps": status["step"],
        "episodes": status["episodes"],
        "seconds": status["seconds"],
        "mean_return": status["ep_return_mean"],
        "std_return": None,
        "evaluated_episodes": 0,
        "best_return": status["best_return_mean"],
        "best_step": status["best_step"] or 0,
    }
    with contextlib.suppress(OSError), (run_dir / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        replace_file(run_dir / "result.json", (json.dumps(result, indent=1) + "\n").encode())


def forget(run_dir: Path) -> None:
    """For a run that goes on: it has not failed any more."""
    file = run_dir / "result.json"
    with contextlib.suppress(OSError, ValueError):
        result = json.loads(file.read_bytes())
        if isinstance(result, dict) and result.get("ending") == _ENDING:
            file.unlink()


def first_line(error: BaseException) -> str:
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0]}" if text else type(error).__name__
