from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataflow import _native

Array = npt.NDArray[Any]

SAME = [
    "bool",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "float16",
    "float32",
    "float64",
]
WIDENING = [
    ("uint8", "int32"),
    ("uint16", "int32"),
    ("uint8", "int64"),
    ("uint16", "int64"),
    ("int32", "int64"),
    ("uint32", "int64"),
]
PAIRS = [(name, name) for name in SAME] + WIDENING


def random_values(dtype: str, size: int, seed: int) -> Array:
    """Any bit pattern, but no NaN, which would not compare equal."""
    values: Array = np.frombuffer(np.random.default_rng(seed).bytes(size * np.dtype(dtype).itemsize), dtype=dtype)
    if dtype == "bool":
        values = values.view(np.uint8) % 2 == 1
    elif values.dtype.kind == "f":
        values = np.nan_to_num(values, nan=1.0)
    return values


def unaligned(array: Array) -> Array:
    """A copy that starts at an odd address."""
    memory = np.empty(array.nbytes + 1, dtype=np.uint8)
    copy = memory[1:].view(array.dtype) if array.nbytes else array.copy()
    copy[...] = array
    return copy


@st.composite
def ragged_columns(draw: st.DrawFn, dtype: str) -> tuple[list[list[Array]], list[Array], list[Array]]:
    """Rows of several blocks, and the values and offsets arrays that hold them."""
    blocks: list[list[Array]] = []
    values: list[Array] = []
    offsets: list[Array] = []
    for index in range(draw(st.integers(1, 4))):
        lengths = draw(st.lists(st.integers(0, 40), min_size=1, max_size=8))
        before = draw(st.integers(0, 3))  # a sliced column does not start at offset 0
        data = random_values(dtype, before + sum(lengths) + 2, index)
        ends = before + np.cumsum([0, *lengths])
        place = unaligned if draw(st.booleans()) else np.array
        blocks.append([data[ends[i] : ends[i + 1]] for i in range(len(lengths))])
        values.append(place(data))
        offsets.append(place(ends.astype(draw(st.sampled_from(["int32", "int64"])))))
    return blocks, values, offsets


@st.composite
def selections(draw: st.DrawFn, counts: list[int]) -> tuple[Array, Array]:
    pairs = [(block, row) for block, count in enumerate(counts) for row in range(count)]
    chosen = draw(st.lists(st.sampled_from(pairs), max_size=20))
    return np.array([b for b, _ in chosen], dtype=np.int32), np.array([r for _, r in chosen], dtype=np.int64)


@pytest.mark.parametrize(("source", "target"), PAIRS)
@given(data=st.data())
def test_gather_ragged(source: str, target: str, data: st.DataObject) -> None:
    blocks, values, offsets = data.draw(ragged_columns(source))
    block, row = data.draw(selections([len(rows) for rows in blocks]))
    width = data.draw(st.integers(0, 45))
    out = np.full((len(block), width), 77, dtype=target)
    lengths = np.full(len(block), -5, dtype=np.int64)
    fill = 1
    _native.gather_ragged(values, offsets, block, row, out, lengths, fill, truncate=True)
    for i, (b, r) in enumerate(zip(block, row, strict=True)):
        expected = blocks[b][r][:width]
        assert lengths[i] == len(expected)
        assert np.array_equal(out[i, : len(expected)], expected.astype(target))
        assert (out[i, len(expected) :] == np.array(fill).astype(target)).all()


@pytest.mark.parametrize(("source", "target"), PAIRS)
@given(data=st.data())
def test_gather_fixed(source: str, target: str, data: st.DataObject) -> None:
    width = data.draw(st.integers(1, 33))
    counts = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    blocks = [random_values(source, count * width, seed).reshape(count, width) for seed, count in enumerate(counts)]
    block, row = data.draw(selections(counts))
    out = np.zeros((len(block), width), dtype=target)
    columns = [b.reshape(-1) for b in blocks]
    if data.draw(st.booleans()):
        columns = [unaligned(column) for column in columns]
    _native.gather_fixed(columns, width, block, row, out)
    for i, (b, r) in enumerate(zip(block, row, strict=True)):
        assert np.array_equal(out[i], blocks[b][r].astype(target))


def test_gather_fixed_fills_rows_of_any_shape() -> None:
    values = [np.arange(24, dtype=np.float32)]
    out = np.zeros((2, 2, 3), dtype=np.float32)
    _native.gather_fixed(values, 6, np.zeros(2, dtype=np.int32), np.array([3, 1]), out)
    assert out.tolist() == [[[18, 19, 20], [21, 22, 23]], [[6, 7, 8], [9, 10, 11]]]
    labels = np.zeros(2, dtype=np.float32)
    _native.gather_fixed(values, 1, np.zeros(2, dtype=np.int32), np.array([3, 1]), labels)
    assert labels.tolist() == [3, 1]


