"""`metadata.jsonl` as Hugging Face's image folders have it: one JSON object a line, `file_name` and other fields."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from dataflow.errors import DatasetError
from dataflow.storage import Entry, Store, join_url

__all__ = ["METADATA_NAME", "Metadata", "read_metadata"]

METADATA_NAME = "metadata.jsonl"
_FILE_NAME = "file_name"
# Columns that every image dataset has.
_TAKEN = ("key", "image")
_PIECE_BYTES = 8 << 20
_MAX_LINE_BYTES = 64 << 20


@dataclass(slots=True)
class Metadata:
    """The lines of all metadata files.

    Attributes:
        paths: The image that each line is about, relative to the source.
        fields: The other fields: a value for each line, None where the line lacks it.
    """

    paths: list[str] = field(default_factory=list)
    fields: dict[str, list[Any]] = field(default_factory=dict)

    def columns(self, lines: Sequence[int]) -> pa.RecordBatch:
        """The fields of some lines as columns.

        Raises:
            DatasetError: A field has values of different types, or none at all.
        """
        arrays: dict[str, pa.Array] = {}
        for name, values in self.fields.items():
            try:
                array = pa.array([values[line] for line in lines])
            except (pa.ArrowException, OverflowError) as error:
                raise DatasetError(
                    f"field {name!r} of {METADATA_NAME}: {error}. Give it values of one type in every line"
                ) from error
            if isinstance(array, pa.ChunkedArray):
                raise DatasetError(f"field {name!r} of {METADATA_NAME} has more than 2 GiB: shard the folder in parts")
            if pa.types.is_null(array.type):
                raise DatasetError(f"field {name!r} of {METADATA_NAME} is null in every line: take it out")
            arrays[name] = array
        return pa.RecordBatch.from_pydict(arrays)


def read_metadata(store: Store, files: Sequence[Entry]) -> Metadata:
    """Reads metadata files; names in them are relative to the folder that each is in.

    Raises:
        DatasetError: A line is no JSON object with a `file_name`; names file and line.
    """
    metadata = Metadata()
    for file in files:
        folder = posixpath.dirname(file.path)
        for number, line in enumerate(_lines(store, file), 1):
            if not line.strip():
                continue
            where = f"{join_url(store.url, file.path)}, line {number}"
            try:
                record = json.loads(line)
            except ValueError as error:
                raise DatasetError(f"{where}: {error}. Every line has to be one JSON object") from error
            if not isinstance(record, dict) or not isinstance(record.get(_FILE_NAME), str):
                raise DatasetError(f"{where}: there is no {_FILE_NAME!r}. Every line has to name its image")
            taken = next((name for name in _TAKEN if name in record), None)
            if taken is not None:
                raise DatasetError(f"{where}: the column {taken!r} is made from the image's file. Rename that field")
            metadata.paths.append(posixpath.normpath(posixpath.join(folder, record.pop(_FILE_NAME))))
            for name, value in record.items():
                known = metadata.fields.setdefault(name, [])
                known.extend([None] * (len(metadata.paths) - 1 - len(known)))
                known.append(value)
    for values in metadata.fields.values():
        values.extend([None] * (len(metadata.paths) - len(values)))
    return metadata


def _lines(store: Store, file: Entry) -> Iterator[bytes]:
    rest = b""
    for start in range(0, file.size, _PIECE_BYTES):
        *lines, rest = (rest + bytes(store.read_range(file.path, start, min(_PIECE_BYTES, file.size - start)))).split(
            b"\n"
        )
        yield from lines
        if len(rest) > _MAX_LINE_BYTES:
            raise DatasetError(f"{join_url(store.url, file.path)} has a line of more than {_MAX_LINE_BYTES} bytes")
    yield rest
