"""Functions for worker processes, which import this file: it imports little."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np


def arrays(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """A bit of everything that makes a batch."""
    number = int(sample["number"])
    return {
        "number": number,
        "square": np.full((2, 3), number**2, np.float32),
        "ragged": np.arange(number % 5, dtype=np.int16),
        "payload": sample["payload"] * 2,
        "text": f"row {number}",
        "draw": rng.random(4),
    }


def shifted(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    return {**sample, "draw": sample.get("draw", 0.0) + rng.integers(1000), "second": rng.random()}


def keep(sample: dict[str, Any]) -> bool:
    return int(sample["number"]) % 3 != 1


class Trouble(Exception):
    """Cannot be made from its `args`, as many errors of real libraries cannot."""

    def __init__(self, number: int, *, hint: str) -> None:
        super().__init__(f"no luck with {number}")
        self.hint = hint


def fail_at_57(sample: dict[str, Any]) -> dict[str, Any]:
    if int(sample["number"]) == 57:
        raise Trouble(57, hint="try 58")
    return sample


def exit_at_57(sample: dict[str, Any]) -> dict[str, Any]:
    if int(sample["number"]) == 57:
        sys.exit(5)
    return sample


def die_at_57(sample: dict[str, Any]) -> dict[str, Any]:
    if int(sample["number"]) == 57:
        os._exit(3)
    return sample


def stop_at_57(sample: dict[str, Any]) -> dict[str, Any]:
    """Says who it is, and waits to be killed."""
    if int(sample["number"]) == 57:
        print("at", os.getpid(), flush=True)
        time.sleep(50)
    return sample


def segfault_at_57(sample: dict[str, Any]) -> dict[str, Any]:
    if int(sample["number"]) == 57:
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)  # the report of the crash is not wanted in the output of a test
        os.kill(os.getpid(), signal.SIGSEGV)
        time.sleep(50)
    return sample


def killed_with_children(sample: dict[str, Any]) -> dict[str, Any]:
    """Ends while a fork of its process lives on."""
    if int(sample["number"]) == 57:
        if os.fork() == 0:
            time.sleep(4)
            os._exit(0)
        os.kill(os.getpid(), signal.SIGKILL)
    return sample


def slow(sample: dict[str, Any]) -> dict[str, Any]:
    time.sleep(0.02)
    return sample


def forever(sample: dict[str, Any]) -> dict[str, Any]:
    """Holds the interpreter lock, in native code: nothing else runs in this process."""
    print("at", os.getpid(), flush=True)
    sum(iter(lambda: 0, 1)) if sample["number"] < 0 else pow(3, 10**9)
    return sample


def process_facts(sample: dict[str, Any]) -> dict[str, Any]:
    return {"pid": os.getpid(), "torch": "torch" in sys.modules, "parent": os.getppid()}


def torch_threads(sample: dict[str, Any]) -> dict[str, Any]:
    import torch

    return {"threads": torch.get_num_threads()}


def large(sample: dict[str, Any]) -> dict[str, Any]:
    """Every tenth is larger than a slab."""
    number = int(sample["number"])
    return {"number": number, "values": np.full(6_000_000 if number % 10 == 3 else 10, number, np.int64)}


def generated(sample: dict[str, Any]) -> dict[str, Any]:
    """Row 57 has what cannot be pickled."""

    def numbers() -> Iterator[int]:
        yield 1

    return {"number": sample["number"], "values": numbers() if int(sample["number"]) == 57 else 1}
