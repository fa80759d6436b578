"""Cursors: where a lane stands among its rows, and within what stages have made of them.

A lane of rows stands at a number: rows that were taken. A stage that makes several items of what it takes, or one of
several, stands at a pair: where its upstream stood before the items of which some were given, and how many were. Pairs
nest as stages do. A pair whose items were all given is that of the next ones, so that one place has one cursor.
"""

from __future__ import annotations

from typing import Any, TypeAlias

# More stages than anybody nests; a bound on what a state may ask for.
_MOST_NESTED = 32
_MOST_COUNT = (1 << 62) + 1

Cursor: TypeAlias = "int | tuple[Cursor, int]"


def start(depth: int) -> Cursor:
    """The cursor before all items, of so many stages that nest."""
    cursor: Cursor = 0
    for _ in range(depth):
        cursor = (cursor, 0)
    return cursor


def rows_before(cursor: Cursor) -> int:
    """Rows of the lane before those of which the cursor has given something."""
    while not isinstance(cursor, int):
        cursor = cursor[0]
    return cursor


def depth(cursor: Cursor) -> int:
    """How many stages nest."""
    levels = 0
    while not isinstance(cursor, int):
        cursor = cursor[0]
        levels += 1
    return levels


def flat(cursor: Cursor) -> tuple[int, ...]:
    """Its numbers, that of rows first."""
    given = []
    while not isinstance(cursor, int):
        cursor, number = cursor
        given.append(number)
    return (cursor, *reversed(given))


def nested(numbers: Any) -> Cursor:
    """The inverse of `flat`, from a value that may come from anywhere.

    Raises:
        ValueError: It is not a cursor.
    """
    numbers = numbers if isinstance(numbers, (list, tuple)) else [numbers]
    if not 1 <= len(numbers) <= _MOST_NESTED:
        raise ValueError(f"a cursor of {len(numbers)} numbers")
    if not all(type(number) is int and 0 <= number < _MOST_COUNT for number in numbers):
        raise ValueError("a cursor has counts only")
    cursor: Cursor = numbers[0]
    for given in numbers[1:]:
        cursor = (cursor, given)
    return cursor
