"""What is verified, what is found when it is not as it was written, and datasets that go through a cache."""

from __future__ import annotations

import os
import pickle
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dataflow
from dataflow.dataset import Manifest, index
from dataflow.errors import CorruptDataError, OptionError, StorageError
from dataflow.storage import RetryPolicy, open_store
from tests.dataset.written import write
from tests.formats.archives import pack
from tests.servers.proxy import FaultProxy, slow_down


def rows(count: int, salt: int = 0, nbytes: int = 1000) -> list[dict[str, Any]]:
    return [{"number": number, "payload": bytes([(number + salt) % 256]) * nbytes} for number in range(count)]


def shard_of(manifest: Manifest, block: int) -> str:
    return manifest.shard_path(manifest.shard_of(block))


@pytest.fixture(scope="module", params=["arrow", "webdataset"])
def one_shard(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "arrow":
        return write(folder, rows(60, nbytes=333), rows_per_block=7)
    (folder / "a.tar").write_bytes(pack([(f"{number:03d}.txt", b"x" * (1 + number * 37)) for number in range(40)]))
    return index(str(folder), block_bytes=4000)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_anywhere_is_found_where_it_is(one_shard: Manifest, place: float, bit: int) -> None:
    manifest = one_shard
    assert manifest.num_shards == 1
    path = Path(manifest.base_url) / shard_of(manifest, 0)
    right = path.read_bytes()
    offset = int(place * len(right))
    wrong = bytearray(right)
    wrong[offset] ^= 1 << bit
    starts, ends = manifest.starts, manifest.starts + manifest.lengths
    # Headers, bodies and padding are in blocks. What is before the first (the schema of an Arrow file) or behind the
    # last (a footer) is not read.
    assert (starts[1:] == ends[:-1]).all()
    source = dataflow.open(manifest.url).source
    path.write_bytes(wrong)
    try:
        for block in range(manifest.num_blocks):
            if starts[block] <= offset < ends[block]:
                sums = rf"xxh3-128 is [0-9a-f]{{32}}, the manifest says {manifest.checksum(block).hex()}"
                with pytest.raises(CorruptDataError, match=rf"block {block} \({re.escape(str(path))}, .*{sums}"):
                    source.read(manifest, block)
            else:
                assert source.read(manifest, block).num_rows == manifest.rows[block]
    finally:
        path.write_bytes(right)


def blocks_refused(dataset: dataflow.Dataset) -> set[int]:
    """Blocks that are found to be wrong."""
    refused = set()
    for block in range(dataset.num_blocks):
        try:
            dataset.source.fetch(dataset.manifest, block)
        except CorruptDataError:
            refused.add(block)
    return refused


@pytest.fixture
def all_wrong(tmp_path: Path) -> str:
    """A dataset of which a bit of every block is wrong."""
    manifest = write(tmp_path, rows(1000), rows_per_block=2)
    for shard in range(manifest.num_shards):
        path = tmp_path / manifest.shard_path(shard)
        content = bytearray(path.read_bytes())
        for block in range(int(manifest.first_blocks[shard]), int(manifest.first_blocks[shard + 1])):
            content[int(manifest.starts[block] + manifest.lengths[block]) - 100] ^= 1
        path.write_bytes(content)
    return str(tmp_path)


def test_a_share_of_the_blocks_is_verified(all_wrong: str) -> None:
    everything = set(range(500))
    assert blocks_refused(dataflow.open(all_wrong)) == everything
    assert blocks_refused(dataflow.open(all_wrong, verify=True)) == everything
    assert blocks_refused(dataflow.open(all_wrong, verify=0)) == set()
    assert blocks_refused(dataflow.open(all_wrong, verify=False)) == set()
    fifth = blocks_refused(dataflow.open(all_wrong, verify=0.2))
    assert 60 < len(fifth) < 140
    assert blocks_refused(dataflow.open(all_wrong, verify=0.2)) == fifth
    assert fifth < blocks_refused(dataflow.open(all_wrong, verify=0.5)) < everything
    again = pickle.loads(pickle.dumps(dataflow.open(all_wrong, verify=0.2).select("number")))
    assert blocks_refused(again) == fifth


@pytest.mark.parametrize("verify", [-0.1, 1.1, float("nan"), "yes", None])
def test_what_is_no_share(tmp_path: Path, verify: Any) -> None:
    with pytest.raises(OptionError, match=r"verify is .*from 0 to 1"):
        dataflow.open(str(tmp_path), verify=verify)


def replace(url: str, salt: int, count: int = 400) -> Manifest:
    """Overwrites the dataset at a URL by another one with the same names."""
    store = open_store(url)
    for entry in list(store.list()):
        store.delete(entry.path)
    return write(url, rows(count, salt), rows_per_block=4, shard_bytes=100_000)


def payloads(loader: dataflow.DataLoader) -> set[bytes]:
    return {bytes(payload)[:1] for batch in loader for payload in batch["payload"]}


def test_st14_a_dataset_that_is_replaced_is_never_mixed(s3_url: str, tmp_path: Path) -> None:  # ST-14
    replace(s3_url, 0)
    options: dict[str, Any] = {"cache": str(tmp_path), "cache_limit": "10MiB"}
    first = dataflow.DataLoader(dataflow.open(s3_url, **options), batch_size=10)
    before = [batch["payload"] for batch in first]
    half_cold = dataflow.DataLoader(dataflow.open(s3_url), batch_size=10)
    iterator = iter(half_cold)
    next(iterator)
    manifest = replace(s3_url, 1)
    # What was opened before goes on with what it was opened with, as far as the cache has it, and says so where not.
    assert [batch["payload"] for batch in first] == before
    assert first.stats()["cache"]["blocks"] == 100
    with pytest.raises(CorruptDataError, match=rf"{s3_url}/.*: xxh3-128 is [0-9a-f]{{32}}, the manifest says"):
        for _ in dataflow.DataLoader(half_cold.dataset, batch_size=10):
            pass
    again = dataflow.open(s3_url, **options)
    assert again.fingerprint == manifest.fingerprint
    after = [batch["payload"] for batch in dataflow.DataLoader(again, batch_size=10)]
    assert [bytes([(row[0] + 1) % 256]) for batch in before for row in batch] == [
        bytes(row[:1]) for batch in after for row in batch
    ]


def test_a_replaced_shard_is_named_with_both_versions(s3_url: str) -> None:
    store = open_store(s3_url)
    store.put_atomic("a.tar", pack([("0.txt", b"a" * 100)]))
    dataset = dataflow.open(index(s3_url).url)
    store.put_atomic("a.tar", pack([("0.txt", b"b" * 100)]))
    with pytest.raises(CorruptDataError, match=r"a\.tar.*the shard was replaced since.*version is .*, was "):
        dataset[0]


def test_a_store_that_fails_is_told_once_the_attempts_are_used_up(
    s3_url: str, fault_proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dataflow.storage.RetryPolicy", partial(RetryPolicy, attempts=3, first_wait_seconds=0.01))
    replace(s3_url, 0)
    dataset = dataflow.open(s3_url)
    before = len(fault_proxy.requests)
    fault_proxy.script = lambda request: slow_down()
    message = rf"could not read bytes \d+-\d+ of {s3_url}/.*arrow: 503.*SlowDown.*\(attempts: 3, \d+\.\d s\)"
    with pytest.raises(StorageError, match=message):
        dataset[0]
    assert len(fault_proxy.requests) == before + 3  # and nobody asks such a store for the size


def test_the_cache_goes_with_the_dataset(s3_url: str, tmp_path: Path, fault_proxy: FaultProxy) -> None:
    replace(s3_url, 0)
    dataset = dataflow.open(s3_url, cache=str(tmp_path), cache_limit="10MiB").select(["number"])
    loader = dataflow.DataLoader(dataset, batch_size=10, shuffle=True)
    list(loader)
    assert loader.stats()["cache"] == {"blocks": 0, "bytes": 0}
    assert "cache" not in loader.report()
    before = len(fault_proxy.requests)
    list(loader)
    assert loader.stats()["cache"] == {"blocks": 100, "bytes": dataset.manifest.num_bytes}
    assert f"{dataset.manifest.num_bytes / 1e6:.1f} MB of them from the cache" in loader.report()
    copied = pickle.loads(pickle.dumps(dataset.filter(keep_all, name="all")))
    assert copied.num_rows == 400
    assert [dataset[number]["number"] for number in (0, 399)] == [0, 399]
    assert all("manifest" in request.path for request in fault_proxy.requests[before:])


def keep_all(sample: dict[str, Any]) -> bool:
    return True


def test_st06_a_local_dataset_is_neither_copied_nor_removed(tmp_path: Path) -> None:  # ST-06
    manifest = write(tmp_path / "data", rows(400), rows_per_block=4)
    before = {path: path.read_bytes() for path in (tmp_path / "data").iterdir()}
    dataset = dataflow.open(manifest.url, cache=str(tmp_path / "data"), cache_limit=1000)
    assert payloads(dataflow.DataLoader(dataset, batch_size=10)) == {bytes([number]) for number in range(256)}
    assert {path: path.read_bytes() for path in (tmp_path / "data").iterdir()} == before


def test_st07_a_limit_that_is_too_small_names_the_least(s3_url: str, tmp_path: Path) -> None:  # ST-07
    replace(s3_url, 0, count=1000)
    cache = str(tmp_path / "cache")
    with pytest.raises(OptionError, match=r"cache_limit is 10\.0 KiB, s3://.* needs at least \d+ bytes") as caught:
        dataflow.open(s3_url, cache=cache, cache_limit="10KiB")
    assert not os.path.exists(cache)
    least = int(re.findall(r"at least (\d+) bytes", str(caught.value))[0])
    with pytest.raises(OptionError, match="at least"):
        dataflow.open(s3_url, cache=cache, cache_limit=least - 1)
    dataset = dataflow.open(s3_url, cache=cache, cache_limit=least)
    for _ in range(2):
        assert sum(len(batch["number"]) for batch in dataflow.DataLoader(dataset, batch_size=10, shuffle=True)) == 1000
    with pytest.raises(OptionError, match="cache= needs cache_limit="):
        dataflow.open(s3_url, cache=cache)
    with pytest.raises(OptionError, match="cache_limit= needs cache="):
        dataflow.open(s3_url, cache_limit="1GiB")
