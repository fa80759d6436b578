"""What writes one file of a format."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import pyarrow as pa

__all__ = ["Exporter"]


class Exporter(Protocol):
    """A file that is being written.

    Args:
        path: Where; there is no such file.
        schema: Columns of the batches.

    Raises:
        OptionError: The format cannot hold such columns; says what to do.
    """

    def __init__(self, path: Path, schema: pa.Schema) -> None: ...

    @property
    def num_bytes(self) -> int:
        """About how large the file is so far."""

    def write(self, batch: pa.RecordBatch, first_row: int) -> None:
        """Adds rows.

        Args:
            batch: The rows.
            first_row: Number of the first one in the dataset.

        Raises:
            OptionError: The format cannot hold a value; names row and column, and says what to do.
        """

    def close(self) -> None:
        """Ends the file."""
