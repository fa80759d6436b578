"""Epochs: which one an iteration takes, in training loops as people write them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

import dataflow
from dataflow.errors import DataflowError, OptionError
from tests.conformance.data import write_rows
from tests.conformance.watchdog import limited

some_workers = pytest.mark.parametrize("workers", [0, 2])
SIZE = 96


@pytest.fixture(autouse=True)
def patience() -> Iterator[None]:
    """Nothing may hang."""
    with limited(60):
        yield


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> dataflow.Dataset:
    return dataflow.open(write_rows(tmp_path_factory.mktemp("epochs") / "rows", SIZE))


def make(dataset: dataflow.Dataset, **options: Any) -> dataflow.DataLoader:
    return dataflow.DataLoader(dataset, **{"batch_size": 8, "shuffle": True, "lanes": 4, "num_workers": 0, **options})


def samples(loader: dataflow.DataLoader, steps: int | None = None) -> list[int]:
    """Samples of one iteration, left after so many steps."""
    out: list[int] = []
    for number, batch in enumerate(loader, 1):
        out += batch["sample_id"].tolist()
        if number == steps:
            break
    return out


@pytest.fixture(scope="module")
def orders(dataset: dataflow.Dataset) -> list[list[int]]:
    """The order of each epoch."""
    loader = make(dataset)
    out = [samples(loader) for _ in range(6)]
    assert all(sorted(order) == list(range(SIZE)) for order in out)
    assert len(set(map(tuple, out))) == 6
    return out


@some_workers
def test_reaching_the_end_moves_on_and_leaving_early_does_not(
    dataset: dataflow.Dataset, orders: list[list[int]], workers: int
) -> None:
    loader = make(dataset, num_workers=workers)
    assert samples(loader, 3) == orders[0][:24]
    assert samples(loader, 5) == orders[0][:40]
    assert samples(loader) == orders[0]
    assert samples(loader, 2) == orders[1][:16]
    assert samples(loader) == orders[1]
    # All batches, but the end not seen: torch's loader, too, would begin the epoch again.
    assert samples(loader, 12) == orders[2]
    assert samples(loader) == orders[2]
    assert samples(loader) == orders[3]


@some_workers
def test_set_epoch_chooses(dataset: dataflow.Dataset, orders: list[list[int]], workers: int) -> None:
    loader = make(dataset, num_workers=workers)
    for epoch in (0, 1, 2, 5, 3, 3, 0):
        loader.set_epoch(epoch)
        assert samples(loader) == orders[epoch]
    loader.set_epoch(2)
    loader.set_epoch(4)
    assert samples(loader, 4) == orders[4][:32]
    loader.set_epoch(4)
    assert samples(loader) == orders[4], "leaving early does not move"
    assert samples(loader) == orders[5]


def test_set_epoch_takes_effect_at_the_next_iteration(dataset: dataflow.Dataset, orders: list[list[int]]) -> None:
    loader = make(dataset)
    iterator = iter(loader)
    first = next(iterator)["sample_id"].tolist()
    loader.set_epoch(3)
    assert first + next(iterator)["sample_id"].tolist() == orders[0][:16]
    iterator.close()
    loader.set_epoch(3)
    assert samples(loader) == orders[3]


@some_workers
def test_set_epoch_while_an_iteration_runs_leaves_it_and_its_states_alone(
    dataset: dataflow.Dataset, orders: list[list[int]], workers: int
) -> None:
    loader = make(dataset, num_workers=workers)
    iterator = iter(loader)
    for _ in range(2):
        next(iterator)
    loader.set_epoch(3)
    found = next(iterator)["sample_id"].tolist()
    state = loader.state_dict()
    resumed = make(dataset)
    resumed.load_state_dict(state)
    assert orders[0][:16] + found + samples(resumed) == orders[0]
    for _ in iterator:
        pass
    assert samples(loader) == orders[3]
    assert samples(loader) == orders[4]


@some_workers
def test_rs19_a_state_loaded_while_an_iteration_runs_is_where_the_next_begins(
    dataset: dataflow.Dataset, orders: list[list[int]], workers: int
) -> None:
    loader = make(dataset, num_workers=workers)
    iterator = iter(loader)
    next(iterator)
    state = loader.state_dict()
    next(iterator)
    loader.load_state_dict(state)
    assert loader.state_dict() == state
    try:
        next(iterator)  # may go on or be closed, but not move what was loaded
    except DataflowError as error:
        assert "iter(loader)" in str(error)  # noqa: PT017 - either is right
    assert samples(loader) == orders[0][8:]


@pytest.mark.parametrize("wrong", [-1, 1.0, "1", None, True])
def test_an_epoch_that_is_no_count_is_refused(dataset: dataflow.Dataset, wrong: Any) -> None:
    with pytest.raises(OptionError, match="epoch"):
        make(dataset).set_epoch(wrong)


@some_workers
@pytest.mark.parametrize("stop", [0, 1, 5, 11, 12])
def test_a_training_loop_with_set_epoch_resumes(
    dataset: dataflow.Dataset, orders: list[list[int]], workers: int, stop: int
) -> None:
    """The loop that a job writes is the same before and after a resume."""

    def train(loader: dataflow.DataLoader, first_epoch: int, steps: int | None = None) -> list[int]:
        out: list[int] = []
        for epoch in range(first_epoch, 4):
            loader.set_epoch(epoch)
            for batch in loader:
                out += batch["sample_id"].tolist()
                if steps is not None and len(out) >= 8 * steps:
                    return out
        return out

    loader = make(dataset, num_workers=workers)
    before = train(loader, 0, 12 + stop) if stop else train(loader, 0, 12)
    state = json.loads(json.dumps(loader.state_dict()))
    resumed = make(dataset, num_workers=workers)
    resumed.load_state_dict(state)
    assert resumed.state_dict() == state
    # At the very end of an epoch the state says so, and the job goes on with the next.
    first_epoch = 1 if stop else 0
    if stop in (0, 12):
        first_epoch += 1
    assert before + train(resumed, first_epoch) == [sample for order in orders[:4] for sample in order]


def test_a_loaded_state_gives_way_to_another_epoch(dataset: dataflow.Dataset, orders: list[list[int]]) -> None:
    loader = make(dataset)
    loader.set_epoch(2)
    samples(loader, 5)
    state = loader.state_dict()
    for epoch, expected in ((2, orders[2][40:]), (3, orders[3]), (0, orders[0])):
        resumed = make(dataset)
        resumed.load_state_dict(state)
        resumed.set_epoch(epoch)
        assert samples(resumed) == expected
        assert samples(resumed) == orders[epoch + 1]
    # Once the rest was begun, leaving early goes back to the start of the epoch, as without a state.
    resumed.load_state_dict(state)
    assert samples(resumed, 2) == orders[2][40:56]
    assert samples(resumed) == orders[2]


def test_a_state_from_a_loop_left_early_goes_on_where_it_was_left(
    dataset: dataflow.Dataset, orders: list[list[int]]
) -> None:
    loader = make(dataset)
    samples(loader, 5)
    state = loader.state_dict()
    assert (state["epoch"], state["slots"]) == (0, 40)
    other = make(dataset)
    other.load_state_dict(state)
    assert samples(other) == orders[0][40:]
    assert samples(loader) == orders[0]


@some_workers
@pytest.mark.parametrize("batch_size", [8, 7])
@pytest.mark.parametrize("drop_last", [False, True])
def test_several_epochs_in_one_iteration(
    dataset: dataflow.Dataset, orders: list[list[int]], workers: int, batch_size: int, drop_last: bool
) -> None:
    """Batches straddle the epochs: only the last one of the iteration may be short."""
    options: dict[str, Any] = {"batch_size": batch_size, "num_workers": workers, "epochs": 3, "drop_last": drop_last}
    loader = make(dataset, **options)
    whole = 3 * SIZE if not drop_last else 3 * SIZE // batch_size * batch_size
    found = samples(loader)
    assert len(found) == whole
    for epoch in range(2):
        assert found[epoch * SIZE : (epoch + 1) * SIZE] == orders[epoch]
    assert found[2 * SIZE :] == orders[2][: whole - 2 * SIZE]
    assert samples(loader, 4) == orders[3][: 4 * batch_size]
    for steps in (1, SIZE // batch_size, 2 * SIZE // batch_size + 3):
        first = make(dataset, **options)
        before = samples(first, steps)
        resumed = make(dataset, **options)
        resumed.load_state_dict(first.state_dict())
        assert before + samples(resumed) == found
        assert samples(resumed, 4) == orders[3][: 4 * batch_size]


@some_workers
def test_an_endless_stream_in_epochs_of_steps(dataset: dataflow.Dataset, orders: list[list[int]], workers: int) -> None:
    stream = [sample for order in orders for sample in order]
    loader = make(dataset, num_workers=workers, steps_per_epoch=10)
    assert samples(loader) == stream[:80]
    assert samples(loader, 3) == stream[80:104], "batches straddle the epochs of the data"
    assert samples(loader) == stream[80:160]
    assert samples(loader) == stream[160:240]
    for epoch in (0, 2, 1, 4):
        loader.set_epoch(epoch)
        assert samples(loader) == stream[80 * epoch : 80 * epoch + 80]
    loader.set_epoch(1)
    before = samples(loader, 4)
    resumed = make(dataset, num_workers=workers, steps_per_epoch=10)
    resumed.load_state_dict(loader.state_dict())
    resumed.set_epoch(1)
    assert before + samples(resumed) == stream[80:160]
    assert samples(resumed) == stream[160:240]
    resumed.load_state_dict(loader.state_dict())
    resumed.set_epoch(3)
    assert samples(resumed) == stream[240:320]


@some_workers
def test_a_filtered_endless_stream_in_epochs_of_steps(dataset: dataflow.Dataset, workers: int) -> None:
    kept = dataset.filter(lambda sample: sample["number"] % 3, name="kept")
    loader = make(kept, num_workers=workers, steps_per_epoch=40)
    stream = samples(loader)
    loader = make(kept, num_workers=workers, steps_per_epoch=5)
    for epoch in range(8):
        loader.set_epoch(epoch)  # the epoch that comes anyway
        assert samples(loader) == stream[40 * epoch : 40 * epoch + 40]
        if epoch == 3:
            state = loader.state_dict()
    loader = make(kept, num_workers=workers, steps_per_epoch=5)
    assert samples(loader) == stream[:40]
    assert samples(loader, 2) == stream[40:56]
    assert samples(loader) == stream[40:80], "an epoch left early begins again"
    assert samples(loader) == stream[80:120]
    with pytest.raises(OptionError, match="load_state_dict"):
        loader.set_epoch(7)
    loader.set_epoch(0)
    assert samples(loader) == stream[:40]
    loader.load_state_dict(state)
    loader.set_epoch(4)
    assert samples(loader) == stream[160:200]


@some_workers
def test_a_filtered_epoch_with_an_exact_end(dataset: dataflow.Dataset, workers: int) -> None:
    kept = dataset.filter(lambda sample: sample["number"] % 3, name="kept")

    def valid(loader: dataflow.DataLoader, steps: int | None = None) -> list[int]:
        out: list[int] = []
        for number, batch in enumerate(loader, 1):
            out += batch["sample_id"][batch["valid"]].tolist()
            if number == steps:
                break
        return out

    loader = make(kept, num_workers=workers, end="exact")
    orders = [valid(loader) for _ in range(4)]
    expected = [number for number in range(SIZE) if number % 3]
    assert all(sorted(order) == expected for order in orders)
    assert len(set(map(tuple, orders))) == 4
    loader.set_epoch(1)
    assert valid(loader, 2) == orders[1][:16]
    state = loader.state_dict()
    assert valid(loader) == orders[1]
    loader.set_epoch(3)
    assert valid(loader) == orders[3]
    loader.load_state_dict(state)
    assert valid(loader) == orders[1][16:]
    assert valid(loader) == orders[2]


def test_shuffle_off_is_stored_order_in_every_epoch(dataset: dataflow.Dataset) -> None:
    loader = make(dataset, shuffle=False)
    for _ in range(3):
        assert samples(loader) == list(range(SIZE))
    assert samples(make(dataset, shuffle=None)) == list(range(SIZE))


def test_two_loaders_over_one_dataset_do_not_meet(dataset: dataflow.Dataset, orders: list[list[int]]) -> None:
    one, other = make(dataset, num_workers=2), make(dataset, num_workers=2, seed=1)
    pairs = [(a["sample_id"].tolist(), b["sample_id"].tolist()) for a, b in zip(one, other, strict=True)]
    assert [sample for pair in pairs for sample in pair[0]] == orders[0]
    assert sorted(sample for pair in pairs for sample in pair[1]) == list(range(SIZE))
