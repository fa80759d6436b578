"""Seeds and epochs of any size: distinct orders, reproducible, or refused at once."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from dataflow.errors import OptionError
from dataflow.sampling.keys import key
from dataflow.sampling.layout import BlockLayout
from dataflow.sampling.order import EpochOrder
from dataflow.sampling.random import SampleKey, sample_generator

SEEDS = [0, 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64, -1, -(2**63), 19525198, 2**127 - 1, -(2**127)]
EPOCHS = [0, 1, 10**6, 2**32, 2**40]
LAYOUT = BlockLayout.of(np.full(50, 4))


def order(seed: int, epoch: int = 0, source: str = "") -> tuple[tuple[int, int], ...]:
    blocks, rows = EpochOrder(LAYOUT, seed, source, epoch).samples(0, 200)
    return tuple(zip(blocks.tolist(), rows.tolist(), strict=True))


def test_dl24_any_seed_and_epoch_give_an_order_of_their_own() -> None:
    orders = {order(seed, epoch, source) for seed in SEEDS for epoch in EPOCHS for source in ("", "photos")}
    assert len(orders) == 2 * len(SEEDS) * len(EPOCHS)


@pytest.mark.parametrize("seed", [2**127, -(2**127) - 1, 2**200])
def test_dl24_a_seed_beyond_128_bits_is_refused(seed: int) -> None:
    with pytest.raises(OptionError, match="128 bits"):
        key(seed)


def test_dl25_seed_0_shuffles_and_is_reproducible() -> None:
    assert order(0) == order(0)
    assert order(0) != tuple(sorted(order(0)))


def test_tr07_the_seed_has_effect_in_the_same_epoch() -> None:
    for epoch in range(3):
        assert order(1, epoch) != order(2, epoch)
        assert order(1, epoch) == order(1, epoch)


def test_parts_of_a_key_do_not_run_together() -> None:
    keys = [key("a", "b"), key("ab"), key("a", "", "b"), key("", "ab"), key(1, 1), key(11), key("1", 1), key(1, "1")]
    assert len(set(keys)) == len(keys)
    assert key(0) != key() != key("")


def test_neighbouring_epochs_and_blocks_permute_rows_differently() -> None:
    layout = BlockLayout.of(np.full(20, 64))
    orders = [EpochOrder(layout, 0, "", epoch) for epoch in range(3)]
    permutations = {tuple(order.row_permutation(block).tolist()) for order in orders for block in range(20)}
    assert len(permutations) == 60


def test_di02_the_order_leaves_global_generators_alone() -> None:
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    order(7, 3)
    sample_generator(SampleKey(0, "", 0, 1, 2), 0).random(5)
    assert random.getstate() == before[0]
    assert np.random.get_state()[1].tolist() == before[1]
    assert torch.get_rng_state().tolist() == before[2]


def test_random_numbers_belong_to_the_sample_and_the_stage() -> None:
    start = SampleKey(0, "", 0, 1, 2)
    others = [
        start._replace(**{field: value})
        for field, value in [("seed", 1), ("source", "a"), ("epoch", 1), ("block", 2), ("row", 1)]
    ]
    draws = {tuple(sample_generator(sample, 0).integers(0, 2**62, 4).tolist()) for sample in [start, *others]}
    draws.add(tuple(sample_generator(start, 1).integers(0, 2**62, 4).tolist()))
    assert len(draws) == 7
    assert sample_generator(start, 0).random() == sample_generator(start, 0).random()
