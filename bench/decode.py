"""Decoding photographs for training, beside others: `python -m bench.decode --photos FOLDER`.

FOLDER holds some hundred JPEG files, e.g. a checkout of github.com/EliSchwartz/imagenet-sample-images. From each a
random window (8 to 100 % of its area, as RandomResizedCrop takes) is resized to 224 x 224 with antialiasing, and
mirrored half the time. The others run in the environment that `make bench-peers` builds: simplejpeg decodes the whole
file; libjpeg's own cropping decodes as little as it can; both leave resizing to torch. The ratios for each second of
processor time hold on a machine that has other work too.
"""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from PIL import Image

from bench.measure import ROOT, Figures, Row, Spread, interleave, provenance, ratios, show

OURS, OURS_ALONE = "dataflow, 2 threads", "dataflow, 1 thread"
FULL, CROPPED = "simplejpeg + torch, 2 threads", "libjpeg cropping + torch, 2 threads"


def main(
    photos: Annotated[Path, typer.Option(help="Folder of JPEG files.")],
    rounds: Annotated[int, typer.Option(help="Interleaved repeats.")] = 7,
    peers: Annotated[Path, typer.Option(help="Python that has simplejpeg and torch.")] = ROOT
    / ".venv-peers/bin/python",
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures there.")] = None,
) -> None:
    facts = provenance({"photos": len(list(photos.iterdir())), "rounds": rounds})
    with tempfile.TemporaryDirectory() as folder:
        requests = str(write_requests(photos, Path(folder) / "requests.npz"))
        theirs = [str(peers), "-m", "bench.peers.torch_decoder", requests]
        ours = [sys.executable, "-m", "bench.peers.dataflow_decoder", requests]
        commands = {OURS: [*ours, "2"], OURS_ALONE: [*ours, "1"], FULL: [*theirs, "simplejpeg", "2"]}
        if library := build_cropping(Path(folder)):
            commands[CROPPED] = [*theirs, str(library), "2"]
        contenders: dict[str, Callable[[], Figures]] = {}
        for name, command in commands.items():
            try:
                run(command)
            except subprocess.CalledProcessError as error:
                print(f"left out: {name}: {error.stderr.strip().splitlines()[-1]}")
            else:
                contenders[name] = partial(run, command)
        results = interleave(contenders, rounds)
    rows = []
    for name, runs in results.items():
        rows.append(Row(name, Spread.of(figures["rate"] for figures in runs), "images/s"))
        rows.append(Row(name, Spread.of(figures["per_cpu"] for figures in runs), "images/CPU s"))
    for name, target in ((FULL, 1.5), (CROPPED, 1.2), (OURS_ALONE, 1.9)):
        if name in results:
            rows.append(Row.at_least(f"{OURS} / {name}", ratios(results[OURS], results[name], "rate"), "x", target))
            rows.append(Row("the same, for each CPU s", ratios(results[OURS], results[name], "per_cpu"), "x"))
    show("Decoding photographs", rows, facts, json_file)


def write_requests(photos: Path, path: Path) -> Path:
    """One window and flip for each photograph."""
    generator = random.Random(0)
    names, windows = [], []
    for photo in sorted(photos.iterdir()):
        if photo.suffix.lower() in (".jpg", ".jpeg"):
            with Image.open(photo) as image:
                names.append(str(photo.absolute()))
                windows.append(random_window(generator, image.height, image.width))
    flips = [generator.random() < 0.5 for _ in names]
    np.savez(path, names=np.array(names), windows=np.array(windows, np.int32), flips=np.array(flips, bool))
    return path


def random_window(generator: random.Random, height: int, width: int) -> tuple[int, int, int, int]:
    """Top, left, height and width; any area from 8 % and any shape from 3 : 4 to 4 : 3, evenly, that fits."""
    while True:
        area = height * width * generator.uniform(0.08, 1)
        shape = math.exp(generator.uniform(math.log(3 / 4), math.log(4 / 3)))
        rows, columns = round(math.sqrt(area / shape)), round(math.sqrt(area * shape))
        if 0 < rows <= height and 0 < columns <= width:
            return generator.randint(0, height - rows), generator.randint(0, width - columns), rows, columns


def build_cropping(folder: Path) -> Path | None:
    """The library of `bench/peers/cropped_jpeg.c`, or None where there is no compiler or libjpeg-turbo."""
    library = folder / "cropped_jpeg.so"
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    source = ROOT / "bench/peers/cropped_jpeg.c"
    done = subprocess.run([compiler, "-O2", "-shared", "-fPIC", source, "-o", library, "-ljpeg"], capture_output=True)
    return library if done.returncode == 0 else None


def run(command: list[str]) -> Figures:
    """Run a decoder as a process of its own."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True)
    figures: Figures = json.loads(done.stdout)
    return figures


if __name__ == "__main__":
    typer.run(main)
