"""The dataset of a simulated job: as much of a manifest as order and memory depend on."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dataflow.pipeline.working_set import WorkingSet, working_set
from dataflow.sampling.lanes import position_of_slot
from dataflow.sampling.layout import BlockLayout, Integers
from dataflow.sampling.ranks import lanes_held
from dataflow.sampling.stream import Stream, StreamRules


@dataclass(frozen=True, slots=True, eq=False)
class SimulatedDataset:
    """Blocks.

    Attributes:
        rows: int64[blocks], rows of each.
        lengths: int64[blocks], bytes of each.
        layout: The same rows, as the order wants them.
    """

    rows: Integers
    lengths: NDArray[np.int64]
    layout: BlockLayout = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "layout", BlockLayout.of(self.rows))

    @classmethod
    def uniform(cls, total_bytes: float, row_bytes: float, block_bytes: float) -> SimulatedDataset:
        """Blocks that are all alike, as the writer makes them."""
        rows = max(1, round(block_bytes / row_bytes))
        blocks = max(1, round(total_bytes / (rows * row_bytes)))
        return cls(np.full(blocks, rows, np.int64), np.full(blocks, round(rows * row_bytes), np.int64))

    # What `working_set` asks a manifest for.

    @property
    def num_blocks(self) -> int:
        return len(self.rows)

    @property
    def num_rows(self) -> int:
        return self.layout.num_rows

    @property
    def num_bytes(self) -> int:
        return int(self.lengths.sum())

    @property
    def block_rows(self) -> int:
        return self.layout.usual

    def stream(self, lanes: int, seed: int) -> Stream:
        """The shuffled stream of its rows."""
        return Stream(StreamRules(self.layout, seed, "", lanes, True), 0)

    def memory(
        self, *, lanes: int, ranks: int, batch_size: int, window: int, concurrency: int, limit: int, decoded: int
    ) -> WorkingSet:
        """What a rank needs: the loader's own rule."""
        return working_set(
            self,
            lanes=lanes_held(lanes, ranks, 0, batch_size * ranks),
            batch_size=batch_size,
            window=window,
            concurrency=concurrency,
            limit=limit,
            decoded=decoded,
        )

    def reads_per_byte(self, stream: Stream) -> float:
        """Bytes read in an epoch over bytes of the dataset, where ranks divide the lanes.

        A block that two lanes share is read by each of them, hours apart.
        """
        lanes = stream.rules.lanes
        first_slots = np.arange(min(lanes, self.num_rows), dtype=np.int64)
        blocks, offsets, _ = stream.order(0).locate(position_of_slot(first_slots, self.num_rows, lanes))
        # Of a block with several starts inside, each is one more read.
        return 1 + int(self.lengths[blocks[offsets > 0]].sum()) / self.num_bytes
