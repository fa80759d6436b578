"""The type that holds all values of a JSON column exactly, found by looking at every one of them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from dataflow.errors import DatasetError

__all__ = ["WIDE", "JsonType"]

# Arrow's own files know 64 levels.
MAX_DEPTH = 32
# Keys that differ from row to row are data and not columns.
MAX_KEYS = 4096
#: Metadata of integer fields with values that a float64 would not hold exactly.
WIDE = {b"dataflow": b"wide"}
EXACT_IN_FLOAT = 1 << 53
NAMES = {
    "bool": "true or false",
    "int": "an integer",
    "float": "a number",
    "str": "text",
    "list": "a list",
    "dict": "an object",
}
SCALARS = {"bool": pa.bool_(), "int": pa.int64(), "float": pa.float64(), "str": pa.string(), "": pa.null()}


class JsonType:
    """What was seen in one place of all rows so far.

    Widening: null is part of every type; an integer beside a number with a fraction becomes a float64, if float64
    holds it exactly; keys that a row lacks are null. Everything else is an error.

    Args:
        path: Name of the place, for messages.
        depth: Levels above it.
    """

    __slots__ = ("depth", "fields", "item", "kind", "path", "wide")

    def __init__(self, path: str = "", depth: int = 0) -> None:
        self.path = path
        self.depth = depth
        self.kind = ""  # a key of NAMES, or "" while all is null
        self.wide = False
        self.item: JsonType | None = None
        self.fields: dict[str, JsonType] = {}

    def add(self, value: Any) -> None:
        """Takes one value, as Python's json reads it.

        Raises:
            DatasetError: It does not go with those before it; names the place and both types.
        """
        if value is None:
            return
        kind = type(value).__name__
        if kind != self.kind:
            self._widen(kind, self.wide)
        if kind == "int":
            if not -EXACT_IN_FLOAT <= value <= EXACT_IN_FLOAT:
                if not -(1 << 63) <= value < 1 << 63:
                    raise DatasetError(f"{self._name} has {value}, which int64 does not hold. Write it as text")
                self._widen(kind, True)
        elif kind == "list":
            item = self.item
            if item is None:
                item = self.item = self._below("[]")
            for element in value:
                item.add(element)
        elif kind == "dict":
            fields = self.fields
            for key, element in value.items():
                field = fields.get(key)
                if field is None:
                    field = fields[key] = self._field(key)
                field.add(element)

    def absorb(self, other: JsonType) -> None:
        """Takes all values that another one was given.

        Raises:
            DatasetError: See `add`.
        """
        if other.kind:
            self._widen(other.kind, other.wide)
        if other.item is not None:
            if self.item is None:
                self.item = self._below("[]")
            self.item.absorb(other.item)
        for key, field in other.fields.items():
            if key not in self.fields:
                self.fields[key] = self._field(key)
            self.fields[key].absorb(field)

    def field(self, name: str) -> pa.Field:
        """The Arrow field of the place."""
        return pa.field(name, self._arrow(), metadata=WIDE if self.wide else None)

    def schema(self) -> pa.Schema:
        """The columns, of the type of whole rows."""
        return pa.schema([field.field(key) for key, field in self.fields.items()])

    @classmethod
    def of_schema(cls, schema: pa.Schema) -> JsonType:
        """The type whose columns are these."""
        rows = cls()
        rows.kind = "dict"
        for field in schema:
            rows.fields[field.name] = rows._field(field.name)
            rows.fields[field.name]._set(field)
        return rows

    @property
    def _name(self) -> str:
        return f"column {self.path!r}" if self.path else "the row"

    def _below(self, key: str) -> JsonType:
        if self.depth == MAX_DEPTH:
            raise DatasetError(f"{self._name} is nested more than {MAX_DEPTH} levels deep")
        separator = "" if key == "[]" or not self.path else "."
        return JsonType(f"{self.path}{separator}{key}", self.depth + 1)

    def _field(self, key: str) -> JsonType:
        if len(self.fields) == MAX_KEYS:
            raise DatasetError(
                f"{self._name} has more than {MAX_KEYS} different keys. Write what differs from row to row as values"
            )
        return self._below(key)

    def _widen(self, kind: str, wide: bool) -> None:
        kinds = {self.kind, kind}
        if kinds == {"int", "float"}:
            if self.wide or wide:
                raise DatasetError(
                    f"{self._name} has integers beyond 2^53 and numbers with a fraction, which no type holds exactly. "
                    "Write them as text"
                )
            self.kind = "float"
        elif self.kind and self.kind != kind:
            raise DatasetError(f"{self._name} is {NAMES[kind]} here, and {NAMES[self.kind]} before")
        else:
            self.kind = kind
            self.wide = self.wide or wide

    def _arrow(self) -> pa.DataType:
        if self.kind == "list":
            return pa.list_(self.item.field("item") if self.item is not None else pa.field("item", pa.null()))
        if self.kind == "dict":
            return pa.struct([field.field(key) for key, field in self.fields.items()])
        return SCALARS[self.kind]

    def _set(self, field: pa.Field) -> None:
        kind = field.type
        self.wide = field.metadata == WIDE
        if pa.types.is_list(kind):
            self.kind = "list"
            self.item = self._below("[]")
            self.item._set(kind.value_field)
        elif pa.types.is_struct(kind):
            self.kind = "dict"
            for inner in kind:
                self.fields[inner.name] = self._field(inner.name)
                self.fields[inner.name]._set(inner)
        else:
            self.kind = next(name for name, scalar in SCALARS.items() if scalar.equals(kind))
