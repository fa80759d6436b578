"""JSON lines: an object a row."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from dataflow.errors import OptionError
from dataflow.operations.exporters.json_value import json_text

__all__ = ["JsonLines"]


class JsonLines:
    """A `.jsonl` file (an `Exporter`): UTF-8, a line feed after each row, null for what is null."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._file = open(path, "xb")  # noqa: SIM115 - closed by close()
        self._keys = [json_text(name) for name in schema.names]

    @property
    def num_bytes(self) -> int:
        """Bytes so far."""
        return self._file.tell()

    def write(self, batch: pa.RecordBatch, first_row: int) -> None:
        """Adds rows; see `Exporter`."""
        columns = [column.to_pylist() for column in batch.columns]
        for row, values in enumerate(zip(*columns, strict=True), first_row):
            fields = []
            for name, key, value in zip(batch.schema.names, self._keys, values, strict=True):
                try:
                    fields.append(f"{key}: {json_text(value)}")
                except OptionError as error:
                    raise OptionError(
                        f"row {row}, column {name!r}: {error}. Leave the column out with --columns, or export to "
                        "parquet"
                    ) from error
            self._file.write(f"{{{', '.join(fields)}}}\n".encode())

    def close(self) -> None:
        """Ends the file."""
        self._file.close()
