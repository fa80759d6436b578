"""How much memory a pipeline needs: known before anything is read, and refused if it is too much."""

from __future__ import annotations

from dataclasses import dataclass

from dataflow.dataset.manifest import Manifest
from dataflow.errors import OptionError
from dataflow.sampling.ranks import lanes_read

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


def usual_block_bytes(manifest: Manifest) -> int:
    """Bytes of the largest block among those with the usual number of rows."""
    lengths = manifest.lengths[manifest.rows == manifest.block_rows]
    return int(lengths.max(initial=0)) or int(manifest.lengths.max(initial=0))


def working_set(
    manifest: Manifest,
    *,
    lanes: int,
    ranks: int,
    rank: int,
    batch_size: int,
    window: int,
    concurrency: int,
    limit: int,
    decoded: int = 0,
    held_rows: int = 0,
) -> WorkingSet:
    """What a rank needs.

    Args:
        manifest: The dataset.
        lanes: Lanes of the stream.
        ranks: Data-parallel ranks.
        rank: Number of this one.
        batch_size: Rows of a batch.
        window: Batches that may wait.
        concurrency: Reads in flight that keep the store busy.
        limit: Bytes that may be used.
        decoded: Bytes of a row's decoded values.
        held_rows: Rows that each lane holds beyond its blocks.

    Raises:
        OptionError: one block a lane and the batches do not fit into `limit`.
    """
    block = usual_block_bytes(manifest)
    row = manifest.num_bytes // max(1, manifest.num_rows) + decoded
    # A last batch may be filled up with a row of another rank's lane.
    here = min(lanes, lanes_read(lanes, ranks, rank, batch_size * ranks) + (ranks > 1))
    in_batch = min(manifest.num_blocks, batch_size, here * (1 + batch_size // max(1, here * manifest.block_rows)))
    batches = (window + 1) * batch_size * row
    held = here * held_rows * (manifest.num_bytes // max(1, manifest.num_rows))
    least = max(here, in_batch) * block + batches + held
    if least > limit:
        packing = f", {held_rows} documents to pack in each," if held else ""
        raise OptionError(
            f"{here} lanes with blocks of {_mib(block)}{packing} and {window + 1} batches of {_mib(batch_size * row)} "
            f"need {_mib(least)}, memory_limit is {_mib(limit)}: raise memory_limit=, or lower lanes=, batch_size= or "
            "prefetch_factor=, use more ranks, or shard with smaller blocks"
        )
    # Lanes are out of phase, so that few need their next block soon: those in flight are enough.
    wanted = (max(here, in_batch) + max(in_batch, concurrency)) * block
    blocks = min(wanted, limit - batches - held, manifest.num_bytes)
    return WorkingSet(blocks, max(0, blocks - here * block), batches + held)


def _mib(nbytes: int) -> str:
    return f"{nbytes / _MIB:.1f} MiB"
