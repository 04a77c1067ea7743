"""The boards of this user's processes (src/shoal/shm/board.h): found in /proc, read without a word to those that write them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, NamedTuple

from shoal import _core
from shoal.stat.processes import File, descriptors, file_of, memory_of

__all__ = ["Found", "boards", "collector", "environments", "listening", "pool", "remote"]

_SEGMENTS = ("/memfd:shoal vector env", "/memfd:shoal async envs")
_CALLS = ("idle", "resetting", "stepping", "asking")
_WORKER_STATES = ("starting", "idle", "stepping", "hung", "restarting", "dropped", "closed")


class Found(NamedTuple):
    """A board, what tells it from others on this machine, and where the segments of its process are, by their inodes."""

    id: int
    board: dict[str, Any]
    segments: dict[int, str]


def boards(pids: Iterable[int]) -> list[Found]:
    """Those that these processes hold, each once, without those whose object has ended."""
    found: dict[File, Found] = {}
    for pid in pids:
        segments: dict[int, str] = {}
        for path, what in descriptors(pid):
            if what.startswith(_SEGMENTS):
                if (file := file_of(path)) is not None:
                    segments[file[1]] = path
            elif what.startswith(f"/memfd:{_core.board.NAME} "):
                file = file_of(path)
                if file is None or (file in found and found[file].board["pid"] != pid):
                    continue
                if (board := _read(path, _core.board.read)) is not None and not board["ended"]:
                    found[file] = Found(file[1], board, segments)
    return list(found.values())


def _read(path: str, read: Any) -> Any:
    """None for what has gone, may not be opened, or is of another Shoal."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return read(fd)
    except (OSError, RuntimeError):
        return None
    finally:
        os.close(fd)


def environments(found: Found) -> dict[str, Any]:
    """A vector environment."""
    board, counts = found.board, found.board["counters"]
    words = _words(found)
    workers = [_worker(counts[f"worker {i}"], words[i] if i < len(words) else None) for i in range(_numbered(counts))]
    workers = [
        worker for worker in workers if worker["pid"] or worker["state"] != "starting"
    ]  # threads are no processes
    backend = board["kind"].partition(" ")[2]  # it has none until its environments are built
    state = "starting" if not backend else _CALLS[counts["call"]] if 0 <= counts["call"] < len(_CALLS) else "idle"
    since = _age(counts["since_ns"]) if counts["since_ns"] else board["seconds"]
    at_work = [worker["state_seconds"] for worker in workers if worker["state"] == "stepping"]
    if state == "idle" and at_work:  # and the caller does something else meanwhile
        state, since = "stepping", max(at_work)
    return {
        "id": found.id,
        "title": board["title"],
        "backend": backend,
        **_maker(board, state),
        "state_seconds": since,
        "envs": counts["envs"],
        "num_workers": counts["workers"],
        "batches": counts["batches"],
        "steps": counts["env_steps"],
        "steps_per_second": counts["env_steps"] / max(board["seconds"], 1e-9),
        "resets": counts["resets"],
        "wait_seconds": counts["wait_ns"] * 1e-9,
        "in_flight": counts["in_flight"],
        "restarts": counts["restarts"],
        "memory_bytes": sum(worker["memory_bytes"] for worker in workers),
        "workers": workers,
    }


def pool(found: Found) -> dict[str, Any]:
    """A pool of multiprocessing."""
    board, counts = found.board, found.board["counters"]
    running = counts["added"] - counts["done"] - counts["waiting"]
    return {
        "id": found.id,
        **_maker(board, "working" if counts["added"] > counts["done"] else "idle"),
        "num_workers": counts["workers"],
        "added": counts["added"],
        "done": counts["done"],
        "failed": counts["failed"],
        "waiting": counts["waiting"],
        "given": max(0, running),
        "tasks_per_second": counts["done"] / max(board["seconds"], 1e-9),
        "restarts": counts["restarts"],
        **_workers(counts),
    }


