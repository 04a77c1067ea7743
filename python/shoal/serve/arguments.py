"""What the arguments of a service may be; checked before anything starts, and named where they are wrong."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from numbers import Real
from typing import Any

__all__ = [
    "ANY_NUMBER",
    "ROWS",
    "SEVERAL",
    "check_choice",
    "check_secret",
    "checked_buckets",
    "checked_int",
    "checked_seconds",
    "checked_timeout",
    "checked_version",
]

ROWS = range(1, 2**20 + 1), "an int from 1 to 2**20"
"""Of a batch: kMaxRows of src/shoal/serve/request_queue.cc."""
SEVERAL = range(1, 2**16 + 1), "an int from 1 to 2**16"
"""Server processes, or threads of one: more than any machine has."""
ANY_NUMBER = range(2**63), "an int of 0 or more"
_VERSIONS = range(1, 2**63), "an int from 1 to 2**63 - 1"


def checked_int(what: str, value: Any, allowed: tuple[range, str]) -> int:
    """`value` as an int.

    Args:
        allowed: the numbers, and what an error calls them.

    Raises:
        ValueError: it is none of them.
    """
    numbers, name = allowed
    try:
        number = operator.index(value)
    except TypeError:
        number = -1
    if isinstance(value, bool) or number not in numbers:
        raise ValueError(f"{what} takes {name}, got {value!r}")
    return number


def checked_version(what: str, value: Any) -> int:
    """A number of weights as servers and clients pass it on, in 64 bits. Raises ValueError."""
    return checked_int(what, value, _VERSIONS)


def checked_seconds(what: str, value: Any, *, takes: str = "a positive number of seconds", zero: bool = False) -> float:
    """`value` as a float. Raises ValueError for what is no number, nan, and less than 0; for 0 unless `zero`."""
    seconds = float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
    if not (seconds >= 0 if zero else seconds > 0):
        raise ValueError(f"{what} takes {takes}, got {value!r}")
    return seconds


def checked_timeout(what: str, value: Any) -> float | None:
    """checked_seconds(), or None for none."""
    return None if value is None else checked_seconds(what, value, takes="None or a positive number of seconds")


def check_secret(what: str, value: Any) -> None:
    """Raises TypeError, which does not show it."""
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{what} takes a str, got a {type(value).__name__}")


def check_choice(what: str, value: Any, choices: Sequence[Any]) -> None:
    """Raises ValueError unless it is one of them."""
    if value not in choices:
        *first, last = map(repr, choices)
        raise ValueError(f"{what} takes {', '.join(first)} or {last}, got {value!r}")


def checked_buckets(buckets: Any, max_batch: int, device: Any) -> tuple[int, ...]:
    """The sizes of batches that models see, ascending; empty: any. Raises ValueError."""
    if buckets is None:
        buckets = [2**i for i in range(max_batch.bit_length())] if str(device).startswith("cuda") else ()
    what, name = "ModelService(buckets=…)", f"sizes from 1 to max_batch={max_batch}"
    if not isinstance(buckets, Iterable):
        raise ValueError(f"{what} takes None or {name}, got {buckets!r}")
    sizes = sorted({checked_int(what, size, (range(1, max_batch + 1), name)) for size in buckets})
    return tuple(sizes) if not sizes or sizes[-1] == max_batch else (*sizes, max_batch)
