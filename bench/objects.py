"""A cold epoch of raw samples from an object store, against the bare client: `python -m bench.objects`.

nginx serves the dataset on loopback; every epoch runs in a fresh process, so that no connection is open. The bare
client reads the same blocks in the loader's order, or ranges of 4 MiB, and drops the bodies; it is given the
concurrency at which it was fastest in the median of some rounds before.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from bench.measure import DATA, Figures, Row, Spread, interleave, provenance, ratios, run_python, show
from bench.raw_rows import warm, write_rows
from tests.servers.haproxy import DelayProxy
from tests.servers.nginx import Nginx, environment_for

CONCURRENCIES = (4, 8, 16, 32, 64, 128)
KINDS = {"blocks": "the same blocks", "wide": "4 MiB ranges"}
FIGURES = {
    "samples": "samples/s",
    "mb": "MB/s",
    "cpu": "CPU s/GB",
    "system": "system s/GB",
    "faults": "1000 faults/GB",
    "switches": "1000 switches/GB",
    "peak_mb": "MB peak",
}
TARGET = 0.9


def main(
    gigabytes: Annotated[float, typer.Option(help="GiB of the dataset; it sets the size of its blocks.")] = 2,
    milliseconds: Annotated[int, typer.Option(help="Latency that is added to every request.")] = 0,
    rounds: Annotated[int, typer.Option(help="Interleaved repeats.")] = 7,
    scouts: Annotated[int, typer.Option(help="Repeats that find the bare client's best concurrency.")] = 3,
    batch_size: Annotated[int, typer.Option(help="Rows of a batch.")] = 64,
    data: Annotated[Path, typer.Option(help="Where datasets are kept.")] = DATA,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures there.")] = None,
) -> None:
    facts = provenance({"gigabytes": gigabytes, "milliseconds": milliseconds, "rounds": rounds, "scouts": scouts})
    name = f"rows-{gigabytes:g}"
    folder = write_rows(data / name, int(gigabytes * (1 << 30)))
    with ExitStack() as stack:
        endpoint = stack.enter_context(Nginx(data.parent, workers=2)).endpoint
        if milliseconds:
            endpoint = stack.enter_context(DelayProxy(endpoint, milliseconds)).endpoint
        url = f"s3://{data.name}/{name}"
        environment = environment_for(endpoint) | {"XDG_CACHE_HOME": str(data / "cache")}

        def bare(kind: str, threads: int) -> Figures:
            warm(folder)
            arguments = ("-m", "bench.bare_client", url, str(folder), kind, str(threads))
            return run_python(*arguments, environment=environment)

        def loader() -> Figures:
            warm(folder)
            return run_python("-m", "bench.loader_client", url, str(batch_size), environment=environment)

        tried = {(kind, threads): partial(bare, kind, threads) for kind in KINDS for threads in CONCURRENCIES}
        found = interleave(tried, scouts)
        rates = {key: Spread.of(run["samples"] for run in runs).median for key, runs in found.items()}
        best = {kind: max(CONCURRENCIES, key=lambda threads: rates[kind, threads]) for kind in KINDS}
        results = interleave({"loader": loader, **{kind: tried[kind, best[kind]] for kind in KINDS}}, rounds)
    rows = []
    for kind in KINDS:
        tries = ", ".join(f"{rates[kind, threads]:,.0f} x {threads}" for threads in CONCURRENCIES)
        print(f"bare client, {KINDS[kind]}: samples/s x threads: {tries}")
    for name, runs in results.items():
        label = "loader" if name == "loader" else f"bare client, {KINDS[name]}, {best[name]} threads"
        rows += [Row(label, Spread.of(run[figure] for run in runs), unit) for figure, unit in FIGURES.items()]
    for kind in KINDS:
        ratio = ratios(results["loader"], results[kind], "samples")
        rows.append(Row.at_least(f"loader / bare client, {KINDS[kind]}", ratio, "x", TARGET))
    show("A cold epoch from an object store", rows, facts, json_file)


if __name__ == "__main__":
    typer.run(main)
