from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Run
from tests.dataset.written import write
from tests.operations.photographs import photograph


def test_verify_lists_what_is_bad(run: Run, tmp_path: Path) -> None:
    rows = [{"key": f"{n}.jpg", "image": photograph()[: -54 if n == 2 else None]} for n in range(4)]
    manifest = write(tmp_path, rows, rows_per_block=1)
    path = tmp_path / manifest.shard_path(0)
    data = bytearray(path.read_bytes())
    data[int(manifest.starts[1]) + 5000] ^= 1
    path.write_bytes(data)
    out = run("verify", tmp_path, code=1).stdout
    first, second, last = out.splitlines()
    assert first.startswith(f"checksum: block 1 ({path}, bytes ")
    assert second.startswith(f"value: block 2 ({path}, bytes ")
    assert "row 2 ('2.jpg'): 'image' cannot be decoded" in second
    assert last == f"2 faults in 1 of 1 shard of {tmp_path}"
    facts = json.loads(run("verify", tmp_path, "--json", code=1).stdout)
    assert facts["sound"] is False
    assert [fault["block"] for fault in facts["faults"]] == [1, 2]
    assert facts["faults"][0]["expected"] == manifest.checksum(1).hex()
    assert facts["faults"][1] | {"message": ""} == {
        "kind": "value", "shard": str(path), "message": "", "block": 2, "row": 2, "key": "2.jpg", "column": "image",
    }  # fmt: skip
    assert len(run("verify", tmp_path, "--no-decode", code=1).stdout.splitlines()) == 2


def test_verify_says_that_all_is_well(run: Run, tmp_path: Path) -> None:
    write(tmp_path, [{"x": number} for number in range(10)], rows_per_block=5)
    assert f"{tmp_path} is sound: 10 rows" in run("verify", tmp_path).stdout
    facts = json.loads(run("verify", tmp_path, "--json").stdout)
    assert (facts["sound"], facts["faults"], facts["blocks"]) == (True, [], 2)
    (tmp_path / "manifest.arrow").write_bytes(b"ARROW1")
    assert "damaged" in run("verify", tmp_path, code=1).stderr
