"""The nearest folder that holds several folders, by their URLs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from dataflow.errors import OptionError

__all__ = ["common_base"]


def common_base(urls: Sequence[str]) -> tuple[str, list[str]]:
    """The folder that all URLs lie in, and the path of each below it ("" where it is the folder itself).

    Args:
        urls: At least one, as stores write theirs: absolute paths, or `scheme://authority/path`.

    Raises:
        OptionError: They lie in different stores; names two of them.
    """
    stores = [_store(url) for url in urls]
    for url, store in zip(urls, stores, strict=True):
        if store != stores[0]:
            raise OptionError(
                f"{urls[0]} and {url} lie in different stores, and a manifest has one base for all its shards: copy "
                "one of them into the other's store first"
            )
    parts = [[part for part in url[len(stores[0]) :].split("/") if part] for url in urls]
    shared = [column[0] for column in takewhile(lambda column: len(set(column)) == 1, zip(*parts, strict=False))]
    base = "/".join([stores[0].rstrip("/"), *shared]) or "/"
    return base, ["/".join(path[len(shared) :]) for path in parts]


def _store(url: str) -> str:
    """What no path leads out of: scheme and bucket, or the root of the local disk."""
    scheme, separator, rest = url.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}" if separator else "/"
