"""Arguments of a loader that cannot work are refused where the loader is made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from dataflow.dataset.dataset import Dataset
from dataflow.errors import OptionError
from dataflow.pipeline.assemble import RESERVED
from dataflow.pipeline.dtypes import Dtype, check_cast
from dataflow.pipeline.padding import Pad
from dataflow.sampling.keys import key

_UNSUPPORTED = {
    "sampler": "the order is computed: use shuffle= and seed=",
    "batch_sampler": "use batch_size=",
    "worker_init_fn": "workers are threads of this process",
    "multiprocessing_context": "workers are threads of this process",
    "generator": "use seed=",
}


def check_dataset(dataset: Any) -> None:
    """Refuse what is no dataset of ours.

    Raises:
        OptionError: Says what is.
    """
    if not isinstance(dataset, Dataset):
        raise OptionError(
            f"DataLoader reads datasets from dataflow.open(), not {type(dataset).__name__}: "
            "for other datasets use torch.utils.data.DataLoader"
        )


def check_unsupported(**arguments: Any) -> None:
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


def check_kinds(*, collate_fn: Any, agree: Any, on_step: Any, pad: Any, dtypes: Any) -> None:
    """Check what has to be callable, before it is needed in the midst of an epoch, and what goes with it.

    Raises:
        OptionError: Names the argument.
    """
    for name, value in {"collate_fn": collate_fn, "agree": agree, "on_step": on_step}.items():
        if value is not None and not callable(value):
            raise OptionError(f"{name}={value!r} is not callable: give a function")
    for name, value in {"pad": pad, "dtypes": dtypes}.items():
        if value and collate_fn is not None:
            raise OptionError(f"collate_fn= makes the batches, {name}= has no part in them: let collate_fn do that")


def check_columns(schema: pa.Schema, pad: Mapping[str, Pad], dtypes: Mapping[str, Dtype]) -> None:
    """Check the columns that samples have, where they are known beforehand.

    Raises:
        OptionError: A column that is to be padded or to have another type does not exist or has no numbers, a value to
            pad with does not fit, or a name is one that batches use themselves.
    """
    for argument, columns in (("pad", pad), ("dtypes", dtypes)):
        for column in columns:
            if column not in schema.names:
                raise OptionError(f"{argument}= names the column {column!r}, there are {', '.join(schema.names)}")
    for column in {**pad, **dtypes}:
        kind = schema.field(column).type
        if column in dtypes and isinstance(kind, pa.BaseExtensionType):
            raise OptionError(f"column {column!r} is decoded: choose its type in decode(), not in dtypes=")
        while hasattr(kind, "value_type"):
            kind = kind.value_type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
            argument = "pad" if column in pad else "dtypes"
            raise OptionError(f"column {column!r} has no numbers, but {kind}: leave it out of {argument}=")
        stored = np.dtype(np.bool_ if pa.types.is_boolean(kind) else kind.to_pandas_dtype())
        target = dtypes.get(column, stored)
        check_cast(column, stored, target)
        if column in pad:
            pad[column].fill(column, target)
    for column in RESERVED:
        if column in schema.names:
            raise OptionError(f"batches have a {column!r} of their own: leave the column out with select()")
