"""Files and directories that appear whole or not at all, whenever the process is killed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

__all__ = ["found", "read_directory", "replace_directory", "replace_file"]

Read = TypeVar("Read")

_MOST_READS = 100  # of a directory that somebody replaces all the time


def replace_file(path: Path, data: bytes) -> None:
    fresh = path.with_name(f"{path.name}.tmp-{os.getpid()}")
    try:
        _write(fresh, data)
        fresh.rename(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    _sync(path.parent)


def replace_directory(path: Path, files: dict[str, bytes]) -> None:
    """Replaces the directory by one with these files. In between it may be found() under its older name."""
    if not path.parent.is_dir():
        path.parent.mkdir()
        _sync(path.parent.parent)
    for left in path.parent.glob(f"{path.name}.tmp-*"):
        shutil.rmtree(left)
    fresh, old = path.with_name(f"{path.name}.tmp-{os.getpid()}"), _old(path)
    fresh.mkdir()
    try:
        for name, data in files.items():
            _write(fresh / name, data)
        _sync(fresh)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    if path.exists():
        shutil.rmtree(old, ignore_errors=True)
        path.rename(old)
    fresh.rename(path)
    _sync(path.parent)
    shutil.rmtree(old, ignore_errors=True)


def found(path: Path) -> Path:
    """Where the directory is: under its older name where it was being replaced when the process ended."""
    return _old(path) if not path.exists() and _old(path).exists() else path


def read_directory(path: Path, read: Callable[[Path], Read]) -> Read:
    """What `read` makes of the directory that is found(); of the next one where it raises, and that was put in its place
    meanwhile."""
    for _ in range(_MOST_READS):
        directory = found(path)
        try:
            opened = os.open(directory, os.O_PATH | os.O_DIRECTORY)  # while it is open no other has its number
        except OSError:
            if not found(path).exists():
                break
            continue
        try:
            return read(directory)
        except Exception:
            if found(path) == directory and _is_at(opened, directory):
                raise
        finally:
            os.close(opened)
    return read(found(path))


def _is_at(directory: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(directory), path.stat())
    except FileNotFoundError:
        return False


def _old(path: Path) -> Path:
    return path.with_name(f"{path.name}.old")


def _write(path: Path, data: bytes) -> None:
    try:
        with path.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def _sync(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
