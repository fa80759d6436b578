"""How close a pipeline runs to what the storage, the processors and the device allow, and what holds it back."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataflow.measure.accelerator import ACCELERATORS, Accelerator
    from dataflow.measure.measurement import Measurement
    from dataflow.measure.verdict import Cause, Verdict
    from dataflow.measure.waterfall import bench

__all__ = ["ACCELERATORS", "Accelerator", "Cause", "Measurement", "Verdict", "bench"]

# Imported when first used: the bare client needs no torch, whose memory would be taken for its own.
_HOMES = {
    "ACCELERATORS": "dataflow.measure.accelerator",
    "Accelerator": "dataflow.measure.accelerator",
    "Cause": "dataflow.measure.verdict",
    "Measurement": "dataflow.measure.measurement",
    "Verdict": "dataflow.measure.verdict",
    "bench": "dataflow.measure.waterfall",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
