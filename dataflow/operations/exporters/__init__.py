"""Files of other formats, written batch by batch."""

from __future__ import annotations

from dataflow.operations.exporters.exporter import Exporter
from dataflow.operations.exporters.json_lines import JsonLines
from dataflow.operations.exporters.parquet import Parquet
from dataflow.operations.exporters.tar import Tar

__all__ = ["EXPORTERS", "Exporter"]

EXPORTERS: dict[str, type[Exporter]] = {"tar": Tar, "parquet": Parquet, "jsonl": JsonLines}
