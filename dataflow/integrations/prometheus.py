"""Prometheus: the figures of loaders as metrics, read when they are scraped and not before."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dataflow.errors import OptionError

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric
    from prometheus_client.registry import CollectorRegistry

    from dataflow.loader import DataLoader

__all__ = ["export"]

_LABELS = ("loader", "rank")


def export(loader: DataLoader, name: str = "train", registry: CollectorRegistry | None = None) -> None:
    """Adds a loader's figures to a Prometheus registry, for as long as the loader lives.

    Serve them as usual, for example with `prometheus_client.start_http_server(8000)`. All metrics have the labels
    `loader` and `rank`. Counters go on over iterations. It costs the loader nothing between scrapes.

    Args:
        loader: The loader.
        name: The label `loader`: a name of its own for each loader of this process.
        registry: Where to; by default prometheus_client's own.

    Raises:
        OptionError: prometheus-client is not installed, or the name is taken.
    """
    try:
        from prometheus_client import REGISTRY
    except ImportError as error:
        raise OptionError("export() needs prometheus-client: pip install 'dataflow-loader[prometheus]'") from error
    registry = REGISTRY if registry is None else registry
    collector = _of(registry)
    collector.add(name, loader)


class _Collector:
    """The loaders of one registry."""

    def __init__(self) -> None:
        self._loaders: dict[str, weakref.ref[DataLoader]] = {}

    def add(self, name: str, loader: DataLoader) -> None:
        taken = self._loaders.get(name)
        if taken is not None and taken() not in (None, loader):
            raise OptionError(f"another loader is exported as {name!r} already: give this one a name of its own")
        self._loaders[name] = weakref.ref(loader)

    def collect(self) -> Iterator[Metric]:
        """All metrics, now."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        def counter(name: str, text: str, *labels: str) -> CounterMetricFamily:
            return CounterMetricFamily(f"dataflow_{name}", text, labels=(*_LABELS, *labels))

        def gauge(name: str, text: str) -> GaugeMetricFamily:
            return GaugeMetricFamily(f"dataflow_{name}", text, labels=_LABELS)

        steps = counter("steps", "Batches that were delivered.")
        waited = counter("wait_seconds", "Seconds that the consumer waited, by the stage that it waited for.", "stage")
        between = counter("consumer_seconds", "Seconds that the consumer had between batches.")
        stages = counter("stage_seconds", "Seconds of the threads of a stage.", "stage", "state")
        fetched = counter("fetched_bytes", "Bytes that were fetched.")
        blocks = counter("fetched_blocks", "Blocks that were fetched.")
        cached = counter("cached_bytes", "Those of the bytes that came from the cache.")
        held = gauge("block_bytes", "Bytes of the blocks in memory.")
        peak = gauge("block_bytes_peak", "Most bytes of blocks in memory in this iteration.")
        slabs = gauge("slab_bytes_peak", "Most bytes of slabs in this iteration.")
        replaced = gauge("replaced_rows", "Rows that do not decode and were replaced.")
        for labels, now, total in self._figures():
            steps.add_metric(labels, total["steps"])
            between.add_metric(labels, total["between"])
            for stage, seconds in total["waited_for"].items():
                waited.add_metric([*labels, stage], seconds)
            for stage, seconds in total["stages"].items():
                for state in ("busy", "starved", "blocked"):
                    stages.add_metric([*labels, stage, state], seconds[state])
            fetched.add_metric(labels, total["stages"]["fetch"]["bytes"])
            blocks.add_metric(labels, total["stages"]["fetch"]["blocks"])
            cached.add_metric(labels, total["cache"]["bytes"])
            held.add_metric(labels, now["block_bytes"]["now"])
            peak.add_metric(labels, now["block_bytes"]["peak"])
            slabs.add_metric(labels, now["slabs"]["peak_bytes"])
            replaced.add_metric(labels, now["replaced_rows"])
        yield from (steps, waited, between, stages, fetched, blocks, cached, held, peak, slabs, replaced)

    def _figures(self) -> Iterator[tuple[list[str], dict[str, Any], dict[str, Any]]]:
        for name, reference in list(self._loaders.items()):
            loader = reference()
            if loader is None:
                del self._loaders[name]
            elif total := loader.totals():
                yield [name, str(loader.rank)], loader.stats(), total


# One for each registry: metrics of the same name have to come from one place.
_collectors: weakref.WeakKeyDictionary[CollectorRegistry, _Collector] = weakref.WeakKeyDictionary()


def _of(registry: CollectorRegistry) -> _Collector:
    collector = _collectors.get(registry)
    if collector is None:
        collector = _collectors[registry] = _Collector()
        registry.register(collector)
    return collector
