"""What a process that loads data does not import: it would wait for it before its first batch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa

import dataflow
from tests.formats.archives import pack

HEAVY = (
    "av",
    "nvidia.dali",
    "pandas",
    "numba",
    "scipy",
    "s3fs",
    "botocore",
    "rich",
    "typer",
    "jinja2",
    "PIL",
    "pyarrow.compute",
)

LOAD = """
import sys
import dataflow
for url in sys.argv[1:]:
    dataset = dataflow.open(url)
    for batch in dataflow.DataLoader(dataset, batch_size=4, shuffle=True, num_workers=2):
        pass
    dataset[3]
print(*sys.modules)
"""


def test_loading_imports_nothing_heavy(tmp_path: Path) -> None:
    schema = pa.schema(
        {
            "number": pa.int32(),
            "flag": pa.bool_(),
            "text": pa.string(),
            "image": pa.binary(),
            "tokens": pa.list_(pa.uint16()),
            "box": pa.list_(pa.float32(), 2),
        }
    )
    with dataflow.ShardWriter(str(tmp_path / "arrow"), schema, rows_per_block=3) as writer:
        for row in range(20):
            text = None if row % 3 else "x"
            box = [1.0, 2.0]
            writer.write({"number": row, "flag": True, "text": text, "image": b"y", "tokens": [row], "box": box})
    (tmp_path / "tar").mkdir()
    members = [(f"{row}.{suffix}", b"x") for row in range(20) for suffix in (("jpg", "cls") if row % 2 else ("jpg",))]
    (tmp_path / "tar" / "a.tar").write_bytes(pack(members))
    dataflow.index(str(tmp_path / "tar"))
    arguments = [sys.executable, "-c", LOAD, str(tmp_path / "arrow"), str(tmp_path / "tar")]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    assert not set(done.stdout.split()) & set(HEAVY)


WRITE = """
import sys
from pathlib import Path
import dataflow
from dataflow.sharding import shard
folder = Path(sys.argv[1])
with dataflow.ShardWriter(str(folder / "written")) as writer:
    for row in range(20):
        writer.write({"number": row, "share": 0.5, "text": None if row % 3 else "x", "image": b"y"})
dataflow.index(str(folder / "written"))
shard(str(folder / "photos"), str(folder / "sharded"), workers=1)
print(*sys.modules)
"""


def test_writing_does_not_import_pandas(tmp_path: Path) -> None:
    (tmp_path / "photos" / "class").mkdir(parents=True)
    (tmp_path / "photos" / "class" / "a.jpg").write_bytes(b"\xff\xd8\xff")
    done = subprocess.run([sys.executable, "-c", WRITE, str(tmp_path)], capture_output=True, text=True, check=True)
    assert "pandas" not in done.stdout.split()
