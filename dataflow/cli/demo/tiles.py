"""A few thousand different JPEG tiles, cut out of the photographs that scikit-image and scikit-learn ship."""

from __future__ import annotations

import io
import random
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from dataflow.errors import OptionError

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["cut_tiles"]

_PHOTOGRAPHS = {
    "skimage": (
        "data/astronaut.png",
        "data/camera.png",
        "data/chelsea.png",
        "data/coffee.png",
        "data/hubble_deep_field.jpg",
        "data/ihc.png",
        "data/motorcycle_left.png",
        "data/motorcycle_right.png",
        "data/retina.jpg",
        "data/rocket.jpg",
    ),
    "sklearn": ("datasets/images/china.jpg", "datasets/images/flower.jpg"),
}
_REMEDY = "pip install scikit-image scikit-learn pillow, or install dataflow with its extra `dev`"
_TILE = 96
_QUALITY = 85


def cut_tiles(folder: Path, count: int, seed: int) -> int:
    """Writes `folder/PHOTOGRAPH/NUMBER.jpg`, no two of them with the same bytes.

    Args:
        folder: Where they go: one folder for each photograph.
        count: How many tiles.
        seed: Chooses where they are cut out.

    Returns:
        The number of photographs.

    Raises:
        OptionError: The packages with the photographs, or Pillow, are not installed.
    """
    try:
        import PIL.Image
    except ImportError as error:
        raise OptionError(f"the demo cuts photographs with Pillow, which is not installed: {_REMEDY}") from error
    chance = random.Random(seed)
    paths = [_find(package, name) for package, names in _PHOTOGRAPHS.items() for name in names]
    seen: set[bytes] = set()
    for number, path in enumerate(paths):
        target = folder / path.stem
        target.mkdir(parents=True)
        with PIL.Image.open(path) as file:
            photograph = file.convert("RGB")
        for tile in range(number, count, len(paths)):
            # Two places may look alike, such as two pieces of black sky.
            while (data := _cut(photograph, chance)) in seen:
                pass
            seen.add(data)
            (target / f"{tile:04d}.jpg").write_bytes(data)
    return len(paths)


def _find(package: str, name: str) -> Path:
    specification = find_spec(package)
    folders = specification.submodule_search_locations if specification is not None else None
    path = Path(folders[0], name) if folders else None
    if path is None or not path.is_file():
        raise OptionError(f"the demo needs a photograph that {package} ships ({name}), which is not there: {_REMEDY}")
    return path


def _cut(photograph: Image, chance: random.Random) -> bytes:
    width, height = photograph.size
    left, top = chance.randrange(width - _TILE), chance.randrange(height - _TILE)
    sink = io.BytesIO()
    photograph.crop((left, top, left + _TILE, top + _TILE)).save(sink, "JPEG", quality=_QUALITY)
    return sink.getvalue()
