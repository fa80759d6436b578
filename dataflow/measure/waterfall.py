"""Bench: measures a pipeline level by level, each for a bounded time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dataflow.dataset import Dataset
from dataflow.errors import OptionError
from dataflow.loader import DataLoader
from dataflow.measure.accelerator import choose_accelerator
from dataflow.measure.measurement import Measurement
from dataflow.measure.partial import DecodeOnly, FetchOnly, ReadOnly
from dataflow.measure.provenance import provenance
from dataflow.measure.subject import Subject
from dataflow.measure.verdict import Evidence, decide
from dataflow.pipeline.assemble import Assembler
from dataflow.pipeline.resources import available_cpus

__all__ = ["bench"]

_SLOWED = 0.8


def bench(
    source: DataLoader | Dataset,
    *,
    seconds: float = 3.0,
    step: float | None = None,
    accelerator: str | None = None,
    cold: bool = False,
    on_progress: Callable[[str], None] = lambda level: None,
    **arguments: Any,
) -> Measurement:
    """Measures what the storage gives, what is left of it after each stage of a pipeline, and what holds it.

    Nothing is changed: neither the position of a loader nor its ledger. Each level reads an epoch of its own, so that
    of a large dataset no level finds what another one has left in a cache.

    Args:
        source: A loader as it is used in training, or a dataset.
        seconds: How long each level is measured, about; half as long again goes by before.
        step: Seconds that an emulated accelerator computes each batch.
        accelerator: Name of one of `ACCELERATORS`, in place of `step`.
        cold: Empty the page cache before each level, and end it when it has read the dataset once. Local files only.
        on_progress: Is told of each level when it begins.
        arguments: Of the `DataLoader` that is made of a dataset. It shuffles, and has the batch size of the
            accelerator, else 64, where they do not say otherwise.

    Raises:
        OptionError: An argument that cannot work; names it and the remedy.
        DataflowError: The pipeline fails, or gives no batch within a minute.
        StorageError: The store could not be read.
    """
    if not 0 < seconds <= 3600:
        raise OptionError(f"seconds is {seconds}: give more than 0, and at most an hour")
    chosen = choose_accelerator(accelerator, step)
    if isinstance(source, Dataset):
        batch_size = chosen.batch_size if chosen is not None and chosen.batch_size else 64
        source = DataLoader(source, **{"batch_size": batch_size, "shuffle": True} | arguments)
    elif not isinstance(source, DataLoader):
        raise OptionError(f"bench takes a dataflow.DataLoader or a dataset, not {type(source).__name__}")
    elif arguments:
        raise OptionError(f"{next(iter(arguments))}= belongs to the loader: give it there")
    subject = Subject(source, seconds, cold)
    parts: dict[str, type[Assembler]] = {"fetch": FetchOnly, "read": ReadOnly, "decode": DecodeOnly, "batch": Assembler}
    if not subject.decodes_apart:
        del parts["decode"]
    levels = [subject.storage(on_progress)]
    for name, assembling in parts.items():
        on_progress(name)
        levels.append(subject.level(name, subject.here, assembling))
    if subject.on_device is not None:
        on_progress("transfer")
        levels.append(subject.level("transfer", subject.on_device))
    demand = None
    if chosen is not None:
        on_progress("accelerator")
        levels.append(subject.level("accelerator", subject.on_device or subject.here, step=chosen.step))
        demand = subject.batch_size / subject.kept / chosen.step
    trial = None
    if levels[1].nbytes < _SLOWED * levels[0].nbytes and subject.short_of_memory:
        on_progress("fetch with more memory")
        trial = subject.with_more_memory()
    evidence = Evidence(
        levels,
        {probe.connections: probe.rate for probe in subject.probes},
        subject.store.concurrency,
        source.num_workers,
        available_cpus(),
        demand,
        chosen,
        trial,
    )
    options = subject.described() | {"step": step, "accelerator": accelerator}
    facts = provenance(subject.dataset.manifest, options)
    return Measurement(evidence, decide(evidence), subject.row_bytes, subject.kept, facts)
