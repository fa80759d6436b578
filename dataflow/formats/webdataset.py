"""WebDataset shards: tar archives in which neighbouring members that share a key are one sample.

A member's name is split at the first dot of its base name: `train.v1/0001.seg.PNG` is the value `seg.png` of the
sample `train.v1/0001`. Directories stay in the key, a key is always text, extensions are lower-cased. Bytes of a name
that are not UTF-8 appear as `%XX` in keys and columns (a percent sign that is really there stays as it is).
"""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import xxhash

from dataflow.errors import CorruptDataError, DatasetError
from dataflow.formats.binary import binary_array
from dataflow.formats.format import MAX_BLOCK_BYTES, Block, Place, ShardIndex, Skipped
from dataflow.formats.tar import Member, read_member
from dataflow.formats.window import WINDOW_BYTES, Window
from dataflow.storage import join_url

if TYPE_CHECKING:
    from dataflow.storage import Buffer, Store

__all__ = ["WebDatasetFormat", "split_name"]

KEY = "key"
# More columns than this come from dots in names that were not meant as extensions.
MAX_COLUMNS = 256


class WebDatasetFormat:
    """Rows have the column `key` (string) and a binary column per extension, null where a sample has none."""

    name = "webdataset"
    suffixes = (".tar",)

    def index(self, store: Store, path: str, block_bytes: int, skip_bad: bool = False) -> ShardIndex:
        """See `Format.index`. A block is a run of whole samples, cut where it comes nearest to `block_bytes`.

        Of a sample with a bad member nothing is left, and nothing of what follows a damaged header. The last sample
        before that may lack members, and is left out, too.
        """
        url = join_url(store.url, path)
        window = Window(store, path)
        try:
            return _index_sound(window, block_bytes) if skip_bad else _Indexer(window, block_bytes).run()
        except CorruptDataError as error:
            raise CorruptDataError(f"{url}: {error}") from error
        except DatasetError as error:
            raise DatasetError(f"{url}: {error}") from error

    def read(self, data: Buffer, schema: pa.Schema, place: Place) -> pa.RecordBatch:
        """See `Format.read`. Extensions that `schema` lacks are left out."""
        view = memoryview(data)
        end = len(view)
        keys: list[str] = []
        values: dict[str, list[memoryview | None]] = {name: [] for name in schema.names if name != KEY}
        columns = list(values.values())
        current: str | None = None

        def read(start: int, length: int) -> memoryview:
            return view[start : start + length]

        offset = 0
        while offset < end:
            member = read_member(read, offset, end, verify=False)
            if member is None:
                raise CorruptDataError(f"an end-of-archive mark at offset {offset} of the block")
            offset = member.end
            if member.special:
                continue
            split = split_name(_text(member.name))
            if split is None:
                continue
            key, extension = split
            if key != current:
                current = key
                keys.append(key)
                for column in columns:
                    column.append(None)
            if extension in values:
                values[extension][-1] = view[member.data : member.data + member.size]
        arrays = [_key_column(keys) if name == KEY else binary_array(values[name]) for name in schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def merge(self, first: pa.Schema, second: pa.Schema) -> pa.Schema:
        """See `Format.merge`. The union of the extensions: a sample that lacks one has a null there."""
        return _schema({*first.names, *second.names} - {KEY})


def split_name(name: str) -> tuple[str, str] | None:
    """Splits a member's name into key and extension, or returns None where it is no part of a sample."""
    base = name.rfind("/") + 1
    dot = name.find(".", base)
    # A name that starts with a dot is hidden: `._x.jpg` of macOS, `.DS_Store`.
    if dot <= base or dot + 1 == len(name):
        return None
    return name[:dot], name[dot + 1 :].lower()


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        escaped = raw.decode("utf-8", "surrogateescape")
        return re.sub("[\udc80-\udcff]", lambda match: f"%{ord(match[0]) - 0xDC00:02X}", escaped)


def _key_column(keys: list[str]) -> pa.StringArray:
    return binary_array([key.encode() for key in keys]).view(pa.string())


def _schema(extensions: set[str]) -> pa.Schema:
    return pa.schema([pa.field(KEY, pa.string()), *(pa.field(name, pa.binary()) for name in sorted(extensions))])


def _index_sound(window: Window, block_bytes: int) -> ShardIndex:
    """Indexes what is sound. If not all is that takes two passes: a sample may turn out bad long after its start."""
    first = _Indexer(window, block_bytes, skip_bad=True)
    found = first.run()
    if not first.bad and first.damage is None:
        return found
    found = _Indexer(window, block_bytes, left_out=first.bad.keys(), end=first.end_offset).run()
    return replace(found, skipped=[*found.skipped, *first.bad.values(), *([first.damage] if first.damage else [])])


class _Indexer:
    """One pass over one archive.

    Args:
        window: The archive.
        block_bytes: Wanted size of a block.
        skip_bad: Note bad samples and damage instead of raising. What is found is of use if there are none.
        left_out: Keys of samples that are left out.
        end: Where to stop, if not at the end-of-archive mark.

    Attributes:
        bad: Bad samples by key.
        damage: Where and why the pass ended before the end of the archive.
        end_offset: Offset of the damage.
    """

    def __init__(
        self,
        window: Window,
        block_bytes: int,
        skip_bad: bool = False,
        left_out: AbstractSet[str] = frozenset(),
        end: int | None = None,
    ) -> None:
        self.window = window
        self.block_bytes = block_bytes
        self.skip_bad = skip_bad
        self.left_out = left_out
        self.bad: dict[str, Skipped] = {}
        self.damage: Skipped | None = None
        self.end_offset = end
        self.blocks: list[Block] = []
        self.skipped: list[Skipped] = []
        self.extensions: set[str] = set()
        self.keys: dict[str, int] = {}  # where each sample starts: a key that comes back is an error
        self.members: dict[str, int] = {}  # extension -> offset, of the sample at hand
        self.key: str | None = None
        self.start = self.end = self.rows = 0  # the block at hand
        self.checksum = xxhash.xxh3_128()

    def run(self) -> ShardIndex:
        offset = 0
        while offset != self.end_offset:
            member = self._member(offset)
            if member is None:
                break
            self._add(member)
            offset = member.end
        self._close_block()
        return ShardIndex(self.blocks, _schema(self.extensions), self.skipped)

    def _member(self, offset: int) -> Member | None:
        """The member at an offset, None where the archive ends."""
        size = self.window.size
        try:
            if offset >= size:
                raise CorruptDataError(
                    f"cut off: no end-of-archive mark after {size} bytes. Write or copy the tar again; if it is known "
                    "to be whole, append 1024 zero bytes to it"
                )
            member = read_member(self.window.read, offset, size)
            if member is None:
                self._check_rest(offset)
        except CorruptDataError as error:
            if not self.skip_bad:
                raise
            self.damage = Skipped(f"everything after offset {offset}", "damaged or cut off", str(error))
            self.end_offset = offset
            if self.key is not None:
                self._refuse(self.key, CorruptDataError("members of it may have been in what is damaged behind it"))
            return None
        return member

    def _refuse(self, key: str, error: CorruptDataError | DatasetError) -> None:
        """Raises an error about a sample, or notes it."""
        if not self.skip_bad:
            raise error
        self.bad.setdefault(key, Skipped(f"sample {key!r} at offset {self.keys[key]}", "a damaged sample", str(error)))

    def _add(self, member: Member) -> None:
        name = _text(member.name)
        split = None if member.special else split_name(name)
        if split is None:
            self.skipped.append(Skipped(name, _reason(member, name)))
            return
        key, extension = split
        if key in self.left_out:
            self._close_block()
            return
        if key != self.key:
            self._start_sample(key, member)
        self._check_member(key, member, name, extension)
        self.members[extension] = member.start
        self.extensions.add(extension)
        if len(self.extensions) > MAX_COLUMNS:
            raise DatasetError(
                f"more than {MAX_COLUMNS} different extensions up to {name!r}. Names are split at their first dot: "
                "rename the members so that keys have no dots"
            )
        self.window.update(self.checksum, self.end, member.end)
        self.end = member.end
        if self.end - self.start > MAX_BLOCK_BYTES:
            raise DatasetError(
                f"the samples up to {name!r} make a block of {self.end - self.start} bytes, more than the limit of "
                f"{MAX_BLOCK_BYTES}. Split this sample, or give smaller block_bytes"
            )

    def _start_sample(self, key: str, member: Member) -> None:
        if key in self.keys:
            error = CorruptDataError(
                f"sample {key!r} starts at offset {self.keys[key]} and again, after others, at {member.start}. Members "
                "of a sample must be neighbours with a key of their own: pack the tar again (`tar --sort=name`)"
            )
            self._refuse(key, error)
        self.keys.setdefault(key, member.start)
        self.members.clear()
        self.key = key
        length = self.end - self.start
        # Closed where half an average sample more would pass the wanted size, or where much that is no sample follows.
        if self.rows and (
            length + length / self.rows / 2 >= self.block_bytes or member.start - self.end > WINDOW_BYTES
        ):
            self._close_block()
        if not self.rows:
            self.start = self.end = member.start
        self.rows += 1

    def _check_member(self, key: str, member: Member, name: str, extension: str) -> None:
        error: CorruptDataError | DatasetError | None = None
        if extension == KEY:
            error = DatasetError(
                f"member {name!r} at offset {member.start}: the column {KEY!r} is the sample's key. Rename the member"
            )
        elif extension in self.members:
            error = CorruptDataError(
                f"sample {key!r} has {extension!r} twice, at offsets {self.members[extension]} and "
                f"{member.start} ({name!r}). Pack the tar again with one member a value"
            )
        elif member.size == 0:
            error = CorruptDataError(
                f"member {name!r} at offset {member.start} has no bytes. Pack the tar again without it or with its data"
            )
        if error is not None:
            self._refuse(key, error)

    def _close_block(self) -> None:
        if self.rows:
            self.blocks.append(Block(self.start, self.end - self.start, self.rows, self.checksum.digest()))
        self.rows = 0
        self.start = self.end
        self.checksum.reset()

    def _check_rest(self, offset: int) -> None:
        """Behind the mark may be padding, and nothing else."""
        while offset < self.window.size:
            piece = self.window.read(offset, WINDOW_BYTES)
            if bytes(piece).strip(b"\0"):
                raise CorruptDataError(
                    f"data follows the end-of-archive mark, after offset {offset}: several archives in one? Unpack "
                    "with `tar --ignore-zeros` and pack again, or keep one archive a file"
                )
            offset += len(piece)


def _reason(member: Member, name: str) -> str:
    base = name[name.rfind("/") + 1 :]
    if member.special:
        return member.special
    if base.startswith("._"):
        return "metadata of macOS (AppleDouble)"
    if base.startswith("."):
        return "a hidden file"
    return "a name without an extension"
