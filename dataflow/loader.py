"""DataLoader: the front door."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.utils.data

from dataflow.dataset import Dataset, Manifest
from dataflow.dataset.stages import Decode
from dataflow.errors import DataflowError, OptionError, StateError
from dataflow.pipeline.arguments import check_columns, check_kinds, check_numbers, check_unsupported
from dataflow.pipeline.bad_rows import BadRows, Ledger
from dataflow.pipeline.build import PipelineRules, build
from dataflow.pipeline.clocks import Clocks
from dataflow.pipeline.decode import BatchDecoder
from dataflow.pipeline.deliver import Pipeline
from dataflow.pipeline.ends import check_end, warn_of_narrow_lanes
from dataflow.pipeline.filler import Filler
from dataflow.pipeline.form import plan_stages
from dataflow.pipeline.iteration import ExactEnd, Iteration
from dataflow.pipeline.plan import BatchRules
from dataflow.pipeline.position import Epochs, Mark, Position
from dataflow.pipeline.rank import find_rank, local_ranks
from dataflow.pipeline.report import report, stats
from dataflow.pipeline.resources import available_cpus, available_memory
from dataflow.pipeline.source import check_replaceable
from dataflow.pipeline.working_set import WorkingSet, usual_block_bytes, working_set
from dataflow.sampling.lanes import default_lanes
from dataflow.sampling.layout import BlockLayout
from dataflow.sampling.state import StreamState, pipeline_fingerprint
from dataflow.sampling.stream import StreamRules

_PREFETCH_FACTOR = 2
_MEMORY_SHARE = 0.5


class DataLoader(torch.utils.data.DataLoader):  # type: ignore[type-arg]
    """Batches of a dataflow dataset: globally shuffled, the same for any number of ranks, resumed by a seek.

    Where torch's DataLoader has an argument, name, default and meaning are torch's.

    Args:
        dataset: What `dataflow.open` returned, with or without stages.
        batch_size: Rows of a batch on this rank.
        shuffle: Whether the order is shuffled, anew in every epoch.
        num_workers: Threads that decode and assemble; 0 does it in the thread that iterates. Default: the processors
            that this process may use, over the ranks of this host.
        collate_fn: From a list of samples to a batch. Default: a dict of tensors; ragged columns as lists.
        pin_memory: Whether tensors go to page-locked memory, where there is a GPU.
        drop_last: Whether to leave out a last batch that is not full.
        timeout: Seconds to wait for a batch before an error; 0 waits for ever.
        prefetch_factor: Batches that may wait, for each worker.
        persistent_workers: Accepted; threads start in microseconds.
        in_order: Accepted; batches always come in order.
        seed: Seed of the order and of all random numbers that stages get. The same on all ranks.
        rank: Number of this data-parallel rank, or "slurm". Default: torch.distributed's, else RANK, else 0.
        world_size: Number of data-parallel ranks.
        mesh: A `DeviceMesh` of the data-parallel dimensions, in place of `rank` and `world_size`.
        lanes: Number of lanes, by default from the dataset alone; part of the order.
        epochs: Epochs that one iteration covers.
        steps_per_epoch: Batches that make an epoch of an endless stream. Required where a filter drops samples.
        end: "exact" ends the epoch of a pipeline that drops samples when all lanes have ended, each sample once.
        agree: Called once per batch with "this rank has more", returns whether any rank has; needed for `end="exact"`
            with several ranks where samples are dropped.
        memory_limit: Bytes that blocks and waiting batches may take. Default: half of what this process may use, over
            the ranks of this host.
        pad: Ragged columns to pad, with the value to pad with; adds `<column>_length`.
        on_error: "raise", or "skip": a row that does not decode is replaced by the next good row of its block, in
            stored order, and listed in `ledger()`.

    Raises:
        OptionError: An argument that cannot work; names it and the remedy.
    """

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: None = None,
        batch_sampler: None = None,
        num_workers: int | None = None,
        collate_fn: Callable[[list[dict[str, Any]]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: None = None,
        multiprocessing_context: None = None,
        generator: None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        seed: int = 0,
        rank: int | str | None = None,
        world_size: int | None = None,
        mesh: Any = None,
        lanes: int | None = None,
        epochs: int = 1,
        steps_per_epoch: int | None = None,
        end: str | None = None,
        agree: Callable[[bool], bool] | None = None,
        memory_limit: int | None = None,
        pad: Mapping[str, Any] | None = None,
        on_error: str = "raise",
    ) -> None:
        if not isinstance(dataset, Dataset):
            raise OptionError(
                f"DataLoader reads datasets from dataflow.open(), not {type(dataset).__name__}: "
                "for other datasets use torch.utils.data.DataLoader"
            )
        check_unsupported(
            {
                "sampler": sampler,
                "batch_sampler": batch_sampler,
                "worker_init_fn": worker_init_fn,
                "multiprocessing_context": multiprocessing_context,
                "generator": generator,
            }
        )
        check_numbers(
            required={"batch_size": batch_size, "epochs": epochs},
            optional={
                "lanes": lanes,
                "steps_per_epoch": steps_per_epoch,
                "prefetch_factor": prefetch_factor,
                "memory_limit": memory_limit,
            },
            num_workers=num_workers,
            timeout=timeout,
            seed=seed,
        )
        check_kinds(collate_fn=collate_fn, agree=agree, pad=pad)
        if on_error not in ("raise", "skip"):
            raise OptionError(f"on_error={on_error!r}: choose 'raise' or 'skip'")
        if on_error == "skip":
            check_replaceable(dataset.transforms)
        super().__init__(
            dataset,  # type: ignore[arg-type]
            batch_size=batch_size,
            num_workers=0,
            collate_fn=collate_fn,
            pin_memory=pin_memory,
            drop_last=drop_last,
            timeout=0,
            pin_memory_device=pin_memory_device,
            in_order=in_order,
        )
        self._dataset = dataset
        self.timeout = timeout
        self.num_workers = max(1, available_cpus() // local_ranks()) if num_workers is None else num_workers
        self.prefetch_factor = prefetch_factor or _PREFETCH_FACTOR
        self._window = max(1, self.num_workers) * self.prefetch_factor
        self._collate = collate_fn
        self._pad = dict(pad or {})
        if dataset.schema is not None:
            check_columns(dataset.schema.names, self._pad)
        self._agree = agree
        self._ledger = Ledger() if on_error == "skip" else None
        self.seed = seed
        self.shuffle = bool(shuffle)
        coordinate = find_rank(rank, world_size, mesh)
        self._batches = BatchRules(int(batch_size or 1), coordinate.rank, coordinate.ranks, drop_last)
        self._given_lanes = lanes if self.shuffle else None
        self._manifest = dataset.manifest
        chosen = lanes or default_lanes(self._manifest.num_blocks, usual_block_bytes(self._manifest))
        self._lanes = chosen if self.shuffle else 1
        self._epochs = Epochs(
            self._manifest.num_rows, dataset.one_to_one, end == "exact", self._batches, steps_per_epoch, epochs
        )
        check_end(self._epochs, end, agree)
        warn_of_narrow_lanes(self._lanes, self._batches.ranks)
        self._memory = memory_limit or int(available_memory() * _MEMORY_SHARE / local_ranks())
        self._working_set = self._measure()
        self._position = Position(self._epochs)
        self._prefix_epoch = 0
        self._running: weakref.ref[Iteration] | None = None
        self._source = dataset.source
        self._last: Pipeline | None = None
        self._decoder: BatchDecoder | None = None

    @property
    def rank(self) -> int:
        """Number of this data-parallel rank."""
        return self._batches.rank

    @property
    def world_size(self) -> int:
        """Number of data-parallel ranks."""
        return self._batches.ranks

    @property
    def lanes(self) -> int:
        """Number of lanes of the stream."""
        return self._lanes

    def __len__(self) -> int:
        """Batches of an iteration, the same on all ranks.

        Raises:
            TypeError: Lanes drop samples, so that only reading tells.
        """
        self._drop_prefix()
        length = self._epochs.length()
        if length is None:
            raise TypeError(
                "the number of batches after a filter is known only by reading: count them, or give steps_per_epoch="
            )
        return length

    def __iter__(self) -> Iteration:  # type: ignore[override]
        """Continue a loaded state, else start the current epoch. An iteration that still runs is closed."""
        previous = self._running() if self._running is not None else None
        if previous is not None:
            previous.close()
        start, number = self._position.begin()
        self._drop_prefix()
        rules = self._rules()
        self._source, self._decoder = rules.source, rules.form.decoder
        self._last = build(rules, start, self._epochs.extent(start.slots), Clocks())
        exact = None
        if self._epochs.exact and not self._epochs.one_to_one:
            filler = Filler(self._dataset, rules.deciding, rules.form, self.seed, start.epoch)
            agree = self._agree if self.world_size > 1 else None
            exact = ExactEnd(self._lanes, self._epochs.num_rows, self._dataset.filters, agree, filler)
        iteration = Iteration(
            self._last,
            self._position,
            start,
            number,
            timeout=self.timeout or None,
            exact=exact,
        )
        self._running = weakref.ref(iteration)
        return iteration

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch that the next iteration starts; the epoch that a loaded state is in goes on where it was."""
        if type(epoch) is not int or epoch < 0:
            raise OptionError(f"epoch {epoch!r}: epochs are counted from 0")
        running = self._running() if self._running is not None else None
        self._position.set_epoch(epoch, running=running is not None and running.close.alive)

    def state_dict(self) -> dict[str, Any]:
        """What was delivered so far, as a JSON-able dict; never a collective.

        Where no samples are dropped, the state of any rank is that of all. Otherwise see `dataflow.merge_states`.
        """
        now = self._position.now
        cursors = None if self._epochs.one_to_one else now.cursors
        self._drop_prefix()
        return StreamState(
            self._manifest.fingerprint,
            self._fingerprint(self._lanes),
            self.seed,
            self._lanes,
            now.epoch,
            now.slots,
            cursors,
        ).to_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a state, on any number of ranks and with any batch size; takes effect at the next `iter()`.

        Where shards were added to the dataset since, the epoch goes on over those that it had, and the next one has
        all; a stream with `steps_per_epoch` stays with those that it began with.

        Raises:
            StateError: The state is of another dataset, pipeline or seed, or of one rank where all are needed.
        """
        state = StreamState.from_dict(state_dict)
        manifest = self._dataset.manifest.prefix(state.dataset)
        if manifest is None:
            excluded = self._manifest.num_excluded
            note = f" ({excluded:,} rows are excluded from it, perhaps since then)" if excluded else ""
            raise StateError(
                f"the state is of dataset {state.dataset}, {self._manifest.url} is {self._manifest.fingerprint}{note}: "
                "open the dataset that the state was taken from"
            )
        state.check_belongs(
            lanes=self._given_lanes,
            pipeline=self._fingerprint(state.lanes),
            seed=self.seed,
            described=self._describe(),
        )
        state.check_complete()
        self._lanes = state.lanes
        self._use(manifest)
        self._prefix_epoch = state.epoch
        self._position.load(Mark(state.epoch, state.slots, dict(state.cursors or {})))

    def stats(self) -> dict[str, Any]:
        """Figures of the last iteration: seconds busy, starved, blocked of each stage, bytes, and waits."""
        if self._last is None or self._decoder is None:
            raise DataflowError("nothing was read yet: iterate first")
        blocks, batches = self._working_set.blocks, self._working_set.batches
        working_set = {"blocks": blocks, "batches": batches, "memory_limit": self._memory}
        return stats(
            self._last,
            self._source,
            self._decoder.slabs.values(),
            self._decoders(),
            len(self._ledger or ()),
            working_set,
        )

    def ledger(self) -> list[dict[str, Any]]:
        """The rows that this loader replaced because they do not decode, in stored order, JSON-able.

        Each is listed once, with the URLs of dataset and shard, the block, the row within it, the `sample_id`, its
        value in the column `key`, the column that does not decode, and the reason. Batches that wait count, too.
        """
        return self._ledger.entries() if self._ledger is not None else []

    def report(self) -> str:
        """The figures of `stats` as text: a table, and what the consumer waited for."""
        return report(self.stats())

    def _use(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._epochs.num_rows = manifest.num_rows
        self._working_set = self._measure()

    def _drop_prefix(self) -> None:
        """Take in shards that were added to the dataset, once the epoch of a state that did not have them is over."""
        grown = self._manifest.num_shards < self._dataset.manifest.num_shards
        if grown and self._epochs.steps is None and self._position.now.epoch != self._prefix_epoch:
            self._use(self._dataset.manifest)

    def _rules(self) -> PipelineRules:
        dataset = self._dataset
        source = dataset.source.uncounted()
        pads = bool(self._epochs.steps is None and not self._batches.drop_last and self._batches.ranks > 1)
        deciding, form = plan_stages(
            dataset,
            BadRows(self._manifest, source, self._ledger),
            rows=self._batches.batch_size,
            waiting=self._window,
            pad=self._pad,
            collate=self._collate,
            marks_valid=pads or (self._epochs.exact and not self._epochs.one_to_one),
            pin=bool(self.pin_memory and torch.cuda.is_available()),
        )
        return PipelineRules(
            self._manifest,
            source,
            deciding,
            dataset.filters,
            StreamRules(BlockLayout.of(self._manifest.rows), self.seed, "", self._lanes, self.shuffle),
            self._batches,
            self._epochs.exact,
            form,
            self.num_workers,
            self._window,
            self._working_set,
        )

    def _measure(self) -> WorkingSet:
        return working_set(
            self._manifest,
            lanes=self._lanes,
            ranks=self._batches.ranks,
            rank=self._batches.rank,
            batch_size=self._batches.batch_size,
            window=self._window,
            concurrency=self._dataset.store.concurrency,
            limit=self._memory,
            decoded=sum(stage.nbytes for stage in self._decoded()),
        )

    def _fingerprint(self, lanes: int) -> str:
        stages = [list(stage) for stage in self._dataset.pipeline]
        if self._epochs.exact and not self._epochs.one_to_one:
            stages.append(["end", "exact"])
        return pipeline_fingerprint(lanes, self.shuffle, stages)

    def _decoded(self) -> list[Decode]:
        return [stage for stage in self._dataset.stages if isinstance(stage, Decode)]

    def _decoders(self) -> dict[str, str]:
        return {stage.column: stage.codec.decoder() for stage in self._decoded()}

    def _describe(self) -> str:
        stages = " -> ".join(" ".join(map(str, stage)) for stage in self._dataset.pipeline) or "no stages"
        return f"shuffle={self.shuffle}, {stages}"
