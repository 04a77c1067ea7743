"""What objects print as."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

__all__ = ["never_raises"]


def never_raises(describe: Callable[[Any], str]) -> Callable[[Any], str]:
    """A `__repr__` that never raises: of an object whose `__init__` has failed or has not ended, it names the class alone.

    `describe` takes no lock that another thread may hold while it waits: a debugger, a log line and a test's failure ask for
    the text at any time.
    """

    @functools.wraps(describe)
    def __repr__(self: Any) -> str:
        try:
            return describe(self)
        except Exception:
            return f"<{type(self).__name__}, not usable>"

    return __repr__
