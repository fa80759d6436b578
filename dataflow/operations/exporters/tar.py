"""Tar archives as WebDataset reads them: a sample is a run of members that share a key, each with a column's value."""

from __future__ import annotations

import io
import re
import tarfile
from pathlib import Path
from typing import Any

import pyarrow as pa

from dataflow.errors import OptionError
from dataflow.operations.column_types import is_binary, is_text
from dataflow.operations.exporters.json_value import json_text
from dataflow.sharding.image_kind import HEAD_BYTES, IMAGE_SUFFIXES, image_kind

__all__ = ["Tar", "member_key"]

_KEY = "key"
_UNSAFE = re.compile(r"[%\\\x00-\x1f\x7f]")
# What readers take for text, and for an integer.
_TEXT_ENDINGS = frozenset(("cls", "csv", "html", "json", "jsonl", "md", "text", "transcript", "txt", "xml"))
_INTEGER_ENDINGS = frozenset(("cls", "cls2", "class", "count", "id", "index", "inx"))


class Tar:
    """A `.tar` file (an `Exporter`).

    The key is the column `key`, else the row's number. Bytes become a member with the column's name as its ending, text
    is `.txt`, an integer `.cls`, and the rest `.json`, each after the column's name where that does not end so already.
    Images in a column with another name get the ending of their format. What is null has no member.
    """

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        names = [field.name for field in schema if not self._is_key(field)]
        lowered = [name.lower() for name in names]
        if len(set(lowered)) != len(lowered):
            raise OptionError(
                f"endings of names in tars are lower case, so that some of {', '.join(names)} would be the same. Leave "
                "one out with --columns"
            )
        self._tar = tarfile.open(path, "x", format=tarfile.GNU_FORMAT, encoding="utf-8")  # noqa: SIM115 - closed by close()
        self._keys: dict[str, int] = {}

    @property
    def num_bytes(self) -> int:
        """Bytes so far."""
        return self._tar.offset

    def write(self, batch: pa.RecordBatch, first_row: int) -> None:
        """Adds rows; see `Exporter`."""
        columns = [(field, column) for field, column in zip(batch.schema, batch.columns, strict=True)]
        keys = next((column.to_pylist() for field, column in columns if self._is_key(field)), None)
        for place in range(batch.num_rows):
            row = first_row + place
            key = f"{row:09d}" if keys is None else self._check_key(keys[place], row)
            members = [
                _member(field, column[place], row)
                for field, column in columns
                if not self._is_key(field) and column[place].is_valid
            ]
            if not members:
                raise OptionError(f"row {row} ({key!r}) has nothing but nulls, and a tar would not have it at all")
            endings = [ending for ending, _ in members]
            if len(set(endings)) != len(endings):
                raise OptionError(
                    f"row {row} ({key!r}) has two values with the same ending: {', '.join(endings)}. Leave one out "
                    "with --columns"
                )
            for ending, data in members:
                info = tarfile.TarInfo(f"{member_key(key)}.{ending}")
                info.size = len(data)
                self._tar.addfile(info, io.BytesIO(data))

    def close(self) -> None:
        """Ends the file."""
        self._tar.close()

    @staticmethod
    def _is_key(field: pa.Field) -> bool:
        return field.name == _KEY and is_text(field.type)

    def _check_key(self, key: str | None, row: int) -> str:
        """Readers put samples with the same key together, or refuse them."""
        remedy = f"Leave the column {_KEY!r} out with --columns: rows get numbers then"
        if not key:
            raise OptionError(f"row {row} has no key. {remedy}")
        if key in self._keys:
            raise OptionError(
                f"rows {self._keys[key]} and {row} have the same key {key!r}, and would be one sample. {remedy}"
            )
        self._keys[key] = row
        return key


def member_key(key: str) -> str:
    """A key as it can stand in the name of a member: what readers or file systems would misread is %XX, as in URLs.

    That is dots after the last slash, where the endings begin, and all that leads out of a folder.
    """
    *folders, base = _UNSAFE.sub(_escape, key).split("/")
    folders = [folder.replace(".", "%2E") if folder in (".", "..") else folder for folder in folders]
    separator = "/" if base and all(folders) else "%2F"
    return separator.join([*folders, base.replace(".", "%2E")])


def _escape(match: re.Match[str]) -> str:
    return f"%{ord(match[0]):02X}"


def _member(field: pa.Field, value: pa.Scalar, row: int) -> tuple[str, bytes]:
    """Ending and content of the member for a value."""
    name = _UNSAFE.sub(_escape, field.name).replace("/", "%2F").lower()
    last = name.rpartition(".")[2]
    item: Any = value.as_py()
    if is_binary(field.type):
        kind = "" if f".{last}" in IMAGE_SUFFIXES else image_kind(item[:HEAD_BYTES])
        return (f"{name}.{'jpg' if kind == 'jpeg' else kind}" if kind else name), item
    if is_text(field.type):
        return name if last in _TEXT_ENDINGS else f"{name}.txt", item.encode()
    if pa.types.is_integer(field.type):
        return name if last in _INTEGER_ENDINGS else f"{name}.cls", str(item).encode()
    try:
        return name if last == "json" else f"{name}.json", json_text(item).encode()
    except OptionError as error:
        raise OptionError(
            f"row {row}, column {field.name!r}: {error}. Leave the column out with --columns, or export to parquet"
        ) from error
