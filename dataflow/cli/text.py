"""Numbers as people read them."""

from __future__ import annotations

__all__ = ["bytes_text", "count_text"]

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def bytes_text(nbytes: float) -> str:
    """A size in decimal units: 1234567 is "1.2 MB"."""
    unit = 0
    while nbytes >= 999.95 and unit + 1 < len(_UNITS):
        nbytes /= 1000
        unit += 1
    return f"{nbytes:,.0f} B" if unit == 0 else f"{nbytes:,.1f} {_UNITS[unit]}"


def count_text(count: int, thing: str) -> str:
    """A number with the thing that it counts: "1 shard", "1,024 shards", "2 classes"."""
    plural = thing if count == 1 else thing + ("es" if thing.endswith("s") else "s")
    return f"{count:,} {plural}"
