"""Restore: one sample as it was delivered, random numbers included."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dataflow.dataset import Dataset
from dataflow.dataset.columns import ColumnViewer
from dataflow.dataset.mixture import Mixture
from dataflow.dataset.stages import Map
from dataflow.errors import OptionError
from dataflow.pipeline.bad_rows import BadRows
from dataflow.pipeline.source import Source, split_at_first_call
from dataflow.pipeline.transform import Transform
from dataflow.sampling.random import SampleKey


def restore(dataset: Dataset, seed: int, sample_id: int, epoch: int) -> Any:
    """The sample of a row in an epoch.

    Raises:
        OptionError: There is no such row, or a row is not one sample.
        CorruptDataError: It does not decode.
    """
    if not dataset.one_to_one:
        raise OptionError(f"with {dataset.deciding} a sample is not one row: restore() has no way to tell it")
    if isinstance(dataset, Mixture):
        raise OptionError("restore() takes rows of one dataset: ask a loader of the source that the sample is from")
    if not 0 <= sample_id < dataset.num_rows:
        raise OptionError(f"there is no sample {sample_id} in {dataset.url}, which has {dataset.num_rows} rows")
    block, row = dataset.manifest.locate(sample_id)
    blocks = dataset.blocks()
    bad_rows = BadRows(blocks, None)
    at_source, calls = split_at_first_call(dataset.transforms)
    source = Source(dataset.columns, at_source, bad_rows)
    views = ColumnViewer(blocks.schema, dataset.columns)(blocks.decode(block, blocks.fetch(block)))
    sample, key = source.read(views, SampleKey(seed, "", epoch, block, row))
    # One sample is not worth a process; what comes out is the same.
    here = [replace(stage, processes=None) if isinstance(stage, Map) else stage for stage in calls]
    return Transform(here, bad_rows.describe, len(at_source))(sample, key)
