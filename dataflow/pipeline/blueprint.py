"""Blueprint: what all iterations of a loader have in common, from which each of them is built."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from dataflow.dataset import Dataset
from dataflow.dataset.expanding import EXPANDING, Pack
from dataflow.dataset.stages import Decode
from dataflow.pipeline.bad_rows import BadRows, Ledger
from dataflow.pipeline.batch_layout import BatchLayout, laid_bytes
from dataflow.pipeline.build import PipelineRules, build
from dataflow.pipeline.clocks import DEVICE_STAGES, STAGES, Clocks, Tracer
from dataflow.pipeline.corpus import Corpus
from dataflow.pipeline.deliver import Pipeline
from dataflow.pipeline.device import DeviceCopier
from dataflow.pipeline.dtypes import Dtype
from dataflow.pipeline.filler import Filler
from dataflow.pipeline.form import plan_stages
from dataflow.pipeline.iteration import ExactEnd
from dataflow.pipeline.padding import Pad
from dataflow.pipeline.plan import BatchRules, Ticket
from dataflow.pipeline.position import Epochs, Mark
from dataflow.pipeline.transfer import Transfer
from dataflow.pipeline.transform import Sample
from dataflow.pipeline.working_set import WorkingSet, working_set
from dataflow.sampling.state import StreamState, pipeline_fingerprint


@dataclass(frozen=True, slots=True)
class Options:
    """What a loader was told, completed by what the machine says.

    Attributes:
        batches: How the stream is cut.
        shuffle: Whether the order is shuffled.
        seed: Seed of the order and of all random numbers.
        lanes: Number of lanes; None leaves it to the dataset.
        workers: Threads that assemble.
        window: Most batches that wait.
        memory: Bytes that blocks and waiting batches may take.
        pad: Columns of lists to pad, and how.
        dtypes: Types of columns, where not the stored ones.
        collate: The user's function from samples to a batch.
        agree: "This rank has more" to "any rank has more", where ranks find the end together.
        pin: Whether tensors go to page-locked memory.
        device: Where batches are copied to; None leaves them where they are made.
        ledger: Where rows that do not decode are listed; None where they are errors.
        decoder: What decodes images of whole batches, "native" or "dali".
    """

    batches: BatchRules
    shuffle: bool
    seed: int
    lanes: int | None
    workers: int
    window: int
    memory: int
    pad: Mapping[str, Pad]
    dtypes: Mapping[str, Dtype]
    collate: Callable[[list[Sample]], Any] | None
    agree: Callable[[bool], bool] | None
    pin: bool
    device: torch.device | None
    ledger: Ledger | None
    decoder: str


class Run(NamedTuple):
    """What makes the batches of one iteration.

    Attributes:
        rules: What it was built from.
        pipeline: Its threads.
        transfer: What copies its batches to a device; None where they stay where they are made.
        exact: How ranks find the end where lanes drop samples; None where the end is known.
    """

    rules: PipelineRules
    pipeline: Pipeline
    transfer: Transfer | None
    exact: ExactEnd | None


class Blueprint:
    """The dataset as it is read now, and how.

    Attributes:
        options: What the loader was told.
        epochs: How the stream is cut into epochs.
        corpus: What is read.
        working_set: Bytes that a pipeline takes.
    """

    def __init__(self, dataset: Dataset, corpus: Corpus, options: Options, epochs: Epochs) -> None:
        self._dataset = dataset
        self.options = options
        self.epochs = epochs
        self.corpus = corpus
        self.working_set = self._measure()

    def run(self, start: Mark, tracer: Tracer | None = None) -> Run:
        """Start the threads of an iteration at a mark; a tracer is told what they do."""
        options = self.options
        copier = None if options.device is None else DeviceCopier(options.device)
        if options.pin:
            # The context of the GPU that this thread has chosen: other threads take it, or else they open one of GPU 0.
            torch.empty(1, pin_memory=True)
        rules = self.rules()
        clocks = Clocks(STAGES if copier is None else DEVICE_STAGES)
        clocks.trace(tracer)
        pipeline = build(rules, start, self.epochs.extent(start.slots), clocks)
        transfer = None if copier is None else Transfer(pipeline, copier, ahead=options.workers > 0)
        return Run(rules, pipeline, transfer, self._exact_end(rules, start.epoch, transfer))

    def rules(self) -> PipelineRules:
        """What an iteration is built from."""
        dataset, options = self._dataset, self.options
        blocks = self.corpus.blocks()
        layout = BatchLayout(
            options.pad, options.dtypes, rows=options.batches.batch_size, waiting=options.window, pin=options.pin
        )
        pads = bool(self.epochs.steps is None and not options.batches.drop_last and options.batches.ranks > 1)
        deciding, form = plan_stages(
            dataset,
            BadRows(blocks, options.ledger),
            rows=options.batches.batch_size,
            waiting=options.window,
            layout=layout,
            collate=options.collate,
            marks_valid=pads or self._ends_exactly,
            pin=options.pin,
            decoder=options.decoder,
            device=options.device,
        )
        return PipelineRules(
            blocks,
            deciding,
            self.corpus.rules(),
            options.batches,
            self.epochs.exact,
            form,
            options.workers,
            options.window,
            self.working_set,
        )

    def _exact_end(self, rules: PipelineRules, epoch: int, transfer: Transfer | None) -> ExactEnd | None:
        if not self._ends_exactly:
            return None
        options = self.options
        filler = Filler(self._dataset, rules.deciding, rules.form, options.seed, epoch)

        def fill(ticket: Ticket) -> Any:
            batch = filler(ticket)
            return batch if transfer is None else transfer.place(batch)

        agree = options.agree if options.batches.ranks > 1 else None
        return ExactEnd(
            self.corpus.lanes, self.epochs.num_rows, self._dataset.deciding, rules.deciding.start, agree, fill
        )

    def state(self, mark: Mark) -> StreamState:
        """The state of a loader that stands at a mark."""
        dataset, mixture = self.corpus.identity(mark.slots)
        return StreamState(
            dataset,
            self._fingerprint(self.corpus.lanes),
            self.options.seed,
            self.corpus.lanes,
            mark.epoch,
            mark.slots,
            None if self.epochs.one_to_one else mark.cursors,
            mixture,
        )

    def load(self, state: StreamState) -> Mark:
        """Take on the shards and the lanes of a state; where it stands.

        Raises:
            StateError: The state is of another dataset, pipeline or seed, or of one rank where all are needed.
        """
        state.check_belongs(
            lanes=self.options.lanes if self.options.shuffle else None,
            pipeline=self._fingerprint(state.lanes),
            seed=self.options.seed,
            described=self._describe(),
        )
        state.check_complete(sum(isinstance(stage, EXPANDING) for stage in self._dataset.stages))
        self.corpus.load(state)
        self._measure_again()
        return Mark(state.epoch, state.slots, dict(state.cursors or {}))

    def renew(self, epoch: int) -> None:
        """Take in shards that were added to the dataset, once the epoch of a state that did not have them is over."""
        if self.corpus.renew(epoch):
            self._measure_again()

    def decoders(self) -> dict[str, str]:
        """What decodes each column that is decoded."""
        return {stage.column: stage.codec.decoder() for stage in self._decoded()}

    @property
    def _ends_exactly(self) -> bool:
        return self.epochs.exact and not self.epochs.one_to_one

    def _measure_again(self) -> None:
        self.epochs.num_rows = self.corpus.sizes.num_rows
        self.working_set = self._measure()

    def _measure(self) -> WorkingSet:
        options = self.options
        return working_set(
            self.corpus.sizes,
            lanes=self.corpus.lanes_held(options.batches),
            batch_size=options.batches.batch_size,
            window=options.window,
            concurrency=self._dataset.concurrency,
            limit=options.memory,
            decoded=sum(stage.nbytes for stage in self._decoded())
            + laid_bytes(self._dataset.schema, options.pad, options.dtypes),
            held_rows=sum(
                stage.window for stage in self._dataset.stages if isinstance(stage, Pack) and stage.mode != "concat"
            ),
        )

    def _fingerprint(self, lanes: int) -> str:
        stages = [list(stage) for stage in self._dataset.pipeline]
        if self._ends_exactly:
            stages.append(["end", "exact"])
        return pipeline_fingerprint(lanes, self.options.shuffle, stages)

    def _decoded(self) -> list[Decode]:
        return [stage for stage in self._dataset.stages if isinstance(stage, Decode)]

    def _describe(self) -> str:
        stages = " -> ".join(" ".join(map(str, stage)) for stage in self._dataset.pipeline) or "no stages"
        return f"shuffle={self.options.shuffle}, {stages}"
