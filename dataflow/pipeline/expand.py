"""Expand: one item to several."""

from __future__ import annotations

from typing import Any

import numpy as np

from dataflow.dataset.expanding import FlatMap, Window
from dataflow.errors import DatasetError
from dataflow.pipeline.lane_rows import Item
from dataflow.pipeline.transform import noted
from dataflow.sampling.random import sample_generator


def flat_mapped(stage: FlatMap, number: int, item: Item) -> list[Item]:
    """What the function of a stage, number `number` of the pipeline, makes of an item."""
    with noted(stage, item.key):
        made = stage.fn(item.sample, sample_generator(item.key, number)) if stage.takes_rng else stage.fn(item.sample)
        if isinstance(made, (dict, str, bytes)) or not hasattr(made, "__iter__"):
            raise DatasetError(f"flat_map {stage.name!r} returned {type(made).__name__}: let it return a list of rows")
        return [Item(sample, item.key.part(part)) for part, sample in enumerate(made)]


def windows(stage: Window, item: Item) -> list[Item]:
    """The windows over the columns of an item, as views of them; other columns are in each of them."""
    columns: dict[str, Any] = {}
    for column in stage.columns:
        if column not in item.sample:
            raise DatasetError(f"samples have no column {column!r}, only {', '.join(item.sample)}: see window()")
        columns[column] = values = item.sample[column]
        if not hasattr(values, "__len__") or isinstance(values, (str, bytes)):
            raise DatasetError(f"column {column!r} holds {type(values).__name__}, not a list: see window()")
        if isinstance(values, list):
            columns[column] = np.asarray(values)
    lengths = {len(values) for values in columns.values()}
    if len(lengths) > 1:
        raise DatasetError(
            f"columns {', '.join(stage.columns)} of row {item.key.row} of block {item.key.block} have different "
            "lengths: window() cuts them alike"
        )
    (length,) = lengths
    full = max(0, (length - stage.size) // stage.stride + 1)
    starts = [part * stage.stride for part in range(full)]
    reached = starts[-1] + stage.size if starts else 0
    if stage.partial == "keep" and length > max(reached, full * stage.stride):
        starts.append(full * stage.stride)
    return [
        Item(
            item.sample | {column: values[begin : begin + stage.size] for column, values in columns.items()},
            item.key.part(part),
        )
        for part, begin in enumerate(starts)
    ]
