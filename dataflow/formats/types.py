"""Arrow types as the loader wants them: plain values, and one type for shards whose types differ without loss."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from dataflow.errors import DatasetError

__all__ = ["merge_columns", "plain_schema", "plain_type"]

# Under this key of its metadata a field names the extension type that its values would have, were that type known.
EXTENSION = b"ARROW:extension:name"


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type of the same values without dictionaries, extension types and metadata, at any depth."""
    if isinstance(kind, pa.BaseExtensionType):
        return plain_type(kind.storage_type)
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return plain_type(kind.value_type)
    if pa.types.is_map(kind):
        return pa.map_(plain_type(kind.key_type), plain_type(kind.item_type))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(plain_type(kind.value_type), kind.list_size)
    if pa.types.is_list(kind):
        return pa.list_(plain_type(kind.value_type))
    if pa.types.is_large_list(kind):
        return pa.large_list(plain_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, plain_type(field.type)) for field in kind])
    if pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_binary_view(kind):
        return pa.large_binary()
    return kind


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """The same columns in plain types; the schema itself where it has no others."""
    if all(map(_is_plain, schema)):
        return schema
    fields = [
        field if _is_plain(field) else pa.field(field.name, plain_type(field.type), field.nullable) for field in schema
    ]
    return pa.schema(fields, metadata=schema.metadata)


def _is_plain(field: pa.Field) -> bool:
    kind = field.type
    # Which extension types there are depends on what a process has imported, and its rows must not.
    if isinstance(kind, pa.BaseExtensionType) or EXTENSION in (field.metadata or {}):
        return False
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return False
    return all(_is_plain(kind.field(place)) for place in range(kind.num_fields))


def merge_columns(first: pa.Schema, second: pa.Schema) -> pa.Schema:
    """The columns of `first`, in types that hold the values of both schemas. The order in `second` has no say.

    Integers and floats become the wider of two, columns that are null throughout take any type, 32-bit offsets
    become 64-bit ones.

    Raises:
        DatasetError: A column is in one schema only, or has types that have nothing in common; says which.
    """
    return merge_fields(first, second, _wider_field)


def merge_fields(first: pa.Schema, second: pa.Schema, merge: Callable[[pa.Field, pa.Field], pa.Field]) -> pa.Schema:
    """The columns of `first`, each merged with that of the same name in `second`.

    Raises:
        DatasetError: A column is in one schema only; says which.
    """
    for name in second.names:
        if name not in first.names:
            raise DatasetError(f"has a column {name!r} that earlier shards lack")
    missing = next((name for name in first.names if name not in second.names), None)
    if missing is not None:
        raise DatasetError(f"lacks column {missing!r}")
    return pa.schema([merge(field, second.field(field.name)) for field in first])


def _wider_field(first: pa.Field, second: pa.Field) -> pa.Field:
    wider = _wider(first.type, second.type)
    if wider is None:
        raise DatasetError(f"has column {first.name!r} as {second.type}, earlier shards have {first.type}")
    return pa.field(first.name, wider)


def _wider(first: pa.DataType, second: pa.DataType) -> pa.DataType | None:
    if first.equals(second) or pa.types.is_null(second):
        return first
    if pa.types.is_null(first):
        return second
    if pa.types.is_integer(first) and pa.types.is_integer(second):
        return _wider_integer(first, second)
    if pa.types.is_floating(first) and pa.types.is_floating(second):
        return max(first, second, key=lambda kind: kind.bit_width)
    for large, kinds in (
        (pa.large_string(), (pa.string(), pa.large_string())),
        (pa.large_binary(), (pa.binary(), pa.large_binary())),
    ):
        if first in kinds and second in kinds:
            return large
    if _is_list(first) and _is_list(second):
        value = _wider(first.value_type, second.value_type)
        large = pa.types.is_large_list(first) or pa.types.is_large_list(second)
        return None if value is None else pa.large_list(value) if large else pa.list_(value)
    if pa.types.is_struct(first) and pa.types.is_struct(second):
        if [field.name for field in first] != [field.name for field in second]:
            return None
        inner = [_wider(one.type, other.type) for one, other in zip(first, second, strict=True)]
        if None in inner:
            return None
        return pa.struct([pa.field(field.name, kind) for field, kind in zip(first, inner, strict=True)])
    return None


def _wider_integer(first: pa.DataType, second: pa.DataType) -> pa.DataType | None:
    signed = [kind for kind in (first, second) if pa.types.is_signed_integer(kind)]
    widest = max(first.bit_width, second.bit_width)
    if len(signed) == 1:
        unsigned = second if signed[0] is first else first
        widest = max(signed[0].bit_width, unsigned.bit_width * 2)
    if widest > 64:
        return None
    return getattr(pa, f"int{widest}" if signed else f"uint{widest}")()


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))
