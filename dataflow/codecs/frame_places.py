"""Where the frames of a video are among its packets, told from the packets' times alone."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, NamedTuple

__all__ = ["Place", "find_places"]


class Place(NamedTuple):
    """A frame's place.

    Attributes:
        pts: When it is shown, in units of the stream's time base.
        packet: The packet that holds it.
        start: The packet from which decoding has to begin: that of a keyframe.
    """

    pts: int
    packet: int
    start: int


def find_places(packets: Sequence[Any]) -> list[Place] | None:
    """The frames that are shown, in the order in which they are; None where packets do not tell.

    They do not where times are missing or given twice, where parameters of the decoder change on the way, and where
    frames come before the keyframes that they need.
    """
    if any(packet.has_sidedata("new_extradata") for packet in packets[1:]):
        return None
    keys = [at for at, packet in enumerate(packets) if packet.is_keyframe]
    # An edit list hides frames that others need: they are decoded, but never come out.
    shown = [(packet.pts, at) for at, packet in enumerate(packets) if not packet.is_discard]
    if any(pts is None for pts, _ in shown) or any(packets[at].pts is None for at in keys):
        return None
    places = []
    for pts, at in sorted(shown):
        key = bisect_right(keys, at) - 1
        # Frames that come after a keyframe but are shown before it may need those in front of it.
        while key >= 0 and packets[keys[key]].pts > pts:
            key -= 1
        if key < 0:
            return None
        places.append(Place(pts, at, keys[key]))
    return places if len({place.pts for place in places}) == len(places) else None
