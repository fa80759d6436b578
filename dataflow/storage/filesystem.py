"""Everything else, through fsspec: slower than the stores beside it, but with a great many schemes."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from dataflow.errors import OptionError
from dataflow.storage.inherited import leave_alone
from dataflow.storage.local import is_temporary_name, temporary_name
from dataflow.storage.location import check_path, check_prefix, check_range, join_url, scheme_of
from dataflow.storage.retry import BeyondEndError, Failure, FailureKind, RetryPolicy, ShortReadError, with_retries
from dataflow.storage.store import Buffer, Entry

__all__ = ["FilesystemStore"]

Result = TypeVar("Result")

_PREFIX = "fsspec+"
# What these write appears when it is complete. Elsewhere a temporary file is written and moved.
_OBJECT_SCHEMES = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oss"})
_VERSION_KEYS = ("ETag", "etag", "e_tag", "mtime", "LastModified", "last_modified", "updated", "modified", "created")


class FilesystemStore:
    """The files below a URL of fsspec.

    Only S3 has an idle timeout here: fsspec has none of its own, and each implementation names it differently.
    """

    concurrency = 16

    def __init__(self, url: str, policy: RetryPolicy) -> None:
        import fsspec

        self.url = url
        self._target = url.removeprefix(_PREFIX)
        self._scheme = scheme_of(self._target)
        self._policy = policy
        self._process = -1
        self._filesystem: Any = None
        self._root = ""
        if self._scheme not in fsspec.available_protocols():
            raise OptionError(
                f"nothing can open {self._scheme}:// in {url!r}: use a path, s3://, gs://, az:// or fsspec's"
            )

    def __reduce__(self) -> tuple[Callable[..., FilesystemStore], tuple[str, RetryPolicy]]:
        return FilesystemStore, (self.url, self._policy)

    def entry(self, path: str) -> Entry:
        """Size and version of one file."""
        check_path(path)

        def look() -> Entry:
            filesystem = self._connected()
            information = filesystem.info(self._locate(path))
            if information["type"] != "file":
                raise FileNotFoundError(f"it is a {information['type']}, not a file")
            return _entry(path, information)

        return self._run(look, lambda: f"look up {self._at(path)}")

    def size(self, path: str) -> int:
        """Bytes of one file."""
        return self.entry(path).size

    def read_range(self, path: str, start: int, length: int) -> Buffer:
        """Exactly `length` bytes from `start`."""
        check_path(path)
        check_range(path, start, length)
        if length == 0:
            return b""

        def read() -> bytes:
            filesystem = self._connected()
            name = self._locate(path)
            data: bytes = filesystem.cat_file(name, start=start, end=start + length)
            if len(data) != length:
                size = filesystem.info(name)["size"]
                raise BeyondEndError(size) if start + length > size else ShortReadError(length, len(data))
            return data

        return self._run(read, lambda: f"read bytes {start}-{start + length - 1} of {self._at(path)}")

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[Buffer]:
        """One buffer for each (start, length), each with a request of its own."""
        return [self.read_range(path, start, length) for start, length in ranges]

    def list(self, prefix: str = "") -> Iterator[Entry]:
        """Every file in the folder `prefix` and below, sorted by path."""
        prefix = check_prefix(prefix)

        def read() -> list[Entry]:
            filesystem = self._connected()
            folder = self._locate(prefix) if prefix else self._root
            try:
                found = filesystem.find(folder, detail=True)
            except FileNotFoundError:
                return []
            start = len(self._root.rstrip("/")) + 1
            entries = [
                _entry(name[start:], information)
                for name, information in found.items()
                if name != folder and not is_temporary_name(name.rpartition("/")[2])
            ]
            return sorted(entries, key=lambda entry: entry.path)

        return iter(self._run(read, lambda: f"list {self._at(prefix)}"))

    def put_atomic(self, path: str, data: bytes | memoryview | Path) -> None:
        """Writes one file; as atomic as an upload is in an object store, and as a move is elsewhere."""
        check_path(path)

        def write() -> None:
            filesystem = self._connected()
            target = self._locate(path)
            if self._scheme in _OBJECT_SCHEMES:
                _write(filesystem, target, data)
                return
            folder, _, name = target.rpartition("/")
            temporary = f"{folder}/{temporary_name(name)}"
            filesystem.makedirs(folder, exist_ok=True)
            try:
                _write(filesystem, temporary, data)
                filesystem.mv(temporary, target)
            except BaseException:
                if filesystem.exists(temporary):
                    filesystem.rm_file(temporary)
                raise

        self._run(write, lambda: f"write {self._at(path)}")

    def delete(self, path: str) -> None:
        """Removes one file, if it is there."""
        check_path(path)

        def remove() -> None:
            try:
                self._connected().rm_file(self._locate(path))
            except FileNotFoundError:
                return

        self._run(remove, lambda: f"delete {self._at(path)}")

    def _at(self, path: str) -> str:
        return join_url(self.url, path) if path else self.url

    def _locate(self, path: str) -> str:
        return join_url(self._root, path)

    def _run(self, operation: Callable[[], Result], action: Callable[[], str]) -> Result:
        return with_retries(operation, action, _explain, self._policy, self._disconnect)

    def _connected(self) -> Any:
        if self._process != os.getpid():
            leave_alone(self._filesystem)
            self._filesystem = None
            self._process = os.getpid()
        filesystem = self._filesystem
        if filesystem is None:
            filesystem = self._filesystem = self._new_filesystem()
        return filesystem

    def _new_filesystem(self) -> Any:
        import fsspec.core

        # Never one out of fsspec's own cache: its event loop and connections would cross a fork.
        options: dict[str, Any] = {"skip_instance_cache": True, "use_listings_cache": False}
        if self._scheme in ("s3", "s3a"):
            seconds = self._policy.idle_seconds
            options["config_kwargs"] = {
                "read_timeout": seconds,
                "connect_timeout": seconds,
                "retries": {"total_max_attempts": 1},
                "max_pool_connections": self.concurrency,
            }
        filesystem, self._root = fsspec.core.url_to_fs(self._target, **options)
        if self._scheme in ("s3", "s3a"):
            filesystem.retries = 1
        return filesystem

    def _disconnect(self) -> None:
        self._filesystem = None


def _write(filesystem: Any, target: str, data: bytes | memoryview | Path) -> None:
    if isinstance(data, Path):
        filesystem.put_file(os.fspath(data), target)
    else:
        filesystem.pipe_file(target, bytes(data))


def _entry(path: str, information: dict[str, Any]) -> Entry:
    version = next((information[key] for key in _VERSION_KEYS if information.get(key) is not None), "")
    return Entry(path, information["size"], f"{version}-{information['size']}")


_PERMANENT_TYPES = (
    PermissionError,
    IsADirectoryError,
    NotADirectoryError,
    FileExistsError,
    NotImplementedError,
    ImportError,
    ValueError,
    TypeError,
)
_PERMANENT_NUMBERS = frozenset({errno.EINVAL, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ENAMETOOLONG, errno.E2BIG})
_NO_CREDENTIALS = frozenset({"NoCredentialsError", "PartialCredentialsError", "ProfileNotFound"})
_EXPIRED = re.compile(r"ExpiredToken|TokenRefreshRequired|RequestExpired|token .{0,40}expired", re.IGNORECASE)


def _explain(error: Exception) -> Failure:
    """Sorts an error of an fsspec implementation; those have no family of their own."""
    if isinstance(error, ShortReadError):
        return Failure(FailureKind.TRANSIENT, str(error))
    if isinstance(error, BeyondEndError):
        return Failure(FailureKind.BEYOND_END, str(error))
    # The first line without query strings: signatures live there.
    reason = re.sub(r"\?\S*", "", f"{type(error).__name__}{_service_code(error)}: {error}".partition("\n")[0])[:500]
    if isinstance(error, FileNotFoundError):
        return Failure(FailureKind.MISSING, reason)
    if _EXPIRED.search(reason):
        return Failure(FailureKind.EXPIRED, f"{reason}: the credentials have expired or are not valid, renew them")
    if "InvalidRange" in _service_code(error):
        return Failure(FailureKind.BEYOND_END, reason)
    hopeless = isinstance(error, _PERMANENT_TYPES) or type(error).__name__ in _NO_CREDENTIALS
    if hopeless or getattr(error, "errno", None) in _PERMANENT_NUMBERS:
        return Failure(FailureKind.PERMANENT, reason)
    return Failure(FailureKind.TRANSIENT, reason)


def _service_code(error: Exception) -> str:
    """The error code of S3, such as SlowDown, which s3fs leaves in the exception below its own."""
    response = getattr(error.__cause__, "response", None)
    code = response.get("Error", {}).get("Code") if isinstance(response, dict) else None
    return f" ({code})" if code else ""
