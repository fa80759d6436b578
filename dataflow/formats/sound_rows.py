"""Finds the sound rows in a run of rows of text of which some are damaged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dataflow.errors import CorruptDataError, DatasetError
from dataflow.formats.format import Skipped

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dataflow.formats.rows import RowScan

__all__ = ["SoundRows", "without"]


class SoundRows:
    """Takes what is sound of some rows, as `RowScan.add` takes all.

    Damaged rows leave no trace in the types that the scan has found. Halves are tried until the damaged rows stand
    alone, so that few of them cost little.

    Args:
        scan: Takes the rows.
        data: Whole rows.
        line: Number of the first line.

    Attributes:
        count: Number of sound rows.
        spans: Start and end in `data` of what is not sound.
        skipped: The damaged rows.
    """

    def __init__(self, scan: RowScan, data: bytes, line: int) -> None:
        self.count = 0
        self.spans: list[tuple[int, int]] = []
        self.skipped: list[Skipped] = []
        self._scan = scan
        self._data = data
        before = scan.schema()
        try:
            self.count = scan.add(data, line, locate=False)
        except (CorruptDataError, DatasetError):
            scan.back_to(before)
            self._take([0, *scan.ends(data)], line)

    def _take(self, bounds: list[int], line: int) -> None:
        start, end = bounds[0], bounds[-1]
        alone = len(bounds) == 2
        before = self._scan.schema()
        try:
            self.count += self._scan.add(self._data[start:end], line, locate=alone)
        except (CorruptDataError, DatasetError) as error:
            self._scan.back_to(before)
            if alone:
                self.spans.append((start, end))
                self.skipped.append(Skipped(f"line {line}", "a damaged row", str(error).removeprefix(f"line {line}: ")))
                return
            middle = len(bounds) // 2
            self._take(bounds[: middle + 1], line)
            self._take(bounds[middle:], line + self._data.count(b"\n", start, bounds[middle]))


def without(data: bytes, spans: Iterable[tuple[int, int]]) -> bytes:
    """Data without some parts of it, which are in order."""
    pieces, end = [], 0
    for start, following in spans:
        pieces.append(data[end:start])
        end = following
    return b"".join([*pieces, data[end:]])
