"""What the demo does, step by step, told while it happens."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
import typer
import xxhash
from rich.console import Console

from dataflow.cli.demo.ranks import Ranks
from dataflow.cli.demo.records import last_common_step, read_records
from dataflow.cli.demo.tiles import cut_tiles
from dataflow.cli.s3_server import S3Server
from dataflow.errors import DataflowError
from dataflow.sampling.state import merge_states

__all__ = ["tell"]

# No batch size divides it: the last batches are not full.
_TILES = 4_100
_TILES_SEED = 0
_KILLED_RANKS, _KILLED_BATCH = 4, 16
_RESUMED_RANKS, _RESUMED_BATCH = 2, 24
_KILL_AFTER_STEP = 26


def tell() -> None:
    """Runs the demo.

    Raises:
        DataflowError: A step could not be done.
        typer.Exit: With code 1, a check failed.
    """
    start = time.monotonic()
    story = _Story()
    with tempfile.TemporaryDirectory(prefix="dataflow-demo-") as name:
        folder = Path(name)
        story.chapter("Photographs")
        photographs = cut_tiles(folder / "tiles", _TILES, _TILES_SEED)
        story.say(f"cut {_TILES:,} different tiles out of {photographs} photographs, a folder for each")
        story.chapter("An S3 server")
        with S3Server() as server:
            story.say(f"a real one, from the package index, at {server.endpoint}")
            environment = server.environment | {"XDG_CACHE_HOME": str(folder / "cache")}
            url = f"{server.url}/photographs"
            story.chapter("Shards")
            story.command(["shard", "tiles", url], folder, environment)
            story.command(["info", url, "--ranks", str(_KILLED_RANKS)], folder, environment)
            _stream(story, folder, url, environment)
    story.say(f"\n{time.monotonic() - start:.0f} seconds in all")
    if story.failed:
        raise typer.Exit(1)


def _stream(story: _Story, folder: Path, url: str, environment: dict[str, str]) -> None:
    story.chapter(f"{_KILLED_RANKS} ranks, killed in mid epoch")
    killed = folder / "killed"
    alive = 0
    with Ranks(url, killed, _KILLED_RANKS, _KILLED_BATCH, environment) as ranks:
        for step in ranks.steps():
            if step == _KILL_AFTER_STEP:
                alive = ranks.kill()
        if not alive:
            ranks.check_finished()
    step, states = last_common_step(killed, _KILLED_RANKS)
    state = merge_states(states)
    delivered = state["slots"]
    story.say(
        f"{_KILLED_RANKS} processes with batches of {_KILLED_BATCH}; SIGKILL to {alive} of them.\nThe last state that "
        f"all have saved is of step {step}: {delivered:,} of {_TILES:,} samples.\n{json.dumps(state)}"
    )
    state_file = folder / "state.json"
    state_file.write_text(json.dumps(state))

    story.chapter(f"{_RESUMED_RANKS} ranks, resumed")
    resumed = folder / "resumed"
    with Ranks(url, resumed, _RESUMED_RANKS, _RESUMED_BATCH, environment, state_file) as ranks:
        steps = sum(1 for _ in ranks.steps())
        ranks.check_finished()
    story.say(f"{_RESUMED_RANKS} processes with batches of {_RESUMED_BATCH}: {steps} steps to the end of the epoch")
    story.say("Where rank 0 spent its time:")
    story.say((resumed / "rank-0.report").read_text())

    story.chapter("1 rank, never interrupted")
    straight = folder / "straight"
    with Ranks(url, straight, 1, _KILLED_BATCH, environment) as ranks:
        steps = sum(1 for _ in ranks.steps())
        ranks.check_finished()
    story.say(f"{steps} steps")

    story.chapter("Checks")
    first = read_records(killed, _KILLED_RANKS, delivered)
    second = read_records(resumed, _RESUMED_RANKS)
    whole = read_records(straight, 1)
    both = np.concatenate([first, second])
    tiles = sorted(xxhash.xxh3_64_intdigest(path.read_bytes()) >> 1 for path in (folder / "tiles").rglob("*.jpg"))
    story.check(alive == _KILLED_RANKS, f"all {_KILLED_RANKS} ranks were killed in mid epoch")
    story.check(
        len(first) == delivered and len(second) == _TILES - delivered,
        f"{len(first):,} samples before the kill and {len(second):,} after it are {_TILES:,}",
    )
    story.check(_each_once(both[:, 1]), "every sample came exactly once, by its number")
    story.check(sorted(both[:, 2].tolist()) == tiles, "every tile came exactly once, by the hash of its bytes")
    story.check(np.array_equal(both, whole), "in the order of the run that was never interrupted, sample by sample")


def _each_once(numbers: npt.NDArray[np.int64]) -> bool:
    return np.array_equal(np.sort(numbers), np.arange(_TILES))


class _Story:
    """Prints chapters: in colours on a terminal, else plainly."""

    def __init__(self) -> None:
        self._console = Console(highlight=False)
        self.failed = False

    def chapter(self, title: str) -> None:
        if self._console.is_terminal:
            self._console.print()
            self._console.rule(f"[bold]{title}", align="left")
        else:
            self._console.print(f"\n== {title}")

    def say(self, text: str) -> None:
        self._console.print(text, markup=False, soft_wrap=True)

    def command(self, arguments: list[str], folder: Path, environment: dict[str, str]) -> None:
        """Runs a command of dataflow as a user would."""
        self._console.print(f"$ dataflow {' '.join(arguments)}", style="bold", markup=False, soft_wrap=True)
        done = subprocess.run(
            [sys.executable, "-m", "dataflow.cli", *arguments],
            cwd=folder,
            env=os.environ | environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise DataflowError(f"`dataflow {' '.join(arguments)}` failed: {done.stderr.strip()}")
        self.say(done.stdout.rstrip())

    def check(self, holds: bool, claim: str) -> None:
        self.failed = self.failed or not holds
        mark, style = ("ok", "green") if holds else ("FAILED", "bold red")
        self._console.print(f"{mark:<6} {claim}", style=style, markup=False, soft_wrap=True)
