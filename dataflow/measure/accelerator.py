"""Emulated accelerators: how long a step takes, and which share of the time they compute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dataflow.errors import OptionError

__all__ = ["ACCELERATORS", "Accelerator", "choose_accelerator", "utilisation"]


@dataclass(frozen=True, slots=True)
class Accelerator:
    """An accelerator that takes a batch, computes for a fixed time, and takes the next.

    Attributes:
        name: What it is called.
        step: Seconds of computing a batch.
        batch_size: Samples of a batch; None for any.
        sample_bytes: Bytes that a sample is read as on average; None for any.
        least_utilisation: What MLPerf Storage asks of a storage system; None where it asks nothing.
    """

    name: str
    step: float
    batch_size: int | None = None
    sample_bytes: float | None = None
    least_utilisation: float | None = None


# From MLPerf Storage v1.0, github.com/mlcommons/storage, in configs/dlio/workload/<model>_<accelerator>.yaml:
# train.computation_time, reader.batch_size, dataset.record_length_bytes, metric.au.
ACCELERATORS = {
    accelerator.name: accelerator
    for accelerator in (
        Accelerator("unet3d-a100", 0.636, 7, 146_600_628, 0.90),
        Accelerator("unet3d-h100", 0.323, 7, 146_600_628, 0.90),
        Accelerator("resnet50-a100", 0.435, 400, 114_660.07, 0.90),
        Accelerator("resnet50-h100", 0.224, 400, 114_660.07, 0.90),
        Accelerator("cosmoflow-a100", 0.00551, 1, 2_828_486, 0.70),
        Accelerator("cosmoflow-h100", 0.00350, 1, 2_828_486, 0.70),
    )
}


def choose_accelerator(accelerator: str | None, step: float | None) -> Accelerator | None:
    """The accelerator of that name, or one that takes `step` seconds; None for none.

    Raises:
        OptionError: Both are given, there is no such name, or the step takes no time.
    """
    if accelerator is not None and step is not None:
        raise OptionError(f"accelerator={accelerator!r} has a step of its own: leave out step=")
    if step is not None:
        if not 0 < step < 3600:
            raise OptionError(f"step is {step} s: give the time of a training step, more than 0 and less than an hour")
        return Accelerator(f"a step of {step * 1e3:g} ms", step)
    if accelerator is None:
        return None
    if accelerator not in ACCELERATORS:
        raise OptionError(f"accelerator={accelerator!r} is not known: choose from {', '.join(ACCELERATORS)}, or step=")
    return ACCELERATORS[accelerator]


def utilisation(step: float, done: Sequence[float]) -> float:
    """Accelerator utilisation (AU) as MLPerf Storage defines it: total compute time over total running time.

    The first step, which waits for the pipeline to fill, counts in neither. The compute time is the nominal one: what
    a sleep takes too long is no computing.

    Args:
        step: Seconds of computing a batch.
        done: When each step was done, seconds of any clock; two at least.
    """
    return step * (len(done) - 1) / (done[-1] - done[0])
