"""Arguments of a loader that cannot work are refused where the loader is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dataflow.errors import OptionError
from dataflow.pipeline.assemble import RESERVED
from dataflow.sampling.keys import key

_UNSUPPORTED = {
    "sampler": "the order is computed: use shuffle= and seed=",
    "batch_sampler": "use batch_size=",
    "worker_init_fn": "workers are threads of this process",
    "multiprocessing_context": "workers are threads of this process",
    "generator": "use seed=",
}


def check_unsupported(arguments: Mapping[str, Any]) -> None:
    """Refuse arguments of torch's loader that have no meaning for a stream.

    Raises:
        OptionError: One of them is given; says what to use instead.
    """
    for name, remedy in _UNSUPPORTED.items():
        if arguments[name] is not None:
            raise OptionError(f"{name}= does not go with a dataflow dataset: {remedy}")


def check_numbers(
    *, required: Mapping[str, Any], optional: Mapping[str, Any], num_workers: Any, timeout: Any, seed: Any
) -> None:
    """Check counts, seconds and the seed.

    Args:
        required: Positive integers, by the names of their arguments.
        optional: Positive integers or None.
        num_workers: An integer from 0 on, or None.
        timeout: Seconds from 0 on.
        seed: An integer of 128 bits.

    Raises:
        OptionError: Names the argument.
    """
    given = {name: value for name, value in optional.items() if value is not None}
    for name, value in {**required, **given}.items():
        if type(value) is not int or value < 1:
            raise OptionError(f"{name}={value!r}: give a positive integer")
    if num_workers is not None and (type(num_workers) is not int or num_workers < 0):
        raise OptionError(f"num_workers={num_workers!r}: give a number of threads, 0 for none")
    if not isinstance(timeout, (int, float)) or timeout < 0:
        raise OptionError(f"timeout={timeout!r}: give seconds, 0 to wait for ever")
    if type(seed) is not int:
        raise OptionError(f"seed={seed!r}: give an integer, the same on all ranks")
    key(seed)


def check_kinds(*, collate_fn: Any, agree: Any, pad: Any) -> None:
    """Check what has to be callable or a mapping, before it is needed in the midst of an epoch.

    Raises:
        OptionError: Names the argument.
    """
    for name, value in {"collate_fn": collate_fn, "agree": agree}.items():
        if value is not None and not callable(value):
            raise OptionError(f"{name}={value!r} is not callable: give a function")
    if pad is not None and not isinstance(pad, Mapping):
        raise OptionError(f"pad={pad!r}: give a dict of columns and the values to pad them with")


def check_columns(columns: Sequence[str], pad: Mapping[str, Any]) -> None:
    """Check the columns that samples have, where they are known beforehand.

    Raises:
        OptionError: A column that is to be padded does not exist, or a name is one that batches use themselves.
    """
    for column in pad:
        if column not in columns:
            raise OptionError(f"pad= names the column {column!r}, there are {', '.join(columns)}")
    for column in RESERVED:
        if column in columns:
            raise OptionError(f"batches have a {column!r} of their own: leave the column out with select()")
