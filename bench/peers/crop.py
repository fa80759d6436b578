"""A photograph's random window, resized and mirrored: what torchvision's RandomResizedCrop and flip do.

torchvision itself is not used: its package index has it for CUDA builds of torch alone, and it cannot take a decoder's
pixels faster than this.
"""

from __future__ import annotations

import io
import math
import random
from typing import Any

import numpy as np
import torch

SIZE = 224
torch.set_num_threads(1)  # a loader's workers are the threads


def window(height: int, width: int) -> tuple[int, int, int, int]:
    """Top, left, height and width."""
    for _ in range(10):
        area = height * width * random.uniform(0.08, 1)
        shape = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        columns, rows = round(math.sqrt(area * shape)), round(math.sqrt(area / shape))
        if 0 < columns <= width and 0 < rows <= height:
            return random.randint(0, height - rows), random.randint(0, width - columns), rows, columns
    shape = min(max(width / height, 3 / 4), 4 / 3)
    rows, columns = min(height, round(width / shape)), min(width, round(height * shape))
    return (height - rows) // 2, (width - columns) // 2, rows, columns


def with_simplejpeg(data: bytes) -> Any:
    """uint8 tensor [3, 224, 224], decoded by libjpeg-turbo and resized by torch."""
    from simplejpeg import decode_jpeg

    pixels = decode_jpeg(data)
    top, left, height, width = window(*pixels.shape[:2])
    cut = torch.from_numpy(pixels[top : top + height, left : left + width]).permute(2, 0, 1)[None]
    resized = torch.nn.functional.interpolate(cut, (SIZE, SIZE), mode="bilinear", antialias=True)[0]
    return resized.flip(2) if random.random() < 0.5 else resized.contiguous()


def with_pillow(data: bytes) -> Any:
    """uint8 tensor [3, 224, 224], decoded and resized by Pillow."""
    from PIL import Image

    with Image.open(io.BytesIO(data)) as image:
        top, left, height, width = window(image.height, image.width)
        box = (left, top, left + width, top + height)
        resized = image.convert("RGB").resize((SIZE, SIZE), Image.Resampling.BILINEAR, box)
    if random.random() < 0.5:
        resized = resized.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return torch.from_numpy(np.array(resized)).permute(2, 0, 1).contiguous()
