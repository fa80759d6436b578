"""map(processes=): the same samples, errors that say what happened, and functions of every kind."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch

import dataflow
from dataflow.errors import DataflowError, DatasetError, OptionError
from tests.pipeline import functions
from tests.pipeline.script import run

Rows = Callable[..., dataflow.Dataset]


@pytest.fixture
def dataset(rows: Rows) -> dataflow.Dataset:
    return rows(120, 300)


def plain(batch: Any) -> Any:
    """A batch as what can be compared, with types and shapes."""
    if isinstance(batch, dict):
        return {name: plain(value) for name, value in batch.items()}
    if isinstance(batch, list):
        return [plain(value) for value in batch]
    if isinstance(batch, torch.Tensor):
        return str(batch.dtype), tuple(batch.shape), batch.tolist()
    return batch


def batches(dataset: dataflow.Dataset, epochs: int = 1, **options: Any) -> list[Any]:
    loader = dataflow.DataLoader(dataset, **{"batch_size": 16, "shuffle": True, "lanes": 4, "seed": 3, **options})
    return [plain(batch) for _ in range(epochs) for batch in loader]


STAGES: dict[str, tuple[Callable[..., dataflow.Dataset], dict[str, Any]]] = {
    "one": (lambda d, **p: d.map(functions.arrays, **p), {}),
    "two": (lambda d, **p: d.map(functions.arrays, **p).map(functions.shifted, **p), {}),
    "between others": (lambda d, **p: d.map(functions.shifted).map(functions.arrays, **p).map(functions.shifted), {}),
    "filter before": (lambda d, **p: d.filter(functions.keep).map(functions.arrays, **p), {"end": "exact"}),
    "filter after": (lambda d, **p: d.map(functions.arrays, **p).filter(functions.keep), {"steps_per_epoch": 9}),
    "select after": (lambda d, **p: d.map(functions.arrays, **p).select(["draw", "payload"]), {}),
}


@pytest.mark.parametrize(
    ("stages", "workers", "processes"), [*((stages, 3, 2) for stages in STAGES), ("one", 0, 1), ("filter after", 0, 1)]
)
def test_processes_change_nothing(dataset: dataflow.Dataset, stages: str, workers: int, processes: int) -> None:
    make, options = STAGES[stages]
    expected = batches(make(dataset), epochs=2, **options)
    assert len(expected) > 4
    assert batches(make(dataset, processes=processes), epochs=2, num_workers=workers, **options) == expected


def test_processes_change_nothing_for_a_collate_function(dataset: dataflow.Dataset) -> None:
    def collate(samples: list[dict[str, Any]]) -> list[Any]:
        return [sample["draw"].tolist() for sample in samples]

    expected = batches(dataset.map(functions.arrays), collate_fn=collate)
    assert batches(dataset.map(functions.arrays, processes=2), collate_fn=collate) == expected


def test_processes_change_nothing_on_any_rank(dataset: dataflow.Dataset) -> None:
    for rank in range(2):
        options = {"rank": rank, "world_size": 2, "end": "exact", "agree": bool, "num_workers": 2, "lanes": 16}
        expected = batches(dataset.filter(functions.keep).map(functions.arrays), **options)
        assert batches(dataset.filter(functions.keep).map(functions.arrays, processes=2), **options) == expected


def test_a_state_belongs_to_any_number_of_processes(dataset: dataflow.Dataset) -> None:
    options: dict[str, Any] = {"batch_size": 16, "shuffle": True, "seed": 3}
    expected = batches(dataset.map(functions.arrays), lanes=None)
    loader = dataflow.DataLoader(dataset.map(functions.arrays, processes=2), **options)
    iterator = iter(loader)
    assert [plain(next(iterator)) for _ in range(3)] == expected[:3]
    state = loader.state_dict()
    iterator.close()
    for processes in (None, 1):
        resumed = dataflow.DataLoader(dataset.map(functions.arrays, processes=processes), **options)
        resumed.load_state_dict(state)
        assert resumed.state_dict() == state
        assert [plain(batch) for batch in resumed] == expected[3:]


def test_a_row_by_number_runs_in_this_process(dataset: dataflow.Dataset) -> None:
    mapped = dataset.map(functions.process_facts, processes=2)
    assert mapped[3]["pid"] == os.getpid()
    assert plain(dataset.map(functions.arrays, processes=2)[5]["text"]) == "row 5"


def test_processes_are_those_that_were_asked_for(dataset: dataflow.Dataset) -> None:
    def facts(sample: dict[str, Any]) -> dict[str, Any]:
        time.sleep(0.02)  # none is done before all have started
        return functions.process_facts(sample)

    before = psutil.Process().children()
    loader = dataflow.DataLoader(dataset.map(facts, processes=3), batch_size=12, num_workers=2, epochs=3)
    assert psutil.Process().children() == before, "before they are needed"
    epoch = [dict(zip(batch["pid"].tolist(), batch["parent"].tolist(), strict=True)) for batch in loader]
    pids = {pid for batch in epoch for pid in batch}
    assert len(pids) == 3, "the same through all epochs"
    assert {parent for batch in epoch for parent in batch.values()} == {os.getpid()}
    assert not any(batch["torch"].any() for batch in loader), "who does not need torch does not wait for it"


def test_torch_has_one_thread_in_a_worker(dataset: dataflow.Dataset) -> None:
    loader = dataflow.DataLoader(dataset.map(functions.torch_threads, processes=1), batch_size=8)
    assert next(iter(loader))["threads"].tolist() == [1] * 8


def test_two_loaders_at_once(dataset: dataflow.Dataset) -> None:
    expected = [batches(dataset.map(functions.arrays), seed=seed) for seed in range(2)]
    loaders = [
        dataflow.DataLoader(
            dataset.map(functions.arrays, processes=2), batch_size=16, shuffle=True, lanes=4, seed=seed, num_workers=2
        )
        for seed in range(2)
    ]
    pairs = [(plain(one), plain(two)) for one, two in zip(*loaders, strict=True)]
    assert [list(batch) for batch in zip(*pairs, strict=True)] == expected


def test_arrays_larger_than_a_slab(rows: Rows) -> None:
    dataset = rows(40, 0).map(functions.large, processes=1)
    loader = dataflow.DataLoader(dataset, batch_size=4, num_workers=1, prefetch_factor=1)
    for batch in loader:
        for number, values in zip(batch["number"].tolist(), batch["values"], strict=True):
            assert len(values) == (6_000_000 if number % 10 == 3 else 10)
            assert int(values[0]) == int(values[-1]) == number


def test_samples_larger_than_a_slab_go_to_a_worker(rows: Rows) -> None:
    dataset = rows(16, 0).map(functions.large).map(lambda sample: {"sum": int(sample["values"].sum())}, processes=1)
    sums = [number for batch in dataflow.DataLoader(dataset, batch_size=4) for number in batch["sum"].tolist()]
    assert sums == [number * (6_000_000 if number % 10 == 3 else 10) for number in range(16)]


def test_a_worker_may_keep_what_it_gets(dataset: dataflow.Dataset) -> None:
    kept: list[Any] = []

    def keeping(sample: dict[str, Any]) -> dict[str, Any]:
        kept.append(sample["square"])
        return {"first": int(kept[0][0, 0]), "sum": int(sum(array[0, 0] for array in kept))}

    mapped = dataset.map(functions.arrays).map(keeping, processes=1)
    found = [row for batch in dataflow.DataLoader(mapped, batch_size=8, num_workers=1) for row in batch["sum"].tolist()]
    assert found == np.cumsum(np.arange(120) ** 2).tolist()


def test_dl16_a_changed_function_is_seen_by_the_next_iteration(dataset: dataflow.Dataset) -> None:
    factor = [1]
    loader = dataflow.DataLoader(dataset.map(lambda s: {"n": s["number"] * factor[0]}, processes=1), batch_size=4)
    assert next(iter(loader))["n"].tolist() == [0, 1, 2, 3]
    factor[0] = 7
    assert next(iter(loader))["n"].tolist() == [0, 7, 14, 21]


MAIN = """
import dataclasses, torch
import numpy as np

