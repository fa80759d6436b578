"""What WebDataset's own writers write, on every way, and back to WebDataset."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import webdataset
from PIL import Image

import dataflow
from dataflow.errors import CorruptDataError
from dataflow.operations.export import export
from tests.ways.every_way import Source, check, every_way, stored_rows


def picture(number: int, kind: str) -> bytes:
    sink = io.BytesIO()
    Image.fromarray(np.random.default_rng(number).integers(0, 256, (8, 8, 3), np.uint8)).save(sink, kind)
    return sink.getvalue()


def sample(number: int) -> dict[str, Any]:
    """Members of every kind that WebDataset encodes; some samples lack one."""
    members = {
        "__key__": f"part{number // 5}/sample v1{number:03d}",
        "jpg": picture(number, "JPEG"),
        "seg.png": picture(number, "PNG"),
        "txt": f"é\u2028 {number}\r\n",
        "cls": number % 3,
        "json": {"a": [number, None], "b": {"c": "x"}},
        "tokens.npy": np.arange(number, dtype=np.uint16),
        "bin": bytes([number, 0, 255]),
    }
    if number % 4 == 1:
        del members["bin"]
    return members


def read(paths: list[Path]) -> list[dict[str, Any]]:
    """The samples as WebDataset finds them."""
    return [
        {name: value for name, value in sample.items() if name == "__key__" or not name.startswith("__")}
        for sample in webdataset.WebDataset([str(path) for path in paths], shardshuffle=False)
    ]


def rows_of(samples: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows that samples are: a sample without a member has a null there."""
    endings = sorted({name for sample in samples for name in sample} - {"__key__"})
    return [{"key": sample["__key__"]} | {name: sample.get(name) for name in endings} for sample in samples]


def write_shards(folder: Path) -> None:
    with webdataset.ShardWriter(f"{folder}/%04d.tar", maxcount=8, verbose=0) as writer:
        for number in range(20):
            writer.write(sample(number))


def write_tars(folder: Path) -> None:
    """Long names, and the tar formats that Python's own module knows beside those of WebDataset."""
    with webdataset.TarWriter(f"{folder}/0.tar") as writer:
        writer.write({"__key__": f"{'long' * 50}/é {'x' * 90}", "TXT": b"upper case", "bin": b"\0"})
        writer.write({"__key__": "./dot/v1.0/a", "txt": "dots in folders are no ending"})
    for number, kind in enumerate((tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT), 1):
        with tarfile.open(folder / f"{number}.tar", "w", format=kind) as tar:
            for name in ("a", "é" * 40, "folder/b") + (("n" * 200,) if kind != tarfile.USTAR_FORMAT else ()):
                for ending in ("txt", "Bin"):
                    info = tarfile.TarInfo(f"{number}{name}.{ending}")
                    info.size, info.mtime = len(name), 1.5
                    tar.addfile(info, io.BytesIO(b"x" * len(name)))


@pytest.fixture(scope="module", params=[write_shards, write_tars], ids=lambda write: write.__name__)
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Source:
    folder = tmp_path_factory.mktemp("tars")
    request.param(folder)
    return Source(folder, rows_of(read(sorted(folder.iterdir()))))


@every_way
def test_rows_are_the_samples_of_webdataset(way: Any, source: Source, tmp_path: Path, s3_url: str) -> None:
    check(way, source, tmp_path, s3_url)


@pytest.mark.parametrize("way", [every_way.args[1][0], every_way.args[1][2]], ids=lambda way: way.__name__)
def test_webdataset_reads_what_is_exported(way: Any, tmp_path: Path) -> None:
    (tmp_path / "tars").mkdir()
    write_shards(tmp_path / "tars")
    url = way(tmp_path / "tars", tmp_path / "dataset", "")
    exported = export(url, str(tmp_path / "exported"), "tar", shard_bytes=20_000)
    assert len(exported.files) > 1
    found = read([tmp_path / "exported" / name for name in exported.files])
    assert found == read(sorted((tmp_path / "tars").iterdir()))
    again = dataflow.index(str(tmp_path / "exported")).url
    assert stored_rows(again) == stored_rows(url)


def test_webdataset_decodes_exported_columns(tmp_path: Path) -> None:
    """Of columns with types of their own, WebDataset's decoders make the same values."""
    with dataflow.ShardWriter(str(tmp_path / "dataset")) as writer:
        for number in range(6):
            writer.write(
                {
                    "key": f"{number}",
                    "image": picture(number, "PNG"),
                    "label": number,
                    "caption": f"é {number}\n",
                    "boxes": [[number, 2.5]],
                    "info": {"a": [None, "x"][number % 2], "b": [True]},
                }
            )
    export(str(tmp_path / "dataset"), str(tmp_path / "exported"), "tar")
    samples = list(webdataset.WebDataset(str(tmp_path / "exported" / "00000.tar"), shardshuffle=False).decode("pil"))
    for number, found in enumerate(samples):
        assert found["__key__"] == f"{number}"
        assert found["label.cls"] == number
        assert found["caption.txt"] == f"é {number}\n"
        assert found["boxes.json"] == [[number, 2.5]]
        assert found["info.json"] == {"a": [None, "x"][number % 2], "b": [True]}
        original = Image.open(io.BytesIO(picture(number, "PNG")))
        assert found["image.png"].convert("RGB").tobytes() == original.tobytes()
    assert len(samples) == 6


def test_members_decode_as_webdataset_does(tmp_path: Path) -> None:
    write_shards(tmp_path)
    dataset = dataflow.open(dataflow.index(str(tmp_path)).url)
    paths = [str(path) for path in sorted(tmp_path.glob("*.tar"))]
    for row, decoded in zip(dataset, webdataset.WebDataset(paths, shardshuffle=False).decode(), strict=True):
        assert row["txt"].decode() == decoded["txt"]
        assert int(row["cls"]) == decoded["cls"]
        assert json.loads(row["json"]) == decoded["json"]
        assert np.array_equal(np.load(io.BytesIO(row["tokens.npy"])), decoded["tokens.npy"])


def test_a_member_without_bytes_is_refused_by_name(tmp_path: Path) -> None:
    with webdataset.TarWriter(f"{tmp_path}/0.tar") as writer:
        writer.write({"__key__": "a", "txt": "", "cls": 1})
    with pytest.raises(CorruptDataError, match=r"0\.tar: member 'a\.txt' at offset \d+ has no bytes"):
        dataflow.index(str(tmp_path))
