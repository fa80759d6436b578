"""Excluded rows: found by their keys, never delivered, and part of what a dataset is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dataflow
from dataflow.dataset import Manifest, ShardWriter
from dataflow.errors import DatasetError, OptionError, StateError
from dataflow.operations.exclude import exclude
from tests.dataset.written import rows_at, write
from tests.formats.archives import pack

ROWS = 60


def dataset(url: Path, rows: int = ROWS) -> Manifest:
    """Three shards of 20 rows in blocks of 4."""
    return write(
        url,
        [{"key": f"k{number}", "number": number, "data": np.int64(number).tobytes() * 40} for number in range(rows)],
        rows_per_block=4,
        shard_bytes=8000,
    )


def delivered(url: Path, **options: object) -> list[int]:
    loader = dataflow.DataLoader(dataflow.open(str(url)), batch_size=8, **options)  # type: ignore[arg-type]
    return [number for batch in loader for number in batch["number"].tolist()]


def left(*without: int) -> list[int]:
    return [number for number in range(ROWS) if number not in without]


def test_what_is_excluded_is_never_delivered(tmp_path: Path) -> None:
    before = dataset(tmp_path)
    assert before.num_shards == 3
    done = exclude(str(tmp_path), ["k5", "k6", "k41"])
    assert (done.num_rows, done.missing, done.written) == (3, [], True)
    data = dataflow.open(str(tmp_path))
    assert len(data) == data.num_rows == 57
    assert data.manifest.num_excluded == 3
    assert data.manifest.num_bytes == before.num_bytes
    assert [row["number"] for row in rows_at(str(tmp_path))] == left(5, 6, 41)
    assert [data[number]["number"] for number in range(57)] == left(5, 6, 41)
    assert data[-1]["number"] == 59
    with pytest.raises(IndexError):
        data[57]
    assert delivered(tmp_path) == left(5, 6, 41)
    assert sorted(delivered(tmp_path, shuffle=True, seed=3)) == left(5, 6, 41)


def test_sample_ids_number_the_rows_that_are_left(tmp_path: Path) -> None:
    dataset(tmp_path)
    exclude(str(tmp_path), ["k5", "k41"])
    data = dataflow.open(str(tmp_path))
    for batch in dataflow.DataLoader(data, batch_size=7, shuffle=True, seed=1):
        for sample, number in zip(batch["sample_id"].tolist(), batch["number"].tolist(), strict=True):
            assert data[sample]["number"] == number == left(5, 41)[sample]


def test_several_ranks_share_what_is_left_and_mark_padding(tmp_path: Path) -> None:
    dataset(tmp_path)
    exclude(str(tmp_path), ["k0", "k30", "k59"])
    seen: list[int] = []
    for rank in range(2):
        loader = dataflow.DataLoader(
            dataflow.open(str(tmp_path)), batch_size=4, shuffle=True, seed=2, rank=rank, world_size=2
        )
        assert len(loader) == -(-57 // 8)
        for batch in loader:
            valid = batch["valid"] if "valid" in batch else np.ones(len(batch["number"]), bool)
            seen += [n for n, ok in zip(batch["number"].tolist(), valid.tolist(), strict=True) if ok]
    assert sorted(seen) == left(0, 30, 59)


def test_select_filter_and_map_see_the_rest(tmp_path: Path) -> None:
    dataset(tmp_path)
    exclude(str(tmp_path), ["k10", "k11"])
    data = dataflow.open(str(tmp_path)).select(["number"]).map(lambda row: {"number": row["number"] * 2}, name="twice")
    assert data[10] == {"number": 24}
    batches = list(dataflow.DataLoader(data, batch_size=58))
    assert batches[0]["number"].tolist() == [2 * number for number in left(10, 11)]
    even = dataflow.open(str(tmp_path)).filter(lambda row: row["number"] % 2 == 0, name="even")
    loader = dataflow.DataLoader(even, batch_size=8, end="exact")
    found = [n for batch in loader for n in batch["number"][batch["valid"]].tolist()]
    assert sorted(found) == [number for number in left(10, 11) if number % 2 == 0]


@pytest.mark.parametrize("block", [0, 7, 14])
def test_a_whole_block_may_go(tmp_path: Path, block: int) -> None:
    dataset(tmp_path)
    gone = range(4 * block, 4 * block + 4)
    exclude(str(tmp_path), [f"k{number}" for number in gone])
    data = dataflow.open(str(tmp_path))
    assert data.manifest.rows[block] == 0
    assert delivered(tmp_path) == left(*gone)
    assert sorted(delivered(tmp_path, shuffle=True, seed=5)) == left(*gone)
    assert data[4 * block - 1 if block == 14 else 4 * block]["number"] == left(*gone)[min(4 * block, 55)]


def test_all_rows_may_go(tmp_path: Path) -> None:
    dataset(tmp_path)
    exclude(str(tmp_path), [f"k{number}" for number in range(ROWS)])
    data = dataflow.open(str(tmp_path))
    assert len(data) == 0
    assert rows_at(str(tmp_path)) == []
    with pytest.raises(IndexError):
        data[0]
    assert delivered(tmp_path) == []


def test_a_state_of_the_whole_dataset_is_refused(tmp_path: Path) -> None:
    dataset(tmp_path)
    loader = dataflow.DataLoader(dataflow.open(str(tmp_path)), batch_size=8, shuffle=True, seed=1)
    next(iter(loader))
    state = loader.state_dict()
    exclude(str(tmp_path), ["k41"])
    changed = dataflow.DataLoader(dataflow.open(str(tmp_path)), batch_size=8, shuffle=True, seed=1)
    with pytest.raises(StateError, match=r"\(1 rows are excluded from it, perhaps since then\): open the dataset"):
        changed.load_state_dict(state)
    next(iter(changed))
    own = changed.state_dict()
    again = dataflow.DataLoader(dataflow.open(str(tmp_path)), batch_size=8, shuffle=True, seed=1)
    again.load_state_dict(own)
    rest = [number for batch in again for number in batch["number"].tolist()]
    assert rest == delivered(tmp_path, shuffle=True, seed=1)[8:]


def test_the_fingerprint_changes_from_the_first_affected_shard_on(tmp_path: Path) -> None:
    before = dataset(tmp_path)
    after = exclude(str(tmp_path), ["k25"]).manifest  # in the second of three shards
    assert after.chain(1) == before.chain(1)
    assert after.chain(2) != before.chain(2)
    assert after.fingerprint != before.fingerprint
    assert after.prefix(before.fingerprint) is None
    part = after.prefix(before.chain(1))
    assert part is not None
    assert (part.num_rows, part.num_excluded) == (20, 0)
    both = after.prefix(after.chain(2))
    assert both is not None
    assert (both.num_rows, both.num_excluded) == (39, 1)


def test_a_dataset_that_was_taken_from_before_an_affected_shard_is_still_its_beginning(tmp_path: Path) -> None:
    before = dataset(tmp_path)
    state = dataflow.DataLoader(dataflow.open(str(tmp_path)), batch_size=4, shuffle=True, seed=1).state_dict()
    exclude(str(tmp_path), ["k45"])  # in the third shard
    loader = dataflow.DataLoader(dataflow.open(str(tmp_path)), batch_size=4, shuffle=True, seed=1)
    loader.load_state_dict(state | {"dataset": before.chain(2)})
    assert sorted(n for batch in loader for n in batch["number"].tolist()) == list(range(40))


def test_excluding_again_adds_up_and_the_order_does_not_matter(tmp_path: Path) -> None:
    for name, lists in {
        "at once": [["k1", "k2", "k30"]],
        "in turn": [["k30"], ["k2", "k30"], ["k1"]],
    }.items():
        dataset(tmp_path / name)
        for keys in lists:
            assert exclude(str(tmp_path / name), keys).missing == []
    first, second = (Manifest.open(str(tmp_path / name)) for name in ("at once", "in turn"))
    assert first.fingerprint == second.fingerprint
    assert second.num_excluded == 3
    assert second.excluded_from(0).tolist() == [1, 2]
    assert second.excluded_rows(1).tolist() == [[2, 2]]


def test_what_is_excluded_already_changes_nothing(tmp_path: Path) -> None:
    dataset(tmp_path)
    first = exclude(str(tmp_path), ["k1"]).manifest
    file = (tmp_path / "manifest.arrow").stat()
    again = exclude(str(tmp_path), ["k1"])
    assert (again.num_rows, again.missing, again.written) == (0, [], False)
    assert again.manifest.fingerprint == first.fingerprint
    assert (tmp_path / "manifest.arrow").stat().st_ino == file.st_ino


def test_missing_keys_stop_everything_unless_allowed(tmp_path: Path) -> None:
    before = dataset(tmp_path)
    done = exclude(str(tmp_path), ["k3", "none", "k4", "k60"])
    assert (done.missing, done.written) == (["none", "k60"], False)
    assert Manifest.open(str(tmp_path)).fingerprint == before.fingerprint
    done = exclude(str(tmp_path), ["k3", "none", "k4", "k60"], allow_missing=True)
    assert (done.missing, done.written, done.num_rows) == (["none", "k60"], True, 2)


def test_every_row_with_a_key_goes(tmp_path: Path) -> None:
    write(tmp_path, [{"key": f"k{number % 3}", "number": number} for number in range(30)], rows_per_block=4)
    assert exclude(str(tmp_path), ["k1"]).num_rows == 10
    assert delivered(tmp_path) == [number for number in range(30) if number % 3 != 1]


def test_keys_of_other_types(tmp_path: Path) -> None:
    write(tmp_path, [{"id": number, "raw": f"r{number}".encode(), "wide": number / 2} for number in range(20)])
    assert exclude(str(tmp_path), ["7", "007", "11"], column="id").num_rows == 2
    assert exclude(str(tmp_path), ["r3"], column="raw").num_rows == 1
    assert [row["id"] for row in rows_at(str(tmp_path))] == [n for n in range(20) if n not in (3, 7, 11)]
    with pytest.raises(OptionError, match="holds integers, and the keys do not"):
        exclude(str(tmp_path), ["r3"], column="id")
    with pytest.raises(OptionError, match="of type double"):
        exclude(str(tmp_path), ["1"], column="wide")
    with pytest.raises(OptionError, match="has no column 'key'; it has id, raw, wide"):
        exclude(str(tmp_path), ["1"])
    with pytest.raises(OptionError, match="there are no keys"):
        exclude(str(tmp_path), [], column="id")


def test_null_keys_are_no_keys(tmp_path: Path) -> None:
    write(tmp_path, [{"key": None if number % 2 else "None", "number": number} for number in range(4)])
    assert exclude(str(tmp_path), ["None"]).num_rows == 2
    assert delivered(tmp_path) == [1, 3]


def test_a_manifest_elsewhere_leaves_the_first_alone(tmp_path: Path) -> None:
    before = dataset(tmp_path / "data")
    done = exclude(str(tmp_path / "data"), ["k5"], out=str(tmp_path / "less"))
    assert done.manifest.base_url == str(tmp_path / "data")
    assert delivered(tmp_path / "less") == left(5)
    assert delivered(tmp_path / "data") == left()
    assert Manifest.open(str(tmp_path / "data")).fingerprint == before.fingerprint
    with pytest.raises(OptionError, match="exists already"):
        exclude(str(tmp_path / "data"), ["k5"], out=str(tmp_path / "less"))
    exclude(str(tmp_path / "less"), ["k6"])
    assert delivered(tmp_path / "less") == left(5, 6)


def test_rows_of_tars_on_s3(s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    members = [(f"{number:03d}.txt", str(number).encode()) for number in range(30)]
    dataflow.dataset.dataset.open_store(s3_url).put_atomic("a.tar", pack(members))
    dataflow.index(s3_url, block_bytes=4096)
    assert exclude(s3_url, ["007", "020"]).num_rows == 2
    assert [row["key"] for row in rows_at(s3_url)] == [f"{n:03d}" for n in range(30) if n not in (7, 20)]


def test_a_dataset_that_changes_meanwhile_keeps_its_change(tmp_path: Path) -> None:
    dataset(tmp_path)
    others: list[str] = []

    def interfere(rows: int, nbytes: int) -> None:
        if not others:
            others.append(exclude(str(tmp_path), ["k50"]).manifest.fingerprint)

    with pytest.raises(DatasetError, match="was changed meanwhile"):
        exclude(str(tmp_path), ["k5"], on_progress=interfere)
    assert Manifest.open(str(tmp_path)).fingerprint == others[0]


def test_properties_schema_and_checksums_stay(tmp_path: Path) -> None:
    with ShardWriter(str(tmp_path), properties={"classes": ["a", "b"]}) as writer:
        for number in range(10):
            writer.write({"key": str(number), "label": number % 2})
    before = Manifest.open(str(tmp_path))
    after = exclude(str(tmp_path), ["3"]).manifest
    assert after.properties == {"classes": ["a", "b"]}
    assert after.schema == before.schema
    assert after.checksum(0) == before.checksum(0)
    assert after.shard_size(0) == before.shard_size(0)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sets(st.integers(0, ROWS - 1), min_size=1, max_size=40), min_size=1, max_size=3), st.integers(0, 9))
def test_any_rows_in_any_order(tmp_path_factory: pytest.TempPathFactory, sets: list[set[int]], seed: int) -> None:
    folder = tmp_path_factory.mktemp("any")
    dataset(folder)
    for numbers in sets:
        exclude(str(folder), [f"k{number}" for number in numbers])
    kept = left(*set().union(*sets))
    assert [row["number"] for row in rows_at(str(folder))] == kept
    assert sorted(delivered(folder, shuffle=True, seed=seed)) == kept


def test_indexing_again_keeps_what_is_excluded(tmp_path: Path) -> None:
    def tar(shard: int, rows: int = 30) -> None:
        members = [(f"{shard}/{row:03d}.txt", bytes([shard, row])) for row in range(rows)]
        (tmp_path / f"{shard}.tar").write_bytes(pack(members))

    tar(0)
    tar(1)
    dataflow.index(str(tmp_path), block_bytes=4096)
    before = exclude(str(tmp_path), ["0/003", "1/007"]).manifest
    tar(2)
    after = dataflow.index(str(tmp_path), block_bytes=4096)
    assert (after.num_rows, after.num_excluded) == (88, 2)
    assert after.prefix(before.fingerprint) is not None
    assert not {"0/003", "1/007"} & {row["key"] for row in rows_at(str(tmp_path))}
    with pytest.raises(DatasetError, match=r"1 rows of .*0\.tar are excluded, and its blocks are others now"):
        dataflow.index(str(tmp_path), block_bytes=8192)
    tar(1, 29)
    with pytest.raises(DatasetError, match=r"1 rows of .*1\.tar are excluded"):
        dataflow.index(str(tmp_path), block_bytes=4096)
    (tmp_path / "1.tar").unlink()
    assert dataflow.index(str(tmp_path), block_bytes=4096).num_excluded == 1
    assert Manifest.open(str(tmp_path)).num_rows == 59
