"""Columns of numbers in the types and widths that were asked for, whichever way a batch is made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import dataflow
from dataflow.errors import DatasetError, OptionError

TYPES = {
    "uint8": pa.uint8(),
    "uint16": pa.uint16(),
    "uint32": pa.uint32(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
}
ROWS, WIDTH = 40, 2048
WAYS = ("gathered", "mapped", "filtered")


def tokens(row: int) -> list[int]:
    """As many as the row's number, up to the greatest of uint16: the largest id has to stay what it is."""
    return [65535 - (row + at) % 7 for at in range(row)]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = str(tmp_path_factory.mktemp("layout") / "rows")
    schema = pa.schema(
        {
            **{f"one_{name}": kind for name, kind in TYPES.items()},
            **{f"list_{name}": pa.list_(kind) for name, kind in TYPES.items()},
            "tokens": pa.list_(pa.uint16()),
            "fixed": pa.list_(pa.uint16(), WIDTH),
            "maybe": pa.list_(pa.uint16()),
            "text": pa.string(),
        }
    )
    with dataflow.ShardWriter(url, schema, rows_per_block=4) as writer:
        for row in range(ROWS):
            writer.write(
                {
                    **{f"one_{name}": row for name in TYPES},
                    **{f"list_{name}": [row] * (row % 3) for name in TYPES},
                    "tokens": tokens(row),
                    "fixed": np.full(WIDTH, 65535 - row, np.uint16),
                    "maybe": None if row == 5 else [row],
                    "text": str(row),
                }
            )
    return url


def made(url: str, way: str, columns: list[str], **options: Any) -> list[dict[str, Any]]:
    dataset = dataflow.open(url).select(columns)
    if way == "mapped":
        dataset = dataset.map(dict, name="same")
    elif way == "filtered":
        dataset = dataset.filter(lambda sample: True, name="all")
        options |= {"end": "exact"}
    return list(dataflow.DataLoader(dataset, **{"batch_size": 8, "num_workers": 1, "shuffle": True, **options}))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("target", ["int32", torch.int64, np.float32, np.dtype("float64")])
def test_types_become_others(url: str, way: str, target: Any) -> None:  # TK-04
    name = str(target).removeprefix("torch.") if isinstance(target, torch.dtype) else np.dtype(target).name
    sources = [kind for kind in TYPES if name.startswith("float") or not kind.startswith("float")]
    columns = [f"{shape}_{kind}" for kind in sources for shape in ("one", "list")] + ["tokens", "fixed"]
    for batch in made(url, way, columns, dtypes=dict.fromkeys(columns, target)):
        rows = batch["sample_id"].tolist()
        for kind in sources:
            assert batch[f"one_{kind}"].dtype == getattr(torch, name)
            assert batch[f"one_{kind}"].tolist() == rows
            assert {value.dtype for value in batch[f"list_{kind}"]} == {getattr(torch, name)}
            assert [value.tolist() for value in batch[f"list_{kind}"]] == [[row] * (row % 3) for row in rows]
        assert [value.tolist() for value in batch["tokens"]] == [tokens(row) for row in rows]
        assert batch["fixed"].dtype == getattr(torch, name)
        assert batch["fixed"].tolist() == [[65535 - row] * WIDTH for row in rows]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("source", ["uint8", "uint16", "uint32", "int32", "int64"])
@pytest.mark.parametrize("length", [None, 2, 5])
def test_lists_are_padded_in_another_type(url: str, way: str, source: str, length: int | None) -> None:
    """The padding is of the type that is asked for, not of the stored one."""
    column = f"list_{source}"
    pad = {column: dataflow.Pad(-100, length=length)}
    for batch in made(url, way, [column], pad=pad, dtypes={column: "int64"}):
        rows = batch["sample_id"].tolist()
        width = length or max(row % 3 for row in rows)
        assert batch[column].dtype == torch.int64
        assert batch[column].tolist() == [[row] * (row % 3) + [-100] * (width - row % 3) for row in rows]
        assert batch[f"{column}_length"].tolist() == [row % 3 for row in rows]


@pytest.mark.parametrize("way", WAYS)
def test_long_rows_are_cut_or_refused(url: str, way: str) -> None:
    for batch in made(url, way, ["tokens"], pad={"tokens": dataflow.Pad(0, length=10, truncate=True)}):
        rows = batch["sample_id"].tolist()
        assert batch["tokens"].dtype == torch.uint16
        assert batch["tokens"].tolist() == [(tokens(row) + [0] * 10)[:10] for row in rows]
        assert batch["tokens_length"].tolist() == [min(row, 10) for row in rows]
    with pytest.raises(DatasetError, match=r"'tokens' has a row of 39 elements, Pad\(length=\) is 10.*truncate=True"):
        made(url, way, ["tokens"], pad={"tokens": dataflow.Pad(0, length=10)}, batch_size=ROWS)


