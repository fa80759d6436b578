"""Object stores through obstore: S3 and what speaks like it, Google Cloud Storage, Azure."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from dataflow.storage.inherited import leave_alone
from dataflow.storage.location import check_path, check_prefix, check_range, join_url
from dataflow.storage.object_client import PART_BYTES, PARTS_AT_ONCE, new_bulk_client, new_read_client, sign
from dataflow.storage.object_errors import explain_object_error
from dataflow.storage.retry import BeyondEndError, RetryPolicy, ShortReadError, with_retries
from dataflow.storage.signed_reads import NotServed, SignedReads
from dataflow.storage.store import Buffer, Entry

__all__ = ["ObjectStore"]

Result = TypeVar("Result")

# Ranges nearer than this share a request; at 25 ms a request is worth more bytes, but those would be thrown away.
_COALESCE_BYTES = 128 << 10


class ObjectStore:
    """The objects below a URL of an object store."""

    concurrency = 128

    def __init__(self, url: str, policy: RetryPolicy) -> None:
        self.url = url
        self._policy = policy
        # One failed part must not repeat an upload, nor one failed page a listing: there the client retries, and one
        # more attempt is left for renewed credentials.
        self._bulk_policy = replace(policy, attempts=2)
        self._process = -1
        self._client: Any = None
        self._signed: Any = None
        self._bulk_client: Any = None

    def __reduce__(self) -> tuple[Callable[..., ObjectStore], tuple[str, RetryPolicy]]:
        return ObjectStore, (self.url, self._policy)

    def entry(self, path: str) -> Entry:
        """Size and version of one object."""
        check_path(path)
        return self._run(lambda: _entry(self._connected().head(path)), lambda: f"look up {self._at(path)}")

    def size(self, path: str) -> int:
        """Bytes of one object."""
        return self.entry(path).size

    def read_range(self, path: str, start: int, length: int) -> Buffer:
        """Exactly `length` bytes from `start`, in one request."""
        check_path(path)
        check_range(path, start, length)
        if length == 0:
            return b""

        def read() -> Buffer:
            client, signed = self._connected(), self._signed
            try:
                data: Buffer = signed.read(path, start, length)
            except NotServed:
                data = memoryview(client.get_range(path, start=start, length=length))
            self._check_length(path, start, length, len(data))
            return data

        return self._run(read, lambda: f"read bytes {start}-{start + length - 1} of {self._at(path)}")

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[Buffer]:
        """One buffer for each (start, length); near ranges share a request."""
        check_path(path)
        for start, length in ranges:
            check_range(path, start, length)
        wanted = [(start, length) for start, length in ranges if length > 0]
        if not wanted:
            return [b""] * len(ranges)
        starts, lengths = [start for start, _ in wanted], [length for _, length in wanted]

        def read() -> Iterator[memoryview]:
            pieces = self._connected().get_ranges(path, starts=starts, lengths=lengths, coalesce=_COALESCE_BYTES)
            views = [memoryview(piece) for piece in pieces]
            for view, start, length in zip(views, starts, lengths, strict=True):
                self._check_length(path, start, length, len(view))
            return iter(views)

        last = max(start + length for start, length in wanted) - 1
        views = self._run(read, lambda: f"read {len(wanted)} ranges in {min(starts)}-{last} of {self._at(path)}")
        return [next(views) if length > 0 else b"" for _, length in ranges]

    def list(self, prefix: str = "") -> Iterator[Entry]:
        """Every object in the folder `prefix` and below, sorted by path."""
        prefix = check_prefix(prefix)

        def read() -> list[Entry]:
            pages = self._connected_bulk().list(prefix or None, chunk_size=1000)
            return sorted((_entry(item) for page in pages for item in page), key=lambda entry: entry.path)

        return iter(self._run_bulk(read, lambda: f"list {self._at(prefix)}"))

    def put_atomic(self, path: str, data: bytes | memoryview | Path) -> None:
        """Writes one object, in parts when it is large; the store shows it when it is complete."""
        check_path(path)

        def write() -> None:
            self._connected_bulk().put(path, data, chunk_size=PART_BYTES, max_concurrency=PARTS_AT_ONCE)

        self._run_bulk(write, lambda: f"write {self._at(path)}")

    def delete(self, path: str) -> None:
        """Removes one object, if it is there."""
        check_path(path)

        def remove() -> None:
            try:
                self._connected().delete(path)
            except FileNotFoundError:
                return  # Some stores say so, S3 does not.

        self._run(remove, lambda: f"delete {self._at(path)}")

    def _at(self, path: str) -> str:
        return join_url(self.url, path) if path else self.url

    def _run(self, operation: Callable[[], Result], action: Callable[[], str]) -> Result:
        return with_retries(operation, action, explain_object_error, self._policy, self._disconnect)

    def _run_bulk(self, operation: Callable[[], Result], action: Callable[[], str]) -> Result:
        return with_retries(operation, action, explain_object_error, self._bulk_policy, self._disconnect)

    def _connected(self) -> Any:
        # Two threads may both build a client; one of the two is kept.
        self._leave_other_process()
        client = self._client
        if client is None:
            client = new_read_client(self.url, self._policy)
            self._signed = SignedReads(lambda path: sign(client, path), self._policy.idle_seconds)
            self._client = client
        return client

    def _connected_bulk(self) -> Any:
        self._leave_other_process()
        client = self._bulk_client
        if client is None:
            client = self._bulk_client = new_bulk_client(self.url, self._policy)
        return client

    def _leave_other_process(self) -> None:
        if self._process != os.getpid():
            leave_alone(self._client, self._bulk_client)
            self._disconnect()
            self._process = os.getpid()

    def _disconnect(self) -> None:
        self._client = self._bulk_client = None

    def _check_length(self, path: str, start: int, length: int, received: int) -> None:
        if received == length:
            return
        size = self._connected().head(path)["size"]
        if start + length > size:
            raise BeyondEndError(size)
        raise ShortReadError(length, received)


def _entry(item: dict[str, Any]) -> Entry:
    return Entry(item["path"], item["size"], item["e_tag"] or item["version"] or item["last_modified"].isoformat())
