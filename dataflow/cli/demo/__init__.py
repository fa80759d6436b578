"""`dataflow demo`: the main job from end to end, on this machine, and the proof that it went right."""

from __future__ import annotations

__all__ = ["demo"]


def demo() -> None:
    """Shard photographs into a real S3 server, kill a run in mid epoch, resume it on other ranks, check the order."""
    from dataflow.cli.demo.story import tell

    tell()
