"""The same source and seed give the same bytes, whatever the number of workers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dataflow.storage import open_store
from tests.cli.conftest import Run, picture
from tests.cli.test_shard_shards import tars

Write = Callable[[dict[str, bytes]], Path]


def contents(url: str) -> dict[str, bytes]:
    store = open_store(url)
    return {entry.path: bytes(store.read_range(entry.path, 0, entry.size)) for entry in store.list()}


def images() -> dict[str, bytes]:
    return {f"{n % 3}/{n}.jpg": picture(n) + bytes(n * 7 % 3000) for n in range(500)}


@pytest.mark.parametrize("files", [images, lambda: tars(10, 30)], ids=["images", "tars"])
def test_workers_do_not_change_a_byte(
    run: Run, write: Write, tmp_path: Path, files: Callable[[], dict[str, bytes]]
) -> None:
    source = write(files())
    found = []
    for workers in (1, 2, 13):
        run(
            "shard", source, tmp_path / f"{workers}", "--workers", workers, "--block-mib", "0.02", "--shard-mib", "0.05"
        )
        found.append(contents(str(tmp_path / f"{workers}")))
    assert len(found[0]) > 2
    assert found[0] == found[1] == found[2]


def test_on_s3_the_manifest_is_the_same_too(run: Run, write: Write, s3_url: str) -> None:
    source = write(images())
    run("shard", source, f"{s3_url}/one", "--workers", 1, "--block-mib", "0.02", "--shard-mib", "0.05")
    run("shard", source, f"{s3_url}/many", "--workers", 13, "--block-mib", "0.02", "--shard-mib", "0.05")
    assert contents(f"{s3_url}/one") == contents(f"{s3_url}/many")


def test_a_source_on_s3_gives_the_same_as_a_local_one(run: Run, write: Write, s3_url: str, tmp_path: Path) -> None:
    source = write({f"{n % 2}/{n}.jpg": picture(n) for n in range(30)})
    store = open_store(f"{s3_url}/source")
    for path in sorted(source.rglob("*.jpg")):
        store.put_atomic(path.relative_to(source).as_posix(), path.read_bytes())
    run("shard", source, tmp_path / "local")
    run("shard", store.url, f"{s3_url}/out")
    local, remote = contents(str(tmp_path / "local")), contents(f"{s3_url}/out")
    assert local["shard-00000.arrow"] == remote["shard-00000.arrow"]
