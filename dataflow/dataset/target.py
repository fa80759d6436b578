"""Checks that a folder may become a dataset, so that old and new shards are never mixed."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from dataflow.dataset.manifest_file import MANIFEST_NAME
from dataflow.errors import OptionError
from dataflow.storage import Store
from dataflow.storage.local import LocalStore, is_temporary_name

__all__ = ["PLAN_NAME", "SIDE_FOLDER", "check_target", "prepare_target", "remove_leftovers", "shard_name"]

logger = logging.getLogger(__name__)

#: What a run that makes shards keeps beside them until it has finished.
SIDE_FOLDER = ".sharding"
#: In which it says what it is about to make.
PLAN_NAME = f"{SIDE_FOLDER}/plan.json"

_SHARD = re.compile(r"shard-\d{5,}\.arrow")


def shard_name(number: int) -> str:
    """Name of the shard with that number."""
    return f"shard-{number:05d}.arrow"


def prepare_target(store: Store) -> None:
    """Makes sure that nothing is at the target but what a stopped writer left there, which is removed.

    Raises:
        OptionError: There is a dataset, or something else; says what to do.
    """
    remove_leftovers(store, check_target(store))


def check_target(store: Store) -> list[str]:
    """Returns what a stopped writer left at the target.

    Raises:
        OptionError: There is a dataset, or something else; says what to do.
    """
    leftovers: list[str] = []
    for entry in store.list():
        if entry.path == MANIFEST_NAME:
            raise OptionError(f"{store.url} holds a dataset already. Write to another folder, or delete that one first")
        if not _SHARD.fullmatch(entry.path) and not entry.path.startswith(f"{SIDE_FOLDER}/"):
            raise OptionError(f"{store.url} is not empty: it holds {entry.path!r}. Write to an empty folder")
        leftovers.append(entry.path)
    return leftovers


def remove_leftovers(store: Store, paths: Iterable[str]) -> None:
    """Removes what a stopped writer left, with the files that it was writing when it was stopped."""
    paths = list(paths)
    shards = sum(_SHARD.fullmatch(path) is not None for path in paths)
    if shards:
        logger.warning("%s: removing %d shards of a run that did not finish", store.url, shards)
    # Without their plan shards are never taken for finished ones, so it goes first.
    for path in sorted(paths, key=lambda path: path != PLAN_NAME):
        store.delete(path)
    if isinstance(store, LocalStore):
        root = Path(store.url)
        for folder in (root, root / SIDE_FOLDER):
            # Listings do not show these.
            for file in folder.glob(".*.partial"):
                if is_temporary_name(file.name) and _is_ours(file.name):
                    file.unlink(missing_ok=True)
        with suppress(OSError):  # absent, or still in use
            (root / SIDE_FOLDER).rmdir()


def _is_ours(temporary: str) -> bool:
    name = temporary[1:].rsplit(".", 2)[0]
    return name in (MANIFEST_NAME, "plan.json") or name.startswith("skipped-") or _SHARD.fullmatch(name) is not None
