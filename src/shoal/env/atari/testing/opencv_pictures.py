"""Prints what OpenCV makes of the pictures of area_resize_test.cc and screen_test.cc, as the hashes that stand there.

    python src/shoal/env/atari/testing/opencv_pictures.py

Needs opencv-python-headless (requirements-atari.txt).
"""

from __future__ import annotations

import cv2
import numpy as np

# Width and height of the picture and of the result, and values a pixel.
SIZES = (
    (160, 210, 84, 84, 1),
    (160, 210, 84, 84, 3),
    (160, 250, 84, 84, 1),
    (160, 210, 80, 105, 1),
    (160, 210, 40, 42, 3),
    (160, 210, 160, 210, 1),
    (160, 210, 160, 84, 1),
    (160, 210, 159, 1, 1),
    (7, 5, 3, 4, 1),
)


def picture(values: int) -> np.ndarray:
    """Bytes that any language can make: the high ones of a linear congruential generator (Numerical Recipes)."""
    state, out = 1, np.empty(values, np.uint8)
    for i in range(values):
        state = (1664525 * state + 1013904223) % 2**32
        out[i] = state >> 24
    return out


def fnv1a(data: bytes) -> int:
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def main() -> None:
    for width, height, to_width, to_height, channels in SIZES:
        source = picture(width * height * channels).reshape(height, width, channels)
        small = cv2.resize(source, (to_width, to_height), interpolation=cv2.INTER_AREA)
        print(f"{{{{{width}, {height}}}, {{{to_width}, {to_height}}}, {channels}, 0x{fnv1a(small.tobytes()):016x}}},")
    rgb = picture(3 * 256).reshape(1, 256, 3)
    print(f"grey of 256 colours: 0x{fnv1a(cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY).tobytes()):016x}")


if __name__ == "__main__":
    main()
