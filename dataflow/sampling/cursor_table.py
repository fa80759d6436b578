"""The cursors of many lanes as columns of numbers: a state of thousands of lanes stays small."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from dataflow.sampling.cursor import Cursor, flat, nested
from dataflow.sampling.lanes import delivered_items

_MOST_COUNT = (1 << 62) + 1


class LaneCursor(NamedTuple):
    """How far one lane is.

    Attributes:
        items: Items that it delivered.
        upstream: Rows that it took for them, dropped ones included, and how much of what became of them it gave.
    """

    items: int
    upstream: Cursor


def to_table(cursors: Mapping[int, LaneCursor], lanes: int, slots: int) -> dict[str, Any]:
    """The JSON-able form of cursors, one for each of them.

    `numbers` has a list for each number of a cursor, in the order of lanes. `lanes` and `items` are left out where they
    follow from the slots that were delivered. A lane that gave nothing says nothing, and is left out.
    """
    known = [lane for lane in sorted(cursors) if cursors[lane].items]
    columns = zip(*(flat(cursors[lane].upstream) for lane in known), strict=True)
    table: dict[str, Any] = {"numbers": [list(numbers) for numbers in columns]}
    if known != list(range(min(slots, lanes))):
        table["lanes"] = known
    items = [cursors[lane].items for lane in known]
    if items != [delivered_items(lane, slots, lanes) for lane in known]:
        table["items"] = items
    return table


def from_table(table: Any, lanes: int, slots: int) -> dict[int, LaneCursor]:
    """The cursors of a table that may come from anywhere.

    Raises:
        KeyError: A column is missing.
        TypeError: It is no table.
        ValueError: It is not what `to_table` makes.
    """
    known = table.get("lanes", range(min(slots, lanes))) if isinstance(table, Mapping) else None
    if not isinstance(known, (list, range)) or not all(type(lane) is int and 0 <= lane < lanes for lane in known):
        raise TypeError("lanes are numbers")
    items = table.get("items", [delivered_items(lane, slots, lanes) for lane in known])
    columns = table["numbers"]
    if not all(type(count) is int and 0 <= count < _MOST_COUNT for count in items):
        raise ValueError("a lane gave a count of items")
    rows = zip(*columns, strict=True) if columns else iter(())
    cursors = {
        lane: LaneCursor(count, nested(numbers)) for lane, count, numbers in zip(known, items, rows, strict=True)
    }
    if to_table(cursors, lanes, slots) != table:
        raise ValueError("cursors are not in the form in which they are written")
    return cursors
