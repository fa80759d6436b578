"""`metadata.jsonl`, `.csv` or `.parquet` as Hugging Face's image folders have them: `file_name` and other fields."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from dataflow.errors import DatasetError
from dataflow.formats import Place, format_of
from dataflow.storage import Entry, Store, join_url

__all__ = ["METADATA_NAMES", "Metadata", "read_metadata"]

METADATA_NAMES = ("metadata.jsonl", "metadata.csv", "metadata.parquet")
_FILE_NAME = "file_name"
# Columns that every image dataset has.
_TAKEN = ("key", "image")
_PIECE_BYTES = 8 << 20
_BLOCK_BYTES = 1 << 20
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
                    f"field {name!r} of the metadata: {error}. Give it values of one type in every line"
                ) from error
            if isinstance(array, pa.ChunkedArray):
                raise DatasetError(f"field {name!r} of the metadata has more than 2 GiB: shard the folder in parts")
            if pa.types.is_null(array.type):
                raise DatasetError(f"field {name!r} of the metadata is null in every line: take it out")
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
        for where, record in _records(store, file):
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


def _records(store: Store, file: Entry) -> Iterator[tuple[str, Any]]:
    """Each row of a file, and where it is."""
    url = join_url(store.url, file.path)
    if not file.path.endswith(".jsonl"):
        for number, record in enumerate(_rows(store, file), 1):
            yield f"{url}, row {number}", record
        return
    for number, line in enumerate(_lines(store, file), 1):
        if not line.strip():
            continue
        where = f"{url}, line {number}"
        try:
            yield where, json.loads(line)
        except ValueError as error:
            raise DatasetError(f"{where}: {error}. Every line has to be one JSON object") from error


def _rows(store: Store, file: Entry) -> Iterator[dict[str, Any]]:
    kind = format_of(file.path)
    assert kind is not None
    index = kind.index(store, file.path, _BLOCK_BYTES)
    for block in index.blocks:
        data = store.read_range(file.path, block.start, block.length)
        batch = kind.read(data, index.schema, Place(block.start, block.rows, block.skip, index.detail))
        yield from batch.to_pylist()


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
