"""Where a loader stands: what it delivered, where its epoch began, and how far the next iteration goes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from dataflow.errors import OptionError
from dataflow.pipeline.plan import BatchRules
from dataflow.sampling.cursor_table import LaneCursor


class Mark(NamedTuple):
    """A point of the stream: `slots` slots after the start of `epoch`, with the cursors of lanes that drop samples."""

    epoch: int
    slots: int
    cursors: dict[int, LaneCursor]

    def copy(self) -> Mark:
        """The same point, whose cursors can be moved on alone."""
        return self._replace(cursors=dict(self.cursors))


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
        expands: Whether there may be more items than rows.
        exact: Whether lanes end with the epoch, although they drop samples.
        batches: How the stream is cut into batches.
        steps: Batches that make an epoch of an endless stream; None where the epoch ends with the data.
        epochs: Epochs that one iteration covers.
    """

    num_rows: int
    one_to_one: bool
    expands: bool
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
        if self.expands:
            return Extent(slots, None, None)
        if self.exact and not self.one_to_one:
            return Extent(slots, None, max(0, -(-(self.num_rows - slots) // batch)))
        return Extent(slots, self.num_rows * self.epochs, None)

    def is_over(self, slots: int) -> bool:
        """Whether the iteration that has delivered `slots` slots has no batch left."""
        if self.steps is not None or self.expands:
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


class Position:
    """The position of a loader: moved by deliveries, by states that are loaded, and by the ends of epochs.

    Only the iteration that was begun last moves it, and only until a state is loaded.

    Attributes:
        now: What was delivered.
    """

    def __init__(self, epochs: Epochs) -> None:
        self.now = Mark(0, 0, {})
        self._epochs = epochs
        # Where an iteration starts that continues nothing; what set_epoch chose while one was running.
        self._begun = self.now
        self._chosen: Mark | None = None
        self._resumes = False
        self._iterations = 0

    def load(self, mark: Mark) -> None:
        """Go to a mark; the next iteration continues from there."""
        epochs = self._epochs
        self.now = mark
        if epochs.steps is None:
            self._begun = epochs.start(mark.epoch)
        elif epochs.one_to_one:
            self._begun = epochs.start(epochs.number(mark))
        else:
            self._begun = mark  # where its epoch began cannot be told from its middle
        self._chosen = None
        self._resumes = True
        self._iterations += 1

    def set_epoch(self, epoch: int, *, running: bool) -> None:
        """Go to the start of an epoch, unless the position is in it already; once the iteration that runs is over."""
        number = self._epochs.number
        here = epoch == number(self.now) and (self._resumes or epoch == number(self._begun))
        if running:
            self._chosen = None if here else self._epochs.start(epoch)
        elif not here:
            self._begun = self.now = self._epochs.start(epoch)
            self._resumes = False

    def begin(self) -> tuple[Mark, int]:
        """Where an iteration that starts now starts, and what it is known by."""
        if self._chosen is not None:
            self._begun, self._chosen, self._resumes = self._chosen, None, False
        if not self._resumes:
            self.now = self._begun
        self._resumes = False
        if self._epochs.is_over(self.now.slots):
            self._go_on()
        self.now = self.now.copy()
        self._iterations += 1
        return self.now, self._iterations

    def deliver(self, iteration: int, mark: Mark) -> None:
        """An iteration has handed over all up to a mark."""
        if iteration == self._iterations:
            self.now = mark

    def end(self, iteration: int) -> None:
        """An iteration came to its end: the next one is the next epoch."""
        if iteration == self._iterations:
            self._go_on()

    def _go_on(self) -> None:
        if self._chosen is not None:
            self._begun, self._chosen = self._chosen, None
        elif self._epochs.steps is not None:
            self._begun = self.now.copy()
        else:
            self._begun = Mark(self.now.epoch + self._epochs.epochs, 0, {})
        self.now = self._begun
