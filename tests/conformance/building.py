"""A pytest plug-in beside those that put Shoal's classes in the place of a peer's: the replacing, and which tests built one."""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping

_running = ""


def pytest_runtest_logstart(nodeid: str) -> None:
    global _running
    _running = nodeid


def put_in_place(package: str, ours: Mapping[type, type]) -> None:
    """In all modules of `package` that are loaded."""
    for module in [module for name, module in sys.modules.items() if name.startswith(package)]:
        for name, value in list(vars(module).items()):
            if isinstance(value, type) and value in ours:
                setattr(module, name, ours[value])


def count(kind: type, tests: set[str]) -> None:
    """Adds each test that builds a `kind`."""
    init = kind.__init__

    @functools.wraps(init)
    def counted(self: object, *arguments: object, **more: object) -> None:
        if _running:
            tests.add(_running)
        init(self, *arguments, **more)

    kind.__init__ = counted  # type: ignore[misc]
