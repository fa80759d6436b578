"""Reports of resumes gone wrong elsewhere, by their ids."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tests.conformance.adapter import Adapter
from tests.conformance.checks import check_chain, refused, saved, straight, text
from tests.conformance.data import write_rows
from tests.conformance.job import DROP_LAST, ENDLESS, EPOCHS, FILTER, FILTER_EXACT, Job, Mode, Way, delivered

some_workers = pytest.mark.parametrize("workers", [0, 1, 3])
Rows = Callable[[int], Any]


def epochs_of(job: Job, count: int) -> list[list[int]]:
    """Samples of each of the next epochs."""
    return [[sample for _, sample in delivered(job.epoch())] for _ in range(count)]


@some_workers
def test_rs01_a_state_after_whole_epochs(adapter: Adapter, rows: Rows, workers: int) -> None:
    way = Way(1, 16, workers=workers)
    with Job(adapter, rows(100), EPOCHS, way) as job:
        expected = epochs_of(job, 4)
    with Job(adapter, rows(100), EPOCHS, way) as job:
        assert epochs_of(job, 2) == expected[:2]
        state = saved(job.merged())
    with Job(adapter, rows(100), EPOCHS, way, state) as job:
        assert text(job.merged()) == text(state)
        assert epochs_of(job, 2) == expected[2:]


@pytest.mark.parametrize("mode", [EPOCHS, DROP_LAST], ids=str)
def test_rs02_epochs_after_a_resumed_one_are_whole(adapter: Adapter, rows: Rows, mode: Mode) -> None:
    way = Way(1, 2, workers=2)
    with Job(adapter, rows(128), mode, way, persistent_workers=True) as job:
        expected = epochs_of(job, 4)
    with Job(adapter, rows(128), mode, way, persistent_workers=True) as job:
        job.epoch()
        job.run(61)
        state = saved(job.merged())
    with Job(adapter, rows(128), mode, way, state, persistent_workers=True) as job:
        found = epochs_of(job, 3)
    assert found == [expected[1][122:], *expected[2:]]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("mode", [EPOCHS, ENDLESS, FILTER, FILTER_EXACT], ids=str)
def test_rs03_rs16_resumes_of_resumes(adapter: Adapter, rows: Rows, mode: Mode, workers: int) -> None:
    way = Way(2, 3, workers=workers)
    check_chain(adapter, rows(500), mode, [(way, 30), *[(way, 10)] * 5])
    with Job(adapter, rows(500), mode, way) as job:
        for number in range(1, 4):
            job.run(10)
            assert job.merged()["slots"] == 60 * number


@pytest.mark.parametrize("workers", [0, 4])
def test_rs05_epochs_after_a_resumed_one_begin_at_their_first_sample(
    adapter: Adapter, rows: Rows, workers: int
) -> None:
    way = Way(1, 4, workers=workers)
    with Job(adapter, rows(100), EPOCHS, way) as job:
        expected = epochs_of(job, 3)
    with Job(adapter, rows(100), EPOCHS, way) as job:
        job.run(9)
        state = saved(job.merged())
    with Job(adapter, rows(100), EPOCHS, way, state) as job:
        found = epochs_of(job, 3)
    assert found == [expected[0][36:], *expected[1:]]


@pytest.mark.parametrize("fresh", [True, False])
def test_rs06_a_state_into_a_second_loader_while_the_first_lives(adapter: Adapter, rows: Rows, fresh: bool) -> None:
    dataset = rows(100)
    with Job(adapter, dataset, EPOCHS, Way(1, 1)) as first:
        expected = delivered(first.run(5))
        state = saved(first.merged())
        with Job(adapter, rows(100) if fresh else dataset, EPOCHS, Way(1, 1), state) as second:
            following = delivered(second.run(2))
            assert [slot for slot, _ in following] == [5, 6]
            assert expected + following == delivered(first.run(0)) + straight(adapter, dataset, EPOCHS, 7)[:7]
            assert delivered(first.run(2)) == following


@pytest.mark.parametrize(("mode", "size"), [(EPOCHS, 512), (EPOCHS, 500), (DROP_LAST, 550), (FILTER_EXACT, 500)])
def test_rs07_tr04_a_position_at_the_end_of_the_epoch(adapter: Adapter, rows: Rows, mode: Mode, size: int) -> None:
    with Job(adapter, rows(size), mode, Way(1, 64)) as job:
        steps = len(job.epoch())
        (expected,) = epochs_of(job, 1)
    with Job(adapter, rows(size), mode, Way(1, 64)) as job:
        job.run(steps)  # all batches, but the end not seen
        state = saved(job.merged())
    for way in (Way(1, 64), Way(4, 16)):
        with Job(adapter, rows(size), mode, way, state) as job:
            found = epochs_of(job, 1)
            if mode is FILTER_EXACT and found == [[]]:
                found = epochs_of(job, 1)  # that all that was left is dropped is known once it was read
            assert found == [expected], "no empty epoch between"
            assert job.merged()["epoch"] == 2


@pytest.mark.parametrize("mode", [EPOCHS, FILTER_EXACT], ids=str)
def test_rs08_a_padded_epoch_resumed_at_its_last_step(adapter: Adapter, rows: Rows, mode: Mode) -> None:
    way = Way(32, 4)
    expected = straight(adapter, rows(500), mode, 900)
    with Job(adapter, rows(500), mode, way) as job:
        steps = []
        states = []
        while (step := job.step()) is not None:
            steps.append(step)
            states.append(saved(job.merged()))
    for last in (len(steps) - 2, len(steps) - 1):
        before = delivered(steps[: last + 1])
        with Job(adapter, rows(500), mode, way, states[last]) as job:
            found = before + delivered(job.run(2))
        assert found == expected[: len(found)]


def test_rs11_an_evaluation_keeps_no_state_and_begins_anew_on_other_ranks(adapter: Adapter, rows: Rows) -> None:
    state = None
    for ranks in (3, 4):
        with Job(adapter, rows(500), EPOCHS, Way(ranks, 4), state) as training:
            training.run(5)
            with Job(adapter, rows(64), FILTER_EXACT, Way(ranks, 2), shuffle=False) as evaluation:
                (samples,) = epochs_of(evaluation, 1)
            assert samples == [number for number in range(64) if FILTER_EXACT.kept(number)]
            state = saved(training.merged())


def test_rs15_prefetched_batches_are_not_delivered_ones(adapter: Adapter, rows: Rows) -> None:
    for mode in (EPOCHS, ENDLESS, FILTER, FILTER_EXACT):
        way = Way(1, 8, workers=4, prefetch=8)
        check_chain(adapter, rows(500), mode, [(way, 5), (way, 1), (way, 5)], lanes=8)
        with Job(adapter, rows(500), mode, way) as job:
            job.run(5)
            assert job.merged()["slots"] == 40


@pytest.mark.parametrize("workers", [0, 2])
def test_rs19_a_state_loaded_after_iter_is_applied_by_the_next(adapter: Adapter, rows: Rows, workers: int) -> None:
    expected = straight(adapter, rows(100), EPOCHS, 100)
    with Job(adapter, rows(100), EPOCHS, Way(1, 10)) as job:
        job.run(4)
        state = saved(job.merged())
    with Job(adapter, rows(100), EPOCHS, Way(1, 10, workers=workers), persistent_workers=True) as job:
        job.run(2)
        for loader in job.loaders:
            loader.load_state_dict(state)
        assert text(job.merged()) == text(state)
        job._iterators = None
        assert delivered(job.run(2)) == expected[40:60]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("mode", [EPOCHS, FILTER], ids=str)
def test_rs23_di02_global_generators_are_left_alone(adapter: Adapter, rows: Rows, mode: Mode, workers: int) -> None:
    def generators() -> tuple[Any, ...]:
        numpy = np.random.get_state()
        return random.getstate(), numpy[1].tolist(), numpy[2:], torch.get_rng_state().tolist()

    before = generators()
    with Job(adapter, rows(100), mode, Way(1, 8, workers=workers)) as job:
        job.step()
        state = saved(job.merged())
        job.epoch()
    with Job(adapter, rows(100), mode, Way(2, 8, workers=workers), state) as job:
        job.run(3)
    assert generators() == before


def test_tr01_every_epoch_after_a_resume_is_complete(adapter: Adapter, rows: Rows) -> None:
    with Job(adapter, rows(100), EPOCHS, Way(1, 10)) as job:
        job.run(7)
        state = saved(job.merged())
    with Job(adapter, rows(100), EPOCHS, Way(1, 10), state) as job:
        first, *later = epochs_of(job, 4)
    assert len(first) == 30
    assert all(sorted(epoch) == list(range(100)) for epoch in later)


def test_tr03_a_resume_from_every_step_of_three_epochs(adapter: Adapter, rows: Rows) -> None:
    with Job(adapter, rows(10), EPOCHS, Way(1, 2)) as job:
        expected, states = [], []
        for _ in range(15):
            expected += delivered(job.run(1))
            states.append(saved(job.merged()))
    for number, state in enumerate(states, 1):
        with Job(adapter, rows(10), EPOCHS, Way(1, 2), state) as job:
            assert expected[: 2 * number] + delivered(job.run(15 - number)) == expected


@pytest.mark.parametrize("batch", [4, 16])
@pytest.mark.parametrize("mode", [EPOCHS, ENDLESS, FILTER], ids=str)
def test_tr05_positions_are_samples_so_that_the_batch_may_change(
    adapter: Adapter, rows: Rows, mode: Mode, batch: int
) -> None:
    with Job(adapter, rows(500), mode, Way(1, 8)) as job:
        job.run(10)
        state = saved(job.merged())
    with Job(adapter, rows(500), mode, Way(1, batch), state) as job:
        found = delivered(job.run(3))
    assert found == straight(adapter, rows(500), mode, 80 + 3 * batch)[80 : 80 + 3 * batch]


@pytest.mark.parametrize("mode", [EPOCHS, ENDLESS, FILTER, FILTER_EXACT], ids=str)
@pytest.mark.parametrize(("before", "after"), [(4, 2), (4, 3), (4, 8), (2, 4)])
def test_tr08_tr09_other_numbers_of_ranks(adapter: Adapter, rows: Rows, mode: Mode, before: int, after: int) -> None:
    check_chain(adapter, rows(500), mode, [(Way(before, 6), 6), (Way(after, 6), 6)])


@pytest.mark.parametrize("mode", [EPOCHS, FILTER], ids=str)
def test_tr10_a_state_of_other_data_is_refused(adapter: Adapter, rows: Rows, mode: Mode, tmp_path: Any) -> None:
    with Job(adapter, rows(1000), mode, Way(1, 8)) as job:
        job.run(40)
        state = saved(job.merged())
    refused(lambda: Job(adapter, rows(500), mode, Way(1, 8), state), "dataset")
    # The same number of rows, but one shard holds others.
    write_rows(tmp_path / "same", 1000)
    with Job(adapter, adapter.open(str(tmp_path / "same")), mode, Way(1, 8), state) as job:
        assert delivered(job.run(1))[0][0] == 320
    write_rows(tmp_path / "changed", 1000, shard_bytes=8 << 10)
    refused(lambda: Job(adapter, adapter.open(str(tmp_path / "changed")), mode, Way(1, 8), state), "dataset")


def test_a_state_of_another_pipeline_or_seed_is_refused(adapter: Adapter, rows: Rows) -> None:
    states = {}
    for mode in (EPOCHS, FILTER, FILTER_EXACT):
        with Job(adapter, rows(500), mode, Way(1, 8), lanes=8) as job:
            job.run(12)
            states[mode.name] = saved(job.merged())
    for mode in (EPOCHS, FILTER, FILTER_EXACT):
        state = states[mode.name]
        for other in (EPOCHS, FILTER, FILTER_EXACT):
            if other is not mode:
                refused(lambda other=other, state=state: Job(adapter, rows(500), other, Way(1, 8), state), "pipeline")
        refused(lambda mode=mode, state=state: Job(adapter, rows(500), mode, Way(), state, seed=1), "seed")
        refused(lambda mode=mode, state=state: Job(adapter, rows(500), mode, Way(), state, shuffle=False), "shuffle")
        refused(
            lambda mode=mode, state=state: Job(adapter, rows(500), mode, Way(), state, lanes=4), "lanes=8", "lanes=4"
        )
        # Without lanes= the state's win.
        with Job(adapter, rows(500), mode, Way(1, 8), state) as job:
            assert text(job.merged()) == text(state)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("mode", [EPOCHS, FILTER_EXACT], ids=str)
def test_dl03_set_epoch_reaches_persistent_workers(adapter: Adapter, rows: Rows, mode: Mode, workers: int) -> None:
    way = Way(1, 8, workers=workers)
    with Job(adapter, rows(200), mode, way) as job:
        expected = epochs_of(job, 4)
    assert len(set(map(tuple, expected))) == 4
    for persistent in (True, False):
        with Job(adapter, rows(200), mode, way, persistent_workers=persistent and workers > 0) as job:
            for epoch in (0, 1, 3, 2, 2):
                for loader in job.loaders:
                    loader.set_epoch(epoch)
                assert epochs_of(job, 1) == [expected[epoch]]


def test_rs17_every_sample_once_over_a_resume_in_a_shuffled_epoch(adapter: Adapter, rows: Rows) -> None:
    for step in (20, 500, 950):
        with Job(adapter, rows(1000), EPOCHS, Way(1, 10)) as job:
            before = delivered(job.run(step // 10))
            state = saved(job.merged())
        with Job(adapter, rows(1000), EPOCHS, Way(4, 5), state) as job:
            after = delivered(job.epoch())
        assert before + after == straight(adapter, rows(1000), EPOCHS, 1000)[:1000]
        assert sorted(sample for _, sample in before + after) == list(range(1000))


def test_dl24_loaders_take_any_seed_of_128_bits(adapter: Adapter, rows: Rows) -> None:
    orders = set()
    for seed in (0, 2**31, 2**32 - 1, 2**63 - 1, -1, 19525198, 2**127 - 1):
        with Job(adapter, rows(100), EPOCHS, Way(2, 50), seed=seed) as job:
            orders.add(tuple(delivered(job.epoch())))
            state = saved(job.merged())
        with Job(adapter, rows(100), EPOCHS, Way(1, 7), state, seed=seed) as job:
            assert text(job.merged()) == text(state)
    assert len(orders) == 7
    for seed in (2**127, 1.5, "1"):
        refused(lambda seed=seed: Job(adapter, rows(100), EPOCHS, Way(), seed=seed))


def test_dl25_tr07_seed_0_and_others_are_reproducible_and_differ(adapter: Adapter, rows: Rows) -> None:
    orders = []
    for seed in (0, 0, 1, 2):
        with Job(adapter, rows(100), EPOCHS, Way(), seed=seed) as job:
            orders.append(epochs_of(job, 1)[0])
    assert orders[0] == orders[1] == [sample for _, sample in straight(adapter, rows(100), EPOCHS, 100)[:100]]
    assert orders[0] != sorted(orders[0])
    assert len(set(map(tuple, orders))) == 3
