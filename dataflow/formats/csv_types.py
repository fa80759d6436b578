"""The type of a CSV column: what its text says in every row, and text where that is not one thing."""

from __future__ import annotations

import pyarrow as pa

from dataflow.formats.json_types import EXACT_IN_FLOAT, WIDE

__all__ = ["FALSE", "TRUE", "CsvType"]

TRUE = ["true", "True", "TRUE"]
FALSE = ["false", "False", "FALSE"]
# Only what comes back as it was: no leading zeros, no plus, no blanks. 007 is a name, and -0 no integer.
INTEGER = r"^(0|-?[1-9][0-9]*)\z"
FLOAT = r"^(-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?|nan|-?inf)\z"
TYPES = {"": pa.null(), "bool": pa.bool_(), "int": pa.int64(), "float": pa.float64(), "text": pa.string()}


class CsvType:
    """What was seen in one column.

    Empty values are null in columns of numbers, and empty in columns of text. Integers beside numbers with a fraction
    are float64 where that holds them exactly. Everything that is not all integers, numbers or booleans is text.
    """

    __slots__ = ("kind", "wide")

    def __init__(self, kind: str = "", wide: bool = False) -> None:
        self.kind = kind  # a key of TYPES
        self.wide = wide

    def add(self, values: pa.StringArray) -> None:
        """Takes the values of some rows."""
        from pyarrow import compute

        values = values.filter(compute.not_equal(values, ""))
        if len(values) and self.kind != "text":
            self.absorb(_type_of(values))

    def absorb(self, other: CsvType) -> None:
        """Takes all values that another one was given."""
        if not self.kind:
            self.kind = other.kind
        elif other.kind and other.kind != self.kind:
            numbers = {self.kind, other.kind} == {"int", "float"}
            self.kind = "float" if numbers and not (self.wide or other.wide) else "text"
        self.wide = self.kind == "int" and (self.wide or other.wide)

    def field(self, name: str) -> pa.Field:
        """The Arrow field of the column."""
        return pa.field(name, TYPES[self.kind], metadata=WIDE if self.wide else None)

    @classmethod
    def of_field(cls, field: pa.Field) -> CsvType:
        """The type whose field this is."""
        kind = next(name for name, type in TYPES.items() if type.equals(field.type))
        return cls(kind, field.metadata == WIDE)


def _type_of(values: pa.StringArray) -> CsvType:
    from pyarrow import compute

    integer = compute.match_substring_regex(values, INTEGER)
    wide = False
    if compute.any(integer).as_py():
        try:
            integers = values.filter(integer).cast(pa.int64())
        except pa.ArrowInvalid:  # beyond int64
            return CsvType("text")
        ends = compute.min_max(integers).as_py()
        wide = not -EXACT_IN_FLOAT <= ends["min"] <= ends["max"] <= EXACT_IN_FLOAT
        if compute.all(integer).as_py():
            return CsvType("int", wide)
    if not wide and compute.all(compute.match_substring_regex(values, FLOAT)).as_py():
        finite = values.filter(compute.invert(compute.ends_with(values, "inf")))
        beyond = compute.any(compute.is_inf(finite.cast(pa.float64()))).as_py()
        return CsvType("text" if beyond else "float")
    if compute.all(compute.is_in(values, pa.array(TRUE + FALSE))).as_py():
        return CsvType("bool")
    return CsvType("text")
