"""How much memory a pipeline needs: known before anything is read, and refused if it is too much."""

from __future__ import annotations

from dataclasses import dataclass

from dataflow.dataset.blocks import Sizes
from dataflow.errors import OptionError

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class WorkingSet:
    """Bytes that a pipeline holds.

    Attributes:
        blocks: For blocks: those that lanes read, and read-ahead.
        ahead: Of these, for read-ahead.
        batches: For batches that wait for the consumer, the one that it has, and documents that wait to be packed.
    """

    blocks: int
    ahead: int
    batches: int


def usual_block_bytes(sizes: Sizes) -> int:
    """Bytes of the largest block among those with the usual number of rows."""
    lengths = sizes.lengths[sizes.rows == sizes.block_rows]
    return int(lengths.max(initial=0)) or int(sizes.lengths.max(initial=0))


def working_set(
    sizes: Sizes,
    *,
    lanes: int,
    batch_size: int,
    window: int,
    concurrency: int,
    limit: int,
    decoded: int = 0,
    held_rows: int = 0,
) -> WorkingSet:
    """What a rank needs.

    Args:
        sizes: What is read.
        lanes: Lanes that the rank reads.
        batch_size: Rows of a batch.
        window: Batches that may wait.
        concurrency: Reads in flight that keep the store busy.
        limit: Bytes that may be used.
        decoded: Bytes of a row's decoded values.
        held_rows: Rows that each lane holds beyond its blocks.

    Raises:
        OptionError: one block a lane and the batches do not fit into `limit`.
    """
    block = usual_block_bytes(sizes)
    row = sizes.num_bytes // max(1, sizes.num_rows) + decoded
    in_batch = min(sizes.num_blocks, batch_size, lanes * (1 + batch_size // max(1, lanes * sizes.block_rows)))
    batches = (window + 1) * batch_size * row
    held = lanes * held_rows * (sizes.num_bytes // max(1, sizes.num_rows))
    least = max(lanes, in_batch) * block + batches + held
    if least > limit:
        packing = f", {held_rows} documents to pack in each," if held else ""
        raise OptionError(
            f"{lanes} lanes with blocks of {_mib(block)}{packing} and {window + 1} batches of {_mib(batch_size * row)} "
            f"need {_mib(least)}, memory_limit is {_mib(limit)}: raise memory_limit=, or lower lanes=, batch_size= or "
            "prefetch_factor=, use more ranks, or shard with smaller blocks"
        )
    # Lanes are out of phase, so that few need their next block soon: those in flight are enough.
    wanted = (max(lanes, in_batch) + max(in_batch, concurrency)) * block
    blocks = min(wanted, limit - batches - held, sizes.num_bytes)
    return WorkingSet(blocks, max(0, blocks - lanes * block), batches + held)


def _mib(nbytes: int) -> str:
    return f"{nbytes / _MIB:.1f} MiB"
