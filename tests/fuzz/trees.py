"""The fuzz target of objects that cross queues without pickle: decode_tree() returns, or raises an Exception.

It takes the flags of the other targets (driver.cc). The extension module is that of the release build, without a sanitizer; a crash or a
hang ends this program, which a watcher notices, for the input is in a file before it is tried.
"""

from __future__ import annotations

import faulthandler
import os
import random
import resource
import sys
import time
from pathlib import Path

import numpy as np

import shoal.ipc.arrays  # noqa: F401 - so that arrays have a short form
from shoal._core import ipc

NUMBERS = [
    0,
    1,
    2,
    3,
    16,
    127,
    128,
    200,
    254,
    255,
    256,
    65535,
    65536,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**63 - 1,
    2**64 - 1,
]
KINDS = b"NTFchkifsbtlndpmr"
REFUSALS = (ValueError, TypeError, MemoryError, UnicodeDecodeError, OverflowError, RuntimeError)
"""What a reader may raise: a shoal.Error is one of them."""


def tree_of(pickled: bytes) -> bytes:
    """What pickle_tree() packed, without its opcodes: the head ends with B and a size of four bytes, the tail is three bytes."""
    at = pickled.index(b"decode_tree\x93B") + len(b"decode_tree\x93B")
    return pickled[at + 4 : -3]


def seeds() -> list[bytes]:
    shared = ["a", 1]
    objects = [
        [np.arange(6, dtype=np.float32).reshape(2, 3), None, True],
        {"obs": np.zeros((2, 2), np.uint8), "info": {"a": (1, 2.5, "x", b"y")}},
        [shared, shared, np.int64(3) if False else 3, np.ones(3), list(range(40)), [0.5] * 20],
        [np.asfortranarray(np.ones((3, 4)))[::2], -(2**40), 300, "ä" * 300],
    ]
    found = []
    for one in objects:
        found.append(tree_of(ipc.pickle_tree(one, [])))
    return found


def change(data: bytes, other: bytes, draw: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(1 << draw.randrange(4)):
        at = draw.randrange(len(out) + 1)
        match draw.randrange(8):
            case 0 if out:
                out[at - 1] ^= 1 << draw.randrange(8)
            case 1 if out:
                out[at - 1] = draw.choice(KINDS)
            case 2:
                out[at:at] = bytes([draw.choice(KINDS), draw.randrange(256)])
            case 3:
                width = draw.choice([1, 2, 4, 8])
                number = draw.choice(NUMBERS) & (256**width - 1)
                out[at : at + width] = number.to_bytes(width, "little")
            case 4:
                del out[at : at + draw.randrange(1, 33)]
            case 5:
                start = draw.randrange(len(other) + 1)
                out[at:at] = other[start : start + draw.randrange(1, 65)]
            case 6 if len(out) >= 4:
                out[:4] = len(out).to_bytes(4, "little")
            case _:
                out[at:at] = bytes(out[at : at + 16])
    return bytes(out[:4096])


def main(arguments: list[str]) -> int:
    flags = dict(word.removeprefix("-").split("=", 1) for word in arguments if word.startswith("-"))
    files = [
        path for word in arguments if not word.startswith("-") for path in sorted(Path(word).rglob("*")) or [Path(word)]
    ]
    runs, seed, seconds = int(flags.get("runs", -1)), int(flags.get("seed", 1)), float(flags.get("max_total_time", 0))
    draw = random.Random(seed)
    current = Path(flags.get("artifact_prefix", "./") + "current-tree")
    faulthandler.enable()
    corpus = [*seeds(), *(path.read_bytes() for path in files if path.is_file())]
    memory = os.open(current, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o666)
    slowest, start, made = 0.0, time.monotonic(), 0

    def attempt(data: bytes) -> None:
        nonlocal slowest
        os.pwrite(memory, len(data).to_bytes(4, "little") + data, 0)
        before = time.monotonic()
        faulthandler.dump_traceback_later(int(flags.get("timeout", 10)), exit=True)
        try:
            ipc.decode_tree(data)
        except REFUSALS:
            pass
        slowest = max(slowest, time.monotonic() - before)

    for data in corpus:
        attempt(data)
    while runs < 0 or made < runs:
        if seconds and time.monotonic() - start > seconds:
            break
        attempt(change(draw.choice(corpus), draw.choice(corpus), draw))
        made += 1
    faulthandler.cancel_dump_traceback_later()
    os.close(memory)
    current.unlink()
    rate = made / max(time.monotonic() - start, 1e-6)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(
        f"{made} inputs made of {len(corpus)}, {rate:.0f} a second; slowest {1000 * slowest:.0f} ms, {peak} MiB; nothing found"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
