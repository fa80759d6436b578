"""What a run that makes shards keeps beside them until it has finished, so that the next one can go on from there."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from dataflow.dataset.target import PLAN_NAME, SIDE_FOLDER, remove_leftovers
from dataflow.errors import StorageNotFoundError
from dataflow.formats import Skipped
from dataflow.storage import Store

__all__ = [
    "Unfinished",
    "finish",
    "load_skipped",
    "read_unfinished",
    "save_skipped",
    "write_unfinished",
]

_MOST_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Unfinished:
    """What a run is about to make. It is written before the first shard.

    Attributes:
        identity: Names its plan: shards with the names of the plan are finished ones of it.
        after: Fingerprint of the dataset that it adds shards to, "" if it makes a new one.
    """

    identity: str
    after: str


def read_unfinished(store: Store) -> Unfinished | None:
    """What the last run into a target has not finished, None if there is no such run."""
    try:
        values = json.loads(_read(store, PLAN_NAME))
        return Unfinished(str(values["identity"]), str(values["after"]))
    except (StorageNotFoundError, ValueError, KeyError, TypeError):
        return None


def write_unfinished(store: Store, unfinished: Unfinished) -> None:
    """Says what a run is about to make."""
    store.put_atomic(PLAN_NAME, json.dumps(asdict(unfinished)).encode())


def finish(store: Store) -> None:
    """Removes all of this, after the manifest was written."""
    remove_leftovers(store, [entry.path for entry in store.list(SIDE_FOLDER) if entry.path != PLAN_NAME])
    # The plan last: whoever finds it knows that there may be something to remove.
    remove_leftovers(store, [PLAN_NAME])


def save_skipped(store: Store, shard: int, skipped: list[Skipped]) -> None:
    """Keeps what was left out of a shard. To be called before the shard gets its name."""
    if skipped:
        store.put_atomic(_name(shard), json.dumps([[item.name, item.reason, item.note] for item in skipped]).encode())


def load_skipped(store: Store, shard: int) -> list[Skipped]:
    """What was left out of a finished shard."""
    try:
        data = _read(store, _name(shard))
    except StorageNotFoundError:
        return []
    return [Skipped(str(name), str(reason), str(note)) for name, reason, note in json.loads(data)]


def _name(shard: int) -> str:
    return f"{SIDE_FOLDER}/skipped-{shard:05d}.json"


def _read(store: Store, path: str) -> bytes:
    return bytes(store.read_range(path, 0, min(_MOST_BYTES, store.size(path))))
