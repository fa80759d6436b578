"""The step that makes JPEGs of images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dataflow.codecs.pillow import BadImageError
from dataflow.codecs.pillow_guard import load_pillow
from dataflow.codecs.transcode import MOST_SIDE, to_jpeg
from dataflow.errors import CorruptDataError, OptionError
from dataflow.formats import Skipped
from dataflow.sharding.columns import check_column
from dataflow.sharding.image_kind import IMAGE_SUFFIXES
from dataflow.sharding.steps import Step, row_name

__all__ = ["TRANSCODED", "Transcode"]

#: The property of a dataset that says what was done to its images.
TRANSCODED = "transcoded"
_SUBSAMPLINGS = ("4:2:0", "4:2:2", "4:4:4")


@dataclass(frozen=True)
class Transcode(Step):
    """Makes upright JPEGs of images of any kind, and smaller ones of large images. What is lost is lost.

    A JPEG that is upright and small enough already, and would have no fewer bytes, stays as it is. Images that are null
    stay null. Datasets keep what was done as the property `transcoded`.

    Args:
        quality: Of the JPEGs, 1 to 100.
        subsampling: Of their colours: "4:2:0", "4:2:2" or "4:4:4".
        max_side: Images with a longer side of more pixels are made smaller, to this; None for none.
        columns: The images. None takes the one column of bytes that is called `image` or as files of images end, such
            as `jpg`; masks and depths are better left alone.

    Raises:
        OptionError: A value makes no sense, or Pillow is missing.
    """

    quality: int = 90
    subsampling: str = "4:2:0"
    max_side: int | None = None
    columns: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if type(self.quality) is not int or not 1 <= self.quality <= 100:
            raise OptionError(f"the quality of JPEGs is {self.quality!r}, it must be a whole number from 1 to 100")
        if self.subsampling not in _SUBSAMPLINGS:
            raise OptionError(
                f"the subsampling of JPEGs is {self.subsampling!r}: choose from {', '.join(_SUBSAMPLINGS)}"
            )
        if self.max_side is not None and (type(self.max_side) is not int or not 1 <= self.max_side <= MOST_SIDE):
            raise OptionError(f"max_side is {self.max_side!r}, it must be a whole number from 1 to {MOST_SIDE}")
        if self.columns is not None and (not self.columns or len(set(self.columns)) < len(self.columns)):
            raise OptionError(f"columns to transcode are {self.columns!r}: name each once, and at least one")
        load_pillow()  # now, not after hours of listing

    def properties(self, schema: pa.Schema, before: Mapping[str, Any]) -> dict[str, Any]:
        """See `Step.properties`."""
        done = {
            "columns": self._columns_of(schema),
            "format": "jpeg",
            "quality": self.quality,
            "subsampling": self.subsampling,
            "max_side": self.max_side,
        }
        return {TRANSCODED: [*before.get(TRANSCODED, []), done]}

    def schema(self, schema: pa.Schema) -> pa.Schema:
        """See `Step.schema`."""
        self._columns_of(schema)
        return schema

    def apply(self, batch: pa.RecordBatch, skip: bool) -> tuple[pa.RecordBatch, list[Skipped]]:
        """See `Step.apply`."""
        bad: dict[int, Skipped] = {}
        for name in self._columns_of(batch.schema):
            images: list[bytes | None] = []
            for row, value in enumerate(batch.column(name)):
                try:
                    images.append(self._transcode(value) if row not in bad else None)
                except BadImageError as error:
                    if not skip:
                        raise CorruptDataError(
                            f"{row_name(batch, row)}: column {name!r} {error}. Remove or replace it, or give "
                            "--on-error skip, which leaves out and lists all such rows"
                        ) from error
                    bad[row] = Skipped(row_name(batch, row), f"column {name!r} cannot be transcoded", str(error))
                    images.append(None)
            place = batch.schema.get_field_index(name)
            batch = batch.set_column(place, batch.schema.field(place), pa.array(images, batch.schema.field(place).type))
        if bad:
            batch = batch.take(pa.array([row for row in range(batch.num_rows) if row not in bad], pa.int64()))
        return batch, list(bad.values())

    def _transcode(self, value: Any) -> bytes | None:
        if not value.is_valid:
            return None
        return to_jpeg(value.as_py(), self.quality, self.subsampling, self.max_side)

    def _columns_of(self, schema: pa.Schema) -> list[str]:
        if self.columns is not None:
            for name in self.columns:
                check_column(schema, name)
                kind = schema.field(name).type
                if not _is_bytes(kind):
                    raise OptionError(f"column {name!r} is {kind}, and only images in columns of bytes are transcoded")
            return list(self.columns)
        found = [
            field.name
            for field in schema
            if _is_bytes(field.type) and (field.name == "image" or f".{field.name.lower()}" in IMAGE_SUFFIXES)
        ]
        if len(found) != 1:
            there = f"columns {', '.join(map(repr, found))}" if found else "no column"
            raise OptionError(
                f"there {'are' if found else 'is'} {there} with the name of an image, among "
                f"{', '.join(f'{field.name!r} ({field.type})' for field in schema)}: name those to transcode "
                "(--transcode-columns)"
            )
        return found


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))
