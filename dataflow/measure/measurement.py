"""A measurement: levels, verdict, and what they depend on."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from dataflow.measure.accelerator import Accelerator
from dataflow.measure.level import Level
from dataflow.measure.verdict import Evidence, MemoryTrial, Verdict, whole_pipeline

__all__ = ["Measurement", "Part"]

_MOSTLY = 0.5


@dataclass(frozen=True, slots=True)
class Part:
    """A step of the waterfall.

    Attributes:
        name: The level.
        nbytes: Bytes a second up to here.
        lost: What this level has fewer than the one before; less than 0 where it has more. 0 for the first.
    """

    name: str
    nbytes: float
    lost: float


@dataclass(frozen=True, slots=True)
class Measurement:
    """What a pipeline gives, level by level, and what holds it.

    Attributes:
        evidence: What was measured.
        verdict: What follows from it.
        row_bytes: Bytes that a stored row takes in the store, on average.
        kept: Samples that come of a stored row: less than 1 where filters drop some.
        provenance: Versions, machine, dataset, options and time.
    """

    evidence: Evidence
    verdict: Verdict
    row_bytes: float
    kept: float
    provenance: dict[str, Any]

    @property
    def levels(self) -> list[Level]:
        """From the storage to the whole pipeline, or to the accelerator."""
        return list(self.evidence.levels)

    @property
    def waterfall(self) -> list[Part]:
        """What each level loses: the first less all losses is the last."""
        parts: list[Part] = []
        for level in self.levels:
            lost = parts[-1].nbytes - level.nbytes if parts else 0.0
            parts.append(Part(level.name, level.nbytes, lost))
        return parts

    @property
    def utilisation(self) -> float | None:
        """Accelerator utilisation (AU), 0 to 1; None without an accelerator."""
        return self.levels[-1].utilisation

    @property
    def warm(self) -> bool:
        """Whether most of what was read is likely to have come from a cache of the storage or of this machine."""
        return max(self.levels[0].cached or 0.0, whole_pipeline(self.levels).reread) > _MOSTLY

    def to_json(self) -> dict[str, Any]:
        """All of it; rates are a second, times seconds."""
        evidence = self.evidence
        return {
            "verdict": asdict(self.verdict),
            "warm": self.warm,
            "waterfall": [
                {
                    "level": part.name,
                    "bytes_per_second": part.nbytes,
                    "samples_per_second": part.nbytes / self.row_bytes * self.kept,
                    "lost_bytes_per_second": part.lost,
                }
                for part in self.waterfall
            ],
            "accelerator": _accelerator(evidence.accelerator, evidence.demand, self),
            "connections": [[number, rate] for number, rate in sorted(evidence.connections.items())],
            "memory_trial": _trial(evidence.trial),
            "row_bytes": self.row_bytes,
            "samples_per_row": self.kept,
            "levels": [level.to_json() for level in self.levels],
            "provenance": self.provenance,
        }


def _accelerator(accelerator: Accelerator | None, demand: float | None, of: Measurement) -> dict[str, Any] | None:
    if accelerator is None or demand is None:
        return None
    return asdict(accelerator) | {
        "utilisation": of.utilisation,
        "samples_per_second": demand * of.kept,
        "bytes_per_second": demand * of.row_bytes,
    }


def _trial(trial: MemoryTrial | None) -> dict[str, Any] | None:
    return None if trial is None else asdict(trial)
