"""Ours and the loaders of others at the same work: `python -m bench.loaders --photos FOLDER`, or `make bench`.

FOLDER holds some hundred JPEG files. Writes `bench/RESULTS.md`, and plots and all figures to `bench/results`. What is
done, and how it is measured, is told at the head of that page and in `bench.loaders.tasks`.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from bench.loaders.contenders import CONTENDERS
from bench.loaders.data import Data, documents, photographs, probes, transcoded
from bench.loaders.results import Outcome, figures_file, rewrite_page, write_page
from bench.loaders.rounds import Bench, measured, name_of
from bench.loaders.runs import run
from bench.loaders.tasks import QUICK, TASKS, Task
from bench.measure import DATA, ROOT, provenance
from bench.writing import writers

ORDERS = {"dataflow": "dataflow_order", "MosaicML Streaming": "mosaicml_order", "Grain": "grain_order"}
VERSIONS = """
import importlib.metadata, json, sys
found = {one.metadata["Name"]: one.version for one in importlib.metadata.distributions()}
print(json.dumps({name: found[name] for name in sys.argv[1:] if name in found}))
"""


def main(
    photos: Annotated[Path, typer.Option(help="Folder of JPEG files.")] = Path("photos"),
    quick: Annotated[bool, typer.Option("--quick", help="Some of it, one round of less data.")] = False,
    rounds: Annotated[int | None, typer.Option(help="Interleaved repeats. Default: 3, or 1.")] = None,
    gigabytes: Annotated[float | None, typer.Option(help="GB of photographs. Default: 0.88, or 0.22.")] = None,
    seconds: Annotated[float | None, typer.Option(help="That a rate is measured for. Default: 2, or 1.5.")] = None,
    task: Annotated[list[str] | None, typer.Option(help="Only these: " + ", ".join(one.name for one in TASKS))] = None,
    peers: Annotated[Path, typer.Option(help="Python that has the others.")] = ROOT / ".venv-peers/bin/python",
    data: Annotated[Path, typer.Option(help="Where datasets are kept.")] = DATA,
    out: Annotated[Path, typer.Option(help="The page to write.")] = ROOT / "bench/RESULTS.md",
    rewrite: Annotated[bool, typer.Option("--rewrite", help="Only write the page again from its figures.")] = False,
) -> None:
    if rewrite:
        rewrite_page(out, "dataflow")
        return
    start = time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # contenders and servers are ended on the way
    rounds = rounds or (1 if quick else 3)
    gigabytes, seconds = gigabytes or (0.22 if quick else 0.88), seconds or (1.5 if quick else 2)
    out.with_name("results").mkdir(parents=True, exist_ok=True)
    facts = provenance({"gigabytes": gigabytes, "rounds": rounds, "seconds": seconds})
    facts["command"] = f"python -m bench.loaders {' '.join(sys.argv[1:])}".replace(str(photos), "FOLDER")
    folder = data / "loaders"
    folder.mkdir(parents=True, exist_ok=True)

    def say(what: str) -> None:
        print(f"{time.monotonic() - start:6.0f} s  {what}", file=sys.stderr, flush=True)

    names = task or (QUICK if quick else [one.name for one in TASKS])
    wanted = [one for one in TASKS if one.name in names]
    say("preparing photographs and tokens")
    original = photographs(folder, photos, gigabytes, peers)
    found: dict[str, Data] = {"photos": original}
    if any(one.data == "small" for one in wanted):
        found["small"] = transcoded(original)
    if any(one.data == "tokens" for one in wanted):
        found["tokens"] = documents(folder, 16_384 if quick else 65_536, peers)
    packages = [contender.package for contender in CONTENDERS]
    told = subprocess.run([str(peers), "-c", VERSIONS, *packages], capture_output=True, text=True, check=True)
    versions = json.loads(told.stdout)
    tries = {"photos": probes(folder, peers), "tokens": documents(folder, 2048, peers)}
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(peers, found, tries, Path(scratch), rounds, seconds, versions, say)
        outcomes = []
        for one in wanted:
            outcomes.append(_outcome(bench, one, original))
            shown = {name_of(each, one): versions.get(each.package, "") for each in CONTENDERS}
            write_page(out, outcomes, "dataflow", shown, facts | {"minutes": f"{(time.monotonic() - start) / 60:.0f}"})
    subprocess.run([str(peers), "-m", "bench.peers.plots", str(figures_file(out))], cwd=ROOT, check=True)
    say(f"wrote {out}")


def _outcome(bench: Bench, task: Task, original: Data) -> Outcome:
    if task.name == "order":
        outcome = Outcome(task)
        commands = {
            name: [sys.executable if name == "dataflow" else str(bench.peers), "-m", f"bench.peers.{module}"]
            for name, module in ORDERS.items()
        }
        runs = {name: partial(run, command) for name, command in commands.items()}
        outcome.results = measured(task, runs, bench.rounds, outcome.left_out, bench.say)
        return outcome
    if task.name == "writing":
        with tempfile.TemporaryDirectory(dir=original.source.parent) as folder:
            bench.say(f"{task.title}: trying all")
            contenders, left_out = writers(original.source, Path(folder), original.nbytes, bench.peers)
            results = measured(task, contenders, bench.rounds, left_out, bench.say)
        return Outcome(task, results, left_out)
    return bench.outcome(task)


if __name__ == "__main__":
    typer.run(main)
