"""Picks fields out of structs in Thrift's compact encoding, and writes them back without the others."""

from __future__ import annotations

from typing import TypeAlias

__all__ = ["Fields", "Struct", "integer", "octets", "pick", "write"]

#: Wanted fields by number; None for the value as it is, fields for those of a struct or of each struct in a list.
Fields: TypeAlias = "dict[int, Fields | None]"
#: Fields by number: the type, and encoded bytes, a struct, or a list of structs.
Struct: TypeAlias = "dict[int, tuple[int, bytes | Struct | list[Struct]]]"

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
MAX_DEPTH = 16


def pick(data: bytes, fields: Fields) -> tuple[Struct, int]:
    """Returns the wanted fields of the struct at the start of `data`, and where it ends.

    Raises:
        ValueError: There is no whole struct.
    """
    try:
        return _pick(data, 0, fields)
    except IndexError as error:
        raise ValueError("it is cut off") from error


def write(struct: Struct) -> bytes:
    """Encodes a struct."""
    out = bytearray()
    last = 0
    for number, (kind, value) in sorted(struct.items()):
        if 0 < number - last <= 15:
            out.append((number - last) << 4 | kind)
        else:
            out.append(kind)
            out += _varint_bytes(number << 1 ^ number >> 15)
        last = number
        if isinstance(value, dict):
            out += write(value)
        elif isinstance(value, list):
            out.append(0xF0 | STRUCT)
            out += _varint_bytes(len(value))
            for item in value:
                out += write(item)
        else:
            out += value
    out.append(0)
    return bytes(out)


def integer(struct: Struct, number: int, default: int | None = None) -> int:
    """The integer in a field.

    Raises:
        ValueError: There is none, and no default.
    """
    kind, value = struct.get(number, (0, b""))
    if kind in (I16, I32, I64) and isinstance(value, bytes):
        bits = _varint(value, 0)[0]
        return bits >> 1 ^ -(bits & 1)
    if default is None or kind:
        raise ValueError(f"field {number} is no integer")
    return default


def octets(struct: Struct, number: int) -> bytes:
    """The bytes in a binary field, none if there is no such field."""
    kind, value = struct.get(number, (0, b""))
    return value[_varint(value, 0)[1] :] if kind == BINARY and isinstance(value, bytes) else b""


def _pick(data: bytes, position: int, fields: Fields) -> tuple[Struct, int]:
    struct: Struct = {}
    number = 0
    while True:
        header = data[position]
        position += 1
        if header == 0:
            return struct, position
        kind = header & 15
        if header >> 4:
            number += header >> 4
        else:
            bits, position = _varint(data, position)
            number = bits >> 1 ^ -(bits & 1)
        start = position
        inner = fields.get(number)
        if inner is None:
            position = _skip(data, position, kind, 1)
            if number in fields:
                struct[number] = (kind, data[start:position])
        elif kind == STRUCT:
            value, position = _pick(data, position, inner)
            struct[number] = (kind, value)
        elif kind == LIST:
            item, count, position = _list_header(data, position)
            if item != STRUCT:
                raise ValueError(f"field {number} is no list of structs")
            values = []
            for _ in range(count):
                value, position = _pick(data, position, inner)
                values.append(value)
            struct[number] = (kind, values)
        else:
            raise ValueError(f"field {number} is no struct")


def _skip(data: bytes, position: int, kind: int, depth: int) -> int:
    if depth > MAX_DEPTH:
        raise ValueError("it is nested too deeply")
    if kind in (TRUE, FALSE):
        return position
    if kind in (I16, I32, I64):
        return _varint(data, position)[1]
    if kind == BYTE:
        position += 1
    elif kind == DOUBLE:
        position += 8
    elif kind == BINARY:
        length, position = _varint(data, position)
        position += length
    elif kind in (LIST, SET):
        item, count, position = _list_header(data, position)
        for _ in range(count):
            # A boolean in a list is a byte, and in a field a part of the header.
            position = _skip(data, position, BYTE if item in (TRUE, FALSE) else item, depth + 1)
    elif kind == MAP:
        count, position = _varint(data, position)
        if count:
            kinds = data[position]
            position += 1
            for _ in range(count):
                for item in (kinds >> 4, kinds & 15):
                    position = _skip(data, position, BYTE if item in (TRUE, FALSE) else item, depth + 1)
    elif kind == STRUCT:
        while (header := data[position]) != 0:
            position += 1
            if not header >> 4:
                position = _varint(data, position)[1]
            position = _skip(data, position, header & 15, depth + 1)
        position += 1
    else:
        raise ValueError(f"there is no type {kind}")
    if position > len(data):
        raise IndexError
    return position


def _list_header(data: bytes, position: int) -> tuple[int, int, int]:
    """Type of the items, their number, and where they start."""
    header = data[position]
    position += 1
    count = header >> 4
    if count == 15:
        count, position = _varint(data, position)
    if count > len(data) - position:  # every item has a byte or more
        raise IndexError
    return header & 15, count, position


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than 64 bits")


def _varint_bytes(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
