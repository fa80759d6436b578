"""Sizes as people write them."""

from __future__ import annotations

import re

from dataflow.errors import OptionError

__all__ = ["bytes_text", "format_size", "parse_size"]

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMGTP]?)(i?)B?\s*", re.IGNORECASE)
_POWERS = "KMGTP"
_DECIMAL_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def parse_size(size: int | str, name: str) -> int:
    """Bytes of a number of bytes, or of a text such as "200GiB", "1.5 TB" or "500M".

    Args:
        size: The size.
        name: What the argument is called, for messages.

    Raises:
        OptionError: It is no size.
    """
    if type(size) is int and size >= 0:
        return size
    found = _SIZE.fullmatch(size) if isinstance(size, str) else None
    if found is None or (found[3] and not found[2]):
        raise OptionError(f"{name} is {size!r}: give bytes as a number, or a text such as '200GiB' or '1.5TB'")
    power = _POWERS.index(found[2].upper()) + 1 if found[2] else 0
    return int(float(found[1]) * (1024 if found[3] else 1000) ** power)


def format_size(nbytes: int) -> str:
    """Bytes in the unit that suits them, such as "1.5 GiB"."""
    value = float(nbytes)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.1f} {unit}" if unit != "bytes" else f"{nbytes} bytes"
        value /= 1024
    return f"{value:.1f} TiB"


def bytes_text(nbytes: float) -> str:
    """A size in decimal units: 1234567 is "1.2 MB"."""
    unit = 0
    while nbytes >= 999.95 and unit + 1 < len(_DECIMAL_UNITS):
        nbytes /= 1000
        unit += 1
    return f"{nbytes:,.0f} B" if unit == 0 else f"{nbytes:,.1f} {_DECIMAL_UNITS[unit]}"
