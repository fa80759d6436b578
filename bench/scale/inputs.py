"""What a simulation is told: what the job is, and what is assumed of the store and of the hosts."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from bench.scale.latency import Latency
from bench.scale.store import StoreRules


def _assumed(value: float, text: str) -> Any:
    return field(default=value, metadata={"text": text})


@dataclass(frozen=True, slots=True)
class Workload:
    """The job, as its owner chooses it.

    Attributes:
        batch_size: Samples of a GPU's batch.
        sample_kb: kB of a stored sample.
        decoded_kb: kB of a decoded sample: 224 x 224 pixels of three bytes.
        block_mib: MiB of a block; what the writer chooses for large datasets.
        dataset_tb: TB of the dataset.
        gpus_per_host: GPUs, and so ranks, of a host.
        prefetch_factor: Batches that may wait for each worker; the loader's default.
        concurrency: Most reads of a rank in flight; that of object stores.
    """

    batch_size: int = 32
    sample_kb: float = 110.0
    decoded_kb: float = 150.528
    block_mib: float = 2.0
    dataset_tb: float = 10.0
    gpus_per_host: int = 8
    prefetch_factor: int = 2
    concurrency: int = 128


@dataclass(frozen=True, slots=True)
class Assumed:
    """Numbers that nobody here has measured: replace them by your own."""

    step_ms: float = _assumed(100.0, "ms that a GPU computes for each batch, all-reduce included")
    cores_per_gpu: float = _assumed(12.0, "processors of a host for each GPU")
    host_gb_s: float = _assumed(12.5, "GB/s of a host's network")
    host_memory_gib: float = _assumed(1024.0, "GiB of a host's memory")
    store_gb_s: float = _assumed(256.0, "GB/s of the store, all connections together")
    connection_mb_s: float = _assumed(90.0, "MB/s of one connection")
    requests_per_s: float = _assumed(150_000.0, "requests/s that the store takes on")
    latency_ms: float = _assumed(30.0, "ms to the first byte, median")
    latency_spread: float = _assumed(0.5, "standard deviation of the logarithm of that")
    tail_share: float = _assumed(0.002, "share of requests that are slow")
    tail_factor: float = _assumed(20.0, "times as long that these take")
    failure_rate: float = _assumed(0.001, "share of requests that fail and are tried again")

    def store(self, hosts: int, hedge_percentile: float | None) -> StoreRules:
        """The store as all hosts together see it: their networks are a bound, too."""
        latency = Latency(self.latency_ms / 1e3, self.latency_spread, self.tail_share, self.tail_factor)
        return StoreRules(
            bandwidth=min(self.store_gb_s, hosts * self.host_gb_s) * 1e9,
            connection_bandwidth=self.connection_mb_s * 1e6,
            request_rate=self.requests_per_s,
            latency=latency,
            failure_rate=self.failure_rate,
            hedge_percentile=hedge_percentile,
        )

    def scaled(self, name: str, factor: float) -> Assumed:
        """The same with one number multiplied."""
        return replace(self, **{name: asdict(self)[name] * factor})

    @classmethod
    def described(cls) -> dict[str, str]:
        """What each number means."""
        return {each.name: each.metadata["text"] for each in fields(cls)}
