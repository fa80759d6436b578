"""What watching a loader costs: `python -m bench.observing`.

Small samples in small batches, so that each step is as cheap as steps get and the price of watching shows. Counted are
the batches for each second of processor time. "unwatched" leaves out even what is always on: the list of steps.
"""

from __future__ import annotations

import tempfile
import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Annotated, Any

import typer
from prometheus_client import CollectorRegistry, start_http_server

import dataflow
from bench.measure import Figures, Row, Spread, interleave, provenance, ratios, show
from bench.tokens import write_dataset
from dataflow.integrations.prometheus import export
from dataflow.pipeline.clocks import Clocks, Step

UNWATCHED, PLAIN = "unwatched", "steps (always on)"


def main(
    samples: Annotated[int, typer.Option(help="Samples of the dataset, of 4 KiB.")] = 1 << 17,
    batch: Annotated[int, typer.Option(help="Samples of a batch.")] = 32,
    rounds: Annotated[int, typer.Option(help="Interleaved repeats.")] = 7,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures there.")] = None,
) -> None:
    facts = provenance({"samples": samples, "batch": batch, "rounds": rounds})
    url = write_dataset(samples)
    contenders: dict[str, Callable[[], Figures]] = {
        UNWATCHED: partial(without_steps, partial(epoch, url, batch)),
        PLAIN: partial(epoch, url, batch),
        "on_step": partial(epoch, url, batch, on_step=lambda step: None),
        "metrics, scraped each second": partial(epoch, url, batch, scraped=True),
        "trace": partial(epoch, url, batch, traced=True),
    }
    contenders[PLAIN]()
    results = interleave(contenders, rounds)
    rows = [Row(name, Spread.of(run["per_cpu"] for run in runs), "batches/CPU s") for name, runs in results.items()]
    for name in list(contenders)[1:]:
        rows.append(Row(f"{name} / {UNWATCHED}", ratios(results[name], results[UNWATCHED], "per_cpu"), "x"))
    show("Watching a loader", rows, facts, json_file)


def epoch(
    url: str,
    batch: int,
    on_step: Callable[[dict[str, Any]], None] | None = None,
    scraped: bool = False,
    traced: bool = False,
) -> Figures:
    """An epoch, all threads of the process counted."""
    loader = dataflow.DataLoader(dataflow.open(url), batch, True, num_workers=1, drop_last=True, on_step=on_step)
    with ExitStack() as watching:
        if scraped:
            watching.callback(scrape_each_second(loader))
        if traced:
            folder = watching.enter_context(tempfile.TemporaryDirectory())
            watching.enter_context(loader.trace(f"{folder}/trace.json"))
        start, steps = time.process_time(), 0
        for _ in loader:
            steps += 1
        return {"per_cpu": steps / (time.process_time() - start)}


def scrape_each_second(loader: dataflow.DataLoader) -> Callable[[], None]:
    """Begin to scrape a loader; what ends it."""
    registry = CollectorRegistry()
    export(loader, registry=registry)
    server, serving = start_http_server(0, addr="127.0.0.1", registry=registry)
    ended = Event()

    def run() -> None:
        while not ended.wait(1):
            urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics").read()

    scraping = Thread(target=run)
    scraping.start()

    def stop() -> None:
        ended.set()
        scraping.join()
        server.shutdown()
        server.server_close()
        serving.join()

    return stop


def without_steps(run: Callable[[], Figures]) -> Figures:
    """With a clock that only adds up, as it was before there were steps."""
    counted = Clocks.delivered

    def delivered(self: Clocks, returned: float, asked: float, got: float, done: dict[str, float]) -> Step:
        self.steps += 1
        self.between += asked - returned
        self.waited += got - asked
        for stage in self.stages:
            until = min(max(done.get(stage, got), asked), got)
            self.waited_for[stage] += until - asked
            asked = until
        return NOTHING

    Clocks.delivered = delivered  # type: ignore[method-assign]
    try:
        return run()
    finally:
        Clocks.delivered = counted  # type: ignore[method-assign]


NOTHING = Step(0, 0.0, 0.0, {})

if __name__ == "__main__":
    typer.run(main)
