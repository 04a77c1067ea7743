"""Equality as a drop-in replacement needs it: values, types, dtypes, shapes and order of keys."""

from __future__ import annotations

from typing import Any

import numpy as np


def assert_same(ours: Any, theirs: Any, where: str = "") -> None:
    if isinstance(theirs, dict):
        assert isinstance(ours, dict), where
        assert list(ours) == list(theirs), where
        for key in theirs:
            assert_same(ours[key], theirs[key], f"{where}[{key!r}]")
    elif isinstance(theirs, tuple):
        assert isinstance(ours, tuple) and len(ours) == len(theirs), where
        for i, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            assert_same(mine, other, f"{where}[{i}]")
    elif isinstance(theirs, np.ndarray) and theirs.dtype == object:
        assert isinstance(ours, np.ndarray) and ours.dtype == object and ours.shape == theirs.shape, where
        for i, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            assert_same(mine, other, f"{where}[{i}]")
    elif isinstance(theirs, np.ndarray | np.generic):
        assert np.asarray(ours).dtype == theirs.dtype, (where, ours, theirs)
        assert np.shape(ours) == theirs.shape, (where, ours, theirs)
        assert np.array_equal(ours, theirs, equal_nan=theirs.dtype.kind == "f"), (where, ours, theirs)
    else:
        assert ours == theirs, (where, ours, theirs)
