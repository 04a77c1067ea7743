"""Equality as a drop-in replacement needs it: values, types, dtypes, shapes and order of keys."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np


def assert_same(ours: Any, theirs: Any, where: str = "", *, numbers_as_numpys: bool = False) -> None:
    """`numbers_as_numpys` lets ours be a NumPy number of the same value where theirs is one of Python's."""
    same = functools.partial(assert_same, numbers_as_numpys=numbers_as_numpys)
    if isinstance(theirs, dict):
        assert isinstance(ours, dict), where
        assert list(ours) == list(theirs), where
        for key in theirs:
            same(ours[key], theirs[key], f"{where}[{key!r}]")
    elif isinstance(theirs, tuple | list):
        assert type(ours) is type(theirs) and len(ours) == len(theirs), (where, ours, theirs)
        for i, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            same(mine, other, f"{where}[{i}]")
    elif isinstance(theirs, np.ndarray) and theirs.dtype == object:
        assert isinstance(ours, np.ndarray) and ours.dtype == object and ours.shape == theirs.shape, where
        for i, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            same(mine, other, f"{where}[{i}]")
    elif isinstance(theirs, np.ndarray | np.generic):
        assert np.asarray(ours).dtype == theirs.dtype, (where, ours, theirs)
        assert np.shape(ours) == theirs.shape, (where, ours, theirs)
        assert np.array_equal(ours, theirs, equal_nan=theirs.dtype.kind == "f"), (where, ours, theirs)
    else:
        as_numpys = numbers_as_numpys and isinstance(ours, np.generic) and type(theirs) in (bool, int, float)
        assert (as_numpys or type(ours) is type(theirs)) and ours == theirs, (where, ours, theirs)
