"""What the bytes of a shard mean: one file per format, each two functions, `index` and `read`."""

from __future__ import annotations

from dataflow.errors import DatasetError
from dataflow.formats.arrow import ArrowFormat
from dataflow.formats.compression import COMPRESSIONS
from dataflow.formats.csv_rows import CsvRows
from dataflow.formats.format import Block, Format, Place, ShardIndex, Skipped
from dataflow.formats.json_lines import JsonRows
from dataflow.formats.lines import LinesFormat
from dataflow.formats.parquet import ParquetFormat
from dataflow.formats.text_lines import TextRows
from dataflow.formats.webdataset import WebDatasetFormat

__all__ = [
    "FORMATS",
    "Block",
    "Format",
    "Place",
    "ShardIndex",
    "Skipped",
    "format_named",
    "format_of",
    "holds_text",
    "is_side_file",
]

FORMATS: tuple[Format, ...] = (
    ArrowFormat(),
    ParquetFormat(),
    WebDatasetFormat(),
    LinesFormat("jsonl", (".jsonl", ".ndjson", ".json"), JsonRows()),
    LinesFormat("csv", (".csv",), CsvRows(",")),
    LinesFormat("tsv", (".tsv",), CsvRows("\t")),
    LinesFormat("text", (".txt",), TextRows()),
)

# Notes, statistics and settings lie beside shards of every format under such names.
SIDE_SUFFIXES = (".json", ".txt")
_SIDE_SUFFIXES = tuple(suffix + packed for suffix in SIDE_SUFFIXES for packed in ("", *COMPRESSIONS))
_SUFFIXES = tuple(suffix for candidate in FORMATS for suffix in candidate.suffixes)


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
    if not lowered.endswith(_SUFFIXES):  # as the images of a folder are, by the million
        return None
    return next((candidate for candidate in FORMATS if lowered.endswith(candidate.suffixes)), None)


def is_side_file(path: str) -> bool:
    """Whether a file is taken for a shard only where there are no shards with a more telling name."""
    return path.lower().endswith(_SIDE_SUFFIXES)


def holds_text(path: str) -> bool:
    """Whether a file would be rows of text, which beside images are no shard but say something of these."""
    return isinstance(format_of(path), LinesFormat)
