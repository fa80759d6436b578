"""Writes the rows of a dataset as files of other formats, in stored order."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from dataflow.dataset import Manifest, read_block
from dataflow.errors import DataflowError, OptionError, StorageError
from dataflow.operations.blocks import OnProgress, in_order
from dataflow.operations.exporters import EXPORTERS, Exporter
from dataflow.operations.target import check_empty
from dataflow.storage import Store, open_store

__all__ = ["Exported", "export"]


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written.

    Attributes:
        url: The folder.
        files: Names of the files in order.
        num_rows: Rows in them.
        num_bytes: Bytes of the files.
    """

    url: str
    files: list[str]
    num_rows: int
    num_bytes: int


def export(
    url: str,
    target: str,
    format: str,
    shard_bytes: int = 256 << 20,
    columns: Sequence[str] | None = None,
    workers: int | None = None,
    on_progress: OnProgress | None = None,
) -> Exported:
    """Writes all rows that are not excluded. Each file appears as a whole; after an error there are none.

    Args:
        url: The dataset.
        target: An empty folder.
        format: "tar" (WebDataset), "parquet" or "jsonl".
        shard_bytes: A file that has reached this size is finished.
        columns: Which columns, in this order; None for all.
        workers: Threads that read; None for what suits the store.
        on_progress: Is told of rows and bytes that were written.

    Raises:
        OptionError: The folder is not empty, an argument makes no sense, or the format cannot hold a value.
        DatasetError: There is no dataset.
        CorruptDataError: A block is damaged.
        StorageError: A store could not be read or written.
    """
    if format not in EXPORTERS:
        raise OptionError(f"format is {format!r}, there are {', '.join(map(repr, EXPORTERS))}")
    if shard_bytes < 1:
        raise OptionError(f"shard_bytes is {shard_bytes}, it must be at least 1")
    manifest = Manifest.open(url)
    names = _check_columns(manifest, columns)
    source, destination = open_store(manifest.base_url), open_store(target)
    for folder in {manifest.url, manifest.base_url}:
        if f"{destination.url}/".startswith(f"{folder}/"):
            raise OptionError(f"{destination.url} lies inside {folder}: export to a folder beside the dataset")
    check_empty(destination)

    def read(block: int) -> pa.RecordBatch:
        return read_block(source, manifest, block).select(names)

    schema = pa.schema([manifest.schema.field(name) for name in names], metadata=manifest.schema.metadata)
    with tempfile.TemporaryDirectory(prefix="dataflow-export-") as folder:
        files = _Files(destination, Path(folder), format, schema, shard_bytes)
        try:
            for block, batch in in_order(manifest, read, workers=workers):
                files.write(batch, int(manifest.first_rows[block]))
                if on_progress is not None:
                    on_progress(batch.num_rows, int(manifest.lengths[block]))
            files.finish()
        except BaseException:
            files.remove()
            raise
    return Exported(destination.url, files.names, manifest.num_rows, files.num_bytes)


class _Files:
    """The files, one after the other.

    Attributes:
        names: Of those that are finished.
        num_bytes: Their bytes.
    """

    def __init__(self, store: Store, folder: Path, format: str, schema: pa.Schema, shard_bytes: int) -> None:
        self.names: list[str] = []
        self.num_bytes = 0
        self._store, self._folder, self._format = store, folder, format
        self._schema, self._shard_bytes = schema, shard_bytes
        self._open: Exporter | None = None

    def write(self, batch: pa.RecordBatch, first_row: int) -> None:
        """Adds rows to the file at hand."""
        if not batch.num_rows:
            return
        with _DiskErrors(self._path):
            if self._open is None:
                self._open = EXPORTERS[self._format](self._path, self._schema)
            self._open.write(batch, first_row)
        if self._open.num_bytes >= self._shard_bytes:
            self.finish()

    def finish(self) -> None:
        """Ends the file at hand, if there is one, and puts it into its place."""
        if self._open is None:
            return
        path = self._path
        with _DiskErrors(path):
            self._open.close()
            self.num_bytes += path.stat().st_size
        self._open = None
        self._store.put_atomic(path.name, path)
        self.names.append(path.name)
        path.unlink()

    def remove(self) -> None:
        """Removes everything, after an error."""
        for name in self.names:
            self._store.delete(name)

    @property
    def _path(self) -> Path:
        return self._folder / f"{len(self.names):05d}.{self._format}"


class _DiskErrors:
    """Says what to do when there is no room for the file at hand."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError) and not isinstance(error, DataflowError):
            raise StorageError(
                f"could not write {self._path}: {error.strerror or error}. Make room there, or set TMPDIR to a folder "
                "that has it"
            ) from error


def _check_columns(manifest: Manifest, columns: Sequence[str] | None) -> list[str]:
    names = list(manifest.schema.names if columns is None else columns)
    unknown = [name for name in names if name not in manifest.schema.names]
    if unknown:
        raise OptionError(f"{manifest.url} has no column {unknown[0]!r}; it has {', '.join(manifest.schema.names)}")
    if not names or len(set(names)) != len(names):
        raise OptionError(f"give one or more different columns, not {names}")
    return names
