"""Damaged shards and manifests, by the ten thousand: never a crash, a hang, memory without bound, or a silent loss."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.kinds import KINDS

EVERYTHING = [*KINDS, "indexed", "skip", "manifest"]


def run(kind: str, seed: int, count: int, folder: Path) -> dict[str, int]:
    """How often damage was refused, and how often what is left could be read."""
    arguments = ["-X", "faulthandler", "-m", "tests.fuzz.run", kind, str(seed), str(count), str(folder)]
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    number = (folder / "number").read_text() if (folder / "number").exists() else "none"
    assert done.returncode == 0, f"{kind}, seed {seed}, try {number}, see {folder}:\n{done.stderr[-5000:]}"
    outcomes: dict[str, int] = json.loads(done.stdout)
    return outcomes


@pytest.mark.parametrize("kind", EVERYTHING)
def test_damage_is_told_or_does_no_harm(kind: str, tmp_path: Path) -> None:
    outcomes = run(kind, 0, 100, tmp_path)
    assert outcomes["refused"] > 30
    print(kind, outcomes)


@pytest.mark.soak
@pytest.mark.parametrize("kind", EVERYTHING)
def test_much_damage_is_told_or_does_no_harm(kind: str, tmp_path: Path) -> None:
    """Of all kinds together, 100,000."""
    outcomes = run(kind, 1, 100_000 // len(EVERYTHING), tmp_path)
    assert outcomes["refused"] > 1000
    print(kind, outcomes)
