"""Single rows by their number in stored order, through stages that are one to one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dataflow.dataset.block import describe_row
from dataflow.dataset.block_source import BlockSource
from dataflow.dataset.codec import undecodable
from dataflow.dataset.columns import ColumnView, ColumnViewer
from dataflow.dataset.manifest import Manifest
from dataflow.dataset.stages import Decode, Map, Select, Stage
from dataflow.errors import CorruptDataError

__all__ = ["NumberedRows"]


class NumberedRows:
    """Reads rows one by one.

    Args:
        manifest: Which rows there are.
        source: What brings their blocks.
        columns: Those that are read.
        stages: `Select`, `Decode` and `Map`.
    """

    def __init__(
        self, manifest: Manifest, source: BlockSource, columns: Sequence[str], stages: Sequence[Stage]
    ) -> None:
        self._manifest = manifest
        self._source = source
        self._columns = columns
        self._stages = stages
        # The last block stays at hand, since neighbouring rows are often asked for in turn.
        self._last: tuple[int, dict[str, ColumnView]] | None = None

    def read(self, number: int) -> Any:
        """The row with this number; random numbers depend on it alone.

        Raises:
            CorruptDataError: The block that holds the row is damaged, or a value of the row cannot be decoded.
        """
        block, row = self._manifest.locate(number)
        sample: Any = {name: view.value(row) for name, view in self._views(block).items()}
        for position, stage in enumerate(self._stages):
            if isinstance(stage, Select):
                sample = {name: sample[name] for name in stage.columns}
            elif isinstance(stage, Decode):
                key = int(_row_random(number, position).random_raw())
                sample = {**sample, **self._decoded(stage, sample, block, row, key)}
            else:
                assert isinstance(stage, Map)
                rng = [np.random.Generator(_row_random(number, position))] if stage.takes_rng else []
                sample = stage.fn(sample, *rng)
        return sample

    def _decoded(
        self, stage: Decode, sample: dict[str, Any], block: int, row: int, key: int
    ) -> dict[str, NDArray[Any]]:
        try:
            return stage.decode(sample[stage.column], key)
        except CorruptDataError as error:
            place = describe_row(self._manifest, block, row, sample.get("key"))
            raise undecodable(place, stage.column, str(error)) from error

    def _views(self, block: int) -> dict[str, ColumnView]:
        last = self._last
        if last is None or last[0] != block:
            batch = self._source.read(self._manifest, block)
            views = ColumnViewer(batch.schema, self._columns)(batch)
            last = self._last = (block, dict(zip(self._columns, views, strict=True)))
        return last[1]


def _row_random(number: int, position: int) -> np.random.Philox:
    """Random numbers of one stage for one row."""
    return np.random.Philox(key=[number, position])
