"""Checks that a folder may become a dataset, so that old and new shards are never mixed."""

from __future__ import annotations

import logging
import re
from pathlib import Path

from dataflow.dataset.manifest_file import MANIFEST_NAME
from dataflow.errors import OptionError
from dataflow.storage import Store
from dataflow.storage.local import LocalStore

__all__ = ["prepare_target", "shard_name"]

logger = logging.getLogger(__name__)

SHARD = re.compile(r"shard-\d{5,}\.arrow")


def shard_name(number: int) -> str:
    """Name of the shard with that number."""
    return f"shard-{number:05d}.arrow"


def prepare_target(store: Store) -> None:
    """Makes sure that nothing is at the target but what a stopped writer left there, which is removed.

    Raises:
        OptionError: There is a dataset, or something else; says what to do.
    """
    leftovers: list[str] = []
    for entry in store.list():
        if entry.path == MANIFEST_NAME:
            raise OptionError(f"{store.url} holds a dataset already. Write to another folder, or delete that one first")
        if not SHARD.fullmatch(entry.path):
            raise OptionError(f"{store.url} is not empty: it holds {entry.path!r}. Write to an empty folder")
        leftovers.append(entry.path)
    if leftovers:
        logger.warning("%s: removing %d shards of a run that did not finish", store.url, len(leftovers))
    for path in leftovers:
        store.delete(path)
    if isinstance(store, LocalStore):
        # A writer that was killed leaves the file it was at, which listings do not show.
        for file in Path(store.url).glob(".shard-*.arrow.*.partial"):
            file.unlink(missing_ok=True)
