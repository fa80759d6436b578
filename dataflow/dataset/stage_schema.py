"""Columns and types of what comes out of stages."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from dataflow.dataset.expanding import EXPANDING
from dataflow.dataset.stages import Decode, Map, Select, Stage

__all__ = ["schema_after"]


def schema_after(schema: pa.Schema, stages: Iterable[Stage]) -> pa.Schema | None:
    """The schema of rows that went through stages; None after those that may return anything."""
    for stage in stages:
        if isinstance(stage, (Map, *EXPANDING)):
            return None
        if isinstance(stage, Select):
            schema = pa.schema([schema.field(name) for name in stage.columns], metadata=schema.metadata)
        elif isinstance(stage, Decode):
            kind = _array_type(stage.codec.shape, stage.codec.dtype)
            schema = schema.set(schema.get_field_index(stage.column), pa.field(stage.column, kind))
            for name, companion in stage.companions.items():
                schema = schema.append(pa.field(name, _array_type(*companion)))
    return schema


def _array_type(shape: tuple[int, ...], dtype: str) -> pa.DataType:
    kind = pa.from_numpy_dtype(dtype)
    if not shape:
        return kind
    if -1 not in shape:
        return pa.fixed_shape_tensor(kind, shape)
    for size in reversed(shape):
        kind = pa.list_(kind, size)
    return kind
