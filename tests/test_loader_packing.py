"""Packed batches against plain Python, and what cannot be packed, cut or expanded."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

import dataflow
from dataflow.errors import DatasetError, FilterError, OptionError

SEQ_LEN = 24
IGNORED = -100
SCHEMA = pa.schema({"key": pa.string(), "tokens": pa.list_(pa.uint16()), "learned": pa.list_(pa.bool_())})


def tokens_of(number: int) -> list[int]:
    return [40 * number + at for at in range(number * 7 % 19 + (40 if number % 11 == 5 else 0))]


def learned_of(number: int) -> list[bool]:
    return [(number + at) % 3 > 0 for at in range(len(tokens_of(number)))]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> dataflow.Dataset:
    url = str(tmp_path_factory.mktemp("packing") / "documents")
    with dataflow.ShardWriter(url, SCHEMA, rows_per_block=8) as writer:
        for number in range(120):
            writer.write({"key": str(number), "tokens": tokens_of(number), "learned": learned_of(number)})
    return dataflow.open(url)


def batches(dataset: dataflow.Dataset, **options: Any) -> list[dict[str, Any]]:
    return list(dataflow.DataLoader(dataset, batch_size=4, shuffle=True, lanes=4, end="exact", **options))


def plain_row(pieces: Sequence[tuple[int, int, int]], masked: bool, pad_token: int) -> dict[str, list[int]]:
    """A row of pieces (number of the row, first token, end) as plain lists."""
    row: dict[str, list[int]] = {"tokens": [], "labels": [], "position_ids": [], "document_ids": []}
    for document, (number, start, stop) in enumerate(pieces):
        tokens, learned = tokens_of(number), learned_of(number)
        for at in range(start, stop):
            following = at + 1 < len(tokens) and (learned[at + 1] or not masked)
            row["tokens"].append(tokens[at])
            row["labels"].append(tokens[at + 1] if following else IGNORED)
            row["position_ids"].append(at - start)
            row["document_ids"].append(document)
    for at in range(SEQ_LEN - len(row["tokens"])):
        row["tokens"].append(pad_token)
        row["labels"].append(IGNORED)
        row["position_ids"].append(at)
        row["document_ids"].append(-1)
    return row


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("mode", ["best_fit", "first_fit", "concat"])
def test_rows_are_those_of_plain_python(dataset: dataflow.Dataset, mode: str, masked: bool) -> None:
    packed = dataset.pack(SEQ_LEN, mode=mode, window=16, loss_mask="learned" if masked else None, pad_token=7)
    seen: list[int] = []
    for batch in batches(packed):
        bounds = batch["cu_seqlens"].tolist()
        assert batch["cu_seqlens"].dtype == torch.int32
        assert bounds[0] == 0
        assert bounds[-1] == 4 * SEQ_LEN
        lengths = [stop - start for start, stop in pairwise(bounds)]
        assert min(lengths) > 0  # TK-09
        assert batch["max_seqlen"] == max(lengths)
        starts = {row * SEQ_LEN + at for row in range(4) for at in range(SEQ_LEN) if not batch["position_ids"][row][at]}
        assert starts == set(bounds[:-1])
        for row in range(4):
            documents = batch["document_ids"][row].tolist()
            pieces = []
            for document, number in enumerate(batch["sample_ids"][row].tolist()):
                first = documents.index(document)
                start = int(batch["tokens"][row][first]) - 40 * number
                pieces.append((number, start, start + documents.count(document)))
            for name, expected in plain_row(pieces, masked, 7).items():
                assert batch[name].dtype == torch.int64
                assert batch[name][row].tolist() == expected, name
            if batch["valid"][row]:
                seen += batch["tokens"][row][batch["document_ids"][row] >= 0].tolist()
    assert sorted(seen) == sorted(token for number in range(120) for token in tokens_of(number))


def test_what_is_too_long_is_dropped_and_counted(dataset: dataflow.Dataset) -> None:
    long = [number for number in range(120) if len(tokens_of(number)) > SEQ_LEN]
    loader = dataflow.DataLoader(dataset.pack(SEQ_LEN, long="drop"), batch_size=4, lanes=4, shuffle=True, end="exact")
    found = {number for batch in loader for ids in batch["sample_ids"] for number in ids.tolist()}
    assert found == {number for number in range(120) if 0 < len(tokens_of(number)) <= SEQ_LEN}
    counts = loader.stats()["packing"]
    assert counts["documents"] == 120
    assert counts["dropped"] == len(long)
    assert counts["dropped_tokens"] == sum(len(tokens_of(number)) for number in long)
    assert f"{len(long)} dropped" in loader.report()


def test_functions_after_packing_see_rows(dataset: dataflow.Dataset) -> None:
    def shorten(row: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        assert "cu_seqlens" in row
        return {"tokens": row["tokens"][:8], "drawn": int(rng.integers(1 << 30))}

    first, again = (batches(dataset.pack(SEQ_LEN).map(shorten), num_workers=workers) for workers in (0, 2))
    assert first[0]["tokens"].shape == (4, 8)
    assert "cu_seqlens" not in first[0]
    assert [batch["drawn"].tolist() for batch in first] == [batch["drawn"].tolist() for batch in again]
    assert len({drawn for batch in first for drawn in batch["drawn"].tolist()}) > len(first) * 3


def test_a_collate_fn_gets_packed_rows(dataset: dataflow.Dataset) -> None:
    loader = dataflow.DataLoader(dataset.pack(SEQ_LEN), batch_size=4, steps_per_epoch=3, collate_fn=list)
    for batch in loader:
        assert [sorted(row) for row in batch] == [
            ["cu_seqlens", "document_ids", "labels", "position_ids", "tokens"]
        ] * 4


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"seq_len": 0}, "seq_len=0"),
        ({"seq_len": 8, "mode": "worst_fit"}, "best_fit"),
        ({"seq_len": 8, "long": "keep"}, "'split' or 'drop'"),
        ({"seq_len": 8, "long": "drop", "mode": "concat"}, "concat"),
        ({"seq_len": 8, "window": 1.5}, "window=1.5"),
        ({"seq_len": 8, "pad_token": None}, "pad_token"),
        ({"seq_len": 8, "column": "text"}, "'text', there are key, tokens, learned"),
        ({"seq_len": 8, "column": "key"}, "no lists"),
        ({"seq_len": 8, "loss_mask": "mask"}, "'mask'"),
    ],
)
def test_what_cannot_be_packed_is_refused(dataset: dataflow.Dataset, arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        dataset.pack(**arguments)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"columns": (), "size": 4}, "one or more"),
        ({"columns": ("tokens", "tokens"), "size": 4}, "different"),
        ({"columns": "tokens", "size": 0}, "size=0"),
        ({"columns": "tokens", "size": 4, "stride": -1}, "stride=-1"),
        ({"columns": "tokens", "size": 4, "partial": "pad"}, "'keep' or 'drop'"),
        ({"columns": "text", "size": 4}, "'text'"),
    ],
)
def test_what_cannot_be_cut_is_refused(dataset: dataflow.Dataset, arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        dataset.window(**arguments)


def test_windows_cut_columns_alike(dataset: dataflow.Dataset) -> None:
    cut = dataset.window(["tokens", "learned"], 6, 4, partial="drop")
    rows = [
        (int(number), *part, tokens.tolist(), learned.tolist())
        for batch in batches(cut)
        for number, part, tokens, learned, valid in zip(
            batch["sample_id"], batch["parts"].tolist(), batch["tokens"], batch["learned"], batch["valid"], strict=True
        )
        if valid
    ]
    assert sorted(rows) == [
        (number, part, tokens_of(number)[4 * part : 4 * part + 6], learned_of(number)[4 * part : 4 * part + 6])
        for number in range(120)
        for part in range((len(tokens_of(number)) - 6) // 4 + 1)
    ]


def test_columns_of_different_lengths_are_an_error(dataset: dataflow.Dataset) -> None:
    uneven = dataset.map(lambda row: {**row, "learned": row["learned"][:3]}, name="shorter")
    with pytest.raises(DatasetError, match="one for each"):
        batches(uneven.pack(SEQ_LEN, loss_mask="learned"))
    with pytest.raises(DatasetError, match="different lengths"):
        batches(uneven.window(["tokens", "learned"], 4))
    with pytest.raises(DatasetError, match="no column 'text', only key, tokens, learned"):
        batches(uneven.pack(SEQ_LEN, column="text"))
    floats = dataset.map(lambda row: {"tokens": np.ones(3)}, name="floats")
    with pytest.raises(DatasetError, match="integers"):
        batches(floats.pack(SEQ_LEN))


@pytest.mark.parametrize("made", [{"a": 1}, None, 3, "rows"])
def test_a_flat_map_that_returns_no_list_is_named(dataset: dataflow.Dataset, made: Any) -> None:
    with pytest.raises(DatasetError, match="let it return a list of rows") as caught:
        batches(dataset.flat_map(lambda row: made, name="broken"))
    assert "in flat_map 'broken', on row" in caught.value.__notes__[0]


def test_errors_in_later_stages_name_the_part(dataset: dataflow.Dataset) -> None:
    twice = dataset.flat_map(lambda row: [row, row], name="twice")
    with pytest.raises(ZeroDivisionError) as caught:
        batches(twice.map(lambda row: 1 // 0, name="divide"))
    assert "in map 'divide', on part 0 of row" in caught.value.__notes__[0]


def test_stages_that_give_nothing_are_named(dataset: dataflow.Dataset) -> None:
    nothing = dataset.flat_map(lambda row: [], name="nothing")
    with pytest.raises(FilterError, match="flat_map 'nothing' let none"):
        next(iter(dataflow.DataLoader(nothing, steps_per_epoch=2)))
    with pytest.raises(FilterError, match="flat_map 'nothing' let no sample"):
        batches(nothing)
    empty = dataset.map(lambda row: {"tokens": []}, name="empty")
    with pytest.raises(FilterError, match="pack of 'tokens' let none"):
        next(iter(dataflow.DataLoader(empty.pack(8), steps_per_epoch=2)))


def test_a_flat_map_that_is_not_deterministic_is_found_at_a_resume(dataset: dataflow.Dataset) -> None:
    count = 5

    def change(row: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"at": at} for at in range(count)]

    def loader() -> dataflow.DataLoader:
        return dataflow.DataLoader(dataset.flat_map(change, name="change"), batch_size=3, steps_per_epoch=10, lanes=1)

    first = loader()
    next(iter(first))
    count = 2
    second = loader()
    second.load_state_dict(first.state_dict())
    with pytest.raises(dataflow.errors.DataflowError, match="gave 2 items where it had given 3"):
        next(iter(second))


def test_what_has_no_numbers_of_rows(dataset: dataflow.Dataset) -> None:
    packed = dataset.pack(SEQ_LEN)
    with pytest.raises(TypeError, match="pack 'tokens'"):
        len(packed)
    with pytest.raises(TypeError, match="flat_map 'several'"):
        dataset.flat_map(lambda row: [row], name="several")[0]
    with pytest.raises(TypeError, match="steps_per_epoch"):
        len(dataflow.DataLoader(packed, end="exact"))
    with pytest.raises(OptionError, match="end='exact'"):
        dataflow.DataLoader(packed)


def test_documents_that_wait_count_against_the_memory(tmp_path: Path) -> None:
    with dataflow.ShardWriter(str(tmp_path / "long"), SCHEMA, rows_per_block=8) as writer:
        for number in range(64):
            writer.write({"key": str(number), "tokens": [1] * 5000, "learned": [True]})
    packed = dataflow.open(str(tmp_path / "long")).pack(8192)
    with pytest.raises(OptionError, match="1024 documents to pack in each"):
        dataflow.DataLoader(packed, steps_per_epoch=2, memory_limit=8 << 20)
    dataflow.DataLoader(packed, steps_per_epoch=2, memory_limit=64 << 20)


def test_states_of_other_stages_are_refused(dataset: dataflow.Dataset) -> None:
    def loader(packed: dataflow.Dataset) -> dataflow.DataLoader:
        return dataflow.DataLoader(packed, batch_size=2, steps_per_epoch=10, lanes=4)

    first = loader(dataset.pack(SEQ_LEN))
    next(iter(first))
    state = first.state_dict()
    for other in (dataset.pack(SEQ_LEN + 1), dataset.pack(SEQ_LEN, mode="concat"), dataset.pack(SEQ_LEN, window=9)):
        with pytest.raises(dataflow.errors.StateError, match="another pipeline"):
            loader(other).load_state_dict(state)
    numbers = state["cursors"]["numbers"]
    damaged = {**state, "cursors": {**state["cursors"], "numbers": [*numbers, [0] * len(numbers[0])]}}
    with pytest.raises(dataflow.errors.StateError, match="damaged"):
        loader(dataset.pack(SEQ_LEN)).load_state_dict(damaged)
