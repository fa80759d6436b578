"""What the bytes of a shard mean: one file per format, each two functions, `index` and `read`."""

from __future__ import annotations

from dataflow.errors import DatasetError
from dataflow.formats.arrow import ArrowFormat
from dataflow.formats.format import Block, Format, Place, ShardIndex, Skipped
from dataflow.formats.parquet import ParquetFormat
from dataflow.formats.webdataset import WebDatasetFormat

__all__ = ["FORMATS", "Block", "Format", "Place", "ShardIndex", "Skipped", "format_named", "format_of"]

FORMATS: tuple[Format, ...] = (ArrowFormat(), ParquetFormat(), WebDatasetFormat())


def format_named(name: str) -> Format:
    """Returns the format of that name.

    Raises:
        DatasetError: There is none; names those that exist.
    """
    for candidate in FORMATS:
        if candidate.name == name:
            return candidate
    known = ", ".join(repr(candidate.name) for candidate in FORMATS)
    raise DatasetError(f"no shard format is called {name!r}; there are {known}")


def format_of(path: str) -> Format | None:
    """Returns the format that a file's name says it has, or None."""
    lowered = path.lower()
    return next((candidate for candidate in FORMATS if lowered.endswith(candidate.suffixes)), None)
