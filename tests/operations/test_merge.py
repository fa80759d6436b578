"""Several datasets as one, whose shards stay where they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dataflow
from dataflow.dataset import Manifest
from dataflow.errors import DatasetError, OptionError
from dataflow.operations.exclude import exclude
from dataflow.operations.merge import merge
from dataflow.storage import open_store
from tests.dataset.written import rows_at, write
from tests.formats.archives import pack


def rows(start: int, count: int, **more: Any) -> list[dict[str, Any]]:
    return [{"key": f"k{number}", "number": number, **more} for number in range(start, start + count)]


def test_rows_of_all_come_in_order_and_through_the_loader(tmp_path: Path) -> None:
    write(tmp_path / "in" / "a", rows(0, 30), rows_per_block=4, shard_bytes=500)
    write(tmp_path / "in" / "deep" / "b", rows(30, 20), rows_per_block=5)
    urls = [str(tmp_path / "in" / "a"), str(tmp_path / "in" / "deep" / "b")]
    merged = merge(urls, str(tmp_path / "both"))
    manifest = merged.manifest
    assert manifest.base_url == str(tmp_path / "in")
    assert manifest.shard_path(manifest.num_shards - 1) == "deep/b/shard-00000.arrow"
    assert rows_at(str(tmp_path / "both")) == rows(0, 50)
    loader = dataflow.DataLoader(dataflow.open(str(tmp_path / "both")), batch_size=8, shuffle=True, seed=1)
    assert sorted(n for batch in loader for n in batch["number"].tolist()) == list(range(50))
    assert [row["number"] for row in rows_at(urls[0])] == list(range(30))


def test_the_parent_may_hold_the_manifest(tmp_path: Path) -> None:
    write(tmp_path / "a", rows(0, 3))
    write(tmp_path / "b", rows(3, 3))
    manifest = merge([str(tmp_path / "b"), str(tmp_path / "a")], str(tmp_path)).manifest
    assert manifest.base_url == manifest.url == str(tmp_path)
    assert [row["number"] for row in rows_at(str(tmp_path))] == [3, 4, 5, 0, 1, 2]
    # The folder may be moved as a whole.
    (tmp_path.parent / f"{tmp_path.name}-moved").symlink_to(tmp_path)
    assert len(rows_at(f"{tmp_path}-moved")) == 6


def test_columns_that_others_lack_are_null(tmp_path: Path) -> None:
    write(tmp_path / "a", rows(0, 3))
    write(tmp_path / "b", [{"caption": f"c{n}", "number": n, "key": f"k{n}"} for n in range(3, 6)])
    write(tmp_path / "c", rows(6, 2, score=[1.5, 2.0]), rows_per_block=1)
    ab = merge([str(tmp_path / "a"), str(tmp_path / "b")], str(tmp_path / "ab")).manifest
    assert ab.schema.names == ["key", "number", "caption"]
    assert rows_at(str(tmp_path / "ab"))[2:4] == [
        {"key": "k2", "number": 2, "caption": None},
        {"key": "k3", "number": 3, "caption": "c3"},
    ]
    merge([str(tmp_path / "ab"), str(tmp_path / "c")], str(tmp_path / "abc"))
    found = rows_at(str(tmp_path / "abc"))
    assert [row["number"] for row in found] == list(range(8))
    assert [row["caption"] for row in found] == [None] * 3 + ["c3", "c4", "c5", None, None]
    assert [row["score"] for row in found] == [None] * 6 + [[1.5, 2.0]] * 2


def test_a_column_that_may_not_be_null_may_be_where_it_lacks(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("number", pa.int64(), nullable=False), pa.field("x", pa.int64(), nullable=False)])
    write(tmp_path / "a", [{"number": 1, "x": 2}], schema=schema)
    write(tmp_path / "b", [{"number": 3}], schema=schema.remove(1))
    manifest = merge([str(tmp_path / "a"), str(tmp_path / "b")], str(tmp_path / "ab")).manifest
    assert [field.nullable for field in manifest.schema] == [False, True]
    assert rows_at(str(tmp_path / "ab")) == [{"number": 1, "x": 2}, {"number": 3, "x": None}]


def test_columns_of_other_types_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "a", [{"x": 1}])
    write(tmp_path / "b", [{"x": "1"}])
    with pytest.raises(DatasetError, match="has column 'x' as string, another dataset has it as int64"):
        merge([str(tmp_path / "a"), str(tmp_path / "b")], str(tmp_path / "ab"))


def tars(url: str, name: str, suffix: str, count: int) -> None:
    members = [(f"{name}/{number:03d}.{suffix}", str(number).encode()) for number in range(count)]
    open_store(url).put_atomic(f"{name}.tar", pack(members))
    dataflow.index(url)


def test_tars_on_s3_with_other_extensions(s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    tars(f"{s3_url}/a", "one", "txt", 3)
    tars(f"{s3_url}/b", "two", "cls", 2)
    manifest = merge([f"{s3_url}/a", f"{s3_url}/b"], f"{s3_url}/both").manifest
    assert manifest.base_url == s3_url
    assert manifest.schema.names == ["key", "cls", "txt"]
    found = rows_at(f"{s3_url}/both")
    assert found[0] == {"key": "one/000", "txt": b"0", "cls": None}
    assert found[4] == {"key": "two/001", "txt": None, "cls": b"1"}


def test_other_formats_and_other_stores_are_refused(tmp_path: Path, s3_url: str) -> None:
    write(tmp_path / "a", rows(0, 3))
    (tmp_path / "t").mkdir()
    tars(str(tmp_path / "t"), "one", "txt", 3)
    write(f"{s3_url}/r", rows(0, 3))
    with pytest.raises(DatasetError, match=r"format 'webdataset', .* of 'arrow': one manifest describes one format"):
        merge([str(tmp_path / "a"), str(tmp_path / "t")], str(tmp_path / "out"))
    with pytest.raises(OptionError, match="lie in different stores"):
        merge([str(tmp_path / "a"), f"{s3_url}/r"], str(tmp_path / "out"))


def test_a_shard_may_come_only_once(tmp_path: Path) -> None:
    write(tmp_path / "a", rows(0, 3))
    write(tmp_path / "b", rows(3, 3))
    a, b, ab = str(tmp_path / "a"), str(tmp_path / "b"), str(tmp_path / "ab")
    with pytest.raises(DatasetError, match=rf"{a}/shard-00000.arrow is a shard of {a} and of {a}"):
        merge([a, b, a], ab)
    merge([a, b], ab)
    with pytest.raises(DatasetError, match=rf"{b}/shard-00000.arrow is a shard of {ab} and of {b}"):
        merge([ab, b], str(tmp_path / "abb"))


def test_excluded_rows_stay_excluded(tmp_path: Path) -> None:
    for name in "abc":
        write(tmp_path / name, rows(ord(name) * 10, 10), rows_per_block=3)
    exclude(str(tmp_path / "a"), ["k974", "k979"])
    exclude(str(tmp_path / "c"), ["k990"])
    manifest = merge([str(tmp_path / name) for name in "abc"], str(tmp_path / "out")).manifest
    assert (manifest.num_rows, manifest.num_excluded) == (27, 3)
    found = [row["number"] for row in rows_at(str(tmp_path / "out"))]
    assert found == [number for number in range(970, 1000) if number not in (974, 979, 990)]
    exclude(str(tmp_path / "out"), ["k981"])
    assert 981 not in [row["number"] for row in rows_at(str(tmp_path / "out"))]
    assert Manifest.open(str(tmp_path / "b")).num_excluded == 0


def test_sh18_classes_must_be_the_same(tmp_path: Path) -> None:
    def labelled(name: str, **properties: Any) -> str:
        write(tmp_path / name, [{"key": name, "label": 0}], properties=properties)
        return str(tmp_path / name)

    train = labelled("train", classes=["0", "90", "180"], shuffle_seed=0, made_by="x")
    with pytest.raises(DatasetError, match=rf"class 2 is '270' there and '180' here.*--classes-of {train}`"):
        merge([train, labelled("other", classes=["0", "90", "270"])], str(tmp_path / "out"))
    with pytest.raises(DatasetError, match="2 there and 3 here"):
        merge([train, labelled("shorter", classes=["0", "90"])], str(tmp_path / "out"))
    with pytest.raises(DatasetError, match="has labels but no list of classes"):
        merge([train, labelled("unnamed")], str(tmp_path / "out"))
    write(tmp_path / "plain", [{"key": "p"}])
    same = labelled("same", classes=["0", "90", "180"], shuffle_seed=1)
    merged = merge([train, same, str(tmp_path / "plain")], str(tmp_path / "out"))
    assert merged.manifest.properties == {"classes": ["0", "90", "180"], "made_by": "x"}
    assert merged.dropped == ["shuffle_seed"]


def test_nothing_is_replaced_and_one_is_not_enough(tmp_path: Path) -> None:
    write(tmp_path / "a", rows(0, 3))
    write(tmp_path / "b", rows(3, 3))
    with pytest.raises(OptionError, match="exists already"):
        merge([str(tmp_path / "a"), str(tmp_path / "b")], str(tmp_path / "a"))
    with pytest.raises(OptionError, match="two datasets or more"):
        merge([str(tmp_path / "a")], str(tmp_path / "c"))


def test_the_beginning_of_a_merged_dataset_is_that_of_a_shorter_merge(tmp_path: Path) -> None:
    for name in "abc":
        write(tmp_path / name, rows(ord(name) * 10, 10))
    short = merge([str(tmp_path / name) for name in "ab"], str(tmp_path / "ab")).manifest
    long = merge([str(tmp_path / name) for name in "abc"], str(tmp_path / "abc")).manifest
    part = long.prefix(short.fingerprint)
    assert part is not None
    assert part.num_rows == 20
