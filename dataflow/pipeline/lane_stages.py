"""Stages that decide which items a lane has: each takes from the one before it, and can go on from a cursor."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from dataflow.errors import DataflowError, FilterError
from dataflow.pipeline.lane_rows import Item, Items, Working
from dataflow.pipeline.transform import DROPPED, Transform
from dataflow.sampling.cursor import Cursor, rows_before

# Of few rows, a lane may well draw many in turn that are dropped, although others are kept.
_LEAST_DROPPED = 1000


class LanePlace(NamedTuple):
    """Which lane, of which stream.

    Attributes:
        number: Number of the lane.
        lanes: Lanes of the stream.
        seed: Seed of the stream.
        source: Name of the source.
        most_dropped: Rows that may be dropped in turn; None where lanes end by themselves.
    """

    number: int
    lanes: int
    seed: int
    source: str
    most_dropped: int | None


def most_dropped(num_rows: int) -> int:
    """Rows that a lane may drop in turn before it is an error: about as many as there are."""
    return max(num_rows, _LEAST_DROPPED)


class _Passing:
    """Counts the rows since a stage let something through."""

    def __init__(self, place: LanePlace, name: str, cursor: Cursor) -> None:
        self._place = place
        self._name = name
        self._passed = rows_before(cursor)

    def passed(self, cursor: Cursor) -> None:
        self._passed = rows_before(cursor)

    def dropped(self, cursor: Cursor) -> None:
        rows, most = rows_before(cursor) - self._passed, self._place.most_dropped
        if most is not None and rows >= most:
            raise FilterError(
                f"{self._name} let none of {rows} samples of lane {self._place.number} through, at least an epoch's "
                "worth: check the condition, or the column that it reads"
            )


class Transformed:
    """What functions make of each item; those that a filter drops are left out."""

    def __init__(self, upstream: Items, transform: Transform, place: LanePlace) -> None:
        self._upstream = upstream
        self._transform = transform
        self._passing = _Passing(place, transform.filters, upstream.cursor)

    @property
    def cursor(self) -> Cursor:
        return self._upstream.cursor

    def next(self, working: Working) -> Item | None:
        upstream = self._upstream
        while (item := upstream.next(working)) is not None:
            sample = self._transform(item.sample, item.key)
            if sample is not DROPPED:
                self._passing.passed(upstream.cursor)
                return item._replace(sample=sample)
            self._passing.dropped(upstream.cursor)
        return None


class Group(Protocol):
    """Items that were made at once."""

    def __len__(self) -> int: ...
    def __getitem__(self, number: int, /) -> Item: ...


class Grouped(ABC):
    """Items that come in groups, each made at once: those of one row, or the bins of a window.

    Its cursor is that of the upstream before the group, and how many of its items were given.
    """

    def __init__(self, upstream: Items, name: str, place: LanePlace, given: int) -> None:
        self._upstream = upstream
        self._name = name
        self._before = upstream.cursor
        self._given = given
        self._group: Group | None = None
        self._passing = _Passing(place, name, upstream.cursor)

    @property
    def cursor(self) -> Cursor:
        return (self._before if self._given else self._upstream.cursor, self._given)

    @abstractmethod
    def make(self, working: Working) -> Group | None:
        """The next group; None where there are no more."""

    def next(self, working: Working) -> Item | None:
        while self._group is None:
            before = self._upstream.cursor
            group = self.make(working)
            if group is None:
                return None
            if self._given and len(group) <= self._given:
                raise DataflowError(
                    f"{self._name} gave {len(group)} items where it had given {self._given} and more before: let it "
                    "make the same of the same row, with no random numbers but those that it is given"
                )
            if group:
                self._before, self._group = before, group
            else:
                self._passing.dropped(self._upstream.cursor)
        self._passing.passed(self._upstream.cursor)
        item = self._group[self._given]
        self._given += 1
        if self._given == len(self._group):
            self._group, self._given = None, 0
        return item


class Expanded(Grouped):
    """What a function makes of each item: none, one, or several."""

    def __init__(
        self, upstream: Items, expand: Callable[[Item], Sequence[Item]], name: str, place: LanePlace, given: int
    ) -> None:
        super().__init__(upstream, name, place, given)
        self._expand = expand

    def make(self, working: Working) -> Group | None:
        item = self._upstream.next(working)
        return None if item is None else self._expand(item)
