"""The folder that shards are written to: what is there already, and what may be done with it."""

from __future__ import annotations

import re

from dataflow.dataset import Manifest
from dataflow.dataset.manifest_file import MANIFEST_NAME
from dataflow.dataset.target import SIDE_FOLDER, check_target, remove_leftovers
from dataflow.errors import OptionError, StorageNotFoundError
from dataflow.sharding.unfinished import Unfinished, read_unfinished, write_unfinished
from dataflow.storage import open_store

__all__ = ["Target"]

_SHARD = re.compile(r"shard-(\d{5,})\.arrow")


class Target:
    """A folder that is to hold a dataset, or to hold a longer one.

    Attributes:
        store: The folder.
        base: The dataset that shards are added to, None for a new one.
        written: The dataset that a run has written which was killed before it took its notes away.
        unfinished: What the last run has not finished.

    Args:
        url: The folder.
        append: Whether shards are added to a dataset.

    Raises:
        OptionError: Something is there that is in the way, or there is nothing to add to.
    """

    def __init__(self, url: str, append: bool) -> None:
        self.store = open_store(url)
        self.unfinished = read_unfinished(self.store)
        self.written: Manifest | None = None
        self._append = append
        self.base = self._standing() if append or self.unfinished is not None else None
        if self.base is not None and self.unfinished is not None and self.base.fingerprint != self.unfinished.after:
            self.written = self.base
            self.base = self.base.prefix(self.unfinished.after) if self.unfinished.after else None
        else:
            self._check()

    @property
    def first_shard(self) -> int:
        """Number of the first shard that is written: those of the dataset that is there go on."""
        if self.base is None:
            return 0
        last: int = self.base.num_shards - 1
        for shard in range(self.base.num_shards):
            found = _SHARD.fullmatch(self.base.shard_path(shard))
            if found is not None:
                last = max(last, int(found.group(1)))
        return last + 1

    def forget(self) -> None:
        """Takes the dataset that was written for what it is: the run that wrote it was another one.

        Raises:
            OptionError: It is in the way.
        """
        self.base, self.written, self.unfinished = self.written, None, None
        self._check()

    def begin(self, identity: str) -> set[str]:
        """Makes the folder ready for the shards of a plan.

        Returns:
            Names of shards that an earlier run of the same plan has finished.
        """
        mine = Unfinished(identity, "" if self.base is None else self.base.fingerprint)
        first = self.first_shard
        shards: set[str] = set()
        notes: list[str] = []
        for entry in self.store.list():
            found = _SHARD.fullmatch(entry.path)
            if found is not None and int(found[1]) >= first:
                shards.add(entry.path)
            elif entry.path.startswith(f"{SIDE_FOLDER}/"):
                notes.append(entry.path)
        if self.unfinished == mine:
            remove_leftovers(self.store, [])
            return shards
        remove_leftovers(self.store, [*notes, *shards])
        write_unfinished(self.store, mine)
        return set()

    def leave(self) -> None:
        """Leaves nothing behind but finished shards and what is needed to go on from there."""
        remove_leftovers(self.store, [])

    def _standing(self) -> Manifest | None:
        try:
            self.store.entry(MANIFEST_NAME)
        except StorageNotFoundError:
            return None
        return Manifest.open(self.store.url)

    def _check(self) -> None:
        if not self._append:
            check_target(self.store)
        elif self.base is None:
            raise OptionError(f"there is no dataset at {self.store.url} to append to: shard without --append first")
        elif self.base.format != "arrow" or self.base.base_url != self.base.url:
            raise OptionError(
                f"the shards of {self.store.url} are of the format {self.base.format!r} at {self.base.base_url}: Arrow "
                "shards can be added only to Arrow shards that lie beside their manifest. Shard that dataset anew"
            )
