"""Metrics, scraped over http as Prometheus does."""

from __future__ import annotations

import gc
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator

import pytest
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.parser import text_string_to_metric_families

import dataflow
from dataflow.errors import OptionError
from dataflow.integrations.prometheus import export
from tests.conformance.data import write_rows

Scrape = Callable[[], dict[tuple[str, ...], float]]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> dataflow.Dataset:
    return dataflow.open(write_rows(tmp_path_factory.mktemp("metrics") / "rows", 100))


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def scrape(registry: CollectorRegistry) -> Iterator[Scrape]:
    server, thread = start_http_server(0, addr="127.0.0.1", registry=registry)

    def read() -> dict[tuple[str, ...], float]:
        """Values by name and those of their labels."""
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics", timeout=10) as reply:
            families = text_string_to_metric_families(reply.read().decode())
            return {
                (sample.name, *sample.labels.values()): sample.value for family in families for sample in family.samples
            }

    yield read
    server.shutdown()
    server.server_close()
    thread.join()


def test_counters_go_on_over_epochs(dataset: dataflow.Dataset, registry: CollectorRegistry, scrape: Scrape) -> None:
    train = dataflow.DataLoader(dataset, batch_size=8, rank=1, world_size=2)
    check = dataflow.DataLoader(dataset, batch_size=10)
    export(train, "train", registry)
    export(check, "check", registry)
    assert scrape() == {}
    for epoch in range(1, 4):
        for _ in train:
            pass
        found, figures = scrape(), train.totals()
        assert found["dataflow_steps_total", "train", "1"] == 7 * epoch
        assert found["dataflow_fetched_bytes_total", "train", "1"] == figures["stages"]["fetch"]["bytes"]
        busy = figures["stages"]["assemble"]["busy"]
        assert found["dataflow_stage_seconds_total", "train", "1", "assemble", "busy"] == pytest.approx(busy)
        waits = [value for name, value in found.items() if name[0] == "dataflow_wait_seconds_total"]
        assert sum(waits) == pytest.approx(sum(figures["waited_for"].values()))
        assert not any("check" in name for name in found)
    next(iter(check))
    assert scrape()["dataflow_steps_total", "check", "0"] == 1


def test_a_scrape_in_the_midst_of_an_epoch(
    dataset: dataflow.Dataset, registry: CollectorRegistry, scrape: Scrape
) -> None:
    loader = dataflow.DataLoader(dataset, batch_size=8, num_workers=2)
    export(loader, registry=registry)
    for number, _ in enumerate(loader, 1):
        found = scrape()
        assert found["dataflow_steps_total", "train", "0"] == number
        assert found["dataflow_block_bytes", "train", "0"] >= 0


def test_a_loader_that_is_gone_is_not_exported(
    dataset: dataflow.Dataset, registry: CollectorRegistry, scrape: Scrape
) -> None:
    loader = dataflow.DataLoader(dataset, batch_size=8)
    export(loader, registry=registry)
    export(loader, registry=registry)
    next(iter(loader))
    assert scrape()
    with pytest.raises(OptionError, match="'train' already"):
        export(dataflow.DataLoader(dataset), registry=registry)
    del loader
    gc.collect()
    assert scrape() == {}
    export(dataflow.DataLoader(dataset), registry=registry)


def test_without_the_package_there_is_a_remedy(dataset: dataflow.Dataset) -> None:
    code = (
        "import sys; sys.modules['prometheus_client'] = None\n"
        "import dataflow\nfrom dataflow.integrations.prometheus import export\n"
        f"loader = dataflow.DataLoader(dataflow.open({dataset.manifest.url!r}))\n"
        "try:\n    export(loader)\nexcept dataflow.errors.OptionError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert "pip install 'dataflow-loader[prometheus]'" in done.stdout
