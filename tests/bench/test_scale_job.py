"""The simulated job against closed forms, and against the real loader."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import dataflow
from bench.scale.calibrate import fit
from bench.scale.costs import Costs
from bench.scale.dataset import SimulatedDataset
from bench.scale.events import Events
from bench.scale.fair_share import FairShare
from bench.scale.inputs import Assumed, Workload
from bench.scale.job import Job, JobFailedError, Plans, sampled_ranks, simulate
from bench.scale.latency import Latency
from bench.scale.planned import Action, PlannedRank
from bench.scale.rank import RankRules, SimulatedRank
from bench.scale.scenario import Effort, Scenario
from bench.scale.sensitivity import sensitivity
from bench.scale.store import SimulatedStore, StoreRules
from dataflow.pipeline.plan import BatchRules
from dataflow.pipeline.working_set import WorkingSet

NO_COSTS = Costs(0.0, 0.0, 0.0, 0.0, 100.0)
FREE = StoreRules(bandwidth=1e18, connection_bandwidth=1e18, request_rate=1e12, latency=Latency(0.0))
ROWS, ROW_BYTES = 16, 1000
BLOCK_BYTES = ROWS * ROW_BYTES


class Exponential(Latency):
    """Seconds without memory, whose maxima have a closed form."""

    def sample(self, count: int, generator: np.random.Generator) -> NDArray[np.float64]:
        return generator.exponential(self.median, count)


def dataset(blocks: int = 4096) -> SimulatedDataset:
    return SimulatedDataset.uniform(blocks * BLOCK_BYTES, ROW_BYTES, BLOCK_BYTES)


def plans(ranks: int, lanes: int = 64) -> Plans:
    data = dataset()
    return Plans(data, data.stream(lanes, 0), ROWS, ranks)


def job(ranks: int, **changes: object) -> Job:
    memory = WorkingSet(200 * BLOCK_BYTES, 100 * BLOCK_BYTES, 0)
    usual = Job(ranks, 8, ROWS, 0.0, 1e9, 4, 8, 4, memory, FREE, NO_COSTS, 40, 80, 64)
    return replace(usual, **changes)  # type: ignore[arg-type]


def test_bound_by_bandwidth() -> None:
    outcome = simulate(job(4, store=replace(FREE, bandwidth=2e6)), plans(4))
    assert outcome.bytes_per_second == pytest.approx(2e6, rel=0.01)
    assert outcome.samples_per_second == pytest.approx(2e6 / ROW_BYTES, rel=0.05)
    assert outcome.utilisation == 0


def test_bound_by_connections() -> None:
    outcome = simulate(job(4, store=replace(FREE, connection_bandwidth=1e5)), plans(4))
    assert outcome.samples_per_second == pytest.approx(4 * 4 * 1e5 / ROW_BYTES, rel=0.05)


def test_bound_by_latency() -> None:
    # Four reads in flight on each rank.
    outcome = simulate(job(4, store=replace(FREE, latency=Latency(0.1))), plans(4))
    assert outcome.samples_per_second == pytest.approx(4 * 4 * ROWS / 0.1, rel=0.05)


def test_bound_by_requests() -> None:
    outcome = simulate(job(4, store=replace(FREE, request_rate=50.0)), plans(4))
    assert outcome.requests_per_second == pytest.approx(50.0, rel=0.01)
    assert outcome.samples_per_second == pytest.approx(50 * ROWS, rel=0.05)


def test_bound_by_the_step() -> None:
    outcome = simulate(job(4, step_seconds=0.2, store=replace(FREE, latency=Latency(0.03, 0.3))), plans(4))
    assert outcome.seconds == pytest.approx(80 * 0.2)
    assert outcome.utilisation == pytest.approx(1.0)
    assert outcome.own_share == pytest.approx(0.0)


@pytest.mark.parametrize(("workers", "processors"), [(1, 100.0), (8, 3.0)])
def test_bound_by_processors(workers: int, processors: float) -> None:
    costs = replace(NO_COSTS, seconds_per_sample=0.002)
    outcome = simulate(job(1, workers=workers, window=2 * workers, processors=processors, costs=costs), plans(1))
    assert outcome.samples_per_second == pytest.approx(min(workers, processors) / 0.002, rel=0.05)


def test_one_rank_waits_for_none_but_its_own_loader() -> None:
    outcome = simulate(job(1, step_seconds=0.02, store=replace(FREE, latency=Latency(0.2, 0.3))), plans(1))
    assert 0.2 < outcome.utilisation < 0.9
    assert outcome.utilisation + outcome.own_share == pytest.approx(1.0)


@pytest.mark.parametrize("sampled", [64, 16])
def test_first_step_waits_for_the_maximum_of_exponentials(sampled: int) -> None:
    planned = plans(64)
    only = WorkingSet(BLOCK_BYTES, 0, 0)
    # A batch of one row is in one block: 64 reads at once. The 64th harmonic number is 4.744.
    planned = Plans(planned.dataset, planned.stream, 1, 64)
    begins = [
        simulate(
            job(
                64,
                batch_size=1,
                memory=only,
                store=replace(FREE, latency=Exponential(1e-3)),
                warm_up=0,
                steps=1,
                sampled=sampled,
                seed=seed,
            ),
            planned,
        ).first_batch
        for seed in range(40)
    ]
    # The standard deviation of one is 1.27, of the mean of 40 a sixth of that.
    assert np.mean(begins) * 1e3 == pytest.approx(4.744, abs=0.5)


TAIL = Latency(0.05, 0.5, 0.01, 10.0)


@pytest.mark.parametrize(
    ("store", "step_seconds", "near"),
    [
        (replace(FREE, bandwidth=8e6, latency=TAIL, failure_rate=0.005), 0.1, 0.04),
        (replace(FREE, latency=TAIL, failure_rate=0.005), 0.05, 0.1),  # what is rare differs more from run to run
    ],
)
def test_sampled_ranks_give_what_all_give(store: StoreRules, step_seconds: float, near: float) -> None:
    planned = plans(64)
    memory = WorkingSet(8 * BLOCK_BYTES, 6 * BLOCK_BYTES, 0)

    def utilisation(sampled: int) -> float:
        jobs = [
            job(64, step_seconds=step_seconds, store=store, memory=memory, warm_up=20, sampled=sampled, seed=seed)
            for seed in range(3)
        ]
        return float(np.mean([simulate(one, planned).utilisation for one in jobs]))

    exact = utilisation(64)
    assert 0.5 < exact < 0.9
    assert utilisation(16) == pytest.approx(exact, abs=near)


def test_the_seed_decides_all() -> None:
    store = replace(FREE, bandwidth=2e6, latency=Latency(0.05, 0.5, 0.01, 10.0), failure_rate=0.01)
    first, again, other = (simulate(job(8, store=store, seed=seed), plans(8)) for seed in (5, 5, 6))
    assert first == again
    assert first != other


def test_a_store_that_fails_ends_the_job() -> None:
    with pytest.raises(JobFailedError, match="in step 0"):
        simulate(job(2, store=replace(FREE, failure_rate=1.0)), plans(2))


def test_sampled_ranks_are_whole_hosts() -> None:
    assert sampled_ranks(20, 8, 64) == list(range(20))
    assert sampled_ranks(64, 8, 16) == [*range(8), *range(32, 40)]
    assert sampled_ranks(4096, 8, 4) == list(range(8))


@pytest.mark.parametrize(("ranks", "lanes", "batch"), [(4, 16, 24), (2, 64, 7)])
def test_an_epoch_reads_what_the_order_says(ranks: int, lanes: int, batch: int) -> None:
    generator = np.random.default_rng(0)
    rows = np.where(generator.random(300) < 0.1, generator.integers(1, 40, 300), ROWS)
    rows[0] += -rows.sum() % ranks  # else the last batch is filled up with rows of other ranks
    data = SimulatedDataset(rows.astype(np.int64), (rows * ROW_BYTES).astype(np.int64))
    stream = data.stream(lanes, 0)
    nbytes, taken = 0, 0
    for rank in range(ranks):
        planned = PlannedRank(stream, BatchRules(batch, rank, ranks, drop_last=False), data.num_rows)
        held: set[int] = set()
        number = 0
        while (ticket := planned.ticket(number)) is not None:
            for step in ticket.steps:
                if step.action is Action.HOLD:
                    nbytes += int(data.lengths[step.block])
                    held.update(step.uses)
            assert set(ticket.uses) <= held
            taken += ticket.rows
            number += 1
    assert taken == data.num_rows
    assert nbytes == round(data.reads_per_byte(stream) * data.num_bytes)


def test_a_simulated_rank_reads_what_the_real_one_reads(tmp_path: Path) -> None:
    with dataflow.ShardWriter(str(tmp_path / "rows"), rows_per_block=8) as writer:
        for number in range(1500):
            writer.write({"number": number, "data": bytes(200 + number % 50)})
    opened = dataflow.open(str(tmp_path / "rows"))
    manifest = opened.manifest
    loader = dataflow.DataLoader(opened, 16, shuffle=True, seed=3, rank=1, world_size=2, num_workers=2, drop_last=True)
    batches = sum(1 for _ in loader)
    stats = loader.stats()

    data = SimulatedDataset(manifest.rows.astype(np.int64), manifest.lengths.astype(np.int64))
    stop = data.num_rows - data.num_rows % 32
    planned = PlannedRank(data.stream(loader.lanes, 3), BatchRules(16, 1, 2, drop_last=True), stop)
    events = Events()
    store = SimulatedStore(events, replace(FREE, bandwidth=1e6), np.random.default_rng(0))
    memory = WorkingSet(stats["working_set"]["blocks"], stats["working_set"]["blocks"] // 2, 0)
    rules = RankRules(2, 4, 8, memory, int(data.lengths.mean()), data.lengths.item)
    got: list[float] = []

    def next_batch(made_at: float, latest_at: float) -> None:
        assert made_at <= events.now
        assert latest_at == made_at
        got.append(events.now)
        rank.ask()

    rank = SimulatedRank(events, store, FairShare(events, 2.0, 1.0), planned, rules, NO_COSTS, lambda: 0.0, next_batch)
    rank.start()
    rank.ask()
    events.run()
    assert len(got) == batches == len(loader)
    assert store.nbytes == rank.fetched_bytes == stats["stages"]["fetch"]["bytes"]
    assert store.requests == stats["stages"]["fetch"]["blocks"]


def test_least_squares_find_the_costs_that_were_put_in() -> None:
    kinds = np.array([(110_000, 19, 64), (110_000, 1, 600), (2_000, 32, 600), (2_000, 1000, 16)], np.float64)
    rows = kinds[:, 1] * kinds[:, 2]
    for per_gb, per_block, per_row in ((0.6, 3e-4, 4e-6), (0.6, 0.0, 4e-6)):
        seconds = kinds[:, 0] * rows / 1e9 * per_gb + kinds[:, 2] * per_block + rows * per_row
        assert fit(kinds, seconds) == pytest.approx((per_gb, per_block, per_row), abs=1e-9)


def test_what_is_assumed_is_named_by_what_it_moves() -> None:
    costs = Costs(0.7, 4e-4, 1.3e-3, 4e-6, 150.0)
    scenario = Scenario(Workload(dataset_tb=0.1), costs, Effort(warm_up=15, steps=15, sampled=8))
    # 16 GPUs want 16 * 32 * 110 kB in 0.1 s, 0.56 GB/s.
    base, moved = sensitivity(scenario, Assumed(store_gb_s=0.6), 16)
    assert base.host_gib > 8 * 0.15
    assert {one.name for one in moved} == set(Assumed.described())
    by_name = {one.name: one for one in moved}
    assert 0.3 < (by_name["store_gb_s"].halved or 0.0) < 0.7
    assert by_name["host_gb_s"].doubled == pytest.approx(1.0)
    assert {one.name for one in moved[:2]} == {"store_gb_s", "step_ms"}
