"""One cache and many processes: that start at once, and that are killed."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pytest

import dataflow
import dataflow.loader  # torch is imported before the forks, once
from dataflow.storage.cache import BlockCache
from tests.servers.nginx import Nginx
from tests.storage.test_cache import BLOCK, Blocks, age, leftovers

FORK = get_context("fork")
PROCESSES = 4
ROWS, BLOCKS = 320, 80


def read_everything(barrier: Barrier, url: str, cache: str) -> None:
    """One of the processes: ends with 0 if every row came once and right."""
    dataset = dataflow.open(url, cache=cache, cache_limit="10MiB")
    loader = dataflow.DataLoader(dataset, batch_size=16, shuffle=True, num_workers=1)
    barrier.wait(30)
    rows = [
        (number, bytes(payload))
        for batch in loader
        for number, payload in zip(batch["number"].tolist(), batch["payload"], strict=True)
    ]
    assert sorted(rows) == [(number, number.to_bytes(4, "big") * 300) for number in range(ROWS)]


@pytest.mark.parametrize("times", [5, pytest.param(50, marks=pytest.mark.soak)])
def test_processes_on_a_cold_cache_fetch_each_block_about_once(nginx_store: Nginx, tmp_path: Path, times: int) -> None:
    folder = Path(nginx_store.folder) / "bucket" / f"shared-{times}"
    with dataflow.ShardWriter(str(folder), rows_per_block=ROWS // BLOCKS, shard_bytes=100_000) as writer:
        for number in range(ROWS):
            writer.write({"number": number, "payload": number.to_bytes(4, "big") * 300})
    fetched = 0
    for run in range(times):
        before = len(nginx_store.served())
        cache = str(tmp_path / f"cache-{run}")
        barrier = FORK.Barrier(PROCESSES)
        arguments = (barrier, f"s3://bucket/{folder.name}", cache)
        processes = [FORK.Process(target=read_everything, args=arguments) for _ in range(PROCESSES)]
        for process in processes:
            process.start()
        for process in processes:
            process.join(60)
        assert [process.exitcode for process in processes] == [0] * PROCESSES
        assert leftovers(BlockCache(cache, 1)) == []
        fetched += sum(line.path.endswith(".arrow") and "shard" in line.path for line in nginx_store.served()[before:])
    assert times * BLOCKS <= fetched <= 1.02 * times * BLOCKS


def read_until_killed(cache: BlockCache, blocks: Blocks) -> None:
    while True:
        for number in random.sample(range(len(blocks.data)), len(blocks.data)):
            blocks.read(cache, number)
            if blocks.kept(cache) == set(range(len(blocks.data))):
                blocks.path(cache, random.randrange(len(blocks.data))).unlink(missing_ok=True)


def read_and_die(where: str, cache: BlockCache, blocks: Blocks) -> None:
    """Dies when the cache first calls this function of `os`: a block appears by rename, the count by replace."""

    def die(*arguments: Any, **options: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(os, where, die)
    blocks.read(cache, 0)


def check_a_clean_run(cache: BlockCache, blocks: Blocks) -> None:
    """What is left is right or not there, soon goes, and is counted."""
    age(cache, 6)  # to start again takes some seconds
    started = time.monotonic()
    for _ in range(2):
        for number in range(len(blocks.data)):
            blocks.read(cache, number)
    assert blocks.kept(cache) == set(range(len(blocks.data)))
    assert time.monotonic() - started < 4
    age(cache, 3600)
    BlockCache(cache.folder, cache.limit).prepare()
    assert leftovers(cache) == []


@pytest.mark.parametrize("where", ["rename", "write", "replace"])
def test_st05_ds01_killed_at_the_worst_moment(tmp_path: Path, where: str) -> None:  # ST-05, DS-01
    blocks = Blocks(6)
    process = FORK.Process(target=read_and_die, args=(where, BlockCache(str(tmp_path), 1 << 20), blocks))
    process.start()
    process.join(30)
    assert process.exitcode == -signal.SIGKILL
    check_a_clean_run(BlockCache(str(tmp_path), 1 << 20), blocks)


@pytest.mark.parametrize("times", [6, pytest.param(60, marks=pytest.mark.soak)])
def test_st05_ds01_killed_at_any_moment(tmp_path: Path, times: int) -> None:  # ST-05, DS-01
    blocks = Blocks(30, nbytes=300_000)
    cache = BlockCache(str(tmp_path), 1 << 30)
    for _ in range(times):
        processes = [FORK.Process(target=read_until_killed, args=(cache, blocks)) for _ in range(2)]
        for process in processes:
            process.start()
        time.sleep(random.uniform(0.02, 0.2))
        for process in processes:
            process.kill()
            process.join(30)
    check_a_clean_run(BlockCache(str(tmp_path), 1 << 30), blocks)


def in_a_fork(function: Callable[..., Any], *arguments: Any) -> None:
    process = FORK.Process(target=function, args=arguments)
    process.start()
    process.join(30)
    assert process.exitcode == 0


def test_a_fork_while_a_thread_holds_the_lock(tmp_path: Path) -> None:
    blocks, cache = Blocks(4), BlockCache(str(tmp_path), 4 * BLOCK)
    blocks.read(cache, 0)
    with cache._lock:
        in_a_fork(blocks.read, cache, 1)
    assert blocks.read(cache, 1)


def read_three_times(cache: BlockCache, blocks: Blocks, seed: int) -> None:
    order = random.Random(seed)
    for _ in range(3):
        for number in order.sample(range(len(blocks.data)), len(blocks.data)):
            blocks.read(cache, number)


def test_st08_st09_processes_that_share_a_cache_that_is_too_small(tmp_path: Path) -> None:  # ST-08, ST-09
    blocks, limit = Blocks(200), 50 * BLOCK
    for run in range(3):
        processes = [
            FORK.Process(target=read_three_times, args=(BlockCache(str(tmp_path), limit), blocks, 4 * run + number))
            for number in range(PROCESSES)
        ]
        for process in processes:
            process.start()
        stored = tmp_path / "dataflow-blocks" / "blocks"
        most = 0
        while any(process.is_alive() for process in processes):
            most = max(most, BLOCK * len(os.listdir(stored)) if stored.exists() else 0)
        assert [process.exitcode for process in processes] == [0] * PROCESSES
        assert limit * 0.8 <= most <= limit + PROCESSES * BLOCK
        age(BlockCache(str(tmp_path), limit), 3600)  # the next run finds an old cache
