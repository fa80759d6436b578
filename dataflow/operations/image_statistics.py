"""What encoded images are like, from their headers alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataflow.codecs.pillow_guard import load_pillow
from dataflow.operations.distribution import Distribution
from dataflow.operations.images import image_size
from dataflow.sharding.image_kind import HEAD_BYTES, image_kind

__all__ = ["ImageStatistics"]


def _integers() -> Distribution:
    return Distribution(integers=True)


@dataclass(slots=True)
class ImageStatistics:
    """Statistics of the images in a binary column.

    Attributes:
        formats: How many images there are of each format, by content.
        modes: How many have which pixels, as Pillow calls them, such as "RGB" or "L".
        widths: In pixels.
        heights: In pixels.
        unreadable: Images whose headers Pillow cannot read.
        others: Values that are no images.
    """

    formats: Counter[str] = field(default_factory=Counter)
    modes: Counter[str] = field(default_factory=Counter)
    widths: Distribution = field(default_factory=_integers)
    heights: Distribution = field(default_factory=_integers)
    unreadable: int = 0
    others: int = 0

    def add(self, values: pa.Array) -> None:
        """Adds the values of a binary array without nulls.

        Raises:
            OptionError: There are images, and Pillow is missing.
        """
        kinds = [image_kind(head) for head in pc.binary_slice(values, 0, HEAD_BYTES).to_pylist()]
        self.others += kinds.count("")
        if not any(kinds):
            return
        load_pillow()
        self.formats.update(kind for kind in kinds if kind)
        sizes = [image_size(memoryview(value.as_buffer())) for value, kind in zip(values, kinds, strict=True) if kind]
        readable = [size for size in sizes if size is not None]
        self.unreadable += len(sizes) - len(readable)
        self.modes.update(size.mode for size in readable)
        self.widths.add(np.array([size.width for size in readable], np.int64))
        self.heights.add(np.array([size.height for size in readable], np.int64))

    def merge(self, other: ImageStatistics) -> None:
        """Adds the values of another part of the column."""
        self.formats.update(other.formats)
        self.modes.update(other.modes)
        self.widths.merge(other.widths)
        self.heights.merge(other.heights)
        self.unreadable += other.unreadable
        self.others += other.others

    def to_json(self) -> dict[str, Any]:
        """All that is known."""
        return {
            "formats": dict(self.formats.most_common()),
            "modes": dict(self.modes.most_common()),
            "width": self.widths.to_json(),
            "height": self.heights.to_json(),
            "unreadable": self.unreadable,
            "others": self.others,
        }
