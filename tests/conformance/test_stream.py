"""The global stream: the same for any ranks, batch sizes, threads and read-ahead, each sample once an epoch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.conformance.adapter import Adapter
from tests.conformance.checks import check_every_sample_once, check_rank_missing_is_refused, check_same_stream
from tests.conformance.job import DROP_LAST, ENDLESS, EPOCHS, FILTER, FILTER_EXACT, MODES, THREE_EPOCHS, Mode, Way
from tests.sampling import reference

#: Steps of 24 or 168 slots, so that merged states can be compared at every 168th slot.
FEW_WAYS = [
    Way(1, 24),
    Way(2, 12, workers=1),
    Way(3, 8, workers=4, prefetch=8),
    Way(4, 6),
    Way(7, 24, workers=1, prefetch=8),
    Way(8, 3),
]
MANY_WAYS = [
    Way(ranks, step // ranks, workers, prefetch)
    for ranks in (1, 2, 3, 4, 7, 8)
    for step in (24, 168)
    if step % ranks == 0
    for workers in (0, 1, 4)
    for prefetch in (1, 8)
]
by_name = pytest.mark.parametrize("mode", MODES, ids=str)


@by_name
@pytest.mark.parametrize("lanes", [8, 24])
def test_the_stream_does_not_depend_on_how_it_is_consumed(
    adapter: Adapter, rows: Callable[[int], Any], mode: Mode, lanes: int
) -> None:
    check_same_stream(adapter, rows(500), mode, FEW_WAYS, 400, lanes=lanes)


@by_name
@pytest.mark.parametrize("lanes", [None, 8])
def test_the_stream_of_uneven_blocks_does_not_depend_on_how_it_is_consumed(
    adapter: Adapter, uneven: Any, mode: Mode, lanes: int | None
) -> None:
    check_same_stream(adapter, uneven, mode, FEW_WAYS, 400, lanes=lanes)


@by_name
def test_stored_order_does_not_depend_on_how_it_is_consumed(
    adapter: Adapter, rows: Callable[[int], Any], mode: Mode
) -> None:
    check_same_stream(adapter, rows(180), mode, FEW_WAYS, 300, shuffle=False)


def test_an_iteration_over_three_epochs_does_not_depend_on_how_it_is_consumed(
    adapter: Adapter, rows: Callable[[int], Any]
) -> None:
    check_same_stream(adapter, rows(180), THREE_EPOCHS, FEW_WAYS, 900, lanes=8)


@pytest.mark.soak
@by_name
@pytest.mark.parametrize("lanes", [8, 24])
@pytest.mark.parametrize("size", [37, 500])
def test_the_stream_does_not_depend_on_any_way(
    adapter: Adapter, rows: Callable[[int], Any], mode: Mode, lanes: int, size: int
) -> None:
    check_same_stream(adapter, rows(size), mode, MANY_WAYS, min(2 * size, 600), lanes=lanes)


@pytest.mark.soak
@by_name
def test_the_stream_of_many_blocks_does_not_depend_on_how_it_is_consumed(
    adapter: Adapter, rows: Callable[[int], Any], mode: Mode
) -> None:
    check_same_stream(adapter, rows(2000), mode, FEW_WAYS, 4200)


@pytest.mark.parametrize("mode", [EPOCHS, FILTER_EXACT], ids=str)
@pytest.mark.parametrize("size", [1, 3, 37, 500])
@pytest.mark.parametrize("way", [Way(1, 8), Way(3, 5, workers=2), Way(4, 8), Way(8, 2)], ids=str)
def test_every_sample_comes_once_an_epoch(
    adapter: Adapter, rows: Callable[[int], Any], mode: Mode, size: int, way: Way
) -> None:
    check_every_sample_once(adapter, rows(size), mode, way)
    check_every_sample_once(adapter, rows(size), mode, way, lanes=8)


@pytest.mark.parametrize("mode", [EPOCHS, FILTER_EXACT], ids=str)
def test_every_sample_of_uneven_blocks_comes_once_an_epoch(adapter: Adapter, uneven: Any, mode: Mode) -> None:
    for way in (Way(1, 8), Way(3, 5), Way(4, 8, workers=2)):
        check_every_sample_once(adapter, uneven, mode, way)


def test_sh09_ranks_without_a_seed_cover_the_data_once(adapter: Adapter, rows: Callable[[int], Any]) -> None:
    check_every_sample_once(adapter, rows(500), EPOCHS, Way(4, 8, workers=1))


@pytest.mark.parametrize("mode", [FILTER, FILTER_EXACT], ids=str)
@pytest.mark.parametrize("way", [Way(2, 12), Way(3, 8), Way(4, 6), Way(7, 4)], ids=str)
def test_a_merge_with_a_rank_missing_is_refused(
    adapter: Adapter, rows: Callable[[int], Any], mode: Mode, way: Way
) -> None:
    check_rank_missing_is_refused(adapter, rows(500), mode, way, 5, lanes=24)


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("mode", [EPOCHS, DROP_LAST, ENDLESS, FILTER], ids=str)
def test_the_stream_is_the_one_that_the_design_describes(uneven: Any, mode: Mode, shuffle: bool) -> None:
    """Of this project's loader alone: others have orders of their own."""
    from tests.conformance.adapter import Dataflow
    from tests.conformance.job import Job, delivered

    manifest = uneven.manifest
    sizes, first_rows = manifest.rows.tolist(), manifest.first_rows.tolist()
    with Job(Dataflow(), uneven, mode, Way(1, 6), seed=5, lanes=8, shuffle=shuffle) as job:
        found = [sample for _, sample in delivered(job.run(60))]

    def kept(placed: tuple[int, int, int]) -> bool:
        return mode.kept(first_rows[placed[1]] + placed[2])

    lanes = 8 if shuffle else 1
    if mode.options.get("steps_per_epoch"):
        expected = reference.stream(sizes, 5, lanes, 360, shuffle=shuffle, keep=kept)
    else:
        count = manifest.num_rows - (manifest.num_rows % 6 if mode is DROP_LAST else 0)
        expected = [
            placed
            for epoch in range(2)
            for placed in reference.stream(sizes, 5, lanes, count, first_epoch=epoch, shuffle=shuffle)
        ]
    assert found == [first_rows[block] + row for _, block, row in expected][: len(found)]


@pytest.mark.parametrize("epoch", [0, 3])
def test_the_exact_stream_is_the_one_that_the_design_describes(uneven: Any, epoch: int) -> None:
    """Of this project's loader alone."""
    from tests.conformance.adapter import Dataflow
    from tests.conformance.job import Job, delivered

    manifest = uneven.manifest
    first_rows = manifest.first_rows.tolist()
    expected = reference.exact_stream(
        manifest.rows.tolist(), 5, 8, epoch, lambda placed: FILTER_EXACT.kept(first_rows[placed[1]] + placed[2])
    )
    with Job(Dataflow(), uneven, FILTER_EXACT, Way(3, 4), seed=5, lanes=8) as job:
        for loader in job.loaders:
            loader.set_epoch(epoch)
        found = delivered(job.epoch())
    assert found == [(slot, first_rows[block] + row) for slot, (_, block, row) in expected.items()]
