"""What compressing the frames of a rollout costs and saves: by lz4, as collectors on other hosts send them (one block for each
environment), and for comparison as they lie in a rollout, and by zlib and zstd.

Frames are an Atari game's, preprocessed and stacked as for training, under random actions.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import time
import zlib
from collections.abc import Callable

import numpy as np

import shoal


def frames(game: str, steps: int, num_envs: int) -> np.ndarray:
    """[steps + 1, num_envs, 4, 84, 84]."""
    with shoal.make_vec(game, num_envs, num_workers=0, atari=True, frame_stack=4) as envs:
        obs, _ = envs.reset(seed=1)
        envs.action_space.seed(1)
        rows = [np.array(obs)]
        for _ in range(steps):
            obs, *_ = envs.step(envs.action_space.sample())
            rows.append(np.array(obs))
    return np.ascontiguousarray(np.stack(rows).reshape(steps + 1, num_envs, -1))


def lz4() -> tuple[Callable[[bytes], bytes], Callable[[bytes, int], bytes]]:
    library = ctypes.CDLL("liblz4.so.1")

    def compress(data: bytes) -> bytes:
        out = ctypes.create_string_buffer(library.LZ4_compressBound(len(data)))
        size = library.LZ4_compress_default(data, out, len(data), len(out))
        return out.raw[:size]

    def expand(block: bytes, size: int) -> bytes:
        out = ctypes.create_string_buffer(size)
        library.LZ4_decompress_safe(block, out, len(block), size)
        return out.raw

    return compress, expand


def zstd() -> tuple[Callable[[bytes], bytes], Callable[[bytes, int], bytes]]:
    library = ctypes.CDLL("libzstd.so.1")
    for name in ("ZSTD_compress", "ZSTD_compressBound", "ZSTD_decompress"):
        getattr(library, name).restype = ctypes.c_size_t
    library.ZSTD_compressBound.argtypes = [ctypes.c_size_t]
    library.ZSTD_compress.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int]
    library.ZSTD_decompress.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]

    def compress(data: bytes) -> bytes:
        out = ctypes.create_string_buffer(library.ZSTD_compressBound(len(data)))
        size = library.ZSTD_compress(out, len(out), data, len(data), 1)
        return out.raw[:size]

    def expand(block: bytes, size: int) -> bytes:
        out = ctypes.create_string_buffer(size)
        library.ZSTD_decompress(out, size, block, len(block))
        return out.raw

    return compress, expand


def measure(
    compress: Callable[[bytes], bytes], expand: Callable[[bytes, int], bytes], parts: list[bytes], rounds: int
) -> tuple[float, float, float]:
    """How many times less it is, and the seconds there and back: medians."""
    there, back = [], []
    for _ in range(rounds):
        began = time.perf_counter()
        blocks = [compress(part) for part in parts]
        there.append(time.perf_counter() - began)
        began = time.perf_counter()
        again = [expand(block, len(part)) for block, part in zip(blocks, parts, strict=True)]
        back.append(time.perf_counter() - began)
        assert again == parts
    return sum(map(len, parts)) / sum(map(len, blocks)), statistics.median(there), statistics.median(back)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--games", nargs="+", default=["Pong", "Breakout", "Seaquest"])
    parser.add_argument("--steps", type=int, default=128)
    parser.add_argument("--num-envs", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    ways = {
        "lz4": lz4(),
        "zstd-1": zstd(),
        "zlib-1": (lambda data: zlib.compress(data, 1), lambda block, size: zlib.decompress(block)),
    }
    print(f"{'game':10} {'way':8} {'blocks':12} {'times less':>10} {'GB/s':>6} {'back GB/s':>9}")
    for game in options.games:
        rows = frames(f"ale_py:ALE/{game}-v5", options.steps, options.num_envs)
        orders = {
            "by env": [np.ascontiguousarray(rows[:, env]).tobytes() for env in range(options.num_envs)],
            "as it lies": [rows.tobytes()],
        }
        for way, (compress, expand) in ways.items():
            for order, parts in orders.items():
                less, there, back = measure(compress, expand, parts, options.rounds)
                size = rows.nbytes / 1e9
                print(f"{game:10} {way:8} {order:12} {less:10.1f} {size / there:6.2f} {size / back:9.2f}", flush=True)


if __name__ == "__main__":
    main()
