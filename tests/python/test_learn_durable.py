"""Directories that are replaced as wholes, and read so."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from shoal.learn.durable import read_directory, replace_directory


def pair_in(directory: Path) -> tuple[str, str]:
    first = (directory / "first").read_text()
    second = (directory / "second").read_text()
    if first != second:
        raise ValueError(f"{first} and {second}")
    return first, second


def test_a_directory_is_read_whole_while_others_take_its_place(tmp_path: Path) -> None:
    place = tmp_path / "last"
    replace_directory(place, {"first": b"0", "second": b"0"})
    writer = os.fork()
    if writer == 0:
        try:
            for number in range(1, 10**6):
                replace_directory(place, dict.fromkeys(("first", "second"), str(number).encode()))
        finally:
            os._exit(1)
    try:
        numbers = [int(read_directory(place, pair_in)[0]) for _ in range(3000)]
    finally:
        os.kill(writer, signal.SIGKILL)
        os.waitpid(writer, 0)
    assert numbers == sorted(numbers) and numbers[-1] > 0


def test_what_is_wrong_with_a_directory_is_raised_at_once(tmp_path: Path) -> None:
    reads = []

    def read(directory: Path) -> None:
        reads.append(directory)
        pair_in(directory)

    with pytest.raises(FileNotFoundError):
        read_directory(tmp_path / "none", read)
    replace_directory(tmp_path / "torn", {"first": b"1", "second": b"2"})
    with pytest.raises(ValueError, match="1 and 2"):
        read_directory(tmp_path / "torn", read)
    assert reads == [tmp_path / "none", tmp_path / "torn"]