def collector(found: Found) -> dict[str, Any]:
    """A shoal.Collector."""
    board, counts = found.board, found.board["counters"]
    return {
        "id": found.id,
        "mode": board["title"],
        **_maker(board, "paused" if counts["paused"] else "collecting" if counts["collecting"] else "idle"),
        "state_seconds": _age(counts["since_ns"]),
        "envs": counts["envs"],
        "num_collectors": counts["collectors"],
        "frames": counts["frames"],
        "total_frames": counts["total_frames"] or None,
        "frames_per_second": counts["frames"] / max(board["seconds"], 1e-9),
        "batches": counts["batches"],
        "wait_seconds": counts["wait_ns"] * 1e-9,
        "pending": counts["pending"],
        "policy_version": counts["policy_version"],
        "restarts": counts["restarts"],
        **_workers(counts),
    }


def remote(found: Found) -> dict[str, Any]:
    """The collectors of a run that listens for them."""
    board, counts = found.board, found.board["counters"]
    return {
        "id": found.id,
        "address": board["title"],
        **_maker(board, "collecting" if counts["collectors"] else "waiting for collectors"),
        "num_collectors": counts["collectors"],
        "joined": counts["joined"],
        "lost": counts["lost"],
        "rollouts": counts["rollouts"],
        "steps": counts["steps"],
        "steps_per_second": counts["steps"] / max(board["seconds"], 1e-9),
        "stale_steps": counts["stale_steps"],
        "lost_rollouts": counts["lost_rollouts"],
        "refused": counts["refused"],
        "waiting": counts["waiting"],
        "policy_version": counts["version"],
        "sent_bytes": counts["sent_bytes"],
        "received_bytes": counts["received_bytes"],
    }


def listening(found: Found) -> dict[str, Any]:
    """A model service that other hosts ask."""
    board, counts = found.board, found.board["counters"]
    return {
        "id": found.id,
        "address": board["title"],
        **_maker(board, "asked" if counts["relays"] else "waiting for hosts"),
        "relays": counts["relays"],
        "joined": counts["joined"],
        "lost": counts["lost"],
        "refused": counts["refused"],
        "rows": counts["rows"],
        "rows_per_second": counts["rows"] / max(board["seconds"], 1e-9),
        "sent_bytes": counts["sent_bytes"],
        "received_bytes": counts["received_bytes"],
    }


def _workers(counts: dict[str, int]) -> dict[str, Any]:
    """Processes that are known by their numbers alone."""
    pids = [pid for i in range(_numbered(counts)) if (pid := counts[f"worker {i}"])]
    workers = [{"pid": pid, "memory_bytes": memory_of(pid)} for pid in pids]
    return {"memory_bytes": sum(worker["memory_bytes"] for worker in workers), "workers": workers}


def _maker(board: dict[str, Any], state: str) -> dict[str, Any]:
    return {"pid": board["pid"], "state": state if board["runs"] else "killed", "seconds": board["seconds"]}


def _age(since_ns: int) -> float:
    return max(0.0, (_core.board.now_ns() - since_ns) * 1e-9)


def _numbered(counts: dict[str, int]) -> int:
    return sum(name.startswith("worker ") for name in counts)


def _words(found: Found) -> list[dict[str, Any]]:
    path = found.segments.get(found.board["counters"]["segment"])
    words: list[dict[str, Any]] = (_read(path, _core.board.observe_workers) if path else None) or []
    return words


def _worker(word: int, words: dict[str, Any] | None) -> dict[str, Any]:
    pid, number = word & 0xFFFFFFFF, word >> 32
    state = _WORKER_STATES[number] if number < len(_WORKER_STATES) else "idle"
    worker: dict[str, Any] = {"pid": pid, "state": state, "memory_bytes": memory_of(pid) if pid else 0}
    if words is not None:
        at_work = words["env"] >= 0
        worker |= {
            "state": "stepping" if state == "idle" and at_work else state,
            "env": words["env"] if at_work else None,
            "in_reset": words["in_reset"],
            "state_seconds": words["seconds"],
            "batches": words["steps"],
            "busy_seconds": words["busy_ns"] * 1e-9,
        }
    return worker
