"""Where bytes live: one small interface over local files, object stores and whatever fsspec reaches."""

from __future__ import annotations

from dataflow.storage.location import join_url, scheme_of, split_url, tidy_url
from dataflow.storage.retry import RetryPolicy
from dataflow.storage.store import Buffer, Entry, Store

__all__ = ["Buffer", "Entry", "RetryPolicy", "Store", "join_url", "open_store", "split_url"]

_OBJECT_SCHEMES = frozenset({"s3", "gs", "az"})


def open_store(url: str, policy: RetryPolicy | None = None) -> Store:
    """Opens what is below a URL. Nothing is contacted before the first read.

    Args:
        url: A path, `file://`, `s3://bucket/prefix`, `gs://`, `az://`, `fsspec+SCHEME://...`, or any other scheme that
            fsspec knows.
        policy: How long to wait and how often to try again; the default suits training.

    Raises:
        OptionError: An empty URL, one with a password in it, or a scheme that nothing here can open.
    """
    url = tidy_url(url)
    scheme = scheme_of(url)
    policy = policy or RetryPolicy()
    if scheme in ("", "file"):
        from dataflow.storage.local import LocalStore

        return LocalStore(url)
    if scheme in _OBJECT_SCHEMES:
        from dataflow.storage.objects import ObjectStore

        return ObjectStore(url, policy)
    from dataflow.storage.filesystem import FilesystemStore

    return FilesystemStore(url, policy)
