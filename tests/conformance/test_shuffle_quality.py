"""How good the shuffle is: measured against true permutations, which a loader that holds all rows could give.

Three figures of an order of rows that belong to classes:

- classes seen in 32 batches, on average: a model that sees few classes at a time learns them in turn;
- pairs of rows in a batch and the one after it that come from the same block, or from the same class;
- chi-square of position against value: both in 16 ranges, so that a drift of the order through the data shows.

Two kinds of data. *Shuffled when written* (what `dataflow shard` does): classes are spread over blocks, and the order
has to be a true shuffle, within five standard deviations of 60 simulated ones. *Sorted by class and kept in order*: the
rows of a block have one class and come within lanes x rows-of-a-block slots, so that no order which reads every block
once, into bounded memory, is a true permutation. There the bound is a buffer of as many rows that is filled with blocks
in truly random order, mixed, and emptied, simulated too; and nine tenths of the classes that a true permutation shows.
The identity has to fail every figure. All orders come from fixed seeds: nothing is left to chance when the tests run.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

import dataflow
from tests.conformance.adapter import Adapter
from tests.conformance.data import SCHEMA

ROWS = 16384
BLOCK_ROWS = 4
LANES = 256  # blocks / 16
CLASSES = 100
BATCH = 24  # not a multiple of a block, so that no order is spared by alignment
RANGES = 16
SIMULATIONS = 60
DEVIATIONS = 5.0

Order = NDArray[np.int64]
BLOCKS = np.arange(ROWS) // BLOCK_ROWS
SORTED = np.arange(ROWS) * CLASSES // ROWS
SHUFFLED = np.random.default_rng(1).permutation(SORTED)


def classes_seen(order: Order, classes: Order) -> float:
    """Distinct classes in 32 batches, on average."""
    window = 32 * BATCH
    seen = [len(np.unique(classes[order[start : start + window]])) for start in range(0, ROWS - window + 1, window)]
    return float(np.mean(seen))


def neighbours(order: Order, groups: Order) -> float:
    """Pairs of rows of one group in a batch and the one after it, on average."""
    pairs = []
    for start in range(0, ROWS - 2 * BATCH + 1, BATCH):
        counts = np.unique(groups[order[start : start + 2 * BATCH]], return_counts=True)[1]
        pairs.append(int((counts * (counts - 1) // 2).sum()))
    return float(np.mean(pairs))


def chi_square(order: Order, values: Order) -> float:
    """Of position against value, both in equal ranges."""
    by_value = np.empty(ROWS, np.int64)
    by_value[np.argsort(values, kind="stable")] = np.arange(ROWS) * RANGES // ROWS
    table = np.zeros((RANGES, RANGES))
    np.add.at(table, (np.arange(ROWS) * RANGES // ROWS, by_value[order]), 1)
    expected = ROWS / RANGES**2
    return float(((table - expected) ** 2 / expected).sum())


def true_permutation(rng: np.random.Generator) -> Order:
    return rng.permutation(ROWS)


def buffered(rng: np.random.Generator) -> Order:
    """Blocks in truly random order, as many at a time as there are lanes, and the rows of these mixed."""
    rows = (rng.permutation(ROWS // BLOCK_ROWS)[:, None] * BLOCK_ROWS + np.arange(BLOCK_ROWS)).reshape(
        -1, LANES * BLOCK_ROWS
    )
    return rng.permuted(rows, axis=1).ravel()


def simulated(
    make: Callable[[np.random.Generator], Order], figure: Callable[..., float], values: Order
) -> tuple[float, float]:
    """Mean and standard deviation of a figure over simulated orders."""
    rng = np.random.default_rng(0)
    figures = [figure(make(rng), values) for _ in range(SIMULATIONS)]
    return float(np.mean(figures)), float(np.std(figures))


@pytest.fixture(scope="module")
def dataset(adapter: Adapter, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = Path(tmp_path_factory.mktemp("quality")) / "rows"
    with dataflow.ShardWriter(str(folder), schema=SCHEMA, rows_per_block=BLOCK_ROWS) as writer:
        writer.write_batch(pa.record_batch([pa.array(range(ROWS), pa.int64())], schema=SCHEMA))
    return adapter.open(str(folder))


@pytest.fixture(scope="module")
def orders(adapter: Adapter, dataset: Any) -> list[Order]:
    """Orders that the loader gives: two seeds, two epochs each."""
    out = []
    for seed in (0, 1):
        loader = adapter.make_loader(dataset, batch_size=1024, shuffle=True, num_workers=0, seed=seed)
        for _ in range(2):
            out.append(np.concatenate([batch["sample_id"].numpy() for batch in loader]))
    return out


@pytest.fixture(scope="module")
def identity(adapter: Adapter, dataset: Any) -> Order:
    loader = adapter.make_loader(dataset, batch_size=1024, shuffle=False, num_workers=0)
    order = np.concatenate([batch["sample_id"].numpy() for batch in loader])
    assert order.tolist() == list(range(ROWS))
    return order


def test_lanes_are_a_sixteenth_of_the_blocks(dataset: Any) -> None:
    loader = dataflow.DataLoader(dataflow.open(dataset.manifest.url), shuffle=True)
    assert (dataset.num_blocks, loader.lanes) == (ROWS // BLOCK_ROWS, LANES)


def test_data_shuffled_when_written_show_as_many_classes_as_a_true_permutation(
    orders: list[Order], identity: Order
) -> None:
    mean, deviation = simulated(true_permutation, classes_seen, SHUFFLED)
    for order in orders:
        assert abs(classes_seen(order, SHUFFLED) - mean) < DEVIATIONS * deviation
    # Rows that were shuffled when written are so even in stored order: only data kept in order tell an identity.
    assert abs(classes_seen(identity, SORTED) - mean) > DEVIATIONS * deviation


def test_sorted_data_show_nine_tenths_of_the_classes_of_a_true_permutation(
    orders: list[Order], identity: Order
) -> None:
    mean, _ = simulated(true_permutation, classes_seen, SORTED)
    buffer, deviation = simulated(buffered, classes_seen, SORTED)
    for order in orders:
        assert classes_seen(order, SORTED) > 0.9 * mean
        assert classes_seen(order, SORTED) > buffer - DEVIATIONS * deviation
    assert classes_seen(identity, SORTED) < 0.1 * mean


def test_neighbouring_batches_share_no_more_blocks_than_in_a_true_permutation(
    orders: list[Order], identity: Order
) -> None:
    mean, deviation = simulated(true_permutation, neighbours, BLOCKS)
    for order in orders:
        assert neighbours(order, BLOCKS) < mean + DEVIATIONS * deviation
    assert neighbours(identity, BLOCKS) > mean + DEVIATIONS * deviation


@pytest.mark.parametrize("classes", [SORTED, SHUFFLED], ids=["sorted", "shuffled"])
def test_neighbouring_batches_share_no_more_classes_than_in_a_true_permutation(
    orders: list[Order], identity: Order, classes: Order
) -> None:
    mean, deviation = simulated(true_permutation, neighbours, classes)
    # A block's rows come one lane turn after another, so of sorted data there are fewer independent neighbours.
    allowed = DEVIATIONS * deviation * (np.sqrt(BLOCK_ROWS) if classes is SORTED else 1.0)
    for order in orders:
        assert abs(neighbours(order, classes) - mean) < allowed
    assert neighbours(identity, SORTED) > mean + allowed


def test_position_says_nothing_of_value_in_data_shuffled_when_written(orders: list[Order], identity: Order) -> None:
    mean, deviation = simulated(true_permutation, chi_square, SHUFFLED)
    assert mean == pytest.approx((RANGES - 1) ** 2, rel=0.03)  # as the theory has it
    for order in orders:
        assert chi_square(order, SHUFFLED) < mean + DEVIATIONS * deviation
    assert chi_square(identity, SORTED) > mean + DEVIATIONS * deviation


def test_position_says_no_more_of_value_in_sorted_data_than_behind_a_buffer(
    orders: list[Order], identity: Order
) -> None:
    mean, deviation = simulated(buffered, chi_square, SORTED)
    for order in orders:
        assert chi_square(order, SORTED) < mean + DEVIATIONS * deviation
    assert chi_square(identity, SORTED) > 10 * (mean + DEVIATIONS * deviation)


def test_epochs_and_seeds_are_independent(orders: list[Order]) -> None:
    """Rows at the same position, or in the same batch, in two orders are as many as by chance."""
    batches = np.arange(ROWS) // BATCH
    rng = np.random.default_rng(0)
    chance = [
        int((batches[np.argsort(rng.permutation(ROWS))] == batches[np.argsort(rng.permutation(ROWS))]).sum())
        for _ in range(SIMULATIONS)
    ]
    for one in range(len(orders)):
        for other in range(one):
            together = int((batches[np.argsort(orders[one])] == batches[np.argsort(orders[other])]).sum())
            assert abs(together - np.mean(chance)) < DEVIATIONS * np.std(chance)
            # The same pairs of rows in a batch again: for a pair this has probability BATCH / ROWS.
            assert int((orders[one] == orders[other]).sum()) < 1 + 5 * DEVIATIONS
    assert len({tuple(order.tolist()) for order in orders}) == len(orders)
