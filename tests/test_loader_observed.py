"""What a loader tells of itself while it runs: steps, totals over iterations, and traces."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import dataflow
from dataflow.errors import DataflowError, OptionError, StorageError
from tests.conformance.data import write_rows


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> dataflow.Dataset:
    return dataflow.open(write_rows(tmp_path_factory.mktemp("observed") / "rows", 100))


def read(path: Path) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = json.loads(path.read_text())["traceEvents"]
    return events


@pytest.mark.parametrize("options", [{"num_workers": 0}, {"num_workers": 2}, {"num_workers": 2, "device": "cpu"}])
def test_steps_add_up_to_the_figures(dataset: dataflow.Dataset, options: dict[str, Any]) -> None:
    slow = dataset.map(lambda row: time.sleep(0.0002) or row)
    loader = dataflow.DataLoader(slow, batch_size=8, **options)
    assert loader.steps() == []
    for _ in loader:
        time.sleep(0.001)
    steps, stats = loader.steps(), loader.stats()
    assert json.loads(json.dumps(steps)) == steps
    assert [step["step"] for step in steps] == list(range(13))
    assert sum(step["waited"] for step in steps) == pytest.approx(stats["waited"])
    assert sum(step["between"] for step in steps) == pytest.approx(stats["between"])
    for stage, seconds in stats["waited_for"].items():
        assert sum(step["by_stage"][stage] for step in steps) == pytest.approx(seconds)
    assert all(sum(step["by_stage"].values()) <= step["waited"] + 1e-9 for step in steps)
    assert all(step["between"] >= 0.001 for step in steps[1:])


def test_each_step_is_handed_on_before_its_batch(dataset: dataflow.Dataset) -> None:
    told: list[dict[str, Any]] = []
    loader = dataflow.DataLoader(dataset, batch_size=8, on_step=told.append)
    for number, _ in enumerate(loader):
        assert len(told) == number + 1
    assert told == loader.steps()


def test_an_error_of_the_callback_ends_the_step(dataset: dataflow.Dataset) -> None:
    def refuse(step: dict[str, Any]) -> None:
        raise RuntimeError(f"no step {step['step']}")

    loader = dataflow.DataLoader(dataset, batch_size=8, on_step=refuse)
    with pytest.raises(RuntimeError, match="no step 0"):
        next(iter(loader))
    with pytest.raises(OptionError, match="on_step"):
        dataflow.DataLoader(dataset, on_step="print")  # type: ignore[arg-type]


def test_totals_go_on_over_iterations(dataset: dataflow.Dataset) -> None:
    loader = dataflow.DataLoader(dataset, batch_size=8, shuffle=True)
    assert loader.totals() == {}
    waited = 0.0
    for epoch in range(3):
        for _ in loader:
            pass
        waited += loader.stats()["waited"]
        totals = loader.totals()
        assert totals["steps"] == 13 * (epoch + 1)
        assert totals["stages"]["fetch"]["bytes"] == dataset.manifest.num_bytes * (epoch + 1)
        assert totals["waited"] == pytest.approx(waited)


@pytest.mark.parametrize("options", [{"num_workers": 0}, {"num_workers": 2}, {"num_workers": 2, "device": "cpu"}])
def test_a_trace_has_all_that_the_clocks_count(
    dataset: dataflow.Dataset, tmp_path: Path, options: dict[str, Any]
) -> None:
    loader = dataflow.DataLoader(dataset.map(lambda row: row), batch_size=8, rank=0, world_size=1, **options)
    began = time.time()
    with loader.trace(str(tmp_path / "trace.json")):
        for _ in loader:
            pass
    events, stats = read(tmp_path / "trace.json"), loader.stats()
    spans = [event for event in events if event["ph"] == "X"]
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert {span["tid"] for span in spans} <= set(names)
    assert names[0] == "consumer"
    for stage, seconds in stats["stages"].items():
        if stage == "plan":
            continue  # its work is counted between tickets, which are too many to show
        for state in ("busy", "starved", "blocked"):
            traced = [span["dur"] for span in spans if span["cat"] == stage and span["args"]["state"] == state]
            assert sum(traced) * 1e-6 == pytest.approx(seconds[state], abs=1e-6 * len(spans)), (stage, state)
    waits = [span for span in spans if span["name"].startswith("wait ")]
    assert [span["args"]["batch"] for span in waits] == list(range(13))
    assert sum(span["dur"] for span in waits) * 1e-6 == pytest.approx(stats["waited"], abs=1e-4)
    assert {f"batch {number}" for number in range(13)} <= {span["name"] for span in spans if span["cat"] == "assemble"}
    assert {f"block {number}" for number in range(25)} <= {span["name"] for span in spans if span["cat"] == "fetch"}
    assert all(began - 1 <= event["ts"] * 1e-6 <= time.time() + 1 for event in events if "ts" in event)


def test_spans_of_a_thread_follow_one_another_and_batches_nest(dataset: dataflow.Dataset, tmp_path: Path) -> None:
    loader = dataflow.DataLoader(dataset, batch_size=8, num_workers=2)
    with loader.trace(str(tmp_path / "trace.json")):
        for _ in loader:
            pass
    by_thread = defaultdict(list)
    open_stages: dict[int, list[tuple[str, float]]] = defaultdict(list)
    for event in read(tmp_path / "trace.json"):
        if event["ph"] == "X":
            by_thread[event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
        elif event["ph"] == "b":
            open_stages[event["id"]].append((event["name"], event["ts"]))
        elif event["ph"] == "e":
            name, since = open_stages[event["id"]].pop()
            assert (name, True) == (event["name"], event["ts"] >= since)
    assert len(open_stages) == 13
    assert not any(open_stages.values())
    for spans in by_thread.values():
        ordered = sorted(spans)
        assert all(stop <= start + 1 for (_, stop), (start, _) in pairwise(ordered))


def test_a_trace_of_some_steps_of_a_running_iteration(dataset: dataflow.Dataset, tmp_path: Path) -> None:
    loader = dataflow.DataLoader(dataset, batch_size=8, num_workers=1)
    batches = iter(loader)
    next(batches)
    with loader.trace(str(tmp_path / "part.json")):
        for _ in range(3):
            next(batches)
    next(batches)
    waits = [event for event in read(tmp_path / "part.json") if event["name"].startswith("wait ")]
    assert [event["args"]["batch"] for event in waits] == [1, 2, 3]
    with loader.trace(str(tmp_path / "next.json")), pytest.raises(DataflowError, match="already"):
        loader.trace(str(tmp_path / "both.json")).__enter__()


def test_a_trace_is_written_whatever_ends_it(dataset: dataflow.Dataset, tmp_path: Path) -> None:
    loader = dataflow.DataLoader(dataset, batch_size=8)

    def interrupted() -> None:
        with loader.trace(str(tmp_path / "trace.json")):
            next(iter(loader))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert any(event["name"] == "wait 0" for event in read(tmp_path / "trace.json"))
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="file"), loader.trace(str(tmp_path / "file" / "trace.json")):
        next(iter(loader))
    with loader.trace(str(tmp_path / "again.json")):
        pass


def test_a_trace_that_is_full_says_so(
    dataset: dataflow.Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("dataflow.pipeline.trace._MOST_EVENTS", 20)
    loader = dataflow.DataLoader(dataset, batch_size=8)
    with loader.trace(str(tmp_path / "trace.json")):
        for _ in loader:
            pass
    document = json.loads((tmp_path / "trace.json").read_text())
    assert len(document["traceEvents"]) == 20
    assert document["otherData"]["dropped_events"] > 0
    assert "the trace is full" in caplog.text
