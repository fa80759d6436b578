"""The model against real loaders: `python -m bench.scale --validate`.

Two, four and eight processes read from a server on this machine that is made slow in one way at a time. What the model
says is printed before anything is measured. The limits are far below what the machine can do, so that its processors
do not decide, even with other work on it.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import statistics
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import perf_counter

import numpy as np
from rich.console import Console
from rich.table import Table

import dataflow
from bench.measure import Spread, provenance
from bench.raw_rows import warm
from bench.scale.calibrate import write_rows
from bench.scale.costs import Costs
from bench.scale.dataset import SimulatedDataset
from bench.scale.job import Job, Plans, simulate
from bench.scale.latency import Latency
from bench.scale.real_rank import Measured, RealJob, run_rank
from bench.scale.store import StoreRules
from dataflow.dataset.manifest import Manifest
from dataflow.sampling.lanes import default_lanes
from tests.servers.haproxy import DelayProxy
from tests.servers.nginx import Nginx, environment_for

RANKS = (2, 4, 8)
# Not a multiple of the lanes: else all lanes would come to their next blocks in the same step.
ROW_BYTES, ROWS_PER_BLOCK, BLOCKS = 4096, 32, 2100
BATCH, STEP_SECONDS = 64, 0.2
WARM_UP, STEPS = 20, 40
WORKERS, WINDOW = 1, 2
MEMORY_LIMIT = 64 << 20
SEED = 0
# What a rank wants: two blocks a step, 1.3 MB/s.
FREE = 1e12
NEAR_THROUGHPUT, NEAR_STALL = 0.15, 5.0


@dataclass(frozen=True, slots=True)
class Regime:
    """In which way the store is slow.

    Attributes:
        name: What binds.
        concurrency: Most reads of a rank in flight.
        line: Bytes/s of one line to all ranks, for each of them; 0 does not bound it.
        connection: Bytes/s of a connection; None does not bound it.
        delay: Median of the seconds that are added to each request.
        spread: Standard deviation of their logarithm.
    """

    name: str
    concurrency: int
    line: int = 0
    connection: int | None = None
    delay: float = 0.0
    spread: float = 0.0


REGIMES = (
    Regime("bandwidth of the store", 4, line=1_000_000),
    Regime("bandwidth of connections", 4, connection=250_000),
    Regime("latency", 4, delay=0.45, spread=0.4),
    Regime("the step", 4),
)


@dataclass(frozen=True, slots=True)
class Result:
    """Figures of one job.

    Attributes:
        samples_per_second: Of all ranks.
        stall: Share of the time that ranks did not compute, in percent.
        own: Share of the time that they waited for their own loaders, in percent, the mean over ranks.
    """

    samples_per_second: float
    stall: float
    own: float

    def __str__(self) -> str:
        return f"{self.samples_per_second:,.0f} samples/s, stall {abs(self.stall):.1f} %, own {self.own:.1f} %"


def predict(
    regime: Regime, ranks: int, costs: Costs, dataset: SimulatedDataset, connection: float, seeds: int = 5
) -> Result:
    """What the model says, the mean over some seeds of what is drawn; the order is that of the real job.

    Args:
        regime: What binds.
        ranks: Ranks of the job.
        costs: What work takes.
        dataset: What the real job reads.
        connection: Bytes/s of a connection, as a bare client found it; 0 where it is not bound.
        seeds: How many.
    """
    lanes = default_lanes(dataset.num_blocks, int(dataset.lengths.max()))
    job = Job(
        ranks=ranks,
        ranks_per_host=ranks,
        batch_size=BATCH,
        step_seconds=STEP_SECONDS,
        processors=len(os.sched_getaffinity(0)),
        workers=WORKERS,
        window=WINDOW,
        concurrency=regime.concurrency,
        memory=dataset.memory(
            lanes=lanes,
            ranks=ranks,
            batch_size=BATCH,
            window=WINDOW,
            concurrency=regime.concurrency,
            limit=MEMORY_LIMIT,
            decoded=0,
        ),
        store=StoreRules(
            bandwidth=ranks * regime.line or FREE,
            connection_bandwidth=connection or FREE,
            request_rate=FREE,
            latency=Latency(regime.delay, regime.spread),
        ),
        costs=replace(costs, seconds_per_sample=costs.seconds_per_row),
        warm_up=WARM_UP,
        steps=STEPS,
        sampled=ranks,
    )
    plans = Plans(dataset, dataset.stream(lanes, SEED), BATCH, ranks)
    outcomes = [simulate(replace(job, seed=seed), plans) for seed in range(seeds)]
    return Result(
        float(np.mean([outcome.samples_per_second for outcome in outcomes])),
        100 - 100 * float(np.mean([outcome.utilisation for outcome in outcomes])),
        100 * float(np.mean([outcome.own_share for outcome in outcomes])),
    )


def connection_rate(regime: Regime, folder: Path, manifest: Manifest) -> float:
    """Bytes/s of one connection: a server that sends in pieces is not quite as slow as it is told to be."""
    if not regime.connection:
        return 0.0
    rates = []
    with Nginx(folder.parent.parent, 2, regime.connection) as server:
        for block in range(0, manifest.num_blocks, manifest.num_blocks // 10):
            first, length = int(manifest.starts[block]), int(manifest.lengths[block])
            path = manifest.shard_path(manifest.shard_of(block))
            url = f"{server.endpoint}/{folder.parent.name}/{folder.name}/{path}"
            request = urllib.request.Request(url, headers={"Range": f"bytes={first}-{first + length - 1}"})
            started = perf_counter()
            with urllib.request.urlopen(request) as reply:
                rates.append(len(reply.read()) / (perf_counter() - started))
    return statistics.median(rates)


def measure(regime: Regime, ranks: int, folder: Path) -> Result:
    """What real loaders come to."""
    warm(folder)
    with _served(regime, ranks, folder) as endpoint:
        job = RealJob(
            f"s3://{folder.parent.name}/{folder.name}",
            {**environment_for(endpoint), "XDG_CACHE_HOME": str(folder.parent / "cache")},
            ranks,
            BATCH,
            STEP_SECONDS,
            regime.concurrency,
            MEMORY_LIMIT,
            WARM_UP,
            STEPS,
            SEED,
        )
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["__main__", "bench.scale.real_rank", "torch"])
        barrier, answers = context.Barrier(ranks), context.Queue()
        processes = [context.Process(target=run_rank, args=(job, rank, barrier, answers)) for rank in range(ranks)]
        for process in processes:
            process.start()
        found = [answers.get(timeout=300) for _ in processes]
        for process in processes:
            process.join()
    errors = [answer for answer in found if not isinstance(answer, Measured)]
    if errors:
        raise RuntimeError("; ".join(errors))
    seconds = max(answer.seconds for answer in found)
    return Result(
        ranks * BATCH * STEPS / seconds,
        100 - 100 * sum(answer.computed for answer in found) / ranks / seconds,
        100 * sum(answer.waited for answer in found) / ranks / seconds,
    )


@contextmanager
def _served(regime: Regime, ranks: int, folder: Path) -> Iterator[str]:
    with ExitStack() as stack:
        endpoint = stack.enter_context(Nginx(folder.parent.parent, 2, regime.connection)).endpoint
        if regime.delay or regime.line:
            proxy = DelayProxy(endpoint, round(regime.delay * 1e3), ranks * regime.line, spread=regime.spread)
            endpoint = stack.enter_context(proxy).endpoint
        yield endpoint


def validate(costs: Costs, data: Path, rounds: int, json_file: Path | None) -> None:
    """Print what the model says, then what real loaders do; write both as JSON where that is asked for."""
    facts = provenance({"rounds": rounds, "batch": BATCH, "step_s": STEP_SECONDS, "steps": STEPS})
    folder = write_rows(data / f"scale-{ROW_BYTES}-{ROWS_PER_BLOCK}-{BLOCKS}", ROW_BYTES, ROWS_PER_BLOCK, BLOCKS)
    manifest = dataflow.open(str(folder)).manifest
    dataset = SimulatedDataset(manifest.rows.astype(np.int64), manifest.lengths.astype(np.int64))
    jobs = [(regime, ranks) for regime in REGIMES for ranks in RANKS]
    rates = {regime: connection_rate(regime, folder, manifest) for regime in REGIMES}
    predicted = {(regime, ranks): predict(regime, ranks, costs, dataset, rates[regime]) for regime, ranks in jobs}
    for (regime, ranks), result in predicted.items():
        print(f"predicted: {regime.name}, {ranks} ranks: {result}", flush=True)
    measured: dict[tuple[Regime, int], list[Result]] = {one: [] for one in jobs}
    for number in range(rounds):
        for one in jobs:
            result = measure(*one, folder)
            measured[one].append(result)
            load = os.getloadavg()[0]
            print(f"round {number}, load {load:.1f}: {one[0].name}, {one[1]} ranks: {result}", flush=True)
    Console(width=150).print(_table(predicted, measured))
    if json_file is not None:
        rows = [
            {
                "regime": asdict(regime),
                "ranks": ranks,
                "predicted": asdict(predicted[regime, ranks]),
                "measured": [asdict(one) for one in runs],
            }
            for (regime, ranks), runs in measured.items()
        ]
        json_file.write_text(
            json.dumps({"provenance": facts, "costs": asdict(costs), "jobs": rows}, indent=1, default=str)
        )


def _table(predicted: dict[tuple[Regime, int], Result], measured: dict[tuple[Regime, int], list[Result]]) -> Table:
    table = Table(title="Predicted, and measured: median (least .. greatest)", title_justify="left", padding=(0, 0))
    for name in (
        "what binds",
        "ranks",
        "samples/s",
        "measured",
        "ratio",
        "stall %",
        "measured",
        "AU %",
        "measured",
        "",
    ):
        table.add_column(name, justify="left" if name == "what binds" else "right")
    for (regime, ranks), runs in measured.items():
        said = predicted[regime, ranks]
        rate, stall, own = (
            Spread.of(getattr(run, name) for run in runs) for name in ("samples_per_second", "stall", "own")
        )
        ratio = said.samples_per_second / rate.median
        near = abs(ratio - 1) <= NEAR_THROUGHPUT and abs(said.stall - stall.median) <= NEAR_STALL
        table.add_row(
            regime.name,
            str(ranks),
            f"{said.samples_per_second:,.0f}",
            str(rate),
            f"{ratio:.3f}",
            f"{abs(said.stall):.1f}",
            str(stall),
            f"{said.own:.1f}",
            str(own),
            "met" if near else "MISSED",
            end_section=ranks == RANKS[-1],
        )
    return table
