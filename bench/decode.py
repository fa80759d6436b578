"""Decoding photographs for training, beside others: `python -m bench.decode --photos FOLDER`.

FOLDER holds some hundred JPEG files, e.g. a checkout of github.com/EliSchwartz/imagenet-sample-images. From each a
random window (8 to 100 % of its area, as RandomResizedCrop takes) is resized to 224 x 224 with antialiasing, and
mirrored half the time. The others run in the environment that `make bench-peers` builds: simplejpeg decodes the whole
file; libjpeg's own cropping decodes as little as it can; both leave resizing to torch. All decode the same windows of
the same files in memory; the loader reads them from local shards. Once more with what `dataflow shard --transcode`
makes of the photographs. The ratios for each second of processor time hold on a machine that has other work too.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from bench.measure import ROOT, Figures, Row, Spread, interleave, provenance, ratios, show
from bench.photo_requests import write_photographs
from dataflow.sharding import Step, Transcode

OURS, OURS_ALONE, LOADER = "dataflow, 2 threads", "dataflow, 1 thread", "dataflow.DataLoader, 2 threads"
FULL, CROPPED = "simplejpeg + torch, 2 threads", "libjpeg cropping + torch, 2 threads"
TRANSCODED = "transcoded: "
SMALL = Transcode(quality=90, subsampling="4:2:0", max_side=256)


def main(
    photos: Annotated[Path, typer.Option(help="Folder of JPEG files.")],
    rounds: Annotated[int, typer.Option(help="Interleaved repeats.")] = 7,
    epochs: Annotated[int, typer.Option(help="Times that each photograph is decoded in a run.")] = 3,
    peers: Annotated[Path, typer.Option(help="Python that has simplejpeg and torch.")] = ROOT
    / ".venv-peers/bin/python",
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures there.")] = None,
) -> None:
    facts = provenance({"photos": len(list(photos.iterdir())), "rounds": rounds, "epochs": epochs})
    with tempfile.TemporaryDirectory() as folder:
        library = build_cropping(Path(folder))
        commands: dict[str, list[str]] = {}
        sources: dict[str, tuple[Step, ...]] = {"": (), TRANSCODED: (SMALL,)}
        for prefix, steps in sources.items():
            url, requests = write_photographs(photos, Path(folder) / f"photographs-{len(steps)}", epochs, steps)
            theirs = [str(peers), "-m", "bench.peers.torch_decoder", str(requests)]
            ours = [sys.executable, "-m", "bench.peers.dataflow_decoder", str(requests)]
            commands[prefix + OURS] = [*ours, "2"]
            commands[prefix + OURS_ALONE] = [*ours, "1"]
            commands[prefix + LOADER] = [sys.executable, "-m", "bench.photo_loader", url, str(epochs), "2"]
            commands[prefix + FULL] = [*theirs, "simplejpeg", "2"]
            if library is not None:
                commands[prefix + CROPPED] = [*theirs, str(library), "2"]
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
    for prefix in ("", TRANSCODED):
        rows += compared(results, prefix)
    if OURS in results and TRANSCODED + OURS in results:
        faster = ratios(results[TRANSCODED + OURS], results[OURS], "rate")
        rows.append(Row(f"{TRANSCODED}{OURS} / {OURS}", faster, "x"))
    show("Decoding photographs", rows, facts, json_file)


def compared(results: dict[str, list[Figures]], prefix: str) -> list[Row]:
    """Ratios to the others, to one thread, and of the loader to bare decoding. Targets are for the photographs."""
    rows = []
    for ours, theirs, times, target in (
        (OURS, FULL, 1, 1.5),
        (OURS, CROPPED, 1, 1.2),
        (OURS, OURS_ALONE, 2, 0.95),
        (LOADER, OURS, 1, 0.92),
    ):
        if prefix + ours in results and prefix + theirs in results:
            pair = results[prefix + ours], results[prefix + theirs]
            rate = Spread.of(one["rate"] / other["rate"] / times for one, other in zip(*pair, strict=True))
            name = f"{prefix}{ours} / {f'{times} x ' if times > 1 else ''}{theirs}"
            rows.append(Row(name, rate, "x") if prefix else Row.at_least(name, rate, "x", target))
            rows.append(Row("the same, for each CPU s", ratios(*pair, "per_cpu"), "x"))
    return rows


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
