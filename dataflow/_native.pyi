"""The C++ core: gathers rows of Arrow columns into batches, decodes images, and computes the sample order in bulk.

Every function works without the GIL and may be called from any thread. Inputs are C-contiguous arrays of native byte
order at any alignment; they are never copied as a whole. A *position* is an index into the batch that is being made:
row ``row[i]`` of block ``block[i]`` goes to position ``i``. Blocks, rows and offsets are checked before they are
followed. What is wrong raises ValueError with the position, the block, the row and the values, and leaves the output
undefined; an array of the wrong type raises TypeError with the argument's name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

class Array:
    """Memory of one block whose type and size were looked at once: gathering from it again and again costs less."""

    def __init__(self, memory: npt.NDArray[Any] | memoryview | bytes) -> None: ...

Memory: TypeAlias = npt.NDArray[Any] | memoryview | bytes | Array

def gather_ragged(
    values: Sequence[Memory],
    offsets: Sequence[Memory],
    block: npt.NDArray[np.int32],
    row: npt.NDArray[np.int64],
    out: npt.NDArray[Any],
    lengths: npt.NDArray[np.int64],
    fill: float,
    truncate: bool = False,
) -> None:
    """Gather rows of differing lengths into a padded batch.

    Args:
        values: For each block the child values of its list column, all of one type; a list or a tuple.
        offsets: For each block its int32 or int64 offsets, one more than it has rows.
        block: int32[B], indices into these lists.
        row: int64[B], rows within the blocks.
        out: [B, width], written: of the values' type, or int64 for uint8, uint16, int32 and uint32, or int32 for uint8
            and uint16.
        lengths: int64[B], written: how many elements of each row are values, the rest being ``fill``.
        fill: The padding; must fit the type of ``out``.
        truncate: Cut rows that are longer than ``out`` is wide, instead of refusing them.
    """

def gather_fixed(
    values: Sequence[Memory],
    width: int,
    block: npt.NDArray[np.int32],
    row: npt.NDArray[np.int64],
    out: npt.NDArray[Any],
) -> None:
    """Gather rows of one width: numeric columns (width 1) and fixed-size lists.

    Args:
        values: For each block its values; row ``r`` is ``values[r * width : (r + 1) * width]``.
        width: Elements a row, at least 1.
        block: int32[B], indices into ``values``.
        row: int64[B], rows within the blocks.
        out: [B, ...] with ``width`` elements a position, written; types as for `gather_ragged`.
    """

def ragged_lengths(
    offsets: Sequence[Memory], block: npt.NDArray[np.int32], row: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return the length of each row, int64[B], in elements. Offsets are not checked against values here."""

def gather_bytes(
    values: Sequence[Memory], offsets: Sequence[Memory], block: npt.NDArray[np.int32], row: npt.NDArray[np.int64]
) -> list[bytes]:
    """Return rows of binary or string columns as bytes objects; ``values`` have elements of one byte."""

def mix64(value: int) -> int:
    """Return the splitmix64 finaliser of a 64-bit unsigned integer."""

def permute(positions: npt.NDArray[np.int64] | npt.NDArray[np.uint64], n: int, key: int) -> npt.NDArray[np.int64]:
    """Return the image of each position under the permutation of ``0..n-1`` that a key names.

    A balanced Feistel network of 8 rounds with cycle walking: needs no memory, and has an inverse, `unpermute`.

    Args:
        positions: One-dimensional, each in ``0..n-1``.
        n: Size of the permuted range, 1 to 2**63.
        key: 64-bit unsigned.
    """

def unpermute(images: npt.NDArray[np.int64] | npt.NDArray[np.uint64], n: int, key: int) -> npt.NDArray[np.int64]:
    """Return the positions whose images under `permute` these are."""

def row_permutation(n: int, key: int) -> npt.NDArray[np.int32]:
    """Return the order of the rows of one block: ``0..n-1`` sorted by their keyed hashes, int32[n]."""

def row_permutations(counts: npt.NDArray[np.int64], keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.int32]:
    """Return `row_permutation` of each count and key, laid end to end, int32[sum(counts)]."""

