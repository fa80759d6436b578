"""A folder of images as a source of rows: the files' bytes as they are, with a label or fields of metadata."""

from __future__ import annotations

import io
from array import array
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from dataflow import _native
from dataflow.cli.sources.folder import Folder, class_numbers, key_text
from dataflow.cli.sources.image_kind import HEAD_BYTES, image_kind, what_else
from dataflow.cli.sources.metadata import METADATA_NAME, read_metadata
from dataflow.cli.sources.read_ahead import read_ahead
from dataflow.errors import CorruptDataError, DatasetError, OptionError, StorageNotFoundError
from dataflow.formats import Skipped
from dataflow.formats.binary import binary_array
from dataflow.sampling.keys import key
from dataflow.storage import Store, join_url

__all__ = ["ImageOptions", "ImageSource"]

# Files that one thread reads at a time: so many that handing them over costs nothing.
_GROUP_FILES = 32
_GROUP_BYTES = 4 << 20
_NAMED = 10


class ImageOptions(NamedTuple):
    """How a folder of images is read.

    Attributes:
        labels: Whether folders are classes, where there is no metadata.
        classes: The list of classes of another dataset, to use instead of the folders' own.
        skip_bad: Whether files that are no images, and images and metadata without each other, are left out instead of
            ending the run.
        decode: Whether every image is decoded to see that it is whole.
    """

    labels: bool = True
    classes: list[str] | None = None
    skip_bad: bool = False
    decode: bool = False


class ImageSource:
    """The images of a folder (a `Source`).

    Columns: `key` (the file's path in the folder), `image` (its bytes, untouched), and `label` (int64), where folders
    are classes, or a column for each field of the metadata.

    Args:
        store: The folder.
        folder: What is in it.
        options: How it is read.

    Raises:
        DatasetError: Images and metadata do not match, or there are no images.
        OptionError: Images are not in folders of classes.
    """

    unit = "images"

    def __init__(self, store: Store, folder: Folder, options: ImageOptions) -> None:
        self._store = store
        self._options = options
        self.properties: dict[str, Any] = {}
        self.skipped = list(folder.skipped)
        self._paths, self._sizes = folder.paths, folder.sizes
        self._columns: pa.RecordBatch | None = None
        if folder.other_metadata:
            raise DatasetError(
                f"{store.url}: {folder.other_metadata[0]} is not read, only {METADATA_NAME} is. Convert or remove it"
            )
        if options.decode:
            _check_pillow()
        if folder.metadata:
            if options.classes is not None:
                raise OptionError("--classes-of is for folders of classes, and this one has metadata: leave it out")
            self._match(folder)
        elif options.labels and (folder.classes or options.classes is not None):
            classes = folder.classes if options.classes is None else options.classes
            labels = class_numbers(store.url, self._paths, classes)
            self._columns = pa.RecordBatch.from_pydict({"label": pa.array(np.frombuffer(labels, np.int64))})
            self.properties["classes"] = [key_text(name) for name in classes]
        self.num_items = len(self._paths)
        self.num_bytes = sum(self._sizes)
        if not self.num_items:
            raise DatasetError(f"no image of {store.url} is left to write")
        columns = [] if self._columns is None else list(self._columns.schema)
        self.schema = pa.schema([pa.field("key", pa.string()), pa.field("image", pa.binary()), *columns])

    def batches(self, seed: int | None, workers: int) -> Iterator[pa.RecordBatch]:
        """All images; see `Source`."""
        if seed is None:
            order = np.arange(self.num_items, dtype=np.int32)
        else:
            order = _native.row_permutation(self.num_items, key(seed, "shard"))
        for batch, bad in read_ahead(self._groups(order), self._read, workers):
            self.skipped += bad
            yield batch

    def _groups(self, order: Any) -> Iterator[tuple[list[int], int]]:
        group: list[int] = []
        nbytes = 0
        for number in map(int, order):
            if group and (len(group) == _GROUP_FILES or nbytes + self._sizes[number] > _GROUP_BYTES):
                yield group, nbytes
                group, nbytes = [], 0
            group.append(number)
            nbytes += self._sizes[number]
        if group:
            yield group, nbytes

    def _read(self, numbers: list[int]) -> tuple[pa.RecordBatch, list[Skipped]]:
        kept: list[int] = []
        images: list[Any] = []
        bad: list[Skipped] = []
        for number in numbers:
            path = self._paths[number]
            try:
                data = self._store.read_range(path, 0, self._sizes[number])
            except StorageNotFoundError as error:
                raise DatasetError(
                    f"{join_url(self._store.url, path)} was there when the folder was listed and is gone now: leave "
                    "the folder alone while it is sharded, and run again"
                ) from error
            problem = self._problem(data)
            if not problem:
                kept.append(number)
                images.append(data)
            elif self._options.skip_bad:
                bad.append(Skipped(path, problem))
            else:
                raise CorruptDataError(
                    f"{join_url(self._store.url, path)} {problem}. Remove or replace it, or give --skip-bad, which "
                    "leaves out and lists all such files"
                )
        arrays = [pa.array([key_text(self._paths[number]) for number in kept], pa.string()), binary_array(images)]
        if self._columns is not None:
            arrays += self._columns.take(pa.array(kept, pa.int64())).columns
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema), bad

    def _problem(self, data: Any) -> str:
        """What is wrong with an image, "" if nothing."""
        head = bytes(data[:HEAD_BYTES])
        if not image_kind(head):
            return what_else(head)
        return _decoding_problem(data) if self._options.decode else ""

    def _match(self, folder: Folder) -> None:
        """Brings images and lines of metadata together: a row for each line."""
        metadata = read_metadata(self._store, folder.metadata)
        sizes = dict(zip(folder.paths, folder.sizes, strict=True))
        lines = [line for line, path in enumerate(metadata.paths) if path in sizes]
        absent = [path for path in metadata.paths if path not in sizes]
        described = set(metadata.paths)
        lonely = [path for path in folder.paths if path not in described]
        if (absent or lonely) and not self._options.skip_bad:
            names = ", ".join(entry.path for entry in folder.metadata)
            raise DatasetError(
                f"{self._store.url}: images and metadata ({names}) do not match: {len(absent)} lines name images that "
                f"are not there{_some(absent)}, {len(lonely)} images have no line{_some(lonely)}. Make them match, or "
                "give --skip-bad, which leaves out both"
            )
        self.skipped += [Skipped(path, "named by metadata, but not there") for path in absent]
        self.skipped += [Skipped(path, "an image without metadata") for path in lonely]
        self._paths = [metadata.paths[line] for line in lines]
        self._sizes = array("q", [sizes[path] for path in self._paths])
        if metadata.fields:
            self._columns = metadata.columns(lines)


def _some(names: Sequence[str]) -> str:
    return f" ({', '.join(names[:_NAMED])}{', ...' if len(names) > _NAMED else ''})" if names else ""


def _check_pillow() -> None:
    try:
        import PIL.Image  # noqa: F401
    except ImportError as error:
        raise OptionError("--decode decodes with Pillow, which is not installed: pip install pillow") from error


def _decoding_problem(data: Any) -> str:
    import PIL.Image

    try:
        with PIL.Image.open(io.BytesIO(data)) as image:
            image.load()
    except Exception as error:  # Pillow's decoders raise all sorts of errors on damaged files
        return f"cannot be decoded ({type(error).__name__}: {error})"
    return ""
