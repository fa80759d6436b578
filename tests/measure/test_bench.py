"""What a measurement consists of: levels that add up, utilisation as MLPerf Storage defines it, and nothing changed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow
from dataflow.errors import OptionError
from dataflow.measure import ACCELERATORS, Cause, bench
from dataflow.measure.accelerator import utilisation
from dataflow.measure.bare_client import BareClient
from dataflow.measure.level import take
from dataflow.measure.order import ranges_in_order
from dataflow.measure.page_cache import cached_share, drop
from dataflow.measure.reads import Read, in_flight, latencies
from dataflow.pipeline.clocks import Clocks
from dataflow.sampling.layout import BlockLayout
from dataflow.sampling.stream import Stream, StreamRules
from dataflow.storage import open_store
from tests.dataset.written import write

SECONDS = 0.1
ROWS = 800


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bench") / "rows"
    bits = np.random.default_rng(0)
    write(folder, [{"data": bits.bytes(2000), "label": row} for row in range(ROWS)], rows_per_block=8)
    return folder


def keep_odd(row: dict[str, Any]) -> bool:
    return bool(row["label"] % 2)


def test_levels_add_up(rows: Path) -> None:
    found = bench(dataflow.open(str(rows)).map(lambda row: row), seconds=SECONDS, step=0.01, num_workers=2)
    facts = found.to_json()
    assert [part["level"] for part in facts["waterfall"]] == [
        "storage",
        "fetch",
        "read",
        "decode",
        "batch",
        "accelerator",
    ]
    first, *others = facts["waterfall"]
    assert first["lost_bytes_per_second"] == 0
    rest = first["bytes_per_second"] - sum(part["lost_bytes_per_second"] for part in others)
    assert rest == pytest.approx(others[-1]["bytes_per_second"])
    assert rest == pytest.approx(facts["levels"][-1]["bytes_per_second"])
    for part, level in zip(facts["waterfall"], facts["levels"], strict=True):
        assert part["samples_per_second"] == pytest.approx(level["rows_per_second"])
        assert level["seconds"] >= 0.8 * SECONDS
        assert level["bytes_per_second"] == pytest.approx(level["rows_per_second"] * facts["row_bytes"])
    assert facts["provenance"]["dataset"]["fingerprint"] == dataflow.open(str(rows)).fingerprint


def test_the_loader_and_its_ledger_stay_as_they_are(rows: Path) -> None:
    loader = dataflow.DataLoader(dataflow.open(str(rows)), batch_size=8, shuffle=True, on_error="skip")
    batches = iter(loader)
    next(batches)
    before = loader.state_dict()
    found = bench(loader, seconds=SECONDS)
    assert loader.state_dict() == before
    assert loader.ledger() == []
    assert next(batches)["slot"].tolist() == list(range(8, 16))
    assert found.provenance["options"]["batch_size"] == 8


def test_filters_count_the_rows_that_they_drop(rows: Path) -> None:
    found = bench(dataflow.open(str(rows)).filter(keep_odd), seconds=SECONDS, batch_size=8, steps_per_epoch=5)
    assert [level.name for level in found.levels] == ["storage", "fetch", "read", "batch"]
    assert found.kept == pytest.approx(0.5, rel=0.1)
    last = found.to_json()["waterfall"][-1]
    assert last["samples_per_second"] == pytest.approx(found.levels[-1].rows * found.kept)


def test_copies_to_a_device_are_a_level(rows: Path) -> None:
    loader = dataflow.DataLoader(dataflow.open(str(rows)).select("label"), batch_size=8, device="cpu")
    found = bench(loader, seconds=SECONDS)
    assert [level.name for level in found.levels] == ["storage", "fetch", "read", "batch", "transfer"]
    assert set(found.levels[-1].stages) == {"plan", "fetch", "read", "assemble", "transfer"}
    assert set(found.levels[-2].stages) == {"plan", "fetch", "read", "assemble"}


@pytest.mark.gpu
def test_copies_to_a_gpu_are_a_level(rows: Path) -> None:
    found = bench(dataflow.open(str(rows)).select("label"), seconds=SECONDS, batch_size=8, device="cuda", step=0.01)
    assert [level.name for level in found.levels][-3:] == ["batch", "transfer", "accelerator"]
    assert found.provenance["machine"]["gpu"]
    assert found.utilisation is not None
    assert 0 < found.utilisation <= 1


def count_sevens(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"count": sum(number % 7 for number in range(30_000))}


@pytest.mark.soak  # each level starts its processes anew
def test_worker_processes_count_as_cores(rows: Path) -> None:
    dataset = dataflow.open(str(rows)).map(count_sevens, processes=2)
    found = bench(dataset, seconds=SECONDS, batch_size=8, num_workers=2)
    assert (found.verdict.cause, found.verdict.stage) == (Cause.PROCESSOR, "decode")


def test_the_page_cache_is_emptied(rows: Path) -> None:
    shard = dataflow.open(str(rows)).manifest.shard_path(0)
    open_store(str(rows)).read_range(shard, 0, 100)
    assert cached_share(str(rows), [(shard, 0, 100)]) == 1
    drop(str(rows), [shard])
    assert cached_share(str(rows), [(shard, 0, 100)]) == 0
    found = bench(dataflow.open(str(rows)), seconds=SECONDS, batch_size=8, cold=True)
    assert [level.cached for level in found.levels] == [0, 0, 0, 0]
    assert found.levels[-1].reread == 1  # by levels before it, though from the disk


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seconds": 0}, "seconds is 0"),
        ({"step": 0.0}, "step is 0.0 s"),
        ({"step": 0.1, "accelerator": "unet3d-h100"}, "has a step of its own"),
        ({"accelerator": "abacus"}, "choose from unet3d-a100"),
    ],
)
def test_options_that_cannot_be(rows: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        bench(dataflow.open(str(rows)), **options)


def test_arguments_of_a_loader_belong_to_it(rows: Path) -> None:
    loader = dataflow.DataLoader(dataflow.open(str(rows)))
    with pytest.raises(OptionError, match="batch_size= belongs to the loader"):
        bench(loader, batch_size=4)
    with pytest.raises(OptionError, match="not list"):
        bench([1, 2])  # type: ignore[arg-type]


@given(st.floats(1e-4, 10), st.lists(st.floats(0, 10), min_size=1, max_size=20))
def test_utilisation_is_compute_time_over_running_time(step: float, waits: list[float]) -> None:
    """From the end of the first step on; MLPerf Storage leaves the first one out."""
    done = np.cumsum([123.0, *(step + wait for wait in waits)]).tolist()
    expected = step * len(waits) / (step * len(waits) + sum(waits))
    assert utilisation(step, done) == pytest.approx(expected)


class Ticket(NamedTuple):
    slots: range = range(4)
    cursors: dict[int, Any] = {}  # noqa: RUF012
    done: dict[str, float] = {}  # noqa: RUF012


class Delivered(NamedTuple):
    ticket: Ticket = Ticket()


def test_a_step_as_long_as_the_wait_halves_the_utilisation() -> None:
    def following(timeout: float) -> Any:
        time.sleep(0.02)
        return Delivered()

    clocks = Clocks()
    steps = take(following, clocks, 0.3, step=0.02)
    found = utilisation(0.02, [at for at, _ in steps.events])
    assert 0.1 < found <= 0.5
    assert steps.rate == pytest.approx(4 * found / 0.02)
    assert clocks.steps == len(steps.events)


def test_published_accelerators() -> None:
    """As in github.com/mlcommons/storage: what a H100 asks of the storage, in samples a second."""
    rates = {name: one.batch_size / one.step for name, one in ACCELERATORS.items() if one.batch_size}
    assert rates["resnet50-h100"] == pytest.approx(1785.7, abs=0.1)
    assert rates["unet3d-h100"] == pytest.approx(21.67, abs=0.01)
    assert rates["cosmoflow-h100"] == pytest.approx(285.7, abs=0.1)
    assert all(rates[name] < rates[name.replace("a100", "h100")] for name in rates if name.endswith("a100"))


def test_blocks_come_in_the_order_of_the_loader(rows: Path) -> None:
    dataset = dataflow.open(str(rows))
    manifest = dataset.manifest
    loader = dataflow.DataLoader(dataset, batch_size=1, shuffle=True, seed=3)
    rules = StreamRules(BlockLayout.of(manifest.rows), 3, "", loader.lanes, True)
    ranges = ranges_in_order(manifest, rules)
    blocks = {
        (manifest.shard_path(manifest.shard_of(b)), int(manifest.starts[b])): b for b in range(len(manifest.rows))
    }
    ordered = [blocks[path, start] for path, start, _ in ranges]
    wanted = [int(batch["sample_id"][0]) // 8 for batch in loader]
    assert list(dict.fromkeys(ordered)) == list(dict.fromkeys(wanted))
    assert len(ranges) <= manifest.num_blocks + loader.lanes - 1
    assert set(Stream(rules, 0).samples(0, ROWS)[0].tolist()) == set(ordered)


def test_the_bare_client_counts_all_bytes(rows: Path) -> None:
    dataset = dataflow.open(str(rows))
    rules = StreamRules(BlockLayout.of(dataset.manifest.rows), 0, "", 1, False)
    ranges = ranges_in_order(dataset.manifest, rules)
    client = BareClient(dataset.store, ranges, once=True, prepare=lambda: None)
    probe = client.probe(3, 60.0)
    assert sorted((read.path, read.first, read.nbytes) for read in probe.reads) == sorted(ranges)
    with pytest.raises(dataflow.errors.StorageError, match="nowhere"):
        BareClient(dataset.store, [("nowhere", 0, 1)], once=False, prepare=lambda: None).probe(2, 0.05)


def test_latencies() -> None:
    reads = [Read("a", 0, 0.0, took, 1) for took in np.linspace(0.001, 0.1, 100).tolist()]
    found = latencies(reads)
    assert found["count"] == 100 == sum(count for _, _, count in found["histogram"])
    assert found["p50"] == pytest.approx(0.0505)
    assert found["p90"] == pytest.approx(0.0901)
    assert found["p99"] == pytest.approx(0.09901)
    assert found["max"] == 0.1
    assert latencies([]) == {"count": 0}
    assert in_flight(reads, 0.0, 0.1) == pytest.approx(sum(read.stop for read in reads) / 0.1)
