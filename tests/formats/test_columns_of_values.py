from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataflow.formats.binary import binary_array, text_array
from dataflow.formats.numeric import numeric_array


@given(st.lists(st.none() | st.binary(max_size=9)))
def test_bytes_are_those_of_pyarrow(values: list[bytes | None]) -> None:
    array = binary_array(values)
    array.validate(full=True)
    assert array.equals(pa.array(values, pa.binary()))


@given(st.lists(st.none() | st.text(max_size=9)))
def test_text_is_that_of_pyarrow(values: list[str | None]) -> None:
    array = text_array(iter(values))
    array.validate(full=True)
    assert array.equals(pa.array(values, pa.string()))


def test_half_a_surrogate_pair_is_no_text() -> None:
    with pytest.raises(UnicodeEncodeError):
        text_array(["\ud800"])


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "int64", "float32", "float64"])
def test_numbers_are_those_of_pyarrow(dtype: str) -> None:
    values = np.arange(20).astype(dtype)
    for shown in (values, values[::3], values[:0], values[::-1]):
        array = numeric_array(shown)
        array.validate(full=True)
        assert array.equals(pa.array(shown))
