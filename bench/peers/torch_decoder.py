"""Photographs decoded by simplejpeg, or only where it is needed by libjpeg, and resized by torch, in threads."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch

from bench.peers.photographs import BATCH, SIZE, Requests, timed

Decode = Callable[[bytes, Any], Any]  # a file and a window, to the window's pixels [height, width, 3]


def with_simplejpeg() -> Decode:
    from simplejpeg import decode_jpeg

    def decode(file: bytes, window: Any) -> Any:
        top, left, height, width = window
        return decode_jpeg(file)[top : top + height, left : left + width]

    return decode


def with_cropping(library: str) -> Decode:
    decode_into = ctypes.CDLL(library).decode
    decode_into.argtypes = [ctypes.c_char_p, ctypes.c_ulong, *[ctypes.c_int] * 4, ctypes.c_void_p, ctypes.c_void_p]
    memory = threading.local()

    def decode(file: bytes, window: Any) -> Any:
        top, left, height, width = map(int, window)
        room = height * (width + 64) * 3
        if not hasattr(memory, "pixels") or memory.pixels.size < room:
            memory.pixels = np.empty(room, np.uint8)
        start = ctypes.c_int()
        stride = decode_into(file, len(file), top, left, height, width, memory.pixels.ctypes.data, ctypes.byref(start))
        assert stride > 0
        rows = memory.pixels[: height * stride * 3].reshape(height, stride, 3)
        return rows[:, start.value : start.value + width]

    return decode


def main(decoder: str, threads: int, requests: Requests) -> dict[str, float]:
    torch.set_num_threads(1)
    decode = with_simplejpeg() if decoder == "simplejpeg" else with_cropping(decoder)
    files, windows, flips = requests
    out = torch.empty((BATCH, 3, SIZE, SIZE), dtype=torch.uint8)

    def one(index: int) -> None:
        pixels = torch.from_numpy(decode(files[index], windows[index])).permute(2, 0, 1)[None]
        resized = torch.nn.functional.interpolate(pixels, (SIZE, SIZE), mode="bilinear", antialias=True)
        out[index % BATCH] = resized[0].flip(2) if flips[index] else resized[0]

    with ThreadPoolExecutor(threads) as pool:
        return timed(lambda first, last: list(pool.map(one, range(first, last))), len(files))


if __name__ == "__main__":
    import json

    from bench.peers.photographs import load

    print(json.dumps(main(sys.argv[2], int(sys.argv[3]), load(sys.argv[1]))))
