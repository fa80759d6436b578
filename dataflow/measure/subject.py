"""Subject: the pipeline that is measured, and how it is at each level."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from time import perf_counter
from typing import Any, cast

import torch

from dataflow.dataset import Dataset
from dataflow.dataset.mixture import Mixture
from dataflow.errors import OptionError
from dataflow.loader import DataLoader
from dataflow.measure.accelerator import utilisation
from dataflow.measure.bare_client import BareClient, Probe, rising
from dataflow.measure.level import Level, Look, take
from dataflow.measure.order import ranges_in_order
from dataflow.measure.page_cache import cached_share, drop
from dataflow.measure.partial import FetchOnly, decodes
from dataflow.measure.reads import Read, RecordedStore, in_flight, latencies
from dataflow.measure.verdict import MemoryTrial
from dataflow.pipeline.assemble import Assembler
from dataflow.pipeline.bad_rows import Ledger
from dataflow.pipeline.blueprint import Blueprint, Options
from dataflow.pipeline.build import build
from dataflow.pipeline.clocks import Clocks
from dataflow.pipeline.corpus import make_corpus
from dataflow.pipeline.deciding import ONE_TO_ONE
from dataflow.pipeline.position import Epochs, Mark
from dataflow.pipeline.resources import available_memory
from dataflow.sampling.layout import BlockLayout
from dataflow.sampling.stream import StreamRules
from dataflow.storage import Store
from dataflow.storage.local import LocalStore

__all__ = ["Subject"]

_WITHOUT_END = 1 << 40
_PROBE_SHARE = 0.25
_BINS = 60
_MEMORY_SHARE = 0.5


class Subject:
    """A loader's pipeline, which is built anew for each level.

    Attributes:
        dataset: The loader's, over a store that notes its reads.
        store: The loader's own.
        batch_size: Samples of a batch.
        decodes_apart: Whether there is anything to decode, and known beforehand which rows.
        here: The pipeline without copies to a device.
        on_device: With copies to the device; None where there are none.
        row_bytes: Bytes that a stored row takes in the store, on average.
        probes: What the store gave to the bare client.
        kept: Samples that come of a stored row, as far as is known.
    """

    def __init__(self, loader: DataLoader, seconds: float, cold: bool) -> None:
        original = cast(Dataset, loader.dataset)
        if isinstance(original, Mixture):
            raise OptionError("a mixture is measured source by source: give one of its datasets")
        self._loader, self._seconds, self._cold = loader, seconds, cold
        self.store: Store = original.store
        if cold and not isinstance(self.store, LocalStore):
            raise OptionError(f"cold=True empties the page cache of local files, which {self.store.url} has none of")
        if original.num_rows == 0:
            raise OptionError(f"{original.manifest.url} has no rows: there is nothing to measure")
        self._recorded = RecordedStore(self.store)
        self.dataset = copy.copy(original)
        self.dataset.store = cast(Store, self._recorded)
        options = loader._blueprint.options
        self.batch_size = options.batches.batch_size
        self._options = replace(options, ledger=None if options.ledger is None else Ledger())
        pin = options.pin and options.device is None
        self.here = self._blueprint(replace(self._options, device=None, pin=pin))
        self.on_device = None if options.device is None else self._blueprint(self._options)
        rules = self.here.rules()
        self.decodes_apart = not rules.deciding and decodes(rules.form)
        self.row_bytes = self.dataset.manifest.num_bytes / self.dataset.num_rows
        self.probes: list[Probe] = []
        self.kept = 1.0
        self._epoch = 0
        self._seen: set[tuple[str, int]] = set()
        lanes = StreamRules(
            BlockLayout.of(self.dataset.manifest.rows), loader.seed, "", self.here.corpus.lanes, loader.shuffle
        )
        self._ranges = ranges_in_order(self.dataset.manifest, lanes)

    @property
    def short_of_memory(self) -> bool:
        """Whether blocks would take more memory if they might."""
        return self._unbounded().working_set.blocks > self.here.working_set.blocks

    def storage(self, on_progress: Callable[[str], None]) -> Level:
        """The bare client: at rising concurrency, and then for longer with as many connections as are of use."""
        cached = self._prepare()
        client = BareClient(self.store, self._ranges, once=self._cold, prepare=self._drop)
        on_progress("storage")
        for probe in rising(client, _PROBE_SHARE * self._seconds, self.store.concurrency):
            on_progress(f"storage, {probe.connections} at a time")
            self.probes.append(probe)
        best = max(probe.rate for probe in self.probes)
        least = min(probe.connections for probe in self.probes if probe.rate >= 0.95 * best)
        found = client.probe(least, self._seconds)
        self.probes = [probe for probe in self.probes if probe.connections != least] + [found]
        reads = found.reads
        start, stop = reads[0].start, max(read.stop for read in reads)
        level = Level("storage", found.rate / self.row_bytes, found.rate, found.usage)
        level.cached = cached
        level.latencies = latencies(reads)
        level.throughput = _throughput([(read.stop, read.nbytes) for read in reads], start, stop)
        level.in_flight = float(least)
        for probe in self.probes[:-1]:
            self._note(probe.reads)
        level.reread = self._note(reads)
        return level

    def level(
        self, name: str, blueprint: Blueprint, assembling: type[Assembler] = Assembler, step: float | None = None
    ) -> Level:
        """What comes out of a pipeline."""
        cached = self._prepare()
        self._recorded.reads.clear()
        self._epoch += 1
        mark = Mark(self._epoch, 0, {})
        began = perf_counter()
        arrive: Callable[[], None] = lambda: None  # noqa: E731
        if assembling is Assembler:
            run = blueprint.run(mark)
            batches, clocks = run.transfer or run.pipeline, run.pipeline.clocks
            if run.transfer is not None and blueprint.options.device is not None:
                arrive = _arrival(blueprint.options.device)
        else:
            clocks = Clocks()
            rules = replace(blueprint.rules(), deciding=ONE_TO_ONE)
            batches = build(rules, mark, blueprint.epochs.extent(0), clocks, assembling)
        try:
            most_rows = self.dataset.num_rows // self._options.batches.ranks if self._cold else None
            steps = take(batches.next, clocks, self._seconds, most_rows=most_rows, step=step, arrive=arrive)
        finally:
            batches.close()
        reads = list(self._recorded.reads)
        end = steps.events[-1][0]
        level = Level(name, steps.rate, steps.rate * self.row_bytes, steps.usage, steps.first - began)
        level.cached = cached
        level.reread = self._note(reads)
        level.latencies = latencies([read for read in reads if read.stop >= steps.since])
        level.throughput = _throughput([(at, rows * self.row_bytes) for at, rows in steps.events], began, end)
        level.stages = _stages(steps.looks)
        level.waited_for = dict(clocks.waited_for)
        level.in_flight = in_flight(reads, steps.since, end)
        if assembling is Assembler and not self.dataset.one_to_one:
            samples = len(steps.events) * self.batch_size
            self.kept = samples / sum(rows for _, rows in steps.events)
        if step is not None:
            level.utilisation = utilisation(step, [at for at, _ in steps.events])
        return level

    def with_more_memory(self) -> MemoryTrial:
        """Fetching once more, with all the memory that blocks can use."""
        blueprint = self._unbounded()
        found = self.level("fetch", blueprint, FetchOnly)
        return MemoryTrial(self.here.working_set.blocks, blueprint.working_set.blocks, found.nbytes)

    def described(self) -> dict[str, Any]:
        """What the figures depend on, JSON-able."""
        options = self._options
        return {
            "seconds": self._seconds,
            "cold": self._cold,
            "batch_size": self.batch_size,
            "ranks": options.batches.ranks,
            "workers": options.workers,
            "window": options.window,
            "shuffle": options.shuffle,
            "seed": options.seed,
            "lanes": self.here.corpus.lanes,
            "memory_limit": options.memory,
            "concurrency": self.store.concurrency,
            "device": None if options.device is None else str(options.device),
            "columns": list(self.dataset.columns),
            "stages": [[kind, name, [repr(value) for value in values]] for kind, name, values in self.dataset.pipeline],
        }

    def _blueprint(self, options: Options) -> Blueprint:
        # A stream without end: how much is read depends on the time alone.
        dataset = self.dataset
        epochs = Epochs(dataset.num_rows, dataset.one_to_one, dataset.expands, False, options.batches, _WITHOUT_END, 1)
        corpus = make_corpus(
            dataset, options.lanes, options.shuffle, options.seed, options.batches.global_batch, grows=False
        )
        return Blueprint(dataset, corpus, options, epochs)

    def _unbounded(self) -> Blueprint:
        limit = max(self._options.memory, int(_MEMORY_SHARE * available_memory()))
        return self._blueprint(replace(self.here.options, memory=limit))

    def _prepare(self) -> float | None:
        self._drop()
        return cached_share(self.store.url, self._ranges) if isinstance(self.store, LocalStore) else None

    def _drop(self) -> None:
        if self._cold:
            drop(self.store.url, dict.fromkeys(path for path, _, _ in self._ranges))

    def _note(self, reads: Sequence[Read]) -> float:
        """Share of the bytes of some reads that were read before; they have been from now on."""
        again = 0
        for read in reads:
            place = read.path, read.first
            if place in self._seen:
                again += read.nbytes
            self._seen.add(place)
        return again / max(1, sum(read.nbytes for read in reads))


def _arrival(device: torch.device) -> Callable[[], None]:
    def arrive() -> None:
        if device.type == "cuda":
            torch.cuda.current_stream(device).synchronize()

    return arrive


def _throughput(events: Sequence[tuple[float, float]], start: float, stop: float) -> list[list[float]]:
    """Bytes a second in equal stretches of time, from what came when."""
    width = (stop - start) / min(_BINS, max(1, len(events)))
    bins = [0.0] * round((stop - start) / width)
    for at, nbytes in events:
        bins[min(len(bins) - 1, int((at - start) / width))] += nbytes
    return [[(number + 0.5) * width, nbytes / width] for number, nbytes in enumerate(bins)]


def _stages(looks: Sequence[Look]) -> dict[str, list[list[float]]]:
    stages: dict[str, list[list[float]]] = {}
    for before, now in pairwise(looks):
        for stage, clocks in now.clocks.items():
            gone = [value - earlier for value, earlier in zip(clocks, before.clocks[stage], strict=True)]
            stages.setdefault(stage, []).append([now.time - looks[0].time, *gone])
    return stages
