"""Stages that make several items of a row, or one of several, as plain values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dataflow.errors import OptionError

__all__ = ["EXPANDING", "FlatMap", "Pack", "Window", "check_pack", "check_window"]


@dataclass(frozen=True, slots=True)
class FlatMap:
    """Replaces each row by the rows that a function makes of it; attributes as those of `Map`."""

    fn: Callable[..., Any]
    name: str
    takes_rng: bool

    def describe(self) -> tuple[str, str, tuple[Any, ...]]:
        """Kind, name and parameters: what the fingerprint of a pipeline is made of."""
        return ("flat_map", self.name, ())


@dataclass(frozen=True, slots=True)
class Window:
    """Replaces each row by windows over some of its columns.

    Attributes:
        columns: Columns of lists or arrays, of one length in each row.
        size: Elements of a window.
        stride: Elements from the start of one to that of the next.
        partial: What becomes of a last window that is not full: "keep" or "drop".
    """

    columns: tuple[str, ...]
    size: int
    stride: int
    partial: str

    @property
    def name(self) -> str:
        """For messages."""
        return f"over {', '.join(self.columns)}"

    def describe(self) -> tuple[str, str, tuple[Any, ...]]:
        """Kind, name and parameters: what the fingerprint of a pipeline is made of."""
        return ("window", "", (*self.columns, self.size, self.stride, self.partial))


@dataclass(frozen=True, slots=True)
class Pack:
    """Puts documents together into rows of one length.

    Attributes:
        seq_len: Tokens of a row.
        column: Column of the documents' tokens.
        mode: "best_fit", "first_fit" or "concat".
        window: Documents that are packed together at a time; of no meaning for "concat".
        loss_mask: Column that is true for the tokens to be learned; None learns all.
        long: What becomes of documents longer than a row: "split" or "drop".
        pad_token: What rows are filled up with.
    """

    seq_len: int
    column: str
    mode: str
    window: int
    loss_mask: str | None
    long: str
    pad_token: int

    @property
    def name(self) -> str:
        """For messages."""
        return self.column

    @property
    def columns(self) -> tuple[str, ...]:
        """Those that are read."""
        return (self.column,) if self.loss_mask is None else (self.column, self.loss_mask)

    def describe(self) -> tuple[str, str, tuple[Any, ...]]:
        """Kind, name and parameters: what the fingerprint of a pipeline is made of."""
        window = None if self.mode == "concat" else self.window
        return ("pack", self.column, (self.seq_len, self.mode, window, self.loss_mask, self.long, self.pad_token))


EXPANDING = (FlatMap, Window, Pack)


def check_window(stage: Window, schema: pa.Schema | None) -> Window:
    """Refuse a `Window` that cannot be.

    Raises:
        OptionError: Names the argument.
    """
    if not stage.columns or len(set(stage.columns)) != len(stage.columns):
        raise OptionError(f"window(columns={stage.columns!r}): name one or more different columns")
    _check_counts("window", size=stage.size, stride=stage.stride)
    _check_choice("window", "partial", stage.partial, ("keep", "drop"))
    _check_columns("window", stage.columns, schema)
    return stage


def check_pack(stage: Pack, schema: pa.Schema | None) -> Pack:
    """Refuse a `Pack` that cannot be.

    Raises:
        OptionError: Names the argument.
    """
    _check_counts("pack", seq_len=stage.seq_len, window=stage.window)
    _check_choice("pack", "mode", stage.mode, ("best_fit", "first_fit", "concat"))
    _check_choice("pack", "long", stage.long, ("split", "drop"))
    if stage.mode == "concat" and stage.long == "drop":
        raise OptionError(
            "pack(mode='concat', long='drop'): concat has no documents that are too long; leave out long="
        )
    if type(stage.pad_token) is not int:
        raise OptionError(f"pack(pad_token={stage.pad_token!r}): give the number of a token")
    _check_columns("pack", stage.columns, schema)
    return stage


def _check_counts(method: str, **counts: Any) -> None:
    for name, value in counts.items():
        if type(value) is not int or value < 1:
            raise OptionError(f"{method}({name}={value!r}): give a positive integer")


def _check_choice(method: str, name: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise OptionError(f"{method}({name}={value!r}): choose {' or '.join(map(repr, choices))}")


def _check_columns(method: str, columns: tuple[str, ...], schema: pa.Schema | None) -> None:
    """Where the columns are known, they have to be there, and hold lists."""
    if schema is None:
        return
    for column in columns:
        if column not in schema.names:
            raise OptionError(f"{method}() names the column {column!r}, there are {', '.join(schema.names)}")
        kind = schema.field(column).type
        if not (hasattr(kind, "value_type") or isinstance(kind, pa.FixedShapeTensorType)):
            raise OptionError(f"column {column!r} holds {kind}, no lists: {method}() has nothing to cut")
