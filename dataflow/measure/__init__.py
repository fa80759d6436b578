"""How close a pipeline runs to what the storage, the processors and the device allow, and what holds it back."""

from __future__ import annotations

from dataflow.measure.accelerator import ACCELERATORS, Accelerator
from dataflow.measure.bench import bench
from dataflow.measure.measurement import Measurement
from dataflow.measure.verdict import Cause, Verdict

__all__ = ["ACCELERATORS", "Accelerator", "Cause", "Measurement", "Verdict", "bench"]
