"""DataLoader: the front door."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, cast

import torch
import torch.utils.data

from dataflow.dataset import Dataset
from dataflow.errors import DataflowError, OptionError
from dataflow.pipeline.arguments import check_columns, check_dataset, check_kinds, check_numbers, check_unsupported
from dataflow.pipeline.bad_rows import Ledger
from dataflow.pipeline.blueprint import Blueprint, Options, Run
from dataflow.pipeline.clocks import described
from dataflow.pipeline.corpus import make_corpus
from dataflow.pipeline.device import check_device, pins
from dataflow.pipeline.dtypes import parse_dtypes
from dataflow.pipeline.ends import check_end, warn_of_narrow_lanes
from dataflow.pipeline.form import check_decoder
from dataflow.pipeline.iteration import Iteration
from dataflow.pipeline.padding import parse_pad
from dataflow.pipeline.plan import BatchRules
from dataflow.pipeline.position import Epochs, Position
from dataflow.pipeline.rank import find_rank, local_ranks
from dataflow.pipeline.report import report, stats, totals
from dataflow.pipeline.resources import available_cpus, available_memory
from dataflow.pipeline.restore import restore
from dataflow.pipeline.source import check_on_error, most_errors
from dataflow.pipeline.trace import Trace, traced
from dataflow.sampling.state import StreamState

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
        pad: Columns of lists to pad: the value to pad with, up to the longest row of the batch, or a `dataflow.Pad`.
            Adds `<column>_length`.
        dtypes: Types of columns in the batch, such as {"tokens": "int64"}, where not the stored ones.
        device: Where batches are copied to while the training works on the one before, such as "cuda"; tensors in what
            `collate_fn` returns, too. Default: they stay in the processor's memory.
        on_error: "raise", or "skip": a row that does not decode is replaced by the next good row of its block, in
            stored order, and listed in `ledger()`.
        max_errors: Rows that may be replaced before it is an error after all: a number, or below 1 a share of the rows.
        ledger_url: A file or object where the rows that were replaced are listed as lines of JSON, whenever an
            iteration ends; one for each rank.
        decoder: What decodes images of whole batches: "native", or "dali", an extra: the same windows, with values that
            differ by a level or two. No part of the state.
        on_step: Called with each batch that was delivered, as `steps` lists them, before it is handed over.

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
        dtypes: Mapping[str, Any] | None = None,
        device: str | torch.device | None = None,
        on_error: str = "raise",
        max_errors: float | None = None,
        ledger_url: str | None = None,
        decoder: str = "native",
        on_step: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        check_dataset(dataset)
        check_unsupported(
            sampler=sampler,
            batch_sampler=batch_sampler,
            worker_init_fn=worker_init_fn,
            multiprocessing_context=multiprocessing_context,
            generator=generator,
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
        check_kinds(collate_fn=collate_fn, agree=agree, on_step=on_step, pad=pad, dtypes=dtypes)
        padding, types = parse_pad(pad), parse_dtypes(dtypes)
        chosen = check_device(device)
        check_on_error(on_error, dataset.transforms, max_errors, ledger_url)
        check_decoder(decoder, dataset, collate_fn)
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
        self.timeout = timeout
        self.num_workers = max(1, available_cpus() // local_ranks()) if num_workers is None else num_workers
        self.prefetch_factor = prefetch_factor or _PREFETCH_FACTOR
        if dataset.schema is not None:
            check_columns(dataset.schema, padding, types)
        self.seed = seed
        self.shuffle = bool(shuffle)
        coordinate = find_rank(rank, world_size, mesh)
        batches = BatchRules(int(batch_size or 1), coordinate.rank, coordinate.ranks, drop_last)
        corpus = make_corpus(dataset, lanes, self.shuffle, seed, batches.global_batch, grows=steps_per_epoch is None)
        steps = corpus.steps(steps_per_epoch)
        self._epochs = Epochs(
            dataset.num_rows, dataset.one_to_one, dataset.expands, end == "exact", batches, steps, epochs
        )
        check_end(self._epochs, end, agree)
        options = Options(
            batches=batches,
            shuffle=self.shuffle,
            seed=seed,
            lanes=lanes,
            workers=self.num_workers,
            window=max(1, self.num_workers) * self.prefetch_factor,
            memory=memory_limit or int(available_memory() * _MEMORY_SHARE / local_ranks()),
            pad=padding,
            dtypes=types,
            collate=collate_fn,
            agree=agree,
            pin=pins(pin_memory, pin_memory_device, chosen),
            device=chosen,
            ledger=Ledger(most_errors(max_errors, dataset.num_rows), ledger_url) if on_error == "skip" else None,
            decoder=decoder,
        )
        self._blueprint = Blueprint(dataset, corpus, options, self._epochs)
        warn_of_narrow_lanes(self.lanes, batches.ranks)
        self._position = Position(self._epochs)
        self._running: weakref.ref[Iteration] | None = None
        self._last: Run | None = None
        self._on_step = on_step
        self._deciding = dataset.deciding
        self._trace: Trace | None = None
        # Figures of the iterations before the last.
        self._before: dict[str, Any] = {}

    @property
    def rank(self) -> int:
        """Number of this data-parallel rank."""
        return self._blueprint.options.batches.rank

    @property
    def world_size(self) -> int:
        """Number of data-parallel ranks."""
        return self._blueprint.options.batches.ranks

    @property
    def lanes(self) -> int:
        """Number of lanes of the stream."""
        return self._blueprint.corpus.lanes

    def __len__(self) -> int:
        """Batches of an iteration, the same on all ranks.

        Raises:
            TypeError: Lanes drop samples, so that only reading tells.
        """
        self._blueprint.renew(self._position.now.epoch)
        length = self._epochs.length()
        if length is None:
            raise TypeError(
                f"the number of batches after {self._deciding} is known only by reading: count them, or give "
                "steps_per_epoch="
            )
        return length

    def __iter__(self) -> Iteration:  # type: ignore[override]
        """Continue a loaded state, else start the current epoch. An iteration that still runs is closed."""
        previous = self._running() if self._running is not None else None
        if previous is not None:
            previous.close()
        start, number = self._position.begin()
        self._blueprint.renew(start.epoch)
        if self._last is not None:
            self._before = self.totals()
        run = self._last = self._blueprint.run(start, self._trace)
        ledger = self._blueprint.options.ledger
        iteration = Iteration(
            run.transfer or run.pipeline,
            self._position,
            start,
            number,
            timeout=self.timeout or None,
            exact=run.exact,
            on_step=self._on_step,
            closed=None if ledger is None else ledger.save,
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
        self._blueprint.renew(now.epoch)
        return self._blueprint.state(now).to_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a state, on any number of ranks and with any batch size; takes effect at the next `iter()`.

        Where shards were added to the dataset since, the epoch goes on over those that it had, and the next one has
        all; a stream with `steps_per_epoch` stays with those that it began with.

        Raises:
            StateError: The state is of another dataset, pipeline or seed, or of one rank where all are needed.
        """
        self._position.load(self._blueprint.load(StreamState.from_dict(state_dict)))

    def restore(self, sample_id: int, slot: int = 0) -> Any:
        """One sample as a batch had it, before it was put into the batch: the same row, with the same random numbers.

        Args:
            sample_id: As the batch has it; the row that replaces one that does not decode has an id of its own.
            slot: As the batch has it. Where epochs end with the data, slots count from the start of an epoch: that
                which the loader is in, or `set_epoch` chose.

        Raises:
            OptionError: There is no such row, or stages make more or fewer samples of the rows.
            CorruptDataError: The row does not decode.
        """
        dataset = cast(Dataset, self.dataset)
        return restore(dataset, self.seed, sample_id, self._position.now.epoch + slot // max(1, dataset.num_rows))

    def stats(self) -> dict[str, Any]:
        """Figures of the last iteration: seconds busy, starved, blocked of each stage, bytes, and waits."""
        if self._last is None:
            raise DataflowError("nothing was read yet: iterate first")
        rules, pipeline, transfer, _ = self._last
        memory, limit = self._blueprint.working_set, self._blueprint.options.memory
        return stats(
            pipeline,
            rules.blocks.hits,
            [*rules.form.decoder.slabs.values(), *rules.form.layout.slabs.values()],
            self._blueprint.decoders() | rules.form.decoder.decoders(),
            len(self._blueprint.options.ledger or ()),
            0 if transfer is None else transfer.copier.nbytes,
            {"blocks": memory.blocks, "batches": memory.batches, "memory_limit": limit},
            rules.deciding.packed(),
        )

    def totals(self) -> dict[str, Any]:
        """Those figures of `stats` that only grow, over all iterations so far; empty before the first."""
        return totals(self._before, self.stats()) if self._last is not None else {}

    def steps(self) -> list[dict[str, Any]]:
        """The last 1,024 batches of the last iteration, JSON-able.

        Each with its number `step`, the seconds `between` it and the one before that the consumer had for itself, those
        that it then `waited`, and these `by_stage` that the batch was still in.
        """
        return [described(step) for step in self._last.pipeline.clocks.recent] if self._last is not None else []

    def trace(self, url: str) -> AbstractContextManager[None]:
        """Writes what threads and batches do within the `with` block: Chrome trace events, at its end.

        The iteration that runs is traced, and those that begin. Open the file in https://ui.perfetto.dev, several of
        different ranks or of torch's profiler at once if you like; `dataflow` never contacts that page.

        Args:
            url: A file, or an object in any store. The first million events are written, some ten a batch.

        Raises:
            DataflowError: The loader is being traced already.
        """
        return traced(url, self.rank, self._set_trace)

    def ledger(self) -> list[dict[str, Any]]:
        """The rows that this loader replaced because they do not decode, in stored order, JSON-able.

        Each is listed once, with the URLs of dataset and shard, the block, the row within it, the `sample_id`, its
        value in the column `key`, the column that does not decode, and the reason. Batches that wait count, too.
        """
        ledger = self._blueprint.options.ledger
        return ledger.entries() if ledger is not None else []

    def report(self) -> str:
        """The figures of `stats` as text: a table, and what the consumer waited for."""
        return report(self.stats())

    def _set_trace(self, trace: Trace | None) -> None:
        if trace is not None and self._trace is not None:
            raise DataflowError("this loader is being traced already: end that with block first")
        self._trace = trace
        if self._last is not None:
            self._last.pipeline.clocks.trace(trace)
