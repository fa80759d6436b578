"""What the work of a loader takes: measured, by `bench.scale.calibrate`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Costs:
    """Processor seconds, and memory.

    Attributes:
        seconds_per_gb: Of receiving and checking bytes.
        seconds_per_block: Of requesting a block, ordering its rows and finding its columns.
        seconds_per_sample: Of decoding a photograph into its batch.
        seconds_per_row: Of copying a row as it is, in place of that.
        process_mb: Resident in a process that has read nothing.
    """

    seconds_per_gb: float
    seconds_per_block: float
    seconds_per_sample: float
    seconds_per_row: float
    process_mb: float

    def fetch_seconds(self, nbytes: int) -> float:
        """Of bringing a block."""
        return nbytes * self.seconds_per_gb / 1e9 + self.seconds_per_block

    def batch_seconds(self, rows: int) -> float:
        """Of making a batch."""
        return rows * self.seconds_per_sample

    def save(self, path: Path) -> None:
        """Write them as JSON."""
        path.write_text(json.dumps(asdict(self), indent=1))

    @classmethod
    def load(cls, path: Path) -> Costs:
        """Read what `save` wrote."""
        return cls(**json.loads(path.read_text()))