@given(data=st.data())
def test_gather_bytes_and_ragged_lengths(data: st.DataObject) -> None:
    blocks, values, offsets = data.draw(ragged_columns("uint8"))
    block, row = data.draw(selections([len(rows) for rows in blocks]))
    expected = [blocks[b][r].tobytes() for b, r in zip(block, row, strict=True)]
    assert _native.gather_bytes(values, offsets, block, row) == expected
    lengths = _native.ragged_lengths(offsets, block, row)
    assert lengths.dtype == np.int64
    assert lengths.tolist() == [len(value) for value in expected]


def test_buffers_of_arrow_arrays_are_read_in_place() -> None:
    column = pa.array([b"first", b"", b"the third"], type=pa.large_binary())
    _, offsets, values = column.buffers()
    rows = np.array([2, 0, 1])
    lengths = [np.frombuffer(offsets, dtype=np.int64)]
    assert _native.gather_bytes([values], lengths, np.zeros(3, dtype=np.int32), rows) == [b"the third", b"first", b""]


@given(data=st.data())
def test_arrays_that_were_looked_at_before_give_the_same(data: st.DataObject) -> None:
    blocks, values, offsets = data.draw(ragged_columns("uint8"))
    block, row = data.draw(selections([len(rows) for rows in blocks]))
    expected = _native.gather_bytes(values, offsets, block, row)

    def some(arrays: list[Array]) -> list[Any]:
        return [_native.Array(array.copy()) if data.draw(st.booleans()) else array for array in arrays]

    assert _native.gather_bytes(some(values), some(offsets), block, row) == expected


def test_an_array_keeps_its_memory() -> None:
    values = _native.Array(np.arange(1000, dtype=np.uint8) % 7)
    offsets = _native.Array(b"".join(number.to_bytes(4, "little") for number in (0, 3, 1000)))
    with pytest.raises(TypeError, match="offsets must be int32 or int64, not uint8"):
        _native.gather_bytes([values], [offsets], np.zeros(1, np.int32), np.ones(1, np.int64))
    offsets = _native.Array(np.array([0, 3, 1000], np.int32))
    assert _native.gather_bytes([values], [offsets], np.zeros(1, np.int32), np.zeros(1, np.int64)) == [bytes(range(3))]
    for wrong in (None, "text", np.zeros((4, 2))[:, 0]):
        with pytest.raises(TypeError, match="memory"):
            _native.Array(wrong)  # type: ignore[arg-type]


def test_read_only_inputs_are_accepted() -> None:
    values = np.frombuffer(bytes(range(6)), dtype=np.uint8)
    offsets = np.array([0, 2, 6], dtype=np.int32)
    offsets.flags.writeable = False
    arrays = np.zeros(1, dtype=np.int32), np.ones(1, dtype=np.int64)
    for array in arrays:
        array.flags.writeable = False
    assert _native.gather_bytes((values,), (offsets,), *arrays) == [bytes([2, 3, 4, 5])]


def test_a_row_that_is_too_long_is_refused_by_position() -> None:
    values, offsets = [np.arange(10, dtype=np.uint16)], [np.array([0, 2, 9], dtype=np.int32)]
    block, row = np.zeros(2, dtype=np.int32), np.array([0, 1])
    out, lengths = np.zeros((2, 4), dtype=np.int64), np.zeros(2, dtype=np.int64)
    with pytest.raises(ValueError, match="position 1: block 0, row 1: has 7 elements, but the batch is 4 wide"):
        _native.gather_ragged(values, offsets, block, row, out, lengths, 0)
    _native.gather_ragged(values, offsets, block, row, out, lengths, -1, truncate=True)
    assert out.tolist() == [[0, 1, -1, -1], [2, 3, 4, 5]]
    assert lengths.tolist() == [2, 4]


@pytest.mark.parametrize(
    ("dtype", "fill"),
    [
        ("int8", -128),
        ("uint8", 255),
        ("int16", -(2**15)),
        ("uint16", 2**16 - 1),
        ("int32", -(2**31)),
        ("uint32", 2**32 - 1),
        ("int64", -(2**63)),
        ("uint64", 2**64 - 1),
        ("float16", -0.5),
        ("float32", float("inf")),
        ("float64", 1e300),
        ("bool", True),
    ],
)
def test_fill_takes_every_value_of_its_type(dtype: str, fill: float) -> None:
    out, lengths = np.zeros((1, 3), dtype=dtype), np.zeros(1, dtype=np.int64)
    nothing = [np.zeros(2, dtype=np.int32)]
    position = np.zeros(1, dtype=np.int32), np.zeros(1, dtype=np.int64)
    _native.gather_ragged([np.zeros(0, dtype=dtype)], nothing, *position, out, lengths, fill)
    assert out.tolist() == [[fill] * 3]