@pytest.mark.parametrize("way", WAYS)
def test_values_that_do_not_fit_are_refused(url: str, way: str) -> None:
    """Nothing wraps around; what fits may become narrower."""
    for column in ("tokens", "fixed"):
        with pytest.raises(DatasetError, match=rf"'{column}' has the value \d+, which uint8 cannot hold"):
            made(url, way, [column], dtypes={column: "uint8"})
    narrow = made(url, way, ["one_int64", "list_int64"], dtypes={"one_int64": "int8", "list_int64": "int8"})
    assert [batch["one_int64"].tolist() for batch in narrow] == [batch["sample_id"].tolist() for batch in narrow]
    assert {value.dtype for batch in narrow for value in batch["list_int64"]} == {torch.int8}


@pytest.mark.parametrize("way", ["gathered", "mapped"])
def test_null_lists_are_not_padded(url: str, way: str) -> None:
    with pytest.raises(DatasetError, match=r"'maybe'.*pad="):
        made(url, way, ["maybe"], pad={"maybe": 0})


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown type": ({"dtypes": {"tokens": "int63"}}, "'int63'.*no type of numbers"),
    "no number": ({"dtypes": {"tokens": "str"}}, "no type of numbers"),
    "nothing": ({"dtypes": {"tokens": None}}, "no type of numbers"),
    "no dict": ({"dtypes": "int64"}, "give a dict"),
    "no such column": ({"dtypes": {"token": "int64"}}, "dtypes= names the column 'token'"),
    "a column of text": ({"dtypes": {"text": "int64"}}, "'text' has no numbers.*dtypes="),
    "text to pad": ({"pad": {"text": 0}}, "'text' has no numbers.*pad="),
    "a fraction to an integer": ({"dtypes": {"one_float32": "int64"}}, "has float32, not to be made int64"),
    "padding that does not fit": ({"pad": {"tokens": -100}}, "has uint16, which cannot hold -100.*dtypes="),
    "padding with a fraction": ({"pad": {"tokens": 0.5}}, "cannot hold 0.5"),
    "padding with text": ({"pad": {"tokens": "x"}}, "give a number"),
    "with collate_fn": ({"pad": {"tokens": 0}, "collate_fn": list}, "collate_fn= makes the batches, pad="),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_work_is_refused_beforehand(url: str, case: str) -> None:
    options, message = REFUSED[case]
    with pytest.raises(OptionError, match=message):
        dataflow.DataLoader(dataflow.open(url), **options)


def test_lengths_that_make_no_sense() -> None:
    for length in (0, -1, 1.5, True):
        with pytest.raises(OptionError, match="positive integer"):
            dataflow.Pad(0, length=length)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="give it"):
        dataflow.Pad(0, truncate=True)


def test_a_mapped_column_that_is_not_there(url: str) -> None:
    dataset = dataflow.open(url).map(lambda sample: {"a": 1}, name="a")
    with pytest.raises(DatasetError, match=r"no 'tokens', only a: see dtypes="):
        next(iter(dataflow.DataLoader(dataset, dtypes={"tokens": "int64"}, num_workers=0)))


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_batches_that_are_held_are_never_overwritten(url: str, data: st.DataObject) -> None:
    """Whatever of a batch the user keeps, and however long."""
    loader = dataflow.DataLoader(
        dataflow.open(url).select(["fixed", "tokens"]),
        batch_size=4,
        shuffle=True,
        num_workers=data.draw(st.sampled_from((0, 2))),
        prefetch_factor=data.draw(st.integers(1, 3)),
        pad={"tokens": dataflow.Pad(7, length=data.draw(st.sampled_from((None, 1500))))},
        dtypes={"fixed": "int64", "tokens": "int32"},
        device=data.draw(st.sampled_from((None, "cpu"))),
    )
    held: list[tuple[torch.Tensor, torch.Tensor]] = []
    for batch in loader:
        column = data.draw(st.sampled_from(("fixed", "tokens")))
        row = data.draw(st.integers(0, 3))
        tensor = data.draw(st.sampled_from((batch[column], batch[column][row], batch[column].t())))
        held.append((tensor, tensor.clone()))
        if data.draw(st.booleans()):
            held.pop(data.draw(st.integers(0, len(held) - 1)))
        del batch, tensor
        assert all(torch.equal(*pair) for pair in held)


def test_memory_is_used_again(tmp_path: Path, url: str) -> None:
    loader = dataflow.DataLoader(
        dataflow.open(url).select("fixed"), batch_size=2, num_workers=1, prefetch_factor=2, dtypes={"fixed": "int64"}
    )
    places = {batch["fixed"].data_ptr() for batch in loader}
    # Two that wait, one that is made, and the consumer's, for which the next is there before it lets go.
    assert len(places) <= 5 < len(loader)
    slabs = loader.stats()["slabs"]
    assert slabs["peak_bytes"] == slabs["count"] * 2 * WIDTH * 8


def test_memory_for_widened_rows_is_counted(url: str) -> None:
    dataset = dataflow.open(url).select("fixed")

    def batches(**options: Any) -> int:
        loader = dataflow.DataLoader(dataset, batch_size=4, num_workers=1, prefetch_factor=1, **options)
        next(iter(loader))
        return int(loader.stats()["working_set"]["batches"])

    assert batches(dtypes={"fixed": "int64"}) == batches() + 2 * 4 * WIDTH * 8
