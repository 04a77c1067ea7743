"""What classes that hold running environments do where their peers do: they close with warnings, and are not copied."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any, NoReturn

__all__ = ["HoldsEnvironments", "WarnsAtClose"]


class WarnsAtClose:
    """Beside a class of several environments, before it in the bases: close() raises nothing of what environments raise."""

    def _close_each(self, envs: Iterable[Any]) -> list[BaseException]:
        """Closes all environments of this process; what they raised, with a note that says which one it was."""
        failures: list[BaseException] = []
        for i, env in enumerate(envs):
            try:
                env.close()
            except BaseException as error:
                if hasattr(error, "add_note"):
                    error.add_note(f"environment {i}: close()")
                failures.append(error)
        return failures

    def _tell_close_failures(self, failures: list[BaseException]) -> None:
        for failure in failures:
            if not isinstance(failure, Exception):
                raise failure
            notes = "; ".join(getattr(failure, "__notes__", ()))
            warnings.warn(f"{notes or 'close()'} raised {type(failure).__name__}: {failure}", stacklevel=2)


class HoldsEnvironments:
    """Beside a peer's class, before it in the bases: an object that cannot be pickled or copied, and says why."""

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(
            f"cannot pickle {type(self).__name__!r} object: it holds running environments, which can be neither copied nor "
            "sent. Send a function that makes one, to be called where it is needed"
        )