@dataclasses.dataclass
class Point:
    x: int

    def doubled(self):
        return Point(self.x * OFFSET)

OFFSET = 2

def move(sample):
    return {"point": sample["point"].doubled(), "half": torch.full((3,), 0.5, dtype=torch.bfloat16)}

if __name__ == "__main__":
    dataset = dataflow.open(sys.argv[1]).map(lambda sample: {"point": Point(int(sample["number"]))})
    for batch in dataflow.DataLoader(dataset.map(move, processes=1), batch_size=4):
        assert all(type(point) is Point for point in batch["point"])
        assert batch["half"].dtype is torch.bfloat16 and batch["half"].shape == (4, 3)
        print(*(point.x for point in batch["point"]))
        break
"""


def test_dl26_functions_and_classes_of_a_script(dataset: dataflow.Dataset) -> None:
    assert run(MAIN, dataset.manifest.url).splitlines()[0] == "0 2 4 6"


@pytest.mark.parametrize("processes", [0, -1, 1.0, "2", True])
def test_processes_is_a_positive_integer(dataset: dataflow.Dataset, processes: Any) -> None:
    with pytest.raises(OptionError, match="processes="):
        dataset.map(functions.arrays, processes=processes)


def test_dl26_a_function_that_cannot_be_sent_is_refused_by_map(dataset: dataflow.Dataset) -> None:
    lock = threading.Lock()

    def locked(sample: dict[str, Any]) -> dict[str, Any]:
        with lock:
            return sample

    with pytest.raises(OptionError, match=r"locked' cannot be sent to processes.*lock.*processes="):
        dataset.map(locked, processes=2)


def test_without_cloudpickle_the_remedy_is_named(dataset: dataflow.Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(OptionError, match=r"pip install 'dataflow-loader\[processes\]'"):
        dataset.map(functions.arrays, processes=2)
    dataset.map(functions.arrays)


def test_a_function_that_cannot_be_loaded(dataset: dataflow.Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    module = type(sys)("only_here")
    exec("def twice(sample):\n    return sample", vars(module))
    monkeypatch.setitem(sys.modules, "only_here", module)
    loader = dataflow.DataLoader(dataset.map(module.twice, processes=1), batch_size=4)
    with pytest.raises(DataflowError, match=r"'twice' cannot be loaded.*only_here.*importable"):
        next(iter(loader))


def test_a_module_that_reads_when_it_is_imported_starts_no_process_after_the_other(
    dataset: dataflow.Dataset, tmp_path: Path
) -> None:
    (tmp_path / "reads_at_once.py").write_text(
        "import dataflow\n"
        "def same(sample):\n    return sample\n"
        f"dataset = dataflow.open({dataset.manifest.url!r}).map(same, processes=1)\n"
        "next(iter(dataflow.DataLoader(dataset)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", "import reads_at_once"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert "under `if __name__ ==" in done.stderr.splitlines()[-2] + done.stderr.splitlines()[-1]


def seen_before_error(loader: dataflow.DataLoader, seen: list[int], times: list[float]) -> None:
    for batch in loader:
        seen += batch["number"].tolist()
        times.append(time.perf_counter())


@pytest.mark.parametrize("workers", [0, 3])
@pytest.mark.parametrize("kind", ["map", "filter before", "filter after"])
def test_dl02_an_error_comes_with_its_traceback_and_sample(dataset: dataflow.Dataset, workers: int, kind: str) -> None:
    options: dict[str, Any] = {} if kind == "map" else {"end": "exact"}
    if kind == "filter before":
        dataset = dataset.filter(lambda sample: True)
    dataset = dataset.map(functions.fail_at_57, processes=2)
    if kind == "filter after":
        dataset = dataset.filter(lambda sample: True)
    loader = dataflow.DataLoader(dataset, batch_size=4, num_workers=workers, **options)
    seen: list[int] = []
    with pytest.raises(functions.Trouble, match="no luck with 57") as caught:
        seen_before_error(loader, seen, [])
    assert caught.value.hint == "try 58"
    assert seen == list(range(56)), "all batches before it come first"
    text = "".join(traceback.format_exception(caught.value))
    assert "raised in worker process" in text
    assert 'raise Trouble(57, hint="try 58")' in text
    assert "in map 'fail_at_57', on row 1 of block 14 in epoch 0" in text
    assert "in _answer" not in text, "frames of this project are of no interest"


def test_the_error_of_the_first_sample_is_raised(dataset: dataflow.Dataset) -> None:
    """Though the stage that it is in comes after the one where others fail."""

    def late(sample: dict[str, Any]) -> dict[str, Any]:
        if int(sample["number"]) == 49:
            raise ZeroDivisionError
        return sample

    mapped = dataset.map(functions.fail_at_57, processes=2).map(late)
    with pytest.raises(ZeroDivisionError):
        list(dataflow.DataLoader(mapped, batch_size=40))


def test_sys_exit_is_an_error_as_any_other(dataset: dataflow.Dataset) -> None:
    with pytest.raises(SystemExit) as caught:
        list(dataflow.DataLoader(dataset.map(functions.exit_at_57, processes=1), batch_size=4))
    assert caught.value.code == 5


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (functions.die_at_57, "'die_at_57' ended with exit code 3"),
        (functions.segfault_at_57, "'segfault_at_57' died of SIGSEGV.*native library"),
        (functions.killed_with_children, r"'killed_with_children' was killed \(SIGKILL\).*memory.*fewer processes"),
    ],
)
@pytest.mark.parametrize("workers", [0, 2])
def test_the_end_of_a_worker_is_told_at_once(
    dataset: dataflow.Dataset, function: Callable[..., Any], said: str, workers: int
) -> None:
    loader = dataflow.DataLoader(dataset.map(function, processes=1), batch_size=4, num_workers=workers)
    seen: list[int] = []
    times: list[float] = []
    with pytest.raises(DataflowError, match=said) as caught:
        seen_before_error(loader, seen, times)
    assert time.perf_counter() - times[-1] < 1
    assert seen == list(range(56))
    assert "on row 1 of block 14 in epoch 0" in "".join(traceback.format_exception(caught.value))


def test_a_worker_that_is_killed_at_work_is_told_at_once(
    dataset: dataflow.Dataset, capfd: pytest.CaptureFixture
) -> None:
    loader = dataflow.DataLoader(dataset.map(functions.stop_at_57, processes=2), batch_size=4, num_workers=2)
    iterator = iter(loader)
    for _ in range(14):
        next(iterator)
    killed = []

    def kill() -> None:
        while "at" not in (text := capfd.readouterr().out):
            time.sleep(0.01)
        killed.append(time.perf_counter())
        psutil.Process(int(text.split()[1])).kill()

    thread = threading.Thread(target=kill)
    thread.start()
    with pytest.raises(DataflowError, match="SIGKILL") as caught:
        next(iterator)
    assert time.perf_counter() - killed[0] < 1
    assert "on row 1 of block 14" in "".join(traceback.format_exception(caught.value))
    thread.join()


def test_what_cannot_be_handed_over_is_named(dataset: dataflow.Dataset) -> None:
    loader = dataflow.DataLoader(dataset.map(functions.generated, processes=2), batch_size=20)
    with pytest.raises(DatasetError, match=r"hand over.*generator.*processes=") as caught:
        list(loader)
    assert "in map 'generated', on row 1 of block 14" in "".join(traceback.format_exception(caught.value))
    loader = dataflow.DataLoader(dataset.map(functions.generated).map(lambda s: s, processes=2), batch_size=20)
    with pytest.raises(DatasetError, match=r"cannot be sent to worker processes.*generator.*processes=") as caught:
        list(loader)
    assert "on row 1 of block 14" in "".join(traceback.format_exception(caught.value))


def test_an_iteration_after_an_error_begins_anew(dataset: dataflow.Dataset) -> None:
    loader = dataflow.DataLoader(dataset.map(functions.die_at_57, processes=2), batch_size=4, num_workers=2)
    for _ in range(2):
        with pytest.raises(DataflowError, match="exit code 3"):
            list(loader)
        assert loader.state_dict()["slots"] == 56
        loader.load_state_dict({**loader.state_dict(), "slots": 40})
