"""Source: from a row of a block to the sample that stages of the user's functions begin with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dataflow.dataset.stages import Decode, Select, Stage
from dataflow.errors import CorruptDataError, OptionError
from dataflow.pipeline.bad_rows import BadRows
from dataflow.pipeline.blocks import Columns
from dataflow.pipeline.transform import Sample
from dataflow.sampling.random import SampleKey, value_key


def split_at_first_call(stages: tuple[Stage, ...]) -> tuple[tuple[Stage, ...], tuple[Stage, ...]]:
    """The stages before the first that calls a function of the user, and the rest."""
    cut = next((n for n, stage in enumerate(stages) if not isinstance(stage, (Decode, Select))), len(stages))
    return stages[:cut], stages[cut:]


def split_at_last_call(stages: tuple[Stage, ...]) -> tuple[tuple[Stage, ...], tuple[Stage, ...]]:
    """The stages up to the last that calls a function of the user, and those after it, which a batch can go through."""
    cut = max((n + 1 for n, stage in enumerate(stages) if not isinstance(stage, (Decode, Select))), default=0)
    return stages[:cut], stages[cut:]


def check_on_error(on_error: str, stages: tuple[Stage, ...], max_errors: Any, ledger_url: Any) -> None:
    """Refuse unknown choices, and stages that decode what is no longer a stored row: nothing could replace it.

    Raises:
        OptionError: Names the choices, or the column and the remedy.
    """
    if on_error not in ("raise", "skip"):
        raise OptionError(f"on_error={on_error!r}: choose 'raise' or 'skip'")
    for name, value in {"max_errors": max_errors, "ledger_url": ledger_url}.items():
        if value is not None and on_error != "skip":
            raise OptionError(f"{name}= goes with on_error='skip': give that, or leave it out")
    if max_errors is not None:
        number = type(max_errors) is int and max_errors >= 0
        if not number and not (type(max_errors) is float and 0 < max_errors < 1):
            raise OptionError(f"max_errors={max_errors!r}: give a number of rows, or a share between 0 and 1")
    if ledger_url is not None and (type(ledger_url) is not str or not ledger_url):
        raise OptionError(f"ledger_url={ledger_url!r}: give a path or a URL")
    for stage in split_at_first_call(stages)[1] if on_error == "skip" else ():
        if isinstance(stage, Decode):
            raise OptionError(
                f"on_error='skip' replaces stored rows, but column {stage.column!r} is decoded after a map() or "
                "filter(): put decode() before them"
            )


def most_errors(max_errors: float | None, num_rows: int) -> int | None:
    """How many rows a number or a share of them is."""
    return int(max_errors * num_rows) if isinstance(max_errors, float) else max_errors


class Source:
    """Reads samples, and decodes what is decoded before any other stage; used by many threads at once.

    Args:
        columns: Columns that are read.
        stages: Only `Select` and `Decode`.
        bad_rows: What is done with rows that do not decode.
    """

    def __init__(self, columns: Sequence[str], stages: Sequence[Stage], bad_rows: BadRows) -> None:
        self._columns = columns
        self._stages = stages
        self._bad_rows = bad_rows

    def read(self, views: Columns, wanted: SampleKey) -> tuple[Sample, SampleKey]:
        """The sample of a row, and the row that it is: another one where the wanted one does not decode.

        Args:
            views: The columns of the row's block.
            wanted: The row.

        Raises:
            CorruptDataError: It does not decode, and is not to be replaced.
        """
        key = wanted
        while True:
            sample: Sample = {name: view.value(key.row) for name, view in zip(self._columns, views, strict=True)}
            for stage in self._stages:
                if isinstance(stage, Select):
                    sample = {column: sample[column] for column in stage.columns}
                    continue
                assert isinstance(stage, Decode)
                try:
                    decoded = stage.decode(sample[stage.column], value_key(key, stage.column))
                except CorruptDataError as error:
                    key = self._bad_rows.replace(wanted, key, stage.column, str(error))
                    break
                sample = {**sample, **decoded}
            else:
                return sample, key
