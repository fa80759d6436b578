"""`dataflow shard` killed at random moments: the next run goes on, and the result is that of a run never killed."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

import dataflow
from dataflow.errors import DatasetError
from dataflow.storage import open_store
from tests.cli.conftest import Run, run
from tests.sharding.conftest import Fill, contents, images, picture, tars

__all__ = ["run"]

OPTIONS = ["--on-error", "skip", "--block-mib", "0.01", "--shard-mib", "0.03"]
COMMAND = [sys.executable, "-m", "dataflow.cli", "shard"]


def wait_for_shards(process: subprocess.Popen[bytes], target: str, count: int) -> None:
    store = open_store(target)
    while process.poll() is None and sum(entry.path.startswith("shard-") for entry in store.list()) < count:
        time.sleep(0.002)


def kill_and_go_on(arguments: list[str], target: str, kills: int, seed: int, expected: dict[str, bytes]) -> None:
    """Kills the command again and again, each time when it has made some more shards, or a moment later."""
    draw = random.Random(seed)
    moments = sorted(draw.randrange(len(expected)) for _ in range(kills))
    complete = False
    for moment in moments:
        before = {entry.path: entry.version for entry in open_store(target).list()}
        process = subprocess.Popen([*COMMAND, *arguments, target], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        wait_for_shards(process, target, moment)
        time.sleep(draw.uniform(0, 0.03))
        family = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        process.kill()
        process.communicate()
        _, alive = psutil.wait_procs(family, timeout=5)
        assert not alive, "workers outlive their parent"
        left = {entry.path: entry.version for entry in open_store(target).list()}
        complete = "manifest.arrow" in left and ".sharding/plan.json" not in left
        if complete:
            break
        assert process.returncode == -signal.SIGKILL
        kept = {path for path in before if path.startswith("shard-")}
        assert {path: left.get(path) for path in kept} == {path: before[path] for path in kept}, "not kept"
        if "manifest.arrow" in left:
            assert {path: data for path, data in contents(target).items() if "sharding" not in path} == expected
            continue
        with pytest.raises(DatasetError):
            dataflow.open(target)
        if ".sharding/plan.json" in left:
            with pytest.raises(DatasetError, match="has not finished"):
                dataflow.dataset.index(target)
    if not complete:
        subprocess.run([*COMMAND, *arguments, target], check=True, capture_output=True)
    assert contents(target) == expected


def check(run: Run, fill: Fill, tmp_path: Path, target: str, kind: str, kills: int, seed: int) -> None:
    source = fill(images(700) if kind == "images" else tars(20, 35))
    report = tmp_path / "report"
    arguments = [*OPTIONS, "--workers", "2", "--report", str(report), str(source)]
    run("shard", *OPTIONS, "--workers", 1, "--report", tmp_path / "whole", source, tmp_path / "expected")
    expected = contents(tmp_path / "expected")
    assert len(expected) > 20
    kill_and_go_on(arguments, target, kills, seed, expected)
    if report.exists():  # else a run was killed after it had made everything
        # What was left out of shards that an earlier run has made is reported all the same.
        assert report.read_text() == (tmp_path / "whole").read_text() != ""
    if "://" not in target:
        assert not list(Path(target).glob(".*"))


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for temporary files, in which none may stay."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def test_sh06_killed_at_random_moments(run: Run, fill: Fill, tmp_path: Path, temporary: Path) -> None:
    check(run, fill, tmp_path, str(tmp_path / "out"), "images", kills=3, seed=time.time_ns())
    assert not list(temporary.iterdir())


@pytest.mark.soak
def test_sh06_killed_on_s3(run: Run, fill: Fill, tmp_path: Path, s3_url: str, temporary: Path) -> None:
    check(run, fill, tmp_path, f"{s3_url}/out", "tars", kills=1, seed=time.time_ns())
    assert not list(temporary.iterdir())


def test_an_append_killed_leaves_the_dataset_and_goes_on(run: Run, fill: Fill, tmp_path: Path) -> None:
    old, more = fill(images(100)), fill({f"{n % 3}/x{n}.jpg": picture(n) for n in range(500)})
    for name in ("out", "expected"):
        run("shard", *OPTIONS, old, tmp_path / name)
    before = contents(tmp_path / "out")
    run("shard", *OPTIONS, "--append", more, tmp_path / "expected")
    target = str(tmp_path / "out")
    arguments = [*OPTIONS, "--append", "--workers", "2", str(more), target]
    with subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        wait_for_shards(process, target, len(before) + 4)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    assert {path: data for path, data in contents(target).items() if path in before} == before
    assert dataflow.open(target).manifest.num_shards == len(before) - 1
    with pytest.raises(DatasetError, match="has not finished"):
        dataflow.dataset.index(target)
    assert "holds a dataset already" in run("shard", *OPTIONS, more, target, code=1).stderr
    run("shard", *arguments)
    assert contents(target) == contents(tmp_path / "expected")


def test_killed_between_the_manifest_and_the_end(run: Run, fill: Fill, tmp_path: Path) -> None:
    source, target = fill(images(120)), tmp_path / "out"
    run("shard", *OPTIONS, "--report", tmp_path / "whole", source, target)
    expected = contents(target)
    shutil.copytree(target, tmp_path / "copy")
    (target / "manifest.arrow").unlink()
    wait = [sys.executable, "-c", STOP_AFTER_MANIFEST, "shard", *OPTIONS, str(source), str(target)]
    assert subprocess.run(wait, capture_output=True).returncode == -signal.SIGKILL
    assert (target / "manifest.arrow").exists()
    assert (target / ".sharding" / "plan.json").exists()
    assert dataflow.open(str(target)).fingerprint == dataflow.open(str(tmp_path / "copy")).fingerprint
    run("shard", *OPTIONS, "--report", tmp_path / "again", source, target)
    assert contents(target) == expected
    assert (tmp_path / "again").read_text() == (tmp_path / "whole").read_text() != ""
    assert "holds a dataset already" in run("shard", *OPTIONS, source, target, code=1).stderr


# The command line, killed at the moment when the manifest has been written.
STOP_AFTER_MANIFEST = """
import os, signal, sys
import dataflow.sharding.run as run
run.finish = lambda store: os.kill(os.getpid(), signal.SIGKILL)
from dataflow.cli import app
app(sys.argv[1:])
"""


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["images", "tars"])
@pytest.mark.parametrize("on_s3", [False, True], ids=["local", "s3"])
def test_sh06_killed_twenty_times(
    run: Run, fill: Fill, tmp_path: Path, s3_url: str, temporary: Path, kind: str, on_s3: bool
) -> None:
    target = f"{s3_url}/out" if on_s3 else str(tmp_path / "out")
    for round_ in range(4):
        (tmp_path / f"{round_}").mkdir()
        check(run, fill, tmp_path / f"{round_}", f"{target}-{round_}", kind, kills=5, seed=time.time_ns())
    assert not list(temporary.iterdir())
