"""A job of a thousand ranks, all of them in one process: together they take the global stream, and nothing twice."""

from __future__ import annotations

from itertools import islice

import numpy as np

from dataflow.pipeline.plan import BatchRules, tickets
from dataflow.sampling.layout import BlockLayout
from dataflow.sampling.stream import Stream, StreamRules

LANES, BATCH = 1024, 4
RULES = StreamRules(BlockLayout.of(np.full(2048, 32)), 7, "", LANES, True)


def taken(ranks: int, first: int, steps: int) -> tuple[list[int], int]:
    """What all ranks take in some steps from a slot on: slots in the order of ranks and steps, and where they end."""
    slots: list[int] = []
    ends = set()
    for rank in range(ranks):
        planned = list(islice(tickets(BatchRules(BATCH, rank, ranks, False), LANES, first, 65_536, None), steps))
        assert all(len(ticket.slots) == BATCH for ticket in planned)
        slots += [slot for ticket in planned for slot in ticket.slots.tolist()]
        ends.add(planned[-1].end)
    (end,) = ends
    return slots, end


def test_all_ranks_together_take_the_stream_before_and_after_a_switch() -> None:
    before, switched = taken(1024, 0, 5)
    after, end = taken(1000, switched, 6)
    assert sorted(before) == list(range(5 * 1024 * BATCH))
    assert sorted(before + after) == list(range(end))
    # The same samples in the same places as on one rank that runs all the time.
    straight = Stream(RULES, 0).locate(np.arange(end))
    resumed = Stream(RULES, 0).locate(np.array(before + after))
    by_slot = np.argsort(before + after)
    for name in ("epoch", "block", "offset"):
        assert (getattr(resumed, name)[by_slot] == getattr(straight, name)).all()
    rows = set(zip(straight.block.tolist(), straight.offset.tolist(), strict=True))
    assert len(rows) == end, "a sample came twice within the epoch"
