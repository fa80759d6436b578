"""Rows of text that end with newline bytes, and with nothing else that some call the end of a line."""

from __future__ import annotations

import numpy as np

from dataflow.errors import CorruptDataError

__all__ = ["BLANK", "cut_after", "decode_text", "line_ends", "rows_end"]

#: What a blank line may consist of.
BLANK = b" \t\r"


def cut_after(data: bytes | bytearray, at: int) -> int | None:
    """The first end of a line at or after an offset (and after 0); None if there is none."""
    newline = data.find(b"\n", max(0, at - 1))
    return None if newline < 0 else newline + 1


def line_ends(data: bytes) -> list[int]:
    """Where each line ends; the last one needs no newline."""
    ends = (np.flatnonzero(np.frombuffer(data, np.uint8) == 0x0A) + 1).tolist()
    if len(data) > (ends[-1] if ends else 0):
        ends.append(len(data))
    return ends


def rows_end(data: bytes, rows: int, blank: bytes = BLANK) -> int:
    """The end of the `rows`-th line that does not consist of `blank` bytes alone."""
    octets = np.frombuffer(data, np.uint8)
    if len(octets) == 0:
        return 0
    ends = np.flatnonzero(octets == 0x0A) + 1
    if len(ends) == 0 or ends[-1] < len(data):
        ends = np.append(ends, len(data))
    starts = np.concatenate(([0], ends[:-1]))
    filled = np.ones(len(ends), np.bool_)
    # Only lines that begin with such a byte need a closer look.
    for line in np.flatnonzero(np.isin(octets[starts], np.frombuffer(blank + b"\n", np.uint8))):
        filled[line] = bool(data[starts[line] : ends[line]].strip(blank + b"\n"))
    found = np.flatnonzero(filled)
    return int(ends[found[rows - 1]]) if 0 < rows <= len(found) else len(data)


def decode_text(data: bytes, line: int) -> str:
    """The text of some lines.

    Raises:
        CorruptDataError: It is not UTF-8; names the line, of which `line` is the first.
    """
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        number = line + data.count(b"\n", 0, error.start)
        raise CorruptDataError(
            f"line {number}: not UTF-8 ({error.reason}: {data[error.start : error.end]!r}). Write the file again in "
            "UTF-8 (`iconv`)"
        ) from error
