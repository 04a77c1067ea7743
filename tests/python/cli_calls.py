"""What tests of the command line ask of a call."""

from __future__ import annotations

__all__ = ["assert_one_line"]


def assert_one_line(result: tuple[int, str, str], status: int, *parts: str) -> None:
    """The command failed with `status` and one line on stderr that has all `parts`; stdout is empty."""
    code, out, err = result
    assert (code, out) == (status, "")
    assert err.startswith("shoal: ") and err.count("\n") == 1, err
    for part in parts:
        assert part in err
