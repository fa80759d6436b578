"""Reads images as rows: the files' bytes as they are, if they are images."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow.codecs.pillow_guard import decoding_problem, load_pillow
from dataflow.errors import CorruptDataError, DatasetError, StorageNotFoundError
from dataflow.formats import Skipped
from dataflow.formats.binary import text_array
from dataflow.formats.format import MAX_BLOCK_BYTES
from dataflow.formats.numeric import numeric_array
from dataflow.sharding.folder import key_text
from dataflow.sharding.image_kind import HEAD_BYTES, image_kind, what_else
from dataflow.sharding.slabs import Slabs
from dataflow.sharding.source import Chunk
from dataflow.storage import Store, join_url
from dataflow.storage.local import LocalStore

__all__ = ["ImagePart", "ImageReader"]

# A chunk ends with a block when it has this size, and in any case at four times as much.
_CHUNK_BYTES = 1 << 20
_MOST_CHUNK_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class ImagePart:
    """Some images.

    Attributes:
        paths: Their files.
        sizes: int64, bytes of each.
        columns: What else their rows have.
    """

    paths: list[str]
    sizes: npt.NDArray[np.int64]
    columns: pa.RecordBatch | None

    def slice(self, start: int, stop: int) -> ImagePart:
        """The images from one number to before another."""
        columns = None if self.columns is None else self.columns.slice(start, stop - start)
        return ImagePart(self.paths[start:stop], self.sizes[start:stop], columns)


class ImageReader:
    """Reads parts of an `ImageSource` (a `Reader`).

    Args:
        store: The folder.
        schema: Columns of a row.
        decode: Whether every image is decoded to see that it is whole.
        skip: Whether files that are no images are left out instead of ending the run.
    """

    def __init__(self, store: Store, schema: pa.Schema, decode: bool, skip: bool) -> None:
        self._store, self._schema, self._decode, self._skip = store, schema, decode, skip
        self._slabs = Slabs(_MOST_CHUNK_BYTES)
        if decode:
            load_pillow()

    def __reduce__(self) -> tuple[Any, ...]:
        return ImageReader, (self._store, self._schema, self._decode, self._skip)

    def chunks(self, part: ImagePart, rows_per_block: int) -> Iterator[Chunk]:
        """Whole blocks, but for large ones; see `Reader`."""
        start = num_bytes = 0
        for number, size in enumerate(part.sizes.tolist()):
            ends = number - start and (
                num_bytes + size > _MOST_CHUNK_BYTES or (number % rows_per_block == 0 and num_bytes >= _CHUNK_BYTES)
            )
            if ends:
                yield Chunk(part.slice(start, number), num_bytes)
                start, num_bytes = number, 0
            num_bytes += size
        if start < len(part.paths):
            yield Chunk(part.slice(start, len(part.paths)), num_bytes)

    def read(self, place: ImagePart) -> tuple[pa.RecordBatch, list[Skipped]]:
        """Reads some images; see `Reader`."""
        sizes = np.where(place.sizes > MAX_BLOCK_BYTES, 0, place.sizes)
        ends = np.cumsum(sizes)
        memory, buffer = self._slabs.take(int(ends[-1]))
        self._fill(place.paths, ends, memory)
        bad: dict[int, Skipped] = {}
        start = 0
        for number, (path, size, end) in enumerate(zip(place.paths, place.sizes.tolist(), ends.tolist(), strict=True)):
            if size > MAX_BLOCK_BYTES:
                problem = ("is too large", f"{size} bytes, the limit of a block is {MAX_BLOCK_BYTES}")
            else:
                problem = self._problem(memory[start:end])
            if problem[0]:
                bad[number] = self._bad(path, *problem)
            start = end
        offsets = np.zeros(len(ends) + 1, np.int32)
        offsets[1:] = ends
        keys = text_array(map(key_text, place.paths))
        images = pa.Array.from_buffers(pa.binary(), len(ends), [None, pa.py_buffer(offsets), buffer], null_count=0)
        columns = [] if place.columns is None else place.columns.columns
        batch = pa.RecordBatch.from_arrays([keys, images, *columns], schema=self._schema)
        if bad:
            batch = batch.take(numeric_array(np.delete(np.arange(batch.num_rows), list(bad))))
        return batch, list(bad.values())

    def describe(self, place: ImagePart) -> str:
        """See `Reader`."""
        return f"{len(place.paths)} images from {join_url(self._store.url, place.paths[0])}"

    def _fill(self, paths: list[str], ends: npt.NDArray[np.int64], memory: memoryview) -> None:
        try:
            if isinstance(self._store, LocalStore):
                self._store.read_files(paths, ends, memory)
                return
            start = 0
            for path, end in zip(paths, ends.tolist(), strict=True):
                memory[start:end] = self._store.read_range(path, 0, end - start)
                start = end
        except StorageNotFoundError as error:
            raise DatasetError(
                f"{error}. It was there when the folder was listed: leave the folder alone while it is sharded, and "
                "run again"
            ) from error

    def _problem(self, data: memoryview) -> tuple[str, str]:
        """What is wrong with an image and how that was seen, "" if nothing."""
        head = bytes(data[:HEAD_BYTES])
        if not image_kind(head):
            return what_else(head)
        return decoding_problem(data) if self._decode else ("", "")

    def _bad(self, path: str, reason: str, note: str) -> Skipped:
        if not self._skip:
            raise CorruptDataError(
                f"{join_url(self._store.url, path)} {reason}{f' ({note})' if note else ''}. Remove or replace it, or "
                "give --on-error skip, which leaves out and lists all such files"
            )
        return Skipped(path, reason, note)
