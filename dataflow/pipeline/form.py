"""Form: which stages run where, from reading a row up to the batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dataflow.codecs import Image
from dataflow.dataset.dataset import Dataset
from dataflow.dataset.expanding import Pack
from dataflow.dataset.stages import Decode
from dataflow.errors import OptionError
from dataflow.pipeline.assemble import BatchForm
from dataflow.pipeline.bad_rows import BadRows
from dataflow.pipeline.batch_layout import BatchLayout
from dataflow.pipeline.deciding import Deciding, split_at_last_deciding
from dataflow.pipeline.decode import BatchDecoder
from dataflow.pipeline.source import Source, split_at_first_call, split_at_last_call
from dataflow.pipeline.transform import Sample


def check_decoder(decoder: str, dataset: Dataset, collate: Callable[[list[Sample]], Any] | None) -> None:
    """Refuse a decoder that would have nothing to do, or is not there.

    Raises:
        OptionError: Says what is missing.
    """
    if decoder not in ("native", "dali"):
        raise OptionError(f"decoder={decoder!r}: choose 'native' or 'dali'")
    if decoder == "native":
        return
    by_batch = split_at_last_call(dataset.transforms)[1] if collate is None else ()
    if not any(isinstance(stage, Decode) and isinstance(stage.codec, Image) for stage in by_batch):
        raise OptionError(
            "decoder='dali' decodes images of whole batches, of which there are none: put decode(column="
            "dataflow.Image(...)) after map() and filter(), without collate_fn=, or choose decoder='native'"
        )
    from dataflow.codecs.dali_graph import load_dali

    load_dali()


def plan_stages(
    dataset: Dataset,
    bad_rows: BadRows,
    *,
    rows: int,
    waiting: int,
    layout: BatchLayout,
    collate: Callable[[list[Sample]], Any] | None,
    marks_valid: bool,
    pin: bool,
    decoder: str,
    device: torch.device | None,
) -> tuple[Deciding, BatchForm]:
    """The stages that decide what samples there are, and the form of batches with all others.

    Args:
        dataset: The rows and their stages.
        bad_rows: What is done with rows that do not decode.
        rows: Most rows of a batch.
        waiting: Most batches that wait for the consumer.
        layout: How columns are laid into batches.
        collate: The user's function from samples to a batch, which have been through all stages then.
        marks_valid: Whether batches carry `valid`.
        pin: Whether tensors go to page-locked memory.
        decoder: What decodes images of whole batches, "native" or "dali".
        device: Where batches are to be; only DALI makes them there.
    """
    stages = dataset.transforms
    by_sample, by_batch = split_at_last_call(stages) if collate is None else (stages, ())
    at_source, calls = split_at_first_call(by_sample)
    deciding, after = split_at_last_deciding(calls, bad_rows.describe, len(at_source))
    return deciding, BatchForm(
        columns=dataset.columns,
        source=Source(dataset.columns, at_source, bad_rows),
        transform=after,
        decoder=BatchDecoder(by_batch, rows, waiting, pin, bad_rows, decoder, device),
        layout=layout,
        collate=collate,
        marks_valid=marks_valid,
        packs=any(isinstance(stage, Pack) for stage in stages),
        pin=pin,
    )
