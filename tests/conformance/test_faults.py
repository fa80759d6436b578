"""Every sample exactly once, whatever the store does to single requests."""

from __future__ import annotations

import random
import threading
from functools import partial
from typing import Any

import pytest

import dataflow
from dataflow.storage import RetryPolicy
from tests.conformance.adapter import Adapter
from tests.servers.proxy import Fault, FaultProxy, Request, error_reply, slow_down

ROWS = 1000
SHARE = 0.05
FAULTS = {
    "short": Fault(after=4000),
    "empty": Fault(after=0),
    "complete-looking": Fault(after=4000, rewrite_length=True),
    "reset": Fault(after=4000, end="reset"),
    "silent in the body": Fault(after=4000, end="stall"),
    "silent before it": Fault(headers=False),
    "slow down": slow_down(),
    "internal error": error_reply(500, "InternalError", "We encountered an internal error."),
    "another range": Fault(shift=100),
    "the whole object": Fault(whole=True),
    "a flipped bit": Fault(flip=3000),
    "late": Fault(delay=0.3),
    "slow": Fault(rate=100_000),
}


class Chance:
    """Breaks a share of the replies, each in a way drawn from a seed; counts what it did."""

    def __init__(self, seed: int) -> None:
        self.done = dict.fromkeys(FAULTS, 0)
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._flipped: set[str] = set()

    def __call__(self, request: Request) -> Fault | None:
        with self._lock:
            if request.method != "GET" or self._random.random() >= SHARE:
                return None
            kind = self._random.choice(list(FAULTS))
            if kind == "a flipped bit":
                # A block that arrives damaged twice in a row is an error by design.
                place = request.path.partition("?")[0] + request.headers.get("range", "")
                if place in self._flipped:
                    return None
                self._flipped.add(place)
            self.done[kind] += 1
            return FAULTS[kind]


@pytest.mark.parametrize("epochs", [3, pytest.param(20, marks=pytest.mark.soak)])
def test_every_sample_once_in_spite_of_random_faults(  # SG-02, SG-03, SG-04, ST-12
    epochs: int, adapter: Adapter, s3_url: str, fault_proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    patient = partial(RetryPolicy, idle_seconds=1.0, first_wait_seconds=0.02)
    monkeypatch.setattr("dataflow.storage.RetryPolicy", patient)
    with dataflow.ShardWriter(s3_url, rows_per_block=4, shard_bytes=1 << 20) as writer:
        for number in range(ROWS):
            writer.write({"number": number, "payload": number.to_bytes(4, "big") * 500})
    faults = fault_proxy.script = Chance(seed=7)
    loader: Any = adapter.make_loader(adapter.open(s3_url), batch_size=50, shuffle=True, seed=1, num_workers=2)
    for epoch in range(epochs):
        loader.set_epoch(epoch)
        numbers: list[int] = []
        for batch in loader:
            numbers += batch["number"].tolist()
            for number, payload in zip(batch["number"].tolist(), batch["payload"], strict=True):
                assert bytes(payload) == number.to_bytes(4, "big") * 500
        assert sorted(numbers) == list(range(ROWS)), (epoch, faults.done)
    assert sum(faults.done.values()) > 0.6 * SHARE * epochs * ROWS / 4
    if epochs > 10:
        assert all(faults.done.values()), faults.done
