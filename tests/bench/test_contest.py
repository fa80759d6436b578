"""The rules of `bench.loaders`: what a process tree costs, and whether a loader did the work."""

from __future__ import annotations

import io
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from bench.peers.checks import check_epoch, check_pictures, write_probes
from bench.peers.crop import window, with_pillow

ORPHAN = """
import os, subprocess, sys, time
from bench.peers.tree import adopt_orphans, cpu_seconds, memory_bytes
adopt_orphans()
burn = "import time; held = bytearray(64 << 20)\\nwhile time.process_time() < 0.5: pass\\n"
burn += "print(flush=True); time.sleep(60)"
start = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {burn!r}])"
with subprocess.Popen([sys.executable, "-c", start], stdout=subprocess.PIPE) as child:
    child.stdout.readline()  # the grandchild has burnt its time, and its parent has ended
    print(cpu_seconds(os.getpid()), memory_bytes(os.getpid()) >> 20)
    os.system(f"kill $(cat /proc/{os.getpid()}/task/{os.getpid()}/children)")
"""


def test_orphaned_grandchildren_count():
    done = subprocess.run([sys.executable, "-c", ORPHAN], capture_output=True, text=True, check=True, timeout=60)
    seconds, mib = done.stdout.split()
    assert float(seconds) >= 0.5
    assert int(mib) >= 64


def test_every_sample_has_to_come_once_and_shuffled():
    ids = random.Random(0).sample(range(1000), 1000)
    check_epoch(ids, 1000, 1000)
    with pytest.raises(AssertionError, match="999 samples instead of 1000"):
        check_epoch(ids[:-1], 999, 1000)
    with pytest.raises(AssertionError, match="1 samples did not come"):
        check_epoch([*ids[:-1], ids[0]], 1000, 1000)
    with pytest.raises(AssertionError, match="right after"):
        check_epoch(list(range(1000)), 1000, 1000)


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder: Path = write_probes(tmp_path_factory.mktemp("probes"), 1)
    return (folder / "class-000/000000.jpg").read_bytes()


def test_random_windows_pass(probe: bytes):
    random.seed(0)
    check_pictures([torch.stack([with_pillow(probe) for _ in range(200)])])


def test_windows_that_are_not_random_fail(probe: bytes):
    with Image.open(io.BytesIO(probe)) as image:
        whole = np.asarray(image.resize((224, 224), Image.Resampling.BILINEAR)).transpose(2, 0, 1)
    with pytest.raises(
        AssertionError, match="areas spread, shapes from 3 : 4 to 4 : 3, places vary, half are mirrored"
    ):
        check_pictures([np.stack([whole] * 50)])


def test_resizing_without_antialiasing_fails(probe: bytes):
    random.seed(0)
    pixels = torch.from_numpy(np.array(Image.open(io.BytesIO(probe)))).permute(2, 0, 1)[None]

    def aliased() -> torch.Tensor:
        top, left, height, width = window(*pixels.shape[2:])
        cut = pixels[:, :, top : top + height, left : left + width]
        resized = torch.nn.functional.interpolate(cut, (224, 224), mode="bilinear")[0]
        return resized.flip(2) if random.random() < 0.5 else resized

    with pytest.raises(AssertionError, match="it does not hold that stripes become grey, antialiased"):
        check_pictures([torch.stack([aliased() for _ in range(200)])])
