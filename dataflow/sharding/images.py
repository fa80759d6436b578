"""A folder of images as a source of rows: the files' bytes as they are, with a label or fields of metadata."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow.errors import DatasetError, OptionError
from dataflow.formats import Skipped
from dataflow.formats.binary import text_array
from dataflow.formats.numeric import numeric_array
from dataflow.sharding.folder import Folder, check_no_splits, class_numbers, key_text
from dataflow.sharding.image_reader import ImagePart, ImageReader
from dataflow.sharding.metadata import read_metadata
from dataflow.sharding.options import ShardOptions
from dataflow.sharding.sidecars import read_sidecars
from dataflow.storage import Store

__all__ = ["ImageSource"]

_NAMED = 10
# Offsets of two columns and a label.
_BYTES_BESIDES = 16


class ImageSource:
    """The images of a folder (a `Source`).

    Columns: `key` (the file's path in the folder), `image` (its bytes, untouched), and `label` (int64), where folders
    are classes, or a column for each field of the metadata, or of the files beside the images.

    Args:
        store: The folder.
        folder: What is in it.
        options: How it is read.

    Raises:
        DatasetError: Images and metadata do not match, or there are no images.
        OptionError: Images are not in folders of classes.
    """

    unit = "images"

    def __init__(self, store: Store, folder: Folder, options: ShardOptions) -> None:
        self._store = store
        self.properties: dict[str, Any] = {}
        self.skipped = list(folder.skipped)
        self.identity = folder.identity
        self.concurrency = store.concurrency
        self._paths, self._sizes = folder.paths, folder.sizes
        self._columns: pa.RecordBatch | None = None
        if folder.metadata:
            if options.classes is not None and not options.append:
                raise OptionError("--classes-of is for folders of classes, and this one has metadata: leave it out")
            self._match(folder, options.on_error == "skip")
        else:
            self._describe(folder, options)
        if not self._paths:
            raise DatasetError(f"no image of {store.url} is left to write")
        self.item_bytes = np.frombuffer(self._sizes, np.int64)
        self.item_rows = np.ones(len(self._paths), np.int64)
        besides = sum(map(len, self._paths)) + (0 if self._columns is None else self._columns.nbytes)
        self.row_bytes = (float(self.item_bytes.sum()) + besides) / len(self._paths) + _BYTES_BESIDES
        columns: list[pa.Field] = [] if self._columns is None else list(self._columns.schema)
        self.schema = pa.schema([pa.field("key", pa.string()), pa.field("image", pa.binary()), *columns])
        self.reader = ImageReader(store, self.schema, options.decode, options.on_error == "skip")

    def values(self, column: str) -> pa.Array | None:
        """See `Source`."""
        if column == "key":
            return text_array(map(key_text, self._paths)).cast(pa.large_string())
        if self._columns is None or column not in self._columns.schema.names:
            return None
        return self._columns.column(column)

    def part(self, items: npt.NDArray[np.int64], start: int, stop: int) -> ImagePart:
        """Some images; see `Source`."""
        numbers = items.tolist()
        return ImagePart(
            [self._paths[number] for number in numbers],
            self.item_bytes[items],
            None if self._columns is None else self._columns.take(numeric_array(items)),
        )

    def _describe(self, folder: Folder, options: ShardOptions) -> None:
        """The columns that files beside images and the folders of classes give."""
        columns: dict[str, pa.Array] = read_sidecars(self._store, folder) if folder.beside else {}
        if options.labels and "label" not in columns and (folder.classes or options.classes is not None):
            if options.classes is None:
                check_no_splits(self._store.url, folder.classes)
            classes = folder.classes if options.classes is None else list(options.classes)
            labels = class_numbers(self._store.url, self._paths, classes)
            columns = {"label": numeric_array(np.frombuffer(labels, np.int64))} | columns
            self.properties["classes"] = [key_text(name) for name in classes]
        if columns:
            self._columns = pa.RecordBatch.from_pydict(columns)

    def _match(self, folder: Folder, skip: bool) -> None:
        """Brings images and lines of metadata together: a row for each line."""
        metadata = read_metadata(self._store, folder.metadata)
        sizes = dict(zip(folder.paths, folder.sizes, strict=True))
        lines = [line for line, path in enumerate(metadata.paths) if path in sizes]
        absent = [path for path in metadata.paths if path not in sizes]
        described = set(metadata.paths)
        lonely = [path for path in folder.paths if path not in described]
        if (absent or lonely) and not skip:
            names = ", ".join(entry.path for entry in folder.metadata)
            raise DatasetError(
                f"{self._store.url}: images and metadata ({names}) do not match: {len(absent)} lines name images that "
                f"are not there{_some(absent)}, {len(lonely)} images have no line{_some(lonely)}. Make them match, or "
                "give --on-error skip, which leaves out both"
            )
        self.skipped += [Skipped(path, "named by metadata, but not there") for path in absent]
        self.skipped += [Skipped(path, "an image without metadata") for path in lonely]
        self._paths = [metadata.paths[line] for line in lines]
        self._sizes = array("q", [sizes[path] for path in self._paths])
        if metadata.fields:
            self._columns = metadata.columns(lines)


def _some(names: Sequence[str]) -> str:
    return f" ({', '.join(names[:_NAMED])}{', ...' if len(names) > _NAMED else ''})" if names else ""
