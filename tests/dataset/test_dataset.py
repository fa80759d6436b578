from __future__ import annotations

import multiprocessing
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dataflow.dataset as dataset
from dataflow.dataset import Dataset, ShardWriter
from dataflow.errors import DatasetError, OptionError
from tests.formats.archives import pack


@pytest.fixture
def url(tmp_path: Path) -> str:
    with ShardWriter(str(tmp_path / "d"), rows_per_block=7) as writer:
        for i in range(50):
            tokens = np.arange(i % 4, dtype=np.int32)
            writer.write({"image": b"%d" % i, "label": i, "text": f"é{i}", "tokens": tokens})
    return str(tmp_path / "d")


def double(row: dict[str, Any]) -> dict[str, Any]:
    return {"twice": 2 * row["label"]}


def noisy(row: dict[str, Any], rng: np.random.Generator) -> float:
    return float(rng.random()) + row["label"]


def perhaps_noisy(row: dict[str, Any], rng: np.random.Generator | None = None) -> bool:
    return rng is not None


def is_even(row: dict[str, Any]) -> bool:
    return bool(row["label"] % 2 == 0)


class Scale:
    def __init__(self, factor: int) -> None:
        self.factor = factor

    def __call__(self, row: dict[str, Any], shift: int = 0) -> int:
        return int(row["label"]) * self.factor + shift


def test_rows_by_number(url: str) -> None:
    rows = dataset.open(url)
    assert len(rows) == rows.num_rows == 50
    assert rows.num_blocks == 8
    row = rows[9]
    assert (row["image"], row["label"], row["text"]) == (b"9", 9, "é9")
    assert row["tokens"].tolist() == [0]
    assert row["tokens"].dtype == np.int32
    assert [int(rows[i]["label"]) for i in (0, -1, np.int64(13), -50, 49)] == [0, 49, 13, 0, 49]
    assert [int(row["label"]) for row in rows] == list(range(50))  # type: ignore[attr-defined]
    for outside in (50, -51):
        with pytest.raises(IndexError, match=r"which has 50 rows"):
            rows[outside]
    for wrong in (slice(1, 2), 1.0, "1"):
        with pytest.raises(TypeError, match="rows are numbered with integers"):
            rows[wrong]  # type: ignore[index]


def test_stages_make_new_datasets(url: str) -> None:
    rows = dataset.open(url)
    selected = rows.select(["text", "label"])
    assert list(selected[3]) == ["text", "label"]
    assert selected.schema == pa.schema([("text", pa.string()), ("label", pa.int64())])
    assert selected.select("label")[3] == {"label": 3}
    mapped = selected.map(double)
    assert mapped[4] == {"twice": 8}
    assert mapped.schema is None
    assert mapped.map(Scale(3), name="three") is not mapped
    assert rows.stages == ()
    assert rows.schema is not None
    assert rows.schema.names == ["image", "label", "text", "tokens"]
    assert rows.fingerprint == mapped.fingerprint == rows.manifest.fingerprint


def test_the_pipeline_is_kinds_names_and_parameters(url: str) -> None:
    rows = (
        dataset.open(url).select(["label"]).filter(is_even).map(Scale(2)).map(lambda row: row, name="same").map(noisy)
    )
    assert rows.pipeline == (
        ("select", "", ("label",)),
        ("filter", "is_even", ()),
        ("map", "Scale", ()),
        ("map", "same", ()),
        ("map", "noisy", ()),
    )
    assert [getattr(stage, "takes_rng", None) for stage in rows.stages] == [None, False, False, False, True]
    assert "is_even" in repr(rows)


def test_random_numbers_of_a_row_are_its_own(url: str) -> None:
    assert dataset.open(url).map(perhaps_noisy)[0] is True
    rows = dataset.open(url).map(noisy)
    state = np.random.get_state()[1].tolist()  # type: ignore[index, union-attr]
    values = [rows[i] for i in range(50)]
    assert [rows[i] for i in range(49, -1, -1)] == values[::-1]
    assert len({value % 1 for value in values}) == 50
    assert np.random.get_state()[1].tolist() == state  # type: ignore[index, union-attr]


def test_a_filter_leaves_numbers_open(url: str) -> None:
    rows = dataset.open(url).filter(is_even)
    with pytest.raises(TypeError, match="filter 'is_even' has no length"):
        len(rows)
    with pytest.raises(TypeError, match="filter 'is_even' has no row numbers"):
        rows[0]
    assert rows.num_rows == 50


def test_what_cannot_be_a_stage(url: str) -> None:
    rows = dataset.open(url)
    with pytest.raises(OptionError, match="no column 'images'; it has image, label, text, tokens"):
        rows.select(["images"])
    with pytest.raises(OptionError, match="no column 'image'; it has label"):
        rows.select(["label"]).select(["image"])
    with pytest.raises(OptionError, match="different columns"):
        rows.select(["label", "label"])
    with pytest.raises(OptionError, match="different columns"):
        rows.select([])
    with pytest.raises(OptionError, match="is not callable"):
        rows.map("double")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="cannot be called with a row"):
        rows.filter(lambda: True)
    with pytest.raises(OptionError, match="cannot be called with a row"):
        rows.map(lambda row, rng, more: row)


def read_in_a_child(rows: Dataset, i: int) -> Any:
    return rows[i]


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_dl26_a_dataset_that_was_used_goes_to_other_processes(url: str, method: str) -> None:
    rows = dataset.open(url).select(["label"]).map(double)
    assert rows[0] == {"twice": 0}
    with multiprocessing.get_context(method).Pool(1) as pool:
        assert pool.apply(read_in_a_child, (rows, 33)) == {"twice": 66}


def test_dl26_pickles_are_small_and_name_what_cannot_go(url: str) -> None:
    rows = dataset.open(url)
    assert rows[0]["label"] == 0
    assert len(pickle.dumps(rows.map(double))) < 1000
    with pytest.raises((pickle.PicklingError, AttributeError), match="<lambda>"):
        pickle.dumps(rows.map(lambda row: row))


def test_tars_are_datasets_too(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(pack([("1.jpg", b"x"), ("1.cls", b"7"), ("2.jpg", b"y")]))
    with pytest.raises(DatasetError, match="dataflow index"):
        dataset.open(str(tmp_path))
    dataset.index(str(tmp_path))
    rows = dataset.open(str(tmp_path))
    assert rows[0] == {"key": "1", "cls": b"7", "jpg": b"x"}
    assert rows[1] == {"key": "2", "cls": None, "jpg": b"y"}