@pytest.mark.parametrize(
    ("dtype", "fill"),
    [
        ("int8", 128),
        ("uint8", -1),
        ("uint8", 256),
        ("int32", 2**31),
        ("uint32", 2**32),
        ("int64", 2**63),
        ("int64", -(2**63) - 1),
        ("uint64", -1),
        ("uint64", 2**64),
        ("bool", 2),
    ],
)
def test_fill_that_does_not_fit_is_refused(dtype: str, fill: int) -> None:
    out, lengths = np.zeros((0, 3), dtype=dtype), np.zeros(0, dtype=np.int64)
    nothing = np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int64)
    with pytest.raises(ValueError, match=f"fill does not fit {dtype}"):
        _native.gather_ragged([], [], *nothing, out, lengths, fill)


def test_a_fill_of_the_wrong_kind_is_refused() -> None:
    out, lengths = np.zeros((0, 3), dtype=np.int64), np.zeros(0, dtype=np.int64)
    nothing = np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int64)
    with pytest.raises(TypeError):
        _native.gather_ragged([], [], *nothing, out, lengths, 0.5)


class TestArguments:
    """A wrong argument is named."""

    def call(self, **changes: Any) -> None:
        arguments: dict[str, Any] = {
            "values": [np.zeros(4, dtype=np.uint16)],
            "offsets": [np.array([0, 2, 4], dtype=np.int32)],
            "block": np.zeros(2, dtype=np.int32),
            "row": np.zeros(2, dtype=np.int64),
            "out": np.zeros((2, 5), dtype=np.int64),
            "lengths": np.zeros(2, dtype=np.int64),
            "fill": 0,
        }
        _native.gather_ragged(**(arguments | changes))

    def test_the_arguments_are_right_to_begin_with(self) -> None:
        self.call()

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("values", np.zeros(4, dtype=np.uint16)),
            ("values", [np.zeros(4, dtype=">u2")]),
            ("values", [np.zeros(4, dtype="S3")]),
            ("values", [np.zeros(4, dtype=np.complex64)]),
            ("values", [np.zeros(4, dtype="M8[s]")]),
            ("values", [np.zeros((4, 2), dtype=np.uint16)[:, 0]]),
            ("values", [None]),
            ("values", [np.zeros(4, dtype=object)]),
            ("offsets", [np.zeros(3, dtype=np.uint32)]),
            ("offsets", None),
            ("block", np.zeros(2, dtype=np.int64)),
            ("row", np.zeros(2, dtype=np.int32)),
            ("row", np.zeros((2, 1), dtype=np.int64)),
            ("out", np.zeros((2, 10), dtype=np.int64)[:, ::2]),
            ("out", bytes(10)),
            ("lengths", np.zeros(2, dtype=np.int32)),
        ],
    )
    def test_wrong_types(self, name: str, value: object) -> None:
        with pytest.raises(TypeError, match=name):
            self.call(**{name: value})

    def test_types_that_cannot_be_widened(self) -> None:
        with pytest.raises(TypeError, match="cannot gather uint16 into uint8"):
            self.call(out=np.zeros((2, 5), dtype=np.uint8))
        with pytest.raises(TypeError, match="cannot gather float32 into int64"):
            self.call(values=[np.zeros(4, dtype=np.float32)])

    def test_values_of_two_types(self) -> None:
        with pytest.raises(TypeError, match="not both uint16 and uint8"):
            self.call(values=[np.zeros(4, dtype=np.uint16), np.zeros(4, dtype=np.uint8)])

    def test_sizes_that_do_not_agree(self) -> None:
        with pytest.raises(ValueError, match="block has 2 items, but row has 1"):
            self.call(row=np.zeros(1, dtype=np.int64))
        with pytest.raises(ValueError, match="1 arrays of values, but 2 of offsets"):
            self.call(offsets=[np.zeros(3, dtype=np.int32)] * 2)
        with pytest.raises(ValueError, match="out must have 2 rows"):
            self.call(out=np.zeros((3, 5), dtype=np.int64))
        with pytest.raises(ValueError, match="out must have two dimensions"):
            self.call(out=np.zeros(2, dtype=np.int64))
        with pytest.raises(ValueError, match="lengths must have one item"):
            self.call(lengths=np.zeros(1, dtype=np.int64))
        out = np.zeros((2, 5), dtype=np.uint16)
        with pytest.raises(ValueError, match="out must have 4 elements for each position"):
            _native.gather_fixed([out], 4, np.zeros(2, dtype=np.int32), np.zeros(2, dtype=np.int64), out)
        with pytest.raises(ValueError, match="width must be at least 1"):
            _native.gather_fixed([out], 0, np.zeros(2, dtype=np.int32), np.zeros(2, dtype=np.int64), out)
