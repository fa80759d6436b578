"""Random damage to a file, as disks, networks and programs do it."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

_EDGES = (0, 1, 0x7F, 0x80, 0xFF)


def damaged(whole: bytes, random: Random, times: Sequence[int] = (1, 1, 1, 2, 4)) -> bytes:
    """A copy with some kinds of damage, as many as one of `times`; never the same as it was."""
    data = bytearray(whole)
    while bytes(data) == whole:
        for _ in range(random.choice(times)):
            random.choice(_KINDS)(data, random)
    return bytes(data)


def _flip_bit(data: bytearray, random: Random) -> None:
    if data:
        data[_place(data, random)] ^= 1 << random.randrange(8)


def _set_bytes(data: bytearray, random: Random) -> None:
    for _ in range(random.choice((1, 4, 16))):
        if data:
            data[_place(data, random)] = random.choice((*_EDGES, random.randrange(256)))


def _set_number(data: bytearray, random: Random) -> None:
    """A length, a count or an offset that is too large, too small or negative."""
    width = random.choice((2, 4, 8))
    place = _place(data, random) // width * width
    value = random.choice((0, 1, -1, 1 << 8 * width - 1, (1 << 8 * width - 1) - 1, random.getrandbits(8 * width)))
    data[place : place + width] = (value % (1 << 8 * width)).to_bytes(width, random.choice(("little", "big")))


def _cut_off(data: bytearray, random: Random) -> None:
    del data[_place(data, random) :]


def _remove(data: bytearray, random: Random) -> None:
    start = _place(data, random)
    del data[start : start + _length(random)]


def _insert(data: bytearray, random: Random) -> None:
    place = _place(data, random)
    data[place:place] = random.randbytes(_length(random))


def _repeat(data: bytearray, random: Random) -> None:
    start, place = _place(data, random), _place(data, random)
    data[place:place] = data[start : start + _length(random)]


def _move(data: bytearray, random: Random) -> None:
    """A sector in the wrong place."""
    start, place, length = _place(data, random), _place(data, random), random.choice((64, 512, 4096))
    data[place : place + length] = data[start : start + length]


def _zero(data: bytearray, random: Random) -> None:
    start, length = _place(data, random), random.choice((1, 8, 64, 512, 4096))
    end = min(len(data), start + length)
    data[start:end] = bytes(end - start)


_KINDS = (_flip_bit, _set_bytes, _set_number, _cut_off, _remove, _insert, _repeat, _move, _zero)


def _place(data: bytearray, random: Random) -> int:
    """Anywhere, the start and the end more often: that is where the structure is."""
    size = len(data)
    if not size:
        return 0
    low, high = random.choice(((0, size), (0, size), (0, min(size, 256)), (max(0, size - 600), size)))
    return random.randrange(low, high)


def _length(random: Random) -> int:
    return random.choice((1, 2, 8, random.randrange(1, 600)))
