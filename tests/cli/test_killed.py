"""`dataflow shard` killed in the middle: what it leaves is no dataset, and the same command gives the whole result."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import dataflow
from dataflow.errors import DatasetError
from dataflow.storage import open_store
from tests.cli.conftest import Run
from tests.servers.proxy import Fault, FaultProxy, Request

# More than the writer holds back before it cuts its first block.
ROWS, ROW_BYTES = 96, 512 << 10


@pytest.fixture
def source(s3_url: str) -> str:
    """A dataset of 48 MiB in one shard on S3."""
    values = np.random.default_rng(0)
    with dataflow.ShardWriter(f"{s3_url}/source", rows_per_block=1, shard_bytes=1 << 30) as writer:
        for number in range(ROWS):
            writer.write({"number": number, "data": values.bytes(ROW_BYTES)})
    return f"{s3_url}/source"


@pytest.mark.parametrize("on_s3", [False, True], ids=["local", "s3"])
def test_sh06_killed_in_mid_shard_then_run_again(
    run: Run, source: str, s3_url: str, tmp_path: Path, fault_proxy: FaultProxy, on_s3: bool
) -> None:
    target = f"{s3_url}/out" if on_s3 else str(tmp_path / "out")
    arguments = ["shard", source, target, "--workers", "1", "--keep-order", "--block-mib", "1", "--shard-mib", "8"]
    late = threading.Event()

    def stall_late_reads(request: Request) -> Fault | None:
        first = request.headers.get("range", "bytes=0-").removeprefix("bytes=").partition("-")[0]
        if "source/shard" in request.path and int(first) > ROWS * ROW_BYTES * 7 // 8:
            late.set()
            return Fault(headers=False)
        return None

    fault_proxy.script = stall_late_reads
    command = [sys.executable, "-m", "dataflow.cli", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert late.wait(60)
        process.kill()
        process.communicate()
    assert process.returncode == -signal.SIGKILL
    left = [entry.path for entry in open_store(target).list()]
    assert left  # some shards were finished
    assert "manifest.arrow" not in left
    with pytest.raises(DatasetError, match="run that again"):
        dataflow.open(target)

    fault_proxy.script = lambda request: None
    run(*arguments)
    again = dataflow.open(target)
    run("shard", source, tmp_path / "straight", *arguments[3:])
    assert again.fingerprint == dataflow.open(str(tmp_path / "straight")).fingerprint
    if not on_s3:
        assert not list((tmp_path / "out").glob(".*"))


def test_sh17_a_finished_dataset_is_not_written_over(run: Run, source: str, tmp_path: Path) -> None:
    run("shard", source, tmp_path / "out")
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert "holds a dataset already" in run("shard", source, tmp_path / "out", code=1).stderr
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "precious.txt").write_text("x")
    assert "is not empty" in run("shard", source, tmp_path / "other", code=1).stderr
