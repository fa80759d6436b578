"""One shard while it is written: a local file whose blocks are hashed on their way to the disk."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import IO

import pyarrow as pa
import xxhash
from pyarrow import ipc

from dataflow.errors import OptionError, StorageError
from dataflow.formats import Block
from dataflow.formats.format import MAX_BLOCK_BYTES
from dataflow.storage import Buffer, Entry, Store, join_url
from dataflow.storage.local import LocalStore, temporary_name

__all__ = ["ShardFile"]

_BUFFER_BYTES = 1 << 16


class ShardFile:
    """A shard on its way.

    Args:
        store: Where it will be published.
        name: Its name there.
        schema: Columns of a row.
        compression: None or "zstd", for whole blocks.
    """

    def __init__(self, store: Store, name: str, schema: pa.Schema, compression: str | None) -> None:
        self.name = name
        self.blocks: list[Block] = []
        self._store = store
        try:
            if isinstance(store, LocalStore):
                # The file lies where it will stay: publishing is a rename instead of a copy.
                folder = Path(store.url)
                folder.mkdir(parents=True, exist_ok=True)
                self._path = folder / temporary_name(name)
                file: IO[bytes] = open(self._path, "xb", buffering=_BUFFER_BYTES)  # noqa: SIM115 - see discard()
            else:
                # It has no name but that of its descriptor: nothing is left of it when the process is killed.
                self._path = Path(tempfile.gettempdir())
                file = tempfile.TemporaryFile(buffering=_BUFFER_BYTES)  # noqa: SIM115 - see discard()
                self._path = Path(f"/proc/self/fd/{file.fileno()}")
        except OSError as error:
            raise self._failure(error) from error
        self._sink = _HashingSink(file, header_bytes=8 + len(schema.serialize()))
        options = ipc.IpcWriteOptions(compression=compression)
        self._writer = ipc.new_file(pa.PythonFile(self._sink, mode="w"), schema, options=options)

    @property
    def num_bytes(self) -> int:
        """Bytes so far."""
        return self._sink.position

    def write(self, batch: pa.RecordBatch) -> None:
        """Writes one block.

        Raises:
            OptionError: The block is too large.
            StorageError: The disk is full or failed.
        """
        start = max(self._sink.position, self._sink.header_bytes)
        self._sink.checksum.reset()
        try:
            self._writer.write_batch(batch)
        except OSError as error:
            raise self._failure(error) from error
        length = self._sink.position - start
        if length > MAX_BLOCK_BYTES:
            raise OptionError(
                f"{batch.num_rows} rows make a block of {length} bytes, more than the limit of {MAX_BLOCK_BYTES}. Give "
                "smaller block_bytes, or split these rows"
            )
        self.blocks.append(Block(start, length, batch.num_rows, self._sink.checksum.digest()))

    def publish(self) -> Entry:
        """Finishes the shard and puts it under its name; returns what the store says of it.

        Raises:
            StorageError: It could not be written or put.
        """
        try:
            self._writer.close()
            self._sink.file.flush()
            if isinstance(self._store, LocalStore):
                os.fsync(self._sink.file.fileno())
                os.replace(self._path, Path(self._store.url) / self.name)
            else:
                self._store.put_atomic(self.name, self._path)
        except StorageError:
            raise
        except OSError as error:
            raise self._failure(error) from error
        finally:
            self.discard()
        return self._store.entry(self.name)

    def discard(self) -> None:
        """Removes the local file, if it is still there."""
        if isinstance(self._store, LocalStore):
            self._path.unlink(missing_ok=True)
        with suppress(OSError):  # closing writes what is buffered, which a full disk refuses: it is thrown away
            self._sink.file.close()

    def _failure(self, error: OSError) -> StorageError:
        done = f" after {self.num_bytes} bytes" if hasattr(self, "_sink") else ""
        local = isinstance(self._store, LocalStore)
        where = f"{self._path}: " if local else f"in {tempfile.gettempdir()}: "
        room = "" if local else ", or set TMPDIR to a folder that has room"
        return StorageError(
            f"could not write {join_url(self._store.url, self.name)}: {where}{error.strerror or error}{done}. "
            f"Make room there{room}"
        )


class _HashingSink:
    """The file object that pyarrow writes to: hashes what passes, except the header before the first block."""

    closed = False

    def __init__(self, file: IO[bytes], header_bytes: int) -> None:
        self.file = file
        self.header_bytes = header_bytes
        self.position = 0
        self.checksum = xxhash.xxh3_128()

    def write(self, data: Buffer) -> int:
        length = len(data)
        if self.position >= self.header_bytes:
            self.checksum.update(data)
        elif self.position + length > self.header_bytes:
            raise RuntimeError(f"pyarrow wrote a header that is not the {self.header_bytes} bytes that it announced")
        self.file.write(data)
        self.position += length
        return length

    def tell(self) -> int:
        return self.position

    def flush(self) -> None:
        """What is buffered goes to the disk when the shard is finished."""

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        """The file is closed by its owner."""
