"""Object stores through obstore: S3 and what speaks like it, Google Cloud Storage, Azure."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from dataflow.storage.amazon import amazon_settings
from dataflow.storage.client_module import client_module
from dataflow.storage.location import check_path, check_prefix, check_range, join_url, scheme_of
from dataflow.storage.retry import BeyondEndError, Failure, FailureKind, RetryPolicy, ShortReadError, with_retries
from dataflow.storage.store import Buffer, Entry

__all__ = ["ObjectStore"]

Result = TypeVar("Result")

# Ranges nearer than this share a request; at 25 ms a request is worth more bytes, but those would be thrown away.
_COALESCE_BYTES = 128 << 10
_PART_BYTES = 8 << 20
_PARTS_AT_ONCE = 4


class ObjectStore:
    """The objects below a URL of an object store.

    The client's own retries are off, since they do not cover bodies that end early; `with_retries` covers all.
    """

    concurrency = 64

    def __init__(self, url: str, policy: RetryPolicy) -> None:
        self.url = url
        self._policy = policy
        self._process = -1
        self._client: Any = None

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
        """Exactly `length` bytes from `start`: a view of the client's memory, in one request."""
        check_path(path)
        check_range(path, start, length)
        if length == 0:
            return b""

        def read() -> memoryview:
            data = memoryview(self._connected().get_range(path, start=start, length=length))
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
            pages = self._connected().list(prefix or None, chunk_size=1000)
            return sorted((_entry(item) for page in pages for item in page), key=lambda entry: entry.path)

        return iter(self._run(read, lambda: f"list {self._at(prefix)}"))

    def put_atomic(self, path: str, data: bytes | memoryview | Path) -> None:
        """Writes one object, in parts when it is large; the store shows it when it is complete."""
        check_path(path)

        def write() -> None:
            self._connected().put(path, data, chunk_size=_PART_BYTES, max_concurrency=_PARTS_AT_ONCE)

        self._run(write, lambda: f"write {self._at(path)}")

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
        return with_retries(operation, action, _explain, self._policy, self._disconnect)

    def _connected(self) -> Any:
        # The check of the process is what makes the store usable after a fork. Two threads may both build a client;
        # one of the two is kept.
        if self._client is None or self._process != os.getpid():
            self._client = _new_client(self.url, self._policy)
            self._process = os.getpid()
        return self._client

    def _disconnect(self) -> None:
        self._client = None

    def _check_length(self, path: str, start: int, length: int, received: int) -> None:
        if received == length:
            return
        size = self._connected().head(path)["size"]
        if start + length > size:
            raise BeyondEndError(size)
        raise ShortReadError(length, received)


def _entry(item: dict[str, Any]) -> Entry:
    return Entry(item["path"], item["size"], item["e_tag"] or item["version"] or item["last_modified"].isoformat())


def _new_client(url: str, policy: RetryPolicy) -> Any:
    stores = client_module().store
    client_options: dict[str, Any] = {
        "connect_timeout": timedelta(seconds=policy.idle_seconds),
        "read_timeout": timedelta(seconds=policy.idle_seconds),
        # The total of one request: a slow body is healthy as long as it flows.
        "timeout": timedelta(days=1),
    }
    retry_config = {"max_retries": 0}
    if scheme_of(url) != "s3":
        return stores.from_url(url, client_options=client_options, retry_config=retry_config)
    settings = amazon_settings()
    config: dict[str, Any] = {"region": settings.region, "disable_bulk_delete": True}
    if settings.endpoint:
        config["endpoint"] = settings.endpoint
        client_options["allow_http"] = settings.endpoint.startswith("http://")
    if settings.access_key_id and settings.secret_access_key:
        config["access_key_id"] = settings.access_key_id
        config["secret_access_key"] = settings.secret_access_key
        if settings.session_token:
            config["session_token"] = settings.session_token
    bucket, _, prefix = url[len("s3://") :].partition("/")
    return stores.S3Store(
        bucket, prefix=prefix or None, config=config, client_options=client_options, retry_config=retry_config
    )


_STATUS = re.compile(r"status code: (\d{3}[^:\n]*)")
_CODE = re.compile(r"<Code>([^<]{1,100})</Code>")
_MESSAGE = re.compile(r"<Message>([^<]{1,300})</Message>")
_RETRIED_STATUS = frozenset({408, 429, 500, 502, 503, 504})
_EXPIRED_CODES = frozenset({"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired"})
_PERMANENT_ERRORS = frozenset({"InvalidPathError", "NotSupportedError", "UnknownConfigurationKeyError"})


def _explain(error: Exception) -> Failure:
    """Sorts an error of the client, and keeps of its text only what holds no credentials."""
    if isinstance(error, ShortReadError):
        return Failure(FailureKind.TRANSIENT, str(error))
    if isinstance(error, BeyondEndError):
        return Failure(FailureKind.PERMANENT, str(error))
    text = str(error).partition("\n\nDebug source")[0]
    status_match, code_match, message_match = _STATUS.search(text), _CODE.search(text), _MESSAGE.search(text)
    if status_match is None:
        return _explain_without_status(error, text)
    status = int(status_match[1][:3])
    code = code_match[1] if code_match else ""
    # The rest of the body stays out: a signature error repeats the signed request, session token and all.
    reason = ": ".join(part for part in (status_match[1].strip(), code, message_match and message_match[1]) if part)
    if code in _EXPIRED_CODES or (status == 400 and not code) or status == 401:
        return Failure(FailureKind.EXPIRED, f"{reason}: the credentials have expired or are not valid; renew them")
    if isinstance(error, FileNotFoundError) or status == 404:
        return Failure(FailureKind.MISSING, reason)
    kind = FailureKind.TRANSIENT if status in _RETRIED_STATUS else FailureKind.PERMANENT
    return Failure(kind, reason)


def _explain_without_status(error: Exception, text: str) -> Failure:
    # Query strings go: with Azure they may hold a signature.
    reason = re.sub(r"\?\S*", "", text).strip()
    if "169.254.169.254" in text:
        return Failure(
            FailureKind.PERMANENT, "no credentials: set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY or AWS_PROFILE"
        )
    if isinstance(error, FileNotFoundError):
        return Failure(FailureKind.MISSING, reason)
    if isinstance(error, (OSError, ValueError, TypeError)) or type(error).__name__ in _PERMANENT_ERRORS:
        return Failure(FailureKind.PERMANENT, reason)
    return Failure(FailureKind.TRANSIENT, reason)
