from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dataflow.cli.demo.ranks import Ranks
from dataflow.cli.demo.records import last_common_step, read_records, state_path
from dataflow.cli.demo.tiles import cut_tiles
from dataflow.cli.s3_server import S3Server
from dataflow.errors import DataflowError
from tests.cli.conftest import Run

DEMO = [sys.executable, "-m", "dataflow.cli", "demo"]


def test_tiles_are_different_and_the_same_every_time(tmp_path: Path) -> None:
    for name in ("one", "two"):
        assert cut_tiles(tmp_path / name, 240, seed=3) == 12
    one, two = (sorted(p.read_bytes() for p in (tmp_path / name).rglob("*.jpg")) for name in ("one", "two"))
    assert one == two
    assert len({hashlib.sha256(data).digest() for data in one}) == 240


def test_the_demo_without_photographs_says_what_to_install() -> None:
    program = "import sys; sys.modules['PIL'] = None; from dataflow.cli import app; app(['demo'])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("error: the demo cuts photographs with Pillow, which is not installed: pip install")


def test_ranks_go_in_step_and_are_killed(run: Run, s3: S3Server, s3_url: str, tmp_path: Path) -> None:
    cut_tiles(tmp_path / "tiles", 400, seed=0)
    run("shard", tmp_path / "tiles", s3_url)
    folder = tmp_path / "run"
    with Ranks(s3_url, folder, 2, 4, s3.environment) as ranks:
        for step in ranks.steps():
            if step == 3:
                assert ranks.kill() == 2
    step, states = last_common_step(folder, 2)
    assert 3 <= step < 50
    assert states[0] == states[1]
    assert states[0]["slots"] == step * 8
    assert not state_path(folder, 0, 50).exists()
    seen = read_records(folder, 2, states[0]["slots"])
    assert np.array_equal(seen[:, 0], np.arange(step * 8))


def test_a_rank_that_fails_is_named(s3: S3Server, s3_url: str, tmp_path: Path) -> None:
    with Ranks(s3_url, tmp_path / "run", 1, 4, s3.environment) as ranks:
        assert list(ranks.steps()) == []
        with pytest.raises(DataflowError, match=r"rank 0 of 1 ended with 1: .*there is nothing at"):
            ranks.check_finished()


@pytest.mark.soak
def test_the_demo_holds_what_it_promises(tmp_path: Path) -> None:
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    done = subprocess.run(DEMO, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\nok ") == 5
    assert "FAILED" not in done.stdout
    assert "the consumer waited" in done.stdout
    assert "\x1b" not in done.stdout  # no colours without a terminal
    assert list(tmp_path.iterdir()) == []


@pytest.mark.soak
def test_the_demo_leaves_nothing_behind_when_interrupted(tmp_path: Path) -> None:
    environment = os.environ | {"TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(DEMO, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "4 ranks, killed" in line:
                process.send_signal(signal.SIGINT)
                break
        process.stdout.read()
    assert process.returncode not in (0, -signal.SIGKILL)
    assert list(tmp_path.iterdir()) == []
