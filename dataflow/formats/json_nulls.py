"""Nulls of no type inside lists, which pyarrow's JSON reader counts wrongly: they are read as booleans instead."""

from __future__ import annotations

import pyarrow as pa

__all__ = ["to_nulls", "without_nulls"]


def without_nulls(kind: pa.DataType) -> pa.DataType:
    """The type with booleans in place of nulls, at any depth."""
    if pa.types.is_null(kind):
        return pa.bool_()
    if pa.types.is_list(kind):
        return pa.list_(without_nulls(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, without_nulls(field.type)) for field in kind])
    return kind


def to_nulls(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """An array of the type `without_nulls(kind)` as one of the type itself. Its booleans are all null."""
    if pa.types.is_null(kind):
        return pa.nulls(len(array))
    if pa.types.is_list(kind) and not array.type.equals(kind):
        # Not `offsets`, which has a null where a list is null.
        offsets = pa.Array.from_buffers(pa.int32(), len(array) + 1, [None, array.buffers()[1]], offset=array.offset)
        return pa.ListArray.from_arrays(
            offsets, to_nulls(array.values, kind.value_type), type=kind, mask=array.is_null() if len(array) else None
        )
    if pa.types.is_struct(kind) and not array.type.equals(kind):
        children = [to_nulls(array.field(place), kind.field(place).type) for place in range(kind.num_fields)]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=array.is_null())
    return array
