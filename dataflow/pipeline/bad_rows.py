"""Rows that do not decode: an error, or replaced by the next good row of their block and listed."""

from __future__ import annotations

import json
import logging
import os
import threading
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from dataflow.dataset.block import describe_row
from dataflow.dataset.blocks import Blocks
from dataflow.dataset.codec import undecodable
from dataflow.errors import CorruptDataError, DataflowError
from dataflow.sampling.random import SampleKey
from dataflow.storage import join_url, open_store, split_url

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that was replaced.

    Attributes:
        url: The dataset.
        shard: URL of the shard that holds the row.
        block: Number of the block.
        row: Row within the block.
        sample_id: Row within the dataset.
        key: Its value in the column `key`; None where there is none.
        column: The column that does not decode.
        reason: Why not.
    """

    url: str
    shard: str
    block: int
    row: int
    sample_id: int
    key: Any
    column: str
    reason: str


class Ledger:
    """The rows that were replaced so far, each once; written by many threads.

    Args:
        most: Rows that may be replaced; None sets no bound.
        url: A file or object that `save` writes, if any.
    """

    def __init__(self, most: int | None = None, url: str | None = None) -> None:
        self._most = most
        self._url = url
        self._rows: dict[tuple[str, int], BadRow] = {}
        self._saved = -1
        self._pid = os.getpid()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, row: tuple[str, int]) -> bool:
        """Whether a row is listed: the URL of its dataset, and its number there."""
        return row in self._rows

    def add(self, row: BadRow) -> None:
        """Note a row, unless it is there.

        Raises:
            CorruptDataError: It is one too many. The ledger is saved then.
        """
        with self._lock:
            if (row.url, row.sample_id) in self._rows:
                return
            self._rows[row.url, row.sample_id] = row
            count = len(self._rows)
        logger.warning(
            "row %d of block %d (%s) is replaced: column %r %s", row.row, row.block, row.shard, row.column, row.reason
        )
        if self._most is not None and count > self._most:
            self.save()
            raise CorruptDataError(
                f"{count} rows of {row.url} do not decode, max_errors= allows {self._most}. The last: row {row.row} of "
                f"block {row.block} ({row.shard}), column {row.column!r} {row.reason}. loader.ledger() lists all"
                + (f", and so does {self._url}" if self._url else "")
            )

    def save(self) -> None:
        """Write all rows as lines of JSON where that is wanted, unless they are there.

        Raises:
            StorageError: They could not be written.
        """
        entries = self.entries()
        # A process that was forked has rows of its parent, and nothing to add.
        if self._url is None or len(entries) == self._saved or self._pid != os.getpid():
            return
        folder, name = split_url(self._url)
        lines = "".join(json.dumps(entry, ensure_ascii=False) + "\n" for entry in entries)
        open_store(folder).put_atomic(name, lines.encode())
        self._saved = len(entries)

    def entries(self) -> list[dict[str, Any]]:
        """The rows in stored order, JSON-able."""
        with self._lock:
            return [asdict(self._rows[number]) for number in sorted(self._rows)]


class BadRows:
    """What is done with rows that do not decode.

    Args:
        blocks: The rows.
        ledger: Where replaced rows are noted; None raises instead.
    """

    def __init__(self, blocks: Blocks, ledger: Ledger | None) -> None:
        self._blocks = blocks
        self._ledger = ledger

    def describe(self, sample: SampleKey) -> str:
        """Names a sample in messages."""
        manifest = self._blocks.stored(sample.source).manifest
        return describe_row(manifest, sample.block, sample.row, self._key(sample))

    def replace(self, wanted: SampleKey, bad: SampleKey, column: str, reason: str) -> SampleKey:
        """The row to try next in place of a bad one.

        Args:
            wanted: The row that the order names.
            bad: The row that was tried last: `wanted`, or what this returned for it.
            column: The column that does not decode.
            reason: Why not.

        Raises:
            CorruptDataError: Bad rows are not to be replaced, or no row of the block is good.
        """
        if self._ledger is None:
            raise undecodable(self.describe(bad), column, reason)
        self._note(self._ledger, bad, column, reason)
        manifest = self._blocks.stored(bad.source).manifest
        tried = bad._replace(row=(bad.row + 1) % int(manifest.rows[bad.block]))
        if tried.row == wanted.row:
            raise undecodable(self.describe(bad), column, f"{reason}, and no other row of its block can replace it")
        return tried

    def _note(self, ledger: Ledger, bad: SampleKey, column: str, reason: str) -> None:
        manifest = self._blocks.stored(bad.source).manifest
        sample_id = int(manifest.first_rows[bad.block]) + bad.row
        if (manifest.url, sample_id) not in ledger:  # else its key would be looked up in every epoch
            shard = join_url(manifest.base_url, manifest.shard_path(manifest.shard_of(bad.block)))
            key = self._key(bad)
            key = key.decode(errors="replace") if isinstance(key, bytes) else key
            ledger.add(BadRow(manifest.url, shard, bad.block, bad.row, sample_id, key, column, reason))

    def _key(self, sample: SampleKey) -> Any:
        manifest, source = self._blocks.stored(sample.source)
        if "key" in manifest.schema.names:
            with suppress(DataflowError):  # the row's number has to do then
                return source.read(manifest, sample.block).column("key")[sample.row].as_py()
        return None
