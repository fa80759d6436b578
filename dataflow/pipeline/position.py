"""Where a loader stands: what it delivered, where its epoch began, and how far the next iteration goes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from dataflow.errors import OptionError
from dataflow.pipeline.plan import BatchRules
from dataflow.sampling.state import LaneCursor


class Mark(NamedTuple):
    """A point of the stream: `slots` slots after the start of `epoch`, with the cursors of lanes that drop samples."""

    epoch: int
    slots: int
    cursors: dict[int, LaneCursor]


class Extent(NamedTuple):
    """What one iteration covers: up to a slot (exclusive), or a number of batches."""

    first_slot: int
    stop_slot: int | None
    steps: int | None


@dataclass(slots=True)
class Epochs:
    """How a stream is cut into epochs.

    Attributes:
        num_rows: Rows before any filter.
        one_to_one: Whether every row is one item.
        exact: Whether lanes end with the epoch, although they drop samples.
        batches: How the stream is cut into batches.
        steps: Batches that make an epoch of an endless stream; None where the epoch ends with the data.
        epochs: Epochs that one iteration covers.
    """

    num_rows: int
    one_to_one: bool
    exact: bool
    batches: BatchRules
    steps: int | None
    epochs: int

    def length(self) -> int | None:
        """Batches of a whole iteration; None where only reading tells."""
        if self.steps is not None:
            return self.steps * self.epochs
        if not self.one_to_one:
            return None
        slots, batch = self.num_rows * self.epochs, self.batches.global_batch
        return slots // batch if self.batches.drop_last else -(-slots // batch)

    def extent(self, slots: int) -> Extent:
        """What is left of the iteration that has delivered `slots` slots."""
        batch = self.batches.global_batch
        if self.steps is not None:
            whole = self.steps * self.epochs
            return Extent(slots, None, whole - slots // batch % whole)
        if self.exact and not self.one_to_one:
            return Extent(slots, None, max(0, -(-(self.num_rows - slots) // batch)))
        return Extent(slots, self.num_rows * self.epochs, None)

    def is_over(self, slots: int) -> bool:
        """Whether the iteration that has delivered `slots` slots has no batch left."""
        if self.steps is not None:
            return False
        left = self.num_rows * (self.epochs if self.one_to_one else 1) - slots
        return left < self.batches.global_batch if self.batches.drop_last else left <= 0

    def number(self, mark: Mark) -> int:
        """The epoch that a mark lies in, as `set_epoch` counts."""
        if self.steps is None:
            return mark.epoch
        return mark.epoch + mark.slots // (self.steps * self.batches.global_batch)

    def start(self, epoch: int) -> Mark:
        """Where an epoch begins.

        Raises:
            OptionError: lanes drop samples, so that only running up to there would tell.
        """
        if self.steps is None:
            return Mark(epoch, 0, {})
        if epoch and not self.one_to_one:
            raise OptionError(
                f"epoch {epoch} of a pipeline that drops samples begins where the one before ended: "
                "load a state from there with load_state_dict(), or begin with set_epoch(0)"
            )
        return Mark(0, epoch * self.steps * self.batches.global_batch, {})


@dataclass(slots=True)
class Position:
    """The position of a loader: moved by deliveries, by states that are loaded, and by the ends of epochs."""

    epochs: Epochs
    begun: Mark = field(default_factory=lambda: Mark(0, 0, {}))
    now: Mark = field(default_factory=lambda: Mark(0, 0, {}))
    _resumes: bool = False

    def load(self, mark: Mark) -> None:
        """Go to a mark; the next iteration continues from there."""
        self.now = Mark(mark.epoch, mark.slots, dict(mark.cursors))
        # Where an epoch that drops samples began cannot be told from its middle: it is begun again from the mark.
        self.begun = self.epochs.start(mark.epoch) if self.epochs.steps is None else self.now
        if self.epochs.steps is not None and self.epochs.one_to_one:
            self.begun = self.epochs.start(self.epochs.number(mark))
        self._resumes = True

    def set_epoch(self, epoch: int) -> None:
        """Go to the start of an epoch, unless the position is in it already."""
        if epoch == self.epochs.number(self.now) and (self._resumes or epoch == self.epochs.number(self.begun)):
            return
        self.begun = self.now = self.epochs.start(epoch)
        self._resumes = False

    def begin(self) -> Mark:
        """Where an iteration that starts now starts."""
        if not self._resumes:
            self.now = self.begun
        self._resumes = False
        if self.epochs.is_over(self.now.slots):
            self.end()
        self.now = Mark(self.now.epoch, self.now.slots, dict(self.now.cursors))
        return self.now

    def deliver(self, slots: int, cursors: dict[int, LaneCursor]) -> None:
        """A batch was handed over: `slots` slots are delivered now."""
        self.now.cursors.update(cursors)
        self.now = self.now._replace(slots=slots)

    def end(self) -> None:
        """The iteration came to its end: the next one is the next epoch."""
        if self.epochs.steps is not None:
            self.begun = Mark(self.now.epoch, self.now.slots, dict(self.now.cursors))
        else:
            self.begun = Mark(self.now.epoch + self.epochs.epochs, 0, {})
        self.now = self.begun
