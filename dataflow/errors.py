"""The errors that dataflow raises: one small family, each naming the thing, the place and the remedy."""

from __future__ import annotations

__all__ = [
    "CorruptDataError",
    "DataflowError",
    "DatasetError",
    "FilterError",
    "OptionError",
    "StateError",
    "StorageError",
    "StorageNotFoundError",
    "StorageRangeError",
]


class DataflowError(Exception):
    """Base of every error that dataflow raises on purpose."""


class OptionError(DataflowError, ValueError):
    """An argument or a combination of arguments that cannot work."""


class StorageError(DataflowError, OSError):
    """A store could not be read or written: says the URL, the byte range, the attempts and the time spent."""


class StorageNotFoundError(StorageError, FileNotFoundError):
    """There is nothing at this URL. Never retried."""


class StorageRangeError(StorageError):
    """An object ends before the range that was asked for: it was cut short or replaced. Never retried."""


class DatasetError(DataflowError):
    """There is no usable dataset at a URL: no manifest, a damaged one, or one that does not fit its shards."""


class CorruptDataError(DataflowError):
    """Bytes of a shard are not what the manifest or the format promise: names shard, block and both values."""


class StateError(DataflowError):
    """A loader state that belongs to something else, or that is incomplete."""


class FilterError(DataflowError):
    """A filter that never lets a sample through: names the filter."""
