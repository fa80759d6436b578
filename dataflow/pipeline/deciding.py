"""Deciding: the stages up to the last one that is not one to one, in each lane as a chain of what takes from what."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from dataflow.dataset.expanding import EXPANDING, FlatMap, Pack, Window
from dataflow.dataset.stages import Filter, Stage
from dataflow.pipeline.documents import PackCounts
from dataflow.pipeline.expand import flat_mapped, windows
from dataflow.pipeline.lane_rows import Items
from dataflow.pipeline.lane_stages import Expanded, LanePlace, Transformed
from dataflow.pipeline.packed import Concatenated, Packed
from dataflow.pipeline.transform import Transform
from dataflow.sampling.cursor import Cursor, start
from dataflow.sampling.random import SampleKey

if TYPE_CHECKING:
    from dataflow.pipeline.processes import Processes


class Deciding:
    """The stages that decide which items lanes have, from the user's first function on.

    Args:
        stages: In order; the last one, if any, is a filter, or makes several items of one or one of several.
        describe: Names a sample in messages.
        first: Number of the first of these stages in the whole pipeline.

    Attributes:
        counts: What was packed, for each `pack`.
    """

    def __init__(self, stages: Sequence[Stage], describe: Callable[[SampleKey], str], first: int) -> None:
        self._steps: list[Transform | tuple[int, FlatMap | Window | Pack]] = []
        self.counts: dict[int, PackCounts] = {}
        begun = 0
        for place, stage in enumerate([*stages, None]):
            if stage is not None and not isinstance(stage, EXPANDING):
                continue
            if begun < place:
                self._steps.append(Transform(stages[begun:place], describe, first + begun))
            begun = place + 1
            if stage is not None:
                self._steps.append((first + place, stage))
            if isinstance(stage, Pack):
                self.counts[first + place] = PackCounts()

    def __bool__(self) -> bool:
        """Whether rows are not items one to one."""
        return bool(self._steps)

    @property
    def processes(self) -> Sequence[Processes]:
        """Those that run stages; they start when they are first needed, and have to be stopped."""
        return [one for step in self._steps if isinstance(step, Transform) for one in step.processes]

    @property
    def nesting(self) -> int:
        """Stages that a lane's cursor has a number for."""
        return sum(not isinstance(step, Transform) for step in self._steps)

    @property
    def start(self) -> Cursor:
        """The cursor of a lane that has given nothing."""
        return start(self.nesting)

    def packed(self) -> dict[str, int] | None:
        """What the last `pack` has packed so far; None where there is none."""
        return list(self.counts.values())[-1].to_dict() if self.counts else None

    def open(self, rows: Items, cursor: Cursor, place: LanePlace) -> Items:
        """The items of a lane from a cursor on; `rows` are those from the cursor's row on."""
        given = []
        for _ in range(self.nesting):
            assert not isinstance(cursor, int)
            cursor, number = cursor
            given.append(number)
        items = rows
        for step in self._steps:
            if isinstance(step, Transform):
                items = Transformed(items, step, place)
                continue
            number, stage = step
            items = self._expanded(items, number, stage, place, given.pop())
        return items

    def _expanded(
        self, upstream: Items, number: int, stage: FlatMap | Window | Pack, place: LanePlace, given: int
    ) -> Items:
        if isinstance(stage, Pack):
            counts = self.counts[number]
            if stage.mode == "concat":
                return Concatenated(upstream, stage, counts, given)
            return Packed(upstream, stage, counts, place, given)
        if isinstance(stage, Window):
            return Expanded(upstream, lambda item: windows(stage, item), f"window {stage.name}", place, given)
        return Expanded(
            upstream, lambda item: flat_mapped(stage, number, item), f"flat_map {stage.name!r}", place, given
        )


#: Every row is an item.
ONE_TO_ONE = Deciding((), repr, 0)


def split_at_last_deciding(
    stages: Sequence[Stage], describe: Callable[[SampleKey], str], first: int
) -> tuple[Deciding, Transform]:
    """The stages that decide which samples there are, and those after them, which can run out of a lane's turn."""
    cut = max((place + 1 for place, stage in enumerate(stages) if isinstance(stage, (Filter, *EXPANDING))), default=0)
    return Deciding(stages[:cut], describe, first), Transform(stages[cut:], describe, first + cut)
