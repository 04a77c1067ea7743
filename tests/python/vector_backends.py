"""A fixture that builds vector environments on every backend and closes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

import shoal

__all__ = ["PYTHON_BACKENDS", "Make", "make_on"]

PYTHON_BACKENDS: dict[str, dict[str, Any]] = {
    "serial": {"backend": "serial"},
    "process": {"backend": "process", "num_workers": 2},
}

Make = Callable[..., shoal.VectorEnv]


def make_on(backends: Mapping[str, Mapping[str, Any]]) -> Any:
    """The fixture `make`: shoal.make_vec with each of `backends`' arguments, which a test's own override."""

    @pytest.fixture(params=backends)
    def make(request: pytest.FixtureRequest) -> Iterator[Make]:
        made: list[shoal.VectorEnv] = []

        def make_and_keep(*args: Any, **kwargs: Any) -> shoal.VectorEnv:
            made.append(shoal.make_vec(*args, **{**backends[request.param], **kwargs}))
            return made[-1]

        yield make_and_keep
        for envs in made:
            envs.close()

    return make
