"""Checks that what is about to be written replaces nothing."""

from __future__ import annotations

from dataflow.dataset.manifest_file import MANIFEST_NAME
from dataflow.errors import OptionError, StorageNotFoundError
from dataflow.storage import Store, join_url

__all__ = ["check_empty", "check_no_dataset"]


def check_no_dataset(store: Store) -> None:
    """Refuses a folder that is a dataset.

    Raises:
        OptionError: There is a manifest.
    """
    try:
        store.entry(MANIFEST_NAME)
    except StorageNotFoundError:
        return
    raise OptionError(
        f"{join_url(store.url, MANIFEST_NAME)} exists already. Write to another folder, or delete it first"
    )


def check_empty(store: Store) -> None:
    """Refuses a folder that holds anything.

    Raises:
        OptionError: It is not empty; names something in it.
    """
    entry = next(iter(store.list()), None)
    if entry is not None:
        raise OptionError(f"{store.url} is not empty: it holds {entry.path!r}. Write to an empty folder")
