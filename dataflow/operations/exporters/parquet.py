"""Parquet files with row groups of some MiB."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dataflow.errors import OptionError
from dataflow.operations.column_types import is_binary

__all__ = ["Parquet"]

_GROUP_BYTES = 32 << 20


class Parquet:
    """A `.parquet` file (an `Exporter`). Bytes are stored as they are, since media are compressed; the rest is zstd."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        binary = {field.name for field in schema if is_binary(field.type)}
        self._file = open(path, "xb")  # noqa: SIM115 - closed by close()
        try:
            self._writer = pq.ParquetWriter(
                self._file,
                schema,
                compression={name: "NONE" if name in binary else "ZSTD" for name in schema.names},
                use_dictionary=[name for name in schema.names if name not in binary],
                write_statistics=[name for name in schema.names if name not in binary],
            )
        except pa.ArrowNotImplementedError as error:
            self._file.close()
            raise OptionError(f"parquet cannot hold these columns: {error}. Leave them out with --columns") from error
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0

    @property
    def num_bytes(self) -> int:
        """About how many bytes there are so far."""
        return self._file.tell() + self._waiting_bytes

    def write(self, batch: pa.RecordBatch, first_row: int) -> None:
        """Adds rows; see `Exporter`."""
        self._waiting.append(batch)
        self._waiting_bytes += batch.nbytes
        if self._waiting_bytes >= _GROUP_BYTES:
            self._write_group()

    def close(self) -> None:
        """Ends the file."""
        if self._waiting:
            self._write_group()
        self._writer.close()
        self._file.close()

    def _write_group(self) -> None:
        table = pa.Table.from_batches(self._waiting)
        self._waiting, self._waiting_bytes = [], 0
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))
