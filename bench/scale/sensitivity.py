"""Which assumption matters: each one halved and doubled, and all others left alone."""

from __future__ import annotations

from dataclasses import dataclass

from bench.scale.inputs import Assumed
from bench.scale.job import JobFailedError
from bench.scale.scenario import Figures, Scenario
from dataflow.errors import OptionError

_FACTORS = (0.5, 2.0)
# One host in place of several: what is compared is the same ranks with the same draws.
_SAMPLED = 16


@dataclass(frozen=True, slots=True)
class Moved:
    """What one assumption does.

    Attributes:
        name: Which.
        value: What was assumed.
        utilisation: AU with that.
        halved: Samples/s over those of the assumption; None where the job cannot run.
        doubled: Likewise.
        halved_utilisation: AU.
        doubled_utilisation: AU.
    """

    name: str
    value: float
    utilisation: float
    halved: float | None
    doubled: float | None
    halved_utilisation: float | None
    doubled_utilisation: float | None

    @property
    def most(self) -> float:
        """By how much it moves the AU at most, as a share; all of it where the job cannot run."""
        pair = (self.halved_utilisation, self.doubled_utilisation)
        return max(1.0 if moved is None else abs(moved - self.utilisation) for moved in pair)


def sensitivity(scenario: Scenario, assumed: Assumed, gpus: int) -> tuple[Figures, list[Moved]]:
    """The job without hedging, and what each assumption does to it, the one that moves most first."""
    base = scenario.figures(gpus, assumed, None, sampled=_SAMPLED)
    moved = []
    for name in Assumed.described():
        halved, doubled = (_try(scenario, assumed.scaled(name, factor), gpus) for factor in _FACTORS)
        pair = (halved, doubled)
        rates = [None if one is None else one.samples_per_second / base.samples_per_second for one in pair]
        shares = [None if one is None else one.utilisation for one in pair]
        moved.append(Moved(name, getattr(assumed, name), base.utilisation, *rates, *shares))
    return base, sorted(moved, key=lambda one: -one.most)


def _try(scenario: Scenario, assumed: Assumed, gpus: int) -> Figures | None:
    try:
        return scenario.figures(gpus, assumed, None, sampled=_SAMPLED)
    except (JobFailedError, OptionError):
        return None
