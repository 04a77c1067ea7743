"""`torchrl.envs.SerialEnv`, whose errors say where they come from: environments in this process."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from torchrl.envs import SerialEnv as PeersSerialEnv

from shoal.compat.closing import WarnsAtClose

__all__ = ["SerialEnv"]


class SerialEnv(WarnsAtClose, PeersSerialEnv):
    """Steps environments one after the other, in the caller's process.

    Takes the place of `torchrl.envs.SerialEnv`, and is one. Unlike it:

    - an environment's exception says which environment it was, and what it did (from Python 3.11 on, which has notes);
    - close() closes all environments, and what they raise there is a warning.
    """

    def close(self, **arguments: Any) -> None:
        failures: list[BaseException] = []
        self.__dict__["_close_failures"] = failures
        super().close(**arguments)
        self._tell_close_failures(failures)

    def _shutdown_workers(self) -> None:
        if self.is_closed:
            return
        self.__dict__["_close_failures"].extend(self._close_each(self._envs))
        del self._envs

    def _reset(self, tensordict: Any, **kwargs: Any) -> Any:
        with self._telling("reset()"):
            return super()._reset(tensordict, **kwargs)

    def _step(self, tensordict: Any) -> Any:
        with self._telling("step()"):
            return super()._step(tensordict)

    @contextlib.contextmanager
    def _telling(self, call: str) -> Iterator[None]:
        """Gives what an environment raises a note that says where."""
        try:
            yield
        except Exception as error:
            index = self._index_in(error)
            if index is not None and hasattr(error, "add_note"):
                error.add_note(f"environment {index}: {call}")
            raise

    def _index_in(self, error: Exception) -> int | None:
        """The environment whose method is in the traceback."""
        places = {id(env): i for i, env in enumerate(self.__dict__.get("_envs", ()))}
        trace = error.__traceback__
        while trace is not None:
            index = places.get(id(trace.tb_frame.f_locals.get("self")))
            if index is not None:
                return index
            trace = trace.tb_next
        return None
