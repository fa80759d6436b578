"""Ends: all ranks take equally many steps of equally many rows, whatever the sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conformance.adapter import Adapter
from tests.conformance.checks import check_equal_steps, check_every_sample_once, refused
from tests.conformance.job import DROP_LAST, ENDLESS, EPOCHS, FILTER, FILTER_EXACT, Job, Mode, Way, delivered


@pytest.mark.parametrize("mode", [EPOCHS, DROP_LAST, ENDLESS, FILTER, FILTER_EXACT], ids=str)
@pytest.mark.parametrize("size", [1, 3, 37, 500])
@pytest.mark.parametrize("ranks", [1, 3, 4, 8])
def test_all_ranks_take_equal_steps(
    adapter: Adapter, rows: Callable[[int], Any], mode: Mode, size: int, ranks: int
) -> None:
    way = Way(ranks, 4 if size > 32 else 1)
    if mode is DROP_LAST and way.step > size:
        refused(lambda: Job(adapter, rows(size), mode, way), "drop_last")
        return
    counts = check_equal_steps(adapter, rows(size), mode, way, lanes=8)
    if mode is EPOCHS:
        assert counts == [-(-size // way.step)] * 2
    if mode is DROP_LAST:
        assert counts == [size // way.step] * 2
    if mode.options.get("steps_per_epoch"):
        assert counts == [mode.options["steps_per_epoch"]] * 2


@pytest.mark.parametrize(("way", "lanes"), [(Way(7, 2), 8), (Way(7, 4), 24), (Way(3, 8), 24), (Way(4, 6), 8)], ids=str)
def test_an_exact_end_comes_as_soon_as_the_last_lane_has_ended(
    adapter: Adapter, rows: Callable[[int], Any], way: Way, lanes: int
) -> None:
    for size in (37, 180, 500):
        check_equal_steps(adapter, rows(size), FILTER_EXACT, way, lanes=lanes)


@pytest.mark.soak
def test_all_ranks_take_equal_steps_for_any_sizes(adapter: Adapter, rows: Callable[[int], Any]) -> None:
    @settings(max_examples=120, deadline=None)
    @given(
        mode=st.sampled_from([EPOCHS, ENDLESS, FILTER, FILTER_EXACT]),
        size=st.one_of(st.integers(1, 20), st.sampled_from([36, 37, 71, 100, 180])),
        ranks=st.integers(1, 16),
        batch=st.integers(1, 9),
        lanes=st.sampled_from([None, 1, 5, 8, 24]),
    )
    def check(mode: Mode, size: int, ranks: int, batch: int, lanes: int | None) -> None:
        check_equal_steps(adapter, rows(size), mode, Way(ranks, batch), lanes=lanes)

    check()


@pytest.mark.parametrize("ranks", [1, 4])
@pytest.mark.parametrize("mode", [EPOCHS, FILTER_EXACT, DROP_LAST], ids=str)
def test_a_dataset_without_rows_has_no_batches(
    adapter: Adapter, rows: Callable[[int], Any], mode: Mode, ranks: int
) -> None:
    with Job(adapter, rows(0), mode, Way(ranks, 4)) as job:
        assert job.epoch() == []
        assert job.epoch() == []
        state = job.merged()
    with Job(adapter, rows(0), mode, Way(1, 2), state) as job:
        assert job.epoch() == []


@pytest.mark.parametrize("mode", [ENDLESS, FILTER], ids=str)
def test_an_endless_stream_of_no_rows_is_refused(adapter: Adapter, rows: Callable[[int], Any], mode: Mode) -> None:
    refused(lambda: Job(adapter, rows(0), mode, Way()), "no rows", "steps_per_epoch")


@pytest.mark.parametrize("workers", [0, 1, 3, 10])
@pytest.mark.parametrize("drop_last", [False, True])
def test_dl04_len_is_the_number_of_batches(
    adapter: Adapter, rows: Callable[[int], Any], workers: int, drop_last: bool
) -> None:
    way = Way(1, 4, workers=workers)
    assert check_equal_steps(adapter, rows(10), DROP_LAST if drop_last else EPOCHS, way) == [2 if drop_last else 3] * 2


@pytest.mark.parametrize("workers", [0, 3, 10])
@pytest.mark.parametrize(("size", "batch", "count"), [(1000, 128, 7), (46, 8, 5)])
def test_dl05_workers_drop_no_batches_of_their_own(
    adapter: Adapter, rows: Callable[[int], Any], workers: int, size: int, batch: int, count: int
) -> None:
    assert check_equal_steps(adapter, rows(size), DROP_LAST, Way(1, batch, workers=workers)) == [count] * 2


def test_dl06_one_full_batch_rather_than_several_short_ones(adapter: Adapter, rows: Callable[[int], Any]) -> None:
    with Job(adapter, rows(4), EPOCHS, Way(1, 4, workers=2)) as job:
        assert [len(step[0].samples) for step in job.epoch()] == [4]


@pytest.mark.parametrize("workers", [0, 2])
def test_dl22_what_is_dropped_changes_with_the_epoch(
    adapter: Adapter, rows: Callable[[int], Any], workers: int
) -> None:
    seen: set[int] = set()
    with Job(adapter, rows(900), DROP_LAST, Way(1, 200, workers=workers)) as job:
        for _ in range(20):
            epoch = [sample for _, sample in delivered(job.epoch())]
            assert len(set(epoch)) == 800
            seen.update(epoch)
    # Of 900 rows an epoch leaves out 100: after 20 independent ones each is left unseen with probability 9 ** -20.
    assert len(seen) == 900


@pytest.mark.parametrize("ranks", [1, 3])
def test_dl30_the_last_batch_has_its_true_size(adapter: Adapter, rows: Callable[[int], Any], ranks: int) -> None:
    with Job(adapter, rows(500), EPOCHS, Way(ranks, 26)) as job:
        steps = job.epoch()
    sizes = [len(step[0].samples) for step in steps]
    assert sizes == [26] * (500 // (26 * ranks)) + [-(-(500 % (26 * ranks)) // ranks)]


@pytest.mark.parametrize("ranks", [1, 2])
def test_sd01_a_batch_larger_than_the_dataset_is_refused(
    adapter: Adapter, rows: Callable[[int], Any], ranks: int
) -> None:
    refused(lambda: Job(adapter, rows(100), DROP_LAST, Way(ranks, 101)), "101", "100 rows", f"{ranks} rank")


@pytest.mark.parametrize("mode", [EPOCHS, DROP_LAST], ids=str)
def test_sd03_ranks_and_epochs_stay_in_step(adapter: Adapter, rows: Callable[[int], Any], mode: Mode) -> None:
    counts = check_equal_steps(adapter, rows(1001), mode, Way(4, 8, workers=1))
    assert counts == [31 if mode is DROP_LAST else 32] * 2


@pytest.mark.parametrize(("size", "ranks", "batch"), [(2, 4, 1), (2, 4, 3), (3, 2, 2), (1, 8, 2)])
def test_sd05_fewer_samples_than_ranks(
    adapter: Adapter, rows: Callable[[int], Any], size: int, ranks: int, batch: int
) -> None:
    way = Way(ranks, batch, workers=2)
    for mode in (EPOCHS, FILTER_EXACT):
        check_every_sample_once(adapter, rows(size), mode, way)
        check_equal_steps(adapter, rows(size), mode, way)
    with Job(adapter, rows(size), EPOCHS, way) as job:
        (step,) = job.epoch()
    # Padding repeats rows of the batch, and says so.
    assert {sample for batch in step for sample in batch.samples} == set(range(size))
    assert sum(valid for batch in step for valid in batch.valid) == size


@pytest.mark.parametrize(("size", "ranks"), [(4, 4), (12, 8)])
def test_sh07_fewer_blocks_than_ranks(adapter: Adapter, rows: Callable[[int], Any], size: int, ranks: int) -> None:
    for mode in (EPOCHS, ENDLESS, FILTER, FILTER_EXACT):
        check_equal_steps(adapter, rows(size), mode, Way(ranks, 2, workers=2))


def test_di06_streams_end_together(adapter: Adapter, rows: Callable[[int], Any]) -> None:
    for mode in (EPOCHS, FILTER_EXACT):
        check_equal_steps(adapter, rows(5), mode, Way(2, 1))
    assert check_equal_steps(adapter, rows(5), DROP_LAST, Way(2, 1)) == [2, 2]


@pytest.mark.parametrize("ranks", [2, 8])
def test_di08_no_empty_batches_and_every_id_seen(adapter: Adapter, rows: Callable[[int], Any], ranks: int) -> None:
    check_every_sample_once(adapter, rows(71), EPOCHS, Way(ranks, 8))  # `read_batch` refuses a batch of no rows
    check_every_sample_once(adapter, rows(71), FILTER_EXACT, Way(ranks, 8))


def test_di10_the_number_of_batches_is_that_of_len(adapter: Adapter, rows: Callable[[int], Any]) -> None:
    assert check_equal_steps(adapter, rows(100), EPOCHS, Way(1, 4, workers=4)) == [25, 25]
    assert check_equal_steps(adapter, rows(100), DROP_LAST, Way(4, 3, workers=4)) == [8, 8]
