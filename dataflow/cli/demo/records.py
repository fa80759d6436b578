"""What a rank leaves behind in the demo: which samples it saw, and its state after each step."""

from __future__ import annotations

import json
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

__all__ = ["Records", "last_common_step", "read_records", "state_path"]

# Place in the stream, number of the sample, hash of its bytes.
_COLUMNS = ("slot", "sample_id", "digest")
_ROW_BYTES = 8 * len(_COLUMNS)


def state_path(folder: Path, rank: int, step: int) -> Path:
    """Where a rank saves its state after a step."""
    return folder / f"rank-{rank}.step-{step:04d}.json"


class Records:
    """The samples that a rank has seen, in a file that is whole up to the last step, whenever the rank dies."""

    def __init__(self, folder: Path, rank: int) -> None:
        self._file = open(_records_path(folder, rank), "wb", buffering=0)  # noqa: SIM115 - closed by __exit__

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def add(self, batch: dict[str, Any]) -> None:
        """Notes the samples of a batch, without the rows that only fill it up."""
        rows = np.stack([batch[name].numpy() for name in _COLUMNS], axis=1)
        if "valid" in batch:
            rows = rows[batch["valid"].numpy()]
        self._file.write(rows.tobytes())


def read_records(folder: Path, ranks: int, first_slots: int | None = None) -> npt.NDArray[np.int64]:
    """The samples that all ranks of a run have seen, in the order of the stream.

    Args:
        folder: Where the run wrote.
        ranks: How many ranks it had.
        first_slots: Leave out what came after so many slots: work that a resumed run does again.

    Returns:
        int64 [samples, 3]: slot, sample_id, digest.
    """
    tables = []
    for rank in range(ranks):
        data = _records_path(folder, rank).read_bytes()
        data = data[: len(data) // _ROW_BYTES * _ROW_BYTES]
        tables.append(np.frombuffer(data, np.int64).reshape(-1, len(_COLUMNS)))
    table = np.concatenate(tables)
    if first_slots is not None:
        table = table[table[:, 0] < first_slots]
    return table[np.argsort(table[:, 0], kind="stable")]


def last_common_step(folder: Path, ranks: int) -> tuple[int, list[dict[str, Any]]]:
    """The last step after which all ranks saved their states, and these."""
    step = 0
    while all(state_path(folder, rank, step + 1).exists() for rank in range(ranks)):
        step += 1
    return step, [json.loads(state_path(folder, rank, step).read_text()) for rank in range(ranks)]


def _records_path(folder: Path, rank: int) -> Path:
    return folder / f"rank-{rank}.records"
