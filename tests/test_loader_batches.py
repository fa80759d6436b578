"""What is in a batch: every type of column, padding, the user's functions, and random numbers of one's own."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

import dataflow
from dataflow.errors import DatasetError, OptionError
from tests.conformance.watchdog import limited

NUMBERS = {
    **{
        name: getattr(pa, name)() for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
    },
    **{"float16": pa.float16(), "float32": pa.float32(), "float64": pa.float64(), "bool": pa.bool_()},
}
DTYPES = {name: getattr(torch, name) for name in NUMBERS}
SIZE = 53


def number(kind: str, row: int) -> Any:
    if kind == "bool":
        return row % 3 == 0
    if kind.startswith("float"):
        return np.float16(row / 4) if kind == "float16" else row / 4
    return row if kind.startswith("u") or row % 2 else -row


def row(at: int) -> dict[str, Any]:
    """A row of every type that a dataset may hold."""
    return {
        **{name: number(name, at) for name in NUMBERS},
        "fixed": [at, at + 1, at + 2],
        "matrix": [[at, 1], [2, 3]],
        "ragged": list(range(at % 5)),
        "ragged_float": [at / 2] * (at % 3),
        "bytes": bytes([at] * (at % 7)),
        "text": "ü" * (at % 4) + str(at),
        "large": str(at).encode(),
        "maybe": None if at % 4 == 0 else f"t{at}",
        "maybe_list": None if at % 5 == 0 else [at],
        "place": {"x": at, "name": f"p{at}"},
        "words": [f"w{n}" for n in range(at % 3)],
        "day": datetime.date(2020, 1, 1) + datetime.timedelta(days=at),
    }


SCHEMA = pa.schema(
    {
        **NUMBERS,
        "fixed": pa.list_(pa.int32(), 3),
        "matrix": pa.list_(pa.list_(pa.float32(), 2), 2),
        "ragged": pa.list_(pa.int64()),
        "ragged_float": pa.large_list(pa.float32()),
        "bytes": pa.binary(),
        "text": pa.string(),
        "large": pa.large_binary(),
        "maybe": pa.string(),
        "maybe_list": pa.list_(pa.int16()),
        "place": pa.struct([("x", pa.int32()), ("name", pa.string())]),
        "words": pa.list_(pa.string()),
        "day": pa.date32(),
    }
)


@pytest.fixture(autouse=True)
def patience() -> Iterator[None]:
    """Nothing may hang."""
    with limited(60):
        yield


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = str(tmp_path_factory.mktemp("batches") / "all")
    with dataflow.ShardWriter(folder, SCHEMA, rows_per_block=3, shard_bytes=8 << 10) as writer:
        for at in range(SIZE):
            writer.write(row(at))
    return folder


Make = Callable[[dataflow.Dataset], tuple[dataflow.Dataset, dict[str, Any]]]
#: The ways on which batches are made inside; all give the same.
WAYS: dict[str, Make] = {
    "gathered": lambda dataset: (dataset, {}),
    "mapped": lambda dataset: (dataset.map(lambda sample: sample), {}),
    "filtered": lambda dataset: (dataset.filter(lambda sample: True), {"end": "exact"}),
    "filtered, then mapped": lambda dataset: (
        dataset.filter(lambda sample: True).map(lambda sample: sample),
        {"end": "exact"},
    ),
}
every_way = pytest.mark.parametrize("way", WAYS)


def batches(dataset: dataflow.Dataset, way: str, **options: Any) -> Iterator[dict[str, Any]]:
    dataset, more = WAYS[way](dataset)
    yield from dataflow.DataLoader(
        dataset, **{"batch_size": 8, "shuffle": True, "num_workers": 2, "lanes": 4, **more, **options}
    )


@every_way
def test_columns_of_every_type(url: str, way: str) -> None:
    seen = []
    for batch in batches(dataflow.open(url), way):
        ids = batch["sample_id"]
        assert ids.dtype == batch["slot"].dtype == torch.int64
        if "valid" in batch:
            assert batch["valid"].dtype == torch.bool
            rows = int(batch["valid"].sum())
        else:
            rows = len(ids)
        seen += ids.tolist()[:rows] if "valid" not in batch else ids[batch["valid"]].tolist()
        expected = [row(at) for at in ids.tolist()]
        for name, dtype in DTYPES.items():
            assert batch[name].dtype == dtype, name
            wanted = torch.tensor([value[name] for value in expected], dtype=dtype)
            assert batch[name].equal(wanted), name
        assert batch["fixed"].dtype == torch.int32
        assert batch["fixed"].tolist() == [value["fixed"] for value in expected]
        assert batch["matrix"].dtype == torch.float32
        assert batch["matrix"].shape == (len(ids), 2, 2)
        assert batch["matrix"].tolist() == [value["matrix"] for value in expected]
        for name, dtype in (("ragged", torch.int64), ("ragged_float", torch.float32)):
            assert isinstance(batch[name], list)
            assert {value.dtype for value in batch[name]} == {dtype}
            assert [value.tolist() for value in batch[name]] == [value[name] for value in expected]
        for name in ("bytes", "text", "large", "maybe", "place", "words", "day"):
            assert batch[name] == [value[name] for value in expected], name
        found = [None if value is None else value.tolist() for value in batch["maybe_list"]]
        assert found == [value["maybe_list"] for value in expected]
        assert set(batch) - {"sample_id", "slot", "valid"} == set(SCHEMA.names)
    assert sorted(seen) == list(range(SIZE))


@every_way
def test_batches_are_the_caller_s_own(url: str, way: str) -> None:
    """Writable, and not views of memory that is used again."""
    dataset = dataflow.open(url).select(["int64", "fixed", "ragged", "float32"])
    kept = list(batches(dataset, way))
    copies = [{name: repr(value) for name, value in batch.items()} for batch in kept]
    for batch in batches(dataset, way):
        for value in batch.values():
            for tensor in value if isinstance(value, list) else [value]:
                tensor.zero_()
    assert [{name: repr(value) for name, value in batch.items()} for batch in kept] == copies


@every_way
@pytest.mark.parametrize("fill", [0, -100])
def test_ragged_columns_padded(url: str, way: str, fill: int) -> None:
    dataset = dataflow.open(url).select(["int64", "ragged", "ragged_float"])
    for batch in batches(dataset, way, pad={"ragged": fill, "ragged_float": float(fill)}):
        expected = [row(at) for at in batch["sample_id"].tolist()]
        for name, dtype in (("ragged", torch.int64), ("ragged_float", torch.float32)):
            lengths = [len(value[name]) for value in expected]
            assert batch[f"{name}_length"].tolist() == lengths
            assert batch[f"{name}_length"].dtype == torch.int64
            assert batch[name].dtype == dtype
            assert batch[name].shape == (len(expected), max(lengths))
            wanted = [value[name] + [fill] * (max(lengths) - len(value[name])) for value in expected]
            assert batch[name].tolist() == wanted


@every_way
def test_padding_of_rows_that_are_all_empty(tmp_path: Path, way: str) -> None:
    with dataflow.ShardWriter(str(tmp_path / "x"), pa.schema({"tokens": pa.list_(pa.int32())})) as writer:
        for _ in range(3):
            writer.write({"tokens": []})
    (batch,) = batches(dataflow.open(str(tmp_path / "x")), way, pad={"tokens": 1}, lanes=1)
    assert batch["tokens"].shape == (batch["sample_id"].shape[0], 0)
    assert batch["tokens"].dtype == torch.int32
    assert set(batch["tokens_length"].tolist()) == {0}


def test_padding_a_column_that_is_not_there_is_refused(url: str) -> None:
    with pytest.raises(OptionError, match="'token'"):
        dataflow.DataLoader(dataflow.open(url), pad={"token": 0})
    # What a map makes is known only when it was made.
    loader = dataflow.DataLoader(dataflow.open(url).map(lambda sample: {"a": 1}), pad={"token": 0}, num_workers=0)
    with pytest.raises((DatasetError, OptionError), match="token"):
        next(iter(loader))


@every_way
def test_padding_a_column_that_is_not_ragged_names_it(url: str, way: str) -> None:
    dataset = dataflow.open(url).select(["text", "ragged"])
    with pytest.raises((DatasetError, OptionError), match="text"):
        next(batches(dataset, way, pad={"text": 0}))


@pytest.mark.parametrize("way", ["gathered", "mapped"])
def test_numbers_with_nulls_name_the_column(tmp_path: Path, way: str) -> None:
    with dataflow.ShardWriter(str(tmp_path / "x"), pa.schema({"label": pa.int64(), "other": pa.int64()})) as writer:
        for at in range(10):
            writer.write({"label": None if at == 5 else at, "other": at})
    dataset = dataflow.open(str(tmp_path / "x"))
    if way == "gathered":
        with pytest.raises(DatasetError, match=r"'label' has nulls.*select\(\).*map\(\)"):
            list(batches(dataset, way))
    else:
        labels = [label for batch in batches(dataset, way) for label in batch["label"]]
        assert sorted(-1 if label is None else int(label) for label in labels) == [-1, 0, 1, 2, 3, 4, 6, 7, 8, 9]
    assert sum(len(batch["other"]) for batch in batches(dataset.select("other"), way)) == 10
    filled = dataset.map(lambda sample: {**sample, "label": -1 if sample["label"] is None else sample["label"]})
    assert sorted(int(label) for batch in batches(filled, "gathered") for label in batch["label"])[0] == -1


def test_numbers_have_the_type_of_their_column_whatever_lies_in_a_batch(tmp_path: Path) -> None:
    """Nulls in one block leave the batches that have none of it alone."""
    with dataflow.ShardWriter(str(tmp_path / "x"), pa.schema({"v": pa.float32()}), rows_per_block=4) as writer:
        for at in range(40):
            writer.write({"v": float("nan") if at % 7 == 0 else at})
    for way in WAYS:
        for batch in batches(dataflow.open(str(tmp_path / "x")), way):
            assert batch["v"].dtype == torch.float32


@pytest.mark.parametrize("workers", [0, 2])
def test_collate_fn_gets_the_samples_in_order_and_returns_what_it_likes(url: str, workers: int) -> None:
    dataset = dataflow.open(url).select(["int64", "text"])
    plain = [batch["int64"].tolist() for batch in batches(dataset, "gathered", num_workers=workers)]

    def collate(samples: list[dict[str, Any]]) -> list[int]:
        assert all(set(sample) == {"int64", "text"} for sample in samples)
        return [int(sample["int64"]) for sample in samples]

    assert list(batches(dataset, "gathered", num_workers=workers, collate_fn=collate)) == plain
    assert list(batches(dataset, "mapped", num_workers=workers, collate_fn=collate)) == plain

    def to_dict(samples: list[dict[str, Any]]) -> dict[str, Any]:
        return {"sum": sum(collate(samples))}

    for batch, values in zip(batches(dataset, "gathered", collate_fn=to_dict), plain, strict=True):
        assert set(batch) == {"sum", "sample_id", "slot"}
        assert batch["sum"] == sum(values)


def test_collate_fn_with_an_exact_end_has_to_return_a_dict(url: str) -> None:
    with pytest.raises(OptionError, match="collate_fn"):
        list(batches(dataflow.open(url), "filtered", collate_fn=lambda samples: samples))


def test_map_makes_what_it_likes(url: str) -> None:
    def changed(sample: dict[str, Any]) -> dict[str, Any]:
        at = int(sample["int64"])
        return {
            **{"array": np.full((2, 3), at, np.float32), "tensor": torch.tensor([at]), "int": at, "float": at / 2},
            **{"bool": at > 9, "text": str(at), "shapes": np.zeros(abs(at) % 3), "nothing": None},
            **{"scalar": np.int16(at), "pair": (at, "x")},
        }

    for batch in dataflow.DataLoader(dataflow.open(url).map(changed), batch_size=8, num_workers=1):
        values = [int(row(at)["int64"]) for at in batch["sample_id"].tolist()]
        assert batch["array"].shape == (len(values), 2, 3)
        assert batch["array"].dtype == torch.float32
        assert batch["array"][:, 0, 0].tolist() == values
        assert batch["tensor"].tolist() == [[value] for value in values]
        assert batch["int"].tolist() == values
        assert batch["int"].dtype == torch.int64
        assert batch["float"].tolist() == [value / 2 for value in values]
        assert batch["bool"].tolist() == [value > 9 for value in values]
        assert batch["scalar"].dtype == torch.int16
        assert batch["text"] == [str(value) for value in values]
        assert [len(value) for value in batch["shapes"]] == [abs(value) % 3 for value in values]
        assert batch["nothing"] == [None] * len(values)
        assert batch["pair"] == [(value, "x") for value in values]


@pytest.mark.parametrize("way", ["map", "filter"])
@pytest.mark.parametrize("made", [lambda sample: None, lambda sample: 3, lambda sample: [sample]])
def test_map_that_returns_no_dict_says_so(url: str, way: str, made: Callable[[Any], Any]) -> None:
    dataset = dataflow.open(url).map(made)
    options: dict[str, Any] = {}
    if way == "filter":
        dataset, options = dataset.filter(lambda sample: True), {"end": "exact"}
    with pytest.raises(DatasetError, match=r"map.*dict"):
        next(iter(dataflow.DataLoader(dataset, num_workers=1, batch_size=4, **options)))


def test_samples_of_one_batch_that_differ_say_so(url: str) -> None:
    dataset = dataflow.open(url).map(lambda sample: {"a": 1} if sample["int8"] % 2 else {"b": 1})
    with pytest.raises(DatasetError, match="differ"):
        list(dataflow.DataLoader(dataset, num_workers=1, batch_size=4))


def test_stages_run_in_their_order(url: str) -> None:
    dataset = (
        dataflow.open(url)
        .select(["int64", "text"])
        .map(lambda sample: {**sample, "int64": int(sample["int64"]) * 2})
        .filter(lambda sample: sample["int64"] > 20)
        .map(lambda sample: {"half": sample["int64"] // 2})
        .filter(lambda sample: sample["half"] % 5 == 0)
        .select("half")
    )
    found = [
        half
        for batch in dataflow.DataLoader(dataset, batch_size=4, num_workers=2, end="exact")
        for half, valid in zip(batch["half"].tolist(), batch["valid"].tolist(), strict=True)
        if valid
    ]
    assert found == [15, 25, 35, 45]


def augmented(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    return {"value": int(rng.integers(2**62)), "again": int(rng.integers(2**62))}


def drawn(dataset: dataflow.Dataset, epoch: int = 0, **options: Any) -> dict[int, tuple[int, int]]:
    """Sample id to the random numbers that it got."""
    ranks = options.pop("world_size", 1)
    out: dict[int, tuple[int, int]] = {}
    for rank in range(ranks):
        loader = dataflow.DataLoader(
            dataset,
            **{"batch_size": 4, "shuffle": True, "lanes": 4, "num_workers": 0, **options},
            rank=rank,
            world_size=ranks,
        )
        loader.set_epoch(epoch)
        for batch in loader:
            drawn = zip(batch["value"].tolist(), batch["again"].tolist(), strict=True)
            out.update(zip(batch["sample_id"].tolist(), drawn, strict=True))
    return out


@pytest.mark.filterwarnings("ignore:.*lanes for")
def test_random_numbers_are_the_sample_s_whoever_makes_it(url: str) -> None:
    dataset = dataflow.open(url).map(augmented)
    one = drawn(dataset)
    assert len(one) == SIZE
    assert len({value for pair in one.values() for value in pair}) == 2 * SIZE
    assert one == drawn(dataset, num_workers=4, batch_size=7)
    assert one == drawn(dataset, world_size=3, batch_size=2, num_workers=1)
    assert one == drawn(dataset, world_size=4, lanes=8)
    assert one == drawn(dataset, shuffle=False)
    # A filter before it drops samples, and changes nothing for the others; but stages have numbers of their own.
    kept = drawn(dataset.filter(lambda sample: sample["value"] % 2 == 0), end="exact")
    assert kept == {sample: pair for sample, pair in one.items() if pair[0] % 2 == 0}
    filtered = dataflow.open(url).filter(lambda sample: sample["int8"] % 2 == 0).map(augmented)
    assert set(drawn(filtered, end="exact").values()).isdisjoint(one.values())


def test_random_numbers_differ_by_epoch_and_seed(url: str) -> None:
    dataset = dataflow.open(url).map(augmented)
    all_drawn = [drawn(dataset), drawn(dataset, epoch=1), drawn(dataset, seed=1), drawn(dataset, epoch=1, seed=1)]
    values = {value for one in all_drawn for pair in one.values() for value in pair}
    assert len(values) == 4 * 2 * SIZE


def test_a_filter_may_draw(url: str) -> None:
    dataset = dataflow.open(url).filter(lambda sample, rng: rng.random() < 0.5)
    options: dict[str, Any] = {"end": "exact", "shuffle": True}
    kept = [
        {
            sample
            for batch in dataflow.DataLoader(dataset, batch_size=batch_size, lanes=4, num_workers=workers, **options)
            for sample, valid in zip(batch["sample_id"].tolist(), batch["valid"].tolist(), strict=True)
            if valid
        }
        for batch_size, workers in ((4, 0), (9, 3))
    ]
    assert kept[0] == kept[1]
    assert 10 < len(kept[0]) < 43


@pytest.mark.parametrize("workers", [0, 1, 4])
def test_batches_come_in_order_whichever_is_ready_first(url: str, workers: int) -> None:
    """Slow and fast samples by turns: what is made later may be ready before."""
    threads = set()
    slow = threading.Event()

    def uneven(sample: dict[str, Any]) -> dict[str, Any]:
        threads.add(threading.get_ident())
        if int(sample["int8"]) % 5 == 0:
            slow.wait(0.01)
        return {"at": int(sample["int8"])}

    dataset = dataflow.open(url).map(uneven)
    loader = dataflow.DataLoader(dataset, batch_size=2, num_workers=workers, prefetch_factor=4, in_order=True)
    slots = [slot for batch in loader for slot in batch["slot"].tolist()]
    assert slots == list(range(SIZE))
    assert len(threads) == max(1, workers)
    assert (threading.get_ident() in threads) == (workers == 0), "num_workers=0 works in the thread that iterates"


@pytest.mark.filterwarnings("ignore:.*lanes for")
def test_valid_marks_what_is_padding(url: str) -> None:
    dataset = dataflow.open(url).select("int8")
    for ranks, marked in ((1, False), (4, True)):
        found = []
        for rank in range(ranks):
            loader = dataflow.DataLoader(
                dataset, batch_size=8, rank=rank, world_size=ranks, shuffle=True, lanes=8, num_workers=1
            )
            for batch in loader:
                assert ("valid" in batch) == marked
                valid = batch["valid"] if marked else torch.ones(len(batch["slot"]), dtype=torch.bool)
                found += batch["sample_id"][valid].tolist()
                assert batch["sample_id"].tolist() == [abs(value) for value in batch["int8"].tolist()]
        assert sorted(found) == list(range(SIZE))
    # Where no row is ever padded there is nothing to mark.
    for options in ({"drop_last": True}, {"steps_per_epoch": 3}):
        loader = dataflow.DataLoader(dataset, batch_size=8, rank=0, world_size=2, **options)  # type: ignore[arg-type]
        assert all("valid" not in batch for batch in loader)


@pytest.mark.parametrize("mapped", [False, True], ids=["gathered", "mapped"])
def test_selects_narrow_one_another(url: str, mapped: bool) -> None:
    dataset = dataflow.open(url).select(["int8", "text"]).select(["text"])
    if mapped:
        dataset = dataset.map(lambda sample: {"length": len(sample["text"])})
    batch = next(iter(dataflow.DataLoader(dataset, batch_size=4)))
    assert set(batch) == {"length" if mapped else "text", "sample_id", "slot"}
