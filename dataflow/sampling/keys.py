"""Keys: 64-bit numbers derived from what they are for, so that no two uses of randomness share a stream."""

from __future__ import annotations

import hashlib

from dataflow.errors import OptionError

# Part of every key. A change of any rule of the order changes this, so that old states cannot mean other samples.
_PERSON = b"dataflow-order-1"
_LIMIT = 1 << 127


def key(*parts: int | str) -> int:
    """Hash tagged, length-prefixed parts to an unsigned 64-bit key (BLAKE2b, RFC 7693).

    Raises:
        OptionError: an integer does not fit 128 bits with its sign.
    """
    digest = hashlib.blake2b(digest_size=8, person=_PERSON)
    for part in parts:
        if isinstance(part, str):
            tag, data = b"s", part.encode()
        else:
            if not -_LIMIT <= part < _LIMIT:
                raise OptionError(f"{part} does not fit 128 bits: seeds and epochs are integers in -2**127 .. 2**127-1")
            tag, data = b"i", part.to_bytes(16, "little", signed=True)
        digest.update(tag + len(data).to_bytes(4, "little") + data)
    return int.from_bytes(digest.digest(), "little")