def receive(
    descriptor: int, request: bytes, buffer: Memory, start: int, idle_seconds: float
) -> tuple[int, int, int, bool, bytes]:
    """Send an HTTP/1.1 request for a range, and receive the body of the reply straight into a buffer.

    Only plain replies are understood: 206 with its length, at most that of ``buffer``, and a range from ``start`` on.
    In the main thread signals are handled meanwhile, and what their handlers raise is raised here. Nothing else is: in
    every case but success the connection is not to be used again.

    Args:
        descriptor: A connected socket, blocking or not.
        request: All of the request.
        buffer: Bytes, written; undefined unless the status is 206.
        start: The first byte of the range that was asked for.
        idle_seconds: The longest silence; above 0.

    Returns:
        status: 206: the body is in ``buffer``. 400 to 599: the server's error. 0: a reply that is not understood.
            Negative: an errno, of which ETIMEDOUT is a silence, and ENODATA a connection that closed before the end.
        length: Bytes of the body in ``buffer``.
        received: Bytes of the reply that arrived, with its head; 0 means that the server may not have seen the request.
        keep: Whether the connection is good for another request.
        said: Of a server's error the reason, a newline, and up to 4096 bytes of the body as it was sent.
    """

def read_files(folder: bytes, names: bytes, ends: npt.NDArray[np.int64], buffer: Memory) -> int:
    """Read the first bytes of one file after another into a buffer, without the interpreter between them.

    Args:
        folder: Where they are.
        names: Their paths below it, each with a zero byte behind it.
        ends: int64[n], where each file's bytes end in the buffer; they begin where those of the file before end.
        buffer: Bytes, written.

    Returns:
        How many files were read whole. The one after them is not there, cannot be read, or has fewer bytes.
    """

def reuse_freed_memory() -> bool:
    """Let the process keep up to 512 MiB of freed memory for its next buffers; returns whether the allocator does."""

def jpeg_headers(
    values: Sequence[Memory], offsets: Sequence[Memory], block: npt.NDArray[np.int32], row: npt.NDArray[np.int64]
) -> npt.NDArray[np.int32]:
    """Look at the headers of JPEG files in a binary column; damage in the pixels themselves is not noticed here.

    Returns:
        int32[B, 4]: height and width as stored, 0 where they are unknown; 1 where `decode_jpegs` takes the file, else
        0; the orientation that EXIF gives, 1 to 8, 1 where it gives none. Taken are complete files of eight bits,
        Huffman-coded, baseline or progressive, grey or in three colours.
    """

def decode_jpegs(
    values: Sequence[Memory],
    offsets: Sequence[Memory],
    block: npt.NDArray[np.int32],
    row: npt.NDArray[np.int64],
    positions: npt.NDArray[np.int64],
    windows: npt.NDArray[np.int32],
    flip: npt.NDArray[np.bool_],
    out: npt.NDArray[Any],
    mean: npt.NDArray[np.float32] | None,
    std: npt.NDArray[np.float32] | None,
    channels_last: bool,
    threads: int,
) -> list[tuple[int, str]]:
    """Decode windows of JPEG files in a binary column, resized, into a batch.

    Resizing is that of Pillow's ``resize(size, BILINEAR, box=window)``: antialiased, and at the window's edges pixels
    around it count too. Large windows are reduced by the decoder first: there single values may differ by a few levels.
    What is decoded does not depend on the processor or the number of threads.

    Args:
        values: For each block the bytes of its files.
        offsets: For each block its int32 or int64 offsets, one more than it has rows.
        block: int32[B], indices into these lists.
        row: int64[B], rows within the blocks.
        positions: int64[n], which of the B positions to decode, each at most once.
        windows: int32[n, 4], top, left, height and width of the window in pixels as stored; EXIF is not looked at.
        flip: bool[n], whether to swap left and right.
        out: [B, 3, H, W], or [B, H, W, 3] if ``channels_last``, red, green and blue; uint8, or float32 or float16 that
            are (level / 255 - mean) / std. Other positions are left as they are.
        mean: float32[3], or None for 0.
        std: float32[3], or None for 1.
        channels_last: The layout of ``out``.
        threads: How many work on the batch, at least 1, this one included.

    Returns:
        The positions that failed, each with the reason; their part of ``out`` is undefined. Whatever libjpeg warns of
        in the part that it reads is a failure.

    Raises:
        RuntimeError: There is no decoder in this build; see `decode_available`.
    """

def decode_available() -> str:
    """Return the library of `decode_jpegs`, such as "libjpeg-turbo 2.1.5"; "" where this was built without it."""
