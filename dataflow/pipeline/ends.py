"""Which ends an epoch can have: combinations that would hang ranks or lose samples are refused."""

from __future__ import annotations

import warnings
from collections.abc import Callable

from dataflow.errors import OptionError
from dataflow.pipeline.position import Epochs


def check_end(epochs: Epochs, end: str | None, agree: Callable[[bool], bool] | None) -> None:
    """Check what a loader was asked for.

    Args:
        epochs: How the stream is cut.
        end: "exact" or None.
        agree: Whether ranks can agree on an end.

    Raises:
        OptionError: Names the arguments and the remedy.
    """
    batches, ranks = epochs.batches, epochs.batches.ranks
    if end not in (None, "exact"):
        raise OptionError(f"end={end!r}: give 'exact', or leave it out")
    if end == "exact" and (batches.drop_last or epochs.steps is not None or epochs.epochs != 1):
        raise OptionError(
            "end='exact' gives each sample of one epoch once: leave out drop_last=, steps_per_epoch= and epochs="
        )
    if not epochs.one_to_one:
        if end is None and epochs.steps is None:
            raise OptionError(
                "only reading tells how many samples there are, so that ranks would end at different steps: "
                "give steps_per_epoch= for training, or end='exact' for evaluation"
            )
        if end == "exact" and ranks > 1 and agree is None:
            raise OptionError(
                f"end='exact' on {ranks} ranks, where only reading tells how many samples there are, needs agree=: "
                "a callable that takes whether this rank has more and returns whether any has, as by an all_reduce"
            )
    rows, batch = epochs.num_rows * epochs.epochs, batches.global_batch
    if batches.drop_last and epochs.steps is None and 0 < rows < batch:
        raise OptionError(
            f"batch_size={batches.batch_size} on {ranks} ranks is more than the {rows} rows of the dataset, and "
            "drop_last would leave all of them out: lower batch_size=, or leave out drop_last="
        )
    if epochs.steps is not None and epochs.num_rows == 0:
        raise OptionError("the dataset has no rows, and steps_per_epoch= asks for a stream without end")


def warn_of_narrow_lanes(lanes: int, ranks: int) -> None:
    """Warn where so few lanes are spread over so many ranks that most blocks are read by several."""
    if ranks > 1 and 4 * ranks > lanes > 1:
        warnings.warn(
            f"{lanes} lanes for {ranks} ranks: many blocks are read by several ranks; give lanes= (a multiple of the "
            "ranks), or shard with smaller blocks",
            stacklevel=4,
        )
