"""How `WorkerOptions` and `context=` reach the worker processes of native environments."""

from __future__ import annotations

from typing import Any

from shoal import _core
from shoal.vector.options import WorkerOptions

__all__ = ["for_native_engine", "native_launcher"]


def native_launcher(context: str, options: WorkerOptions) -> _core.process.Launcher:
    """Of workers without Python; with "fork" they are copies of this process that never return to Python."""
    if context == "fork":
        import shoal.process

        return shoal.process.launcher("fork", **options.for_launcher).handle
    given = options.for_launcher
    return _core.process.create_native_launcher(
        method=context,
        environment=[(str(name), str(value)) for name, value in given["env"].items()],
        threads=given["threads"],
        hide_gpu=given["hide_gpu"],
        start_timeout=given["start_timeout"],
    )


def for_native_engine(options: WorkerOptions) -> dict[str, Any]:
    """WorkerOptions.for_engine, with what Python workers do to themselves in Python."""
    return {**options.for_engine, "gpus": options.gpus(), "nested": options.nested}
