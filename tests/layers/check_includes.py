#!/usr/bin/env python3
"""Reads every include of the C++ sources and fails on one that points the wrong way.

The rules: a layer of src/shoal includes itself and the layers before it; a room, a folder of a layer, includes itself and
the rooms that ROOMS names for it; tests and testing/ include any room of their layer, and nothing else includes testing/;
No file includes LibTorch. Python enters at python/bindings; there, only the files of the module _learn (learn*) see learn.
And no folder has more than MOST_SOURCES sources.

    check_includes.py [repository root]
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from report import run

LAYERS = ("os", "shm", "sync", "trace", "ipc", "process", "group", "env", "vector", "serve", "collect", "learn")

# The rooms of each layer and of the bindings, top to bottom, and the rooms that each of them includes. "." is what lies beside
# the rooms. A file that makes what lies in rooms (a factory behind an interface) is a room of its own, below all that it sees.
BESIDE = "."
ROOMS: dict[str, dict[str, tuple[str, ...]]] = {
    "os": {
        BESIDE: (),
        "limits": (BESIDE,),
        "memory": (BESIDE, "limits"),
        "socket": (BESIDE, "memory"),
        "process": (BESIDE,),
    },
    "shm": {
        BESIDE: (),
        "cuda": (),
    },
    "ipc": {
        "heap": (),
        "sync": ("heap",),
        "queue": ("heap",),
        "pool": ("heap",),
        "device": ("heap",),
    },
    "process": {
        BESIDE: (),
        "self": (),
        "supervise": (BESIDE, "self"),
        "boot": (BESIDE, "supervise"),
        "zygote": (BESIDE, "supervise", "boot"),
        "launch": (BESIDE, "self", "supervise", "boot", "zygote"),
        "launcher.cc": (BESIDE, "launch"),
        "identity": (BESIDE,),
    },
    "env": {
        BESIDE: (),
        "atari": (),
        "classic": (BESIDE,),
        "segmented": (BESIDE,),
        "registry.cc": (BESIDE, "classic", "segmented"),
    },
    "group": {
        BESIDE: (),
        "connection": (BESIDE,),
        "rendezvous": (BESIDE,),
        "group.h": (BESIDE, "rendezvous"),
        "group.cc": ("group.h",),
    },
    "vector": {
        "fault": (),
        "step": ("fault",),
        BESIDE: ("fault", "step"),
        "workers": (BESIDE, "fault", "step"),
        "local": (BESIDE, "step"),
        "sync": (BESIDE, "step", "workers"),
        "async": (BESIDE, "fault", "step", "workers"),
        "native": (BESIDE, "step", "async"),
        "worker_program": (BESIDE, "step", "workers", "sync", "async", "native"),
        "observe_workers.cc": (BESIDE, "step", "sync", "async"),
        "vector_env.cc": (BESIDE, "local", "sync", "async", "native", "worker_program"),
    },
    "serve": {
        BESIDE: (),
        "remote": (BESIDE,),
    },
    "collect": {
        BESIDE: (),
        "replay": (),
    },
    "learn": {
        "config": (),
        "checkpoint": (),
        "kernels": (),
        "network": ("config", "kernels"),
        "optimizer": ("config", "network"),
        "learner": ("config", "checkpoint", "network", "optimizer"),
        "asynchronous": ("config", "checkpoint", "learner"),
        "remote": ("config", "learner", "asynchronous"),
        "ppo": ("config", "network", "learner", "asynchronous"),
        "a2c": ("config", "network", "optimizer", "learner", "asynchronous"),
        "a3c": ("config", "optimizer", "learner", "a2c"),
        "impala": ("config", "learner", "asynchronous", "a2c"),
        "appo": ("config", "learner", "asynchronous", "ppo"),
        "off_policy": ("config", "checkpoint", "network", "learner"),
        "dqn": ("config", "network", "optimizer", "learner", "off_policy"),
        "sac": ("config", "network", "optimizer", "learner", "off_policy"),
        "recurrent_ppo": ("config", "network", "learner", "ppo"),
        "algorithm": (
            "config",
            "network",
            "learner",
            "asynchronous",
            "ppo",
            "a2c",
            "a3c",
            "impala",
            "appo",
            "dqn",
            "sac",
            "recurrent_ppo",
        ),
        "run": ("checkpoint", "network", "learner", "remote", "a3c", "algorithm"),
    },
    "bindings": {
        BESIDE: (),
        "objects": (BESIDE,),
        "ipc": (BESIDE, "objects"),
        "process": (BESIDE,),
        "group": (BESIDE,),
        "vector": (BESIDE, "process"),
        "serve": (BESIDE,),
        "collect": (BESIDE, "vector"),
        "learn": (BESIDE,),
        "models": (BESIDE,),
        "tensors": (BESIDE, "objects"),
        "errors.cc": (BESIDE, "vector"),
    },
}
SUFFIXES = {".h", ".cc", ".hpp", ".cpp", ".inc"}
MOST_SOURCES = 40
"""In one folder, tests aside: more cannot be taken in at a glance, and are several rooms."""

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.MULTILINE)
TORCH = re.compile(r"^(torch|ATen|c10|caffe2)/")
PYTHON = re.compile(r"^(Python\.h$|pybind11/|nanobind/|numpy/|pyconfig\.h$|object\.h$)")


def includes(source: Path) -> Iterator[tuple[int, str, str]]:
    """Line number, bracket and path of each include directive."""
    text = source.read_text(encoding="utf-8")
    for match in INCLUDE.finditer(text):
        yield text.count("\n", 0, match.start(2)) + 1, match[1], match[2]


Rooms = dict[str, dict[str, tuple[str, ...]]]


def layer_of(include: str) -> str | None:
    """The layer of "shoal/<layer>/…"; None for the files beside the layers, such as shoal/version.h."""
    parts = include.split("/")
    return parts[1] if parts[0] == "shoal" and len(parts) > 2 else None


def is_of_tests(path: str) -> bool:
    return path.endswith(("_test.cc", "_benchmark.cc")) or "/testing/" in path


def room_of(path: str, rooms: Rooms) -> str | None:
    """The room of "shoal/<layer>/…" (or "shoal/bindings/…"); None where its layer has no such room."""
    _, layer, *inside = path.split("/")
    of_layer = rooms.get(layer, {BESIDE: ()})
    for room in (inside[0], BESIDE):
        if room in of_layer and (room != BESIDE or len(inside) == 1):
            return room
    return None


def fault_in_room(path: str, include: str, rooms: Rooms) -> str | None:
    """What is wrong with an include of a file of the same layer, or of testing/."""
    if is_of_tests(path):
        return None
    if "/testing/" in include:
        return f"{include} is for tests"
    layer, other = path.split("/")[1], layer_of(include)
    if layer != other:
        return None
    here, there = room_of(path, rooms), room_of(include, rooms)
    if here is None or there is None or here == there or there in rooms.get(layer, {}).get(here, ()):
        return None
    return f"{name_of(layer, here)} includes {name_of(layer, there)}, which ROOMS does not allow"


def name_of(layer: str, room: str) -> str:
    return layer if room == BESIDE else f"{layer}/{room}"


def fault_in_layer(layer: str, bracket: str, include: str) -> str | None:
    if TORCH.match(include):
        return f"{layer} includes LibTorch, whose releases differ: no binary of ours is built against one"
    if PYTHON.match(include):
        return f"{layer} uses Python, which enters at python/bindings"
    if not include.startswith("shoal/"):
        return f'"{include}" is no path from src/ on' if bracket == '"' else None
    other = layer_of(include)
    if other is None:
        return None
    if other not in LAYERS:
        return f"there is no layer {other}"
    if LAYERS.index(other) > LAYERS.index(layer):
        return f"{layer} includes {other}, which comes after it"
    return None


def fault_in_bindings(source: Path, include: str) -> str | None:
    if TORCH.match(include):
        return "python/bindings includes LibTorch, whose releases differ: no binary of ours is built against one"
    if source.name.startswith("learn"):
        return None
    other = layer_of(include)
    if other == "learn":
        return "another module than _learn includes learn; only its files (learn*) may"
    if other is not None and other not in LAYERS:
        return f"there is no layer {other}"
    return None


def sources(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix in SUFFIXES)


def faults_in_rooms(used: set[tuple[str, str | None, str | None]], rooms: Rooms) -> list[str]:
    """What is wrong with ROOMS itself. `used` are the arrows that includes follow; a room with sources has one to itself."""
    faults = []
    for layer, of_layer in rooms.items():
        order = list(of_layer)
        for room, others in of_layer.items():
            arrows = [(other, f"{name_of(layer, room)} include {name_of(layer, other)}") for other in others]
            faults += [
                f"ROOMS lets {arrow}, which is not above it"
                for other, arrow in arrows
                if other not in order[: order.index(room)]
            ]
            faults += [
                f"ROOMS lets {arrow}, which no file of it does"
                for other, arrow in arrows
                if (layer, room, room) in used and (layer, room, other) not in used
            ]
    return faults


def crowded_folders(root: Path, files: list[Path]) -> list[str]:
    counts = Counter(source.parent for source in files if not is_of_tests(source.as_posix()))
    return [
        f"{folder.relative_to(root)}: {count} sources in one folder, tests aside; {MOST_SOURCES} are the most: cut it into rooms"
        for folder, count in counts.items()
        if count > MOST_SOURCES
    ]


def check(root: Path, rooms: Rooms = ROOMS) -> tuple[int, list[str]]:
    """How many files were read, and what is wrong with them."""
    faults: list[str] = []
    used: set[tuple[str, str | None, str | None]] = set()
    src, bindings = root / "src" / "shoal", root / "python" / "bindings"
    files = sources(src) + sources(bindings)
    for source in files:
        ours = source.is_relative_to(src)
        inside = source.relative_to(src if ours else bindings)
        # What lies beside the layers (version.cc) is seen by all of them, so it sees none.
        layer = "bindings" if not ours else inside.parts[0] if len(inside.parts) > 1 else None
        path = (Path("shoal") / ("" if ours else "bindings") / inside).as_posix()
        room = None if layer is None else room_of(path, rooms)
        if ours and layer is not None and layer not in LAYERS:
            faults.append(f"{source.relative_to(root)}: there is no layer {layer}")
            continue
        if layer is not None and room is None and "/testing/" not in path:
            faults.append(f"{source.relative_to(root)}: ROOMS has no such room of {layer}")
            continue
        if layer is not None and not is_of_tests(path):
            used.add((layer, room, room))
        for line, bracket, include in includes(source):
            if not ours:
                fault = fault_in_bindings(source, include)
                if bracket == '"' and not include.startswith("shoal/"):
                    include = f"shoal/bindings/{include}"
            elif layer is None:
                fault = "what lies beside the layers includes a layer" if layer_of(include) else None
            else:
                fault = fault_in_layer(layer, bracket, include)
            if layer is not None:
                fault = fault or fault_in_room(path, include, rooms)
                if layer_of(include) == layer and not is_of_tests(path):
                    used.add((layer, room, room_of(include, rooms)))
            if fault:
                faults.append(f"{source.relative_to(root)}:{line}: {fault}")
    return len(files), faults + faults_in_rooms(used, rooms) + crowded_folders(root, files)


if __name__ == "__main__":
    sys.exit(run(check, sys.argv, "files", "wrong includes"))
