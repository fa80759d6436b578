"""Whether a contender has done the work: each sample once, shuffled, its window cut, resized and mirrored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

HEIGHT, WIDTH = 480, 640


def write_probes(folder: Path, count: int) -> Path:
    """Pictures that tell what was done to them: red grows from left to right, green downwards, blue is fine stripes."""
    from PIL import Image

    pixels = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    pixels[:, :, 0] = np.linspace(0, 255, WIDTH).round()
    pixels[:, :, 1] = np.linspace(0, 255, HEIGHT).round()[:, None]
    pixels[:, ::2, 2] = 255
    for number in range(count):
        path = folder / f"class-{number % 100:03d}" / f"{number:06d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        if number == 0:
            Image.fromarray(pixels).save(path, quality=98, subsampling="4:4:4")
            first = path
        else:
            path.write_bytes(first.read_bytes())
    return folder


def check_epoch(ids: list[int], samples: int, count: int) -> None:
    """Each sample came once, and neighbours did not stay neighbours."""
    if samples != count:
        raise AssertionError(f"{samples} samples instead of {count}")
    if ids:
        if sorted(ids) != list(range(count)):
            raise AssertionError(f"{count - len(set(ids))} samples did not come")
        kept = float(np.mean(np.diff(ids) == 1))
        if kept > 0.1:
            raise AssertionError(f"{kept:.0%} of the samples came right after the one that is stored before them")


def check_pictures(batches: list[Any]) -> None:
    """The windows that `write_probes` tells of are random, of the agreed sizes and shapes, and half are mirrored."""
    pixels = np.concatenate([np.asarray(batch) for batch in batches]).astype(np.float64)
    lines, columns = pixels[:, 1].mean(2) / 255, pixels[:, 0].mean(1) / 255  # [n, 224]: shares of the side
    stretch = pixels.shape[2] / (pixels.shape[2] - 1)  # from pixels' centres to the window's borders
    heights, widths = ((side[:, -1] - side[:, 0]) * stretch for side in (lines, columns))
    mirrored, widths = widths < 0, np.abs(widths)
    areas, shapes = heights * widths, widths * WIDTH / (heights * HEIGHT)
    shrunk = widths * WIDTH > 1.7 * pixels.shape[3]
    facts = {
        "areas from 8 to 100 %": areas.min() > 0.07 and areas.max() < 1.02,
        "areas spread": 0.38 < areas.mean() < 0.49 and areas.std() > 0.17,
        "shapes from 3 : 4 to 4 : 3": shapes.min() > 0.71 and shapes.max() < 1.42 and shapes.std() > 0.08,
        "places vary": lines[:, 0].std() > 0.05 and columns.min(1).std() > 0.05,
        "half are mirrored": abs(mirrored.mean() - 0.5) < 0.12,
        "stripes become grey, antialiased": float(np.median(pixels[shrunk, 2].std((1, 2)))) < 25,
    }
    if wrong := [name for name, holds in facts.items() if not holds]:
        raise AssertionError(f"it does not hold that {', '.join(wrong)}")
