"""Where the bytes of blocks come from: the node's cache or the store, checked as asked."""

from __future__ import annotations

import threading

import pyarrow as pa
import xxhash

from dataflow.dataset.block import decode_block, fetch_block
from dataflow.dataset.manifest import Manifest
from dataflow.errors import OptionError
from dataflow.storage import Buffer, Store
from dataflow.storage.cache import BlockCache, disk_bytes
from dataflow.storage.local import LocalStore
from dataflow.storage.sizes import format_size, parse_size

__all__ = ["BlockSource", "check_verify", "choose_cache"]

_SAMPLING_KEY = 0x9E3779B97F4A7C15
_HASHES = 1 << 64


class BlockSource:
    """Brings blocks, for many threads at once, and counts those that came from the cache.

    Attributes:
        store: Where the shards are.
        hits: Blocks that came from the cache.
        hit_bytes: Their bytes.

    Args:
        store: The store at `manifest.base_url`.
        verify: Share of the blocks whose checksum is compared when they come from the store: always the same ones. With
            a cache it is all of them, since what it keeps has to be right.
        cache: Where blocks are looked for first.
    """

    def __init__(self, store: Store, verify: float = 1.0, cache: BlockCache | None = None) -> None:
        self.store = store
        self.hits = 0
        self.hit_bytes = 0
        self._verify = verify
        self._cache = cache
        self._counting = threading.Lock()

    def uncounted(self) -> BlockSource:
        """The same source with its own counts, from 0."""
        return BlockSource(self.store, self._verify, self._cache)

    def fetch(self, manifest: Manifest, block: int) -> Buffer:
        """The bytes of a block; errors as those of `fetch_block`."""
        if self._cache is None:
            return fetch_block(self.store, manifest, block, self._verifies(block))
        length = int(manifest.lengths[block])
        data, hit = self._cache.read(manifest.checksum(block), length, lambda: fetch_block(self.store, manifest, block))
        if hit:
            with self._counting:
                self.hits += 1
                self.hit_bytes += length
        return data

    def read(self, manifest: Manifest, block: int) -> pa.RecordBatch:
        """The rows of a block: `fetch`, then `decode_block`."""
        return decode_block(manifest, block, self.fetch(manifest, block))

    def _verifies(self, block: int) -> bool:
        if self._verify >= 1:
            return True
        digest = xxhash.xxh3_64_intdigest(block.to_bytes(8, "little"), seed=_SAMPLING_KEY)
        return digest < self._verify * _HASHES


def check_verify(verify: float | bool) -> float:
    """The share of blocks to verify, between 0 and 1.

    Raises:
        OptionError: It is something else.
    """
    if not isinstance(verify, (bool, int, float)) or not 0 <= verify <= 1:
        raise OptionError(f"verify is {verify!r}: give the share of blocks to verify, from 0 to 1, or True or False")
    return float(verify)


def choose_cache(manifest: Manifest, store: Store, folder: str | None, limit: int | str | None) -> BlockCache | None:
    """The cache for a dataset; None if there shall be none, or if the dataset is on a local disk already.

    Raises:
        OptionError: The limit is missing, no size, or too small for the dataset; or the folder cannot be used.
    """
    if folder is None and limit is None:
        return None
    if folder is None or limit is None:
        given, missing = ("cache", "cache_limit") if limit is None else ("cache_limit", "cache")
        raise OptionError(
            f"{given}= needs {missing}=: give both, as in cache='/local/disk/cache', cache_limit='200GiB'"
        )
    cache = BlockCache(folder, parse_size(limit, "cache_limit"))
    if isinstance(store, LocalStore):
        return None
    largest = disk_bytes(int(manifest.lengths.max(initial=0)))
    whole = manifest.num_bytes + manifest.num_blocks * disk_bytes(1)
    least = min(whole, store.concurrency * largest)
    if cache.limit < least:
        raise OptionError(
            f"cache_limit is {format_size(cache.limit)}, {manifest.url} needs at least {least} bytes "
            f"({format_size(least)}): the whole dataset, or the {store.concurrency} blocks of up to "
            f"{format_size(largest)} that may be read at once"
        )
    cache.prepare()
    return cache
