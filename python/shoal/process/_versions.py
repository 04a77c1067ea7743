"""Which version of the program's own modules this process runs: a zygote that has imported another is of no more use."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Any

__all__ = ["Versions", "is_current", "versions"]

Versions = dict[str, tuple[Any, ...]]

_STANDARD = os.path.dirname(os.__file__) + os.sep
_PACKAGES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_seen: set[str] = set()
_own: dict[str, None] = {}  # of those seen, the program's own


def versions(preload: Iterable[str]) -> Versions:
    """Of all modules of the program that this process has imported, where one of them is in `preload`: what is imported
    there imports the others. What is installed (site-packages, the standard library, Shoal) is no module of the program.
    """
    _look_for_new_ones()
    if not any(name in _own for name in preload):
        return {}
    return {name: version for name in _own if (version := _version(name))}


def is_current(before: Versions) -> bool:
    """Whether this process still has the modules of `before` in these versions. Those that it has let go count as they were,
    and those that it has imported since then as not there."""
    return all((now := _version(name)) is None or now == version for name, version in before.items())


def _look_for_new_ones() -> None:
    new = sys.modules.keys() - _seen
    _seen.update(new)
    for name in new:
        if name not in ("__main__", "__mp_main__") and name.partition(".")[0] != "shoal" and _is_own(name):
            _own[name] = None


def _is_own(name: str) -> bool:
    file = getattr(sys.modules.get(name), "__file__", None)
    if not isinstance(file, str):
        return False
    path = os.path.abspath(file)
    return not path.startswith(_STANDARD) and not any(part in path for part in _PACKAGES)


def _version(name: str) -> tuple[Any, ...] | None:
    module = sys.modules.get(name)
    file = getattr(module, "__file__", None)
    if not isinstance(file, str):
        return None
    try:
        stat = os.stat(file)
        contents = stat.st_mtime_ns, stat.st_size, stat.st_ino
    except OSError:
        contents = 0, 0, 0  # of an archive, or removed
    # importlib.reload() gives a module another spec. It is kept here, so that no other gets its place in memory.
    return file, contents, _Same(getattr(module, "__spec__", None))


class _Same:
    """Equal to one of the very same object, whatever that says itself."""

    def __init__(self, of: Any) -> None:
        self._of = of

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self._of is other._of

    __hash__ = None  # type: ignore[assignment]  # compared, never looked up
