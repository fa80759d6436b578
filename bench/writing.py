"""Writing and indexing the same photographs with every writer, in one run: `python -m bench.writing --photos FOLDER`.

FOLDER holds some hundred JPEG files, e.g. a checkout of github.com/EliSchwartz/imagenet-sample-images. They are copied
into class folders until there is enough, and read from the page cache. Peers run in the environment that
`make bench-peers` builds; one that is not installed is named and left out. Ours sync every shard to the disk, the
others leave that to the kernel: --target /dev/shm takes the disk out of it.
"""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Annotated

import typer

from bench.measure import DATA, ROOT, Figures, Row, Spread, interleave, provenance, ratios, show

CLASSES = 100
OURS = "dataflow shard, 2 workers"
WRITERS = {
    "plain concatenation": "concatenation",
    "webdataset": "webdataset_writer",
    "MDS": "mds_writer",
    "ArrayRecord": "array_record_writer",
    "litData": "litdata_writer",
    "Parquet": "huggingface_writer",
}
LEAST_MB = 1200.0
MOST_CPU = 1.0


def main(
    photos: Annotated[Path, typer.Option(help="Folder of JPEG files.")],
    gigabytes: Annotated[float, typer.Option(help="GB of photographs.")] = 2,
    rounds: Annotated[int, typer.Option(help="Interleaved repeats.")] = 5,
    peers: Annotated[Path, typer.Option(help="Python that has the other writers.")] = ROOT / ".venv-peers/bin/python",
    target: Annotated[Path, typer.Option(help="Where to write.")] = DATA,
    data: Annotated[Path, typer.Option(help="Where photographs are kept.")] = DATA,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures there.")] = None,
) -> None:
    facts = provenance({"gigabytes": gigabytes, "rounds": rounds, "target": target})
    source = copied(photos, data / f"photos-{gigabytes:g}", gigabytes * 1e9)
    nbytes = sum(path.stat().st_size for path in source.rglob("*.jpg"))
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target) as folder:
        contenders, left_out = writers(source, Path(folder), nbytes, peers)
        for name, reason in left_out.items():
            print(f"left out: {name}: {reason}")
        tar = Path(folder) / "tar"
        if "webdataset" in contenders:
            run([str(peers), "-m", f"bench.peers.{WRITERS['webdataset']}"], source, tar, nbytes, keep=True)
            index = [str(Path(sys.executable).with_name("dataflow")), "index", "--out"]
            contenders["dataflow index, tar"] = partial(run, index, tar, Path(folder) / "out", nbytes, swapped=True)
            one_pass = [str(peers), "-m", "bench.peers.webdataset_index"]
            contenders["webdataset, a pass over tar"] = partial(run, one_pass, tar, Path(folder) / "out", nbytes)
        results = interleave(contenders, rounds)
    rows = []
    for name, runs in results.items():
        rate, cost = (Spread.of(figures[key] for figures in runs) for key in ("mb", "cpu"))
        targeted = name == OURS
        rows.append(Row.at_least(name, rate, "MB/s", LEAST_MB) if targeted else Row(name, rate, "MB/s"))
        rows.append(Row.at_most(name, cost, "CPU s/GB", MOST_CPU) if targeted else Row(name, cost, "CPU s/GB"))
    for name in WRITERS:
        if name in results:
            ratio = ratios(results[OURS], results[name], "mb")
            rows.append(Row(f"{OURS} / {name}", ratio, "x"))
    show("Writing and indexing photographs", rows, facts, json_file)


def writers(
    source: Path, folder: Path, nbytes: int, peers: Path
) -> tuple[dict[str, Callable[[], Figures]], dict[str, str]]:
    """Ours and the others, each tried once; and what those said last that failed."""
    shard = [str(Path(sys.executable).with_name("dataflow")), "shard", "--workers"]
    commands = {
        OURS: [*shard, "2"],
        "dataflow shard, 1 worker": [*shard, "1"],
        "dataflow.ShardWriter": [sys.executable, "-m", "bench.peers.dataflow_writer"],
        **{name: [str(peers), "-m", f"bench.peers.{module}"] for name, module in WRITERS.items()},
    }
    contenders: dict[str, Callable[[], Figures]] = {}
    left_out: dict[str, str] = {}
    for name, arguments in commands.items():
        try:
            run(arguments, source, folder / "try", nbytes)
        except subprocess.CalledProcessError as error:
            left_out[name] = error.stderr.strip().splitlines()[-1]
        else:
            contenders[name] = partial(run, arguments, source, folder / "out", nbytes)
    return contenders, left_out


def copied(photos: Path, folder: Path, nbytes: float) -> Path:
    """The photographs in class folders, often enough; the page cache has them."""
    found = sorted(path for path in photos.iterdir() if path.suffix.lower() in (".jpg", ".jpeg"))
    total = number = 0
    while total < nbytes:
        source = found[number % len(found)]
        path = folder / f"class-{number % CLASSES:03d}" / f"{number:06d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            shutil.copyfile(source, path)
        path.read_bytes()
        total += path.stat().st_size
        number += 1
    return folder


def run(
    arguments: list[str], source: Path, target: Path, nbytes: int, *, keep: bool = False, swapped: bool = False
) -> Figures:
    """Run a writer as a process of its own; the cost of the whole process tree."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), perf_counter()
    places = [str(target), str(source)] if swapped else [str(source), str(target)]
    subprocess.run([*arguments, *places], cwd=ROOT, check=True, capture_output=True, text=True)
    seconds, after = perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if not keep:
        shutil.rmtree(target, ignore_errors=True)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"mb": nbytes / seconds / 1e6, "cpu": cpu / nbytes * 1e9}


if __name__ == "__main__":
    typer.run(main)
