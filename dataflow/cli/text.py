"""Numbers as people read them."""

from __future__ import annotations

from dataflow.storage.sizes import bytes_text

__all__ = ["bytes_text", "count_text"]


def count_text(count: int, thing: str) -> str:
    """A number with the thing that it counts: "1 shard", "1,024 shards", "2 classes"."""
    plural = thing if count == 1 else thing + ("es" if thing.endswith("s") else "s")
    return f"{count:,} {plural}"
