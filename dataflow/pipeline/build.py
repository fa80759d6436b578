"""Build: from what is wanted, and from where on, to running threads."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from dataflow import _native
from dataflow.dataset.blocks import Blocks
from dataflow.dataset.columns import ColumnViewer
from dataflow.pipeline.assemble import Assembler, BatchForm
from dataflow.pipeline.blocks import BlockTable
from dataflow.pipeline.clocks import Clocks
from dataflow.pipeline.deciding import Deciding
from dataflow.pipeline.deliver import Pipeline
from dataflow.pipeline.fetch import Fetcher
from dataflow.pipeline.lane_rows import RowRules
from dataflow.pipeline.lanes import LaneRules, Lanes
from dataflow.pipeline.locate import locate
from dataflow.pipeline.plan import BatchRules, demand, tickets
from dataflow.pipeline.position import Extent, Mark
from dataflow.pipeline.working_set import WorkingSet
from dataflow.sampling.mixed_stream import MixedRules
from dataflow.sampling.stream import Stream, StreamRules


@dataclass(frozen=True, slots=True)
class PipelineRules:
    """All that a pipeline depends on but its position.

    Attributes:
        blocks: What is read.
        deciding: The stages that decide which samples there are; the form has all else.
        stream: The order of samples.
        batches: How the stream is cut.
        exact: Whether lanes end with their epoch.
        form: What batches look like; its transform is that of the stages after those.
        workers: Threads that assemble.
        window: Most batches that wait.
        memory: Bounds on blocks in memory.
    """

    blocks: Blocks
    deciding: Deciding
    stream: StreamRules | MixedRules
    batches: BatchRules
    exact: bool
    form: BatchForm
    workers: int
    window: int
    memory: WorkingSet


def build(
    rules: PipelineRules, start: Mark, extent: Extent, clocks: Clocks, assembling: type[Assembler] = Assembler
) -> Pipeline:
    """Start a pipeline at a position; `assembling` makes its batches, or less where that is to be measured."""
    _native.reuse_freed_memory()
    blocks, memory = rules.blocks, rules.memory
    usual_bytes = blocks.num_bytes // max(1, blocks.num_blocks)
    stream = rules.stream.open(start.epoch)
    fetcher = Fetcher(blocks.fetch, blocks.concurrency, clocks)
    viewer = ColumnViewer(blocks.schema, rules.form.columns)
    table = BlockTable(
        lambda block: int(blocks.lengths[block]),
        fetcher.request,
        lambda buffer, block: viewer(blocks.decode(block, buffer)),
        lambda: memory.blocks - memory.ahead + min(memory.ahead, fetcher.blocks_ahead * usual_bytes),
        memory.ahead,
    )
    assembler = assembling(rules.form, stream, table, blocks.first_rows)
    planned = tickets(rules.batches, rules.stream.lanes, *extent)
    run = partial(
        Pipeline,
        workers=rules.workers,
        window=rules.window,
        clocks=clocks,
        fetcher=fetcher,
        table=table,
        processes=(*rules.deciding.processes, *rules.form.transform.processes),
    )
    if not rules.deciding:
        return run(lambda clock: locate(planned, stream, table, clock), assembler.from_rows, lanes=None)
    assert isinstance(stream, Stream), "only rows of one dataset are read lane by lane"
    lane_rules = LaneRules(RowRules(stream, table, assembler.read, rules.exact), rules.deciding)
    lanes = Lanes(lane_rules, dict(start.cursors))
    return run(lambda clock: demand(planned, lanes, rules.exact), assembler.from_lanes, lanes=lanes)
