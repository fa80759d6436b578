"""Arguments: torch's where torch has them; what cannot work is refused where the loader is made, and named."""

from __future__ import annotations

import inspect
import logging
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.utils.data

import dataflow
from dataflow.errors import DataflowError, OptionError, StateError
from tests.conformance.data import write_rows
from tests.conformance.watchdog import limited

LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS")


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No launcher, and nothing may hang."""
    for name in LAUNCHERS:
        monkeypatch.delenv(name, raising=False)
    with limited(60):
        yield


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> dataflow.Dataset:
    return dataflow.open(write_rows(tmp_path_factory.mktemp("options") / "rows", 100))


def test_the_loader_is_a_torch_data_loader(dataset: dataflow.Dataset) -> None:
    loader = dataflow.DataLoader(dataset, 8, True, num_workers=2, drop_last=True, timeout=5)
    assert isinstance(loader, torch.utils.data.DataLoader)
    assert loader.dataset is dataset
    assert (loader.batch_size, loader.num_workers, loader.drop_last, loader.timeout) == (8, 2, True, 5)
    assert loader.pin_memory is False
    ours = inspect.signature(dataflow.DataLoader.__init__).parameters
    theirs = inspect.signature(torch.utils.data.DataLoader.__init__).parameters
    assert set(theirs) <= set(ours)
    for name, parameter in theirs.items():
        assert ours[name].kind == parameter.kind, name
        if name != "num_workers":  # None: as many as the processors allow
            assert ours[name].default == parameter.default, name
    positional = [name for name, parameter in theirs.items() if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]
    assert list(ours)[: len(positional)] == positional


@pytest.mark.parametrize(
    ("options", "named"),
    [
        *[({"batch_size": value}, "batch_size") for value in (0, -1, 1.5, "8", None, True)],
        *[({"num_workers": value}, "num_workers") for value in (-1, 1.5, "2", True)],
        *[({"prefetch_factor": value}, "prefetch_factor") for value in (0, -1, 1.5)],
        *[({"timeout": value}, "timeout") for value in (-1, "1", None)],
        *[({"seed": value}, "seed") for value in (None, 1.0, "1", True)],
        *[({"seed": value}, "128 bits") for value in (2**127, -(2**127) - 1)],
        *[({"lanes": value}, "lanes") for value in (0, -8, 2.0)],
        *[({"epochs": value}, "epochs") for value in (0, -1, None, 1.5)],
        *[({"steps_per_epoch": value}, "steps_per_epoch") for value in (0, -1, 2.5)],
        *[({"memory_limit": value}, "memory_limit") for value in (0, -1, 1e9, "1GB")],
        *[({"end": value}, "end") for value in ("", "sample", True)],
        *[({"rank": 0}, "world_size"), ({"world_size": 2}, "rank"), ({"rank": 2, "world_size": 2}, "rank=2")],
        *[({"rank": -1, "world_size": 2}, "rank=-1"), ({"rank": 0, "world_size": 0}, "world_size=0")],
        *[({"rank": "0", "world_size": 2}, "rank"), ({"rank": 0.0, "world_size": 2}, "rank")],
        *[({"rank": "mpi"}, "mpi"), ({"rank": "slurm"}, "SLURM_PROCID"), ({"rank": 1.5, "world_size": 2}, "rank")],
        ({"sampler": [1, 2]}, "sampler"),
        ({"batch_sampler": [[1], [2]]}, "batch_sampler"),
        ({"worker_init_fn": print}, "worker_init_fn"),
        ({"multiprocessing_context": "fork"}, "multiprocessing_context"),
        ({"generator": torch.Generator()}, "generator"),
        ({"collate_fn": 3}, "collate_fn"),
        ({"agree": 3, "end": "exact"}, "agree"),
        ({"pad": {"nothing": 0}}, "nothing"),
        ({"pad": 3}, "pad"),
        ({"end": "exact", "drop_last": True}, "drop_last"),
        ({"end": "exact", "steps_per_epoch": 3}, "steps_per_epoch"),
        ({"end": "exact", "epochs": 2}, "epochs"),
        ({"batch_size": 101, "drop_last": True}, "batch_size"),
        ({"memory_limit": 1}, "memory_limit"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_cannot_work_is_refused_and_named(dataset: dataflow.Dataset, options: dict[str, Any], named: str) -> None:
    with pytest.raises(OptionError) as caught:
        dataflow.DataLoader(dataset, **options)
    assert named in str(caught.value)


def test_errors_are_value_errors_and_of_one_family() -> None:
    assert issubclass(OptionError, ValueError)
    assert issubclass(OptionError, DataflowError)


def test_other_datasets_are_sent_to_torch() -> None:
    with pytest.raises(OptionError, match=r"torch\.utils\.data\.DataLoader"):
        dataflow.DataLoader([1, 2, 3])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "words"),
    [({}, ["steps_per_epoch=", "end='exact'"]), ({"end": "exact", "rank": 0, "world_size": 2}, ["agree="])],
)
def test_a_filter_needs_an_end_on_which_ranks_agree(
    dataset: dataflow.Dataset, options: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(OptionError) as caught:
        dataflow.DataLoader(dataset.filter(lambda sample: True), **options)
    assert all(word in str(caught.value) for word in words)


def test_columns_that_are_not_there_are_refused(dataset: dataflow.Dataset) -> None:
    with pytest.raises(OptionError, match=r"'label'.*number"):
        dataset.select(["number", "label"])
    with pytest.raises(OptionError, match="callable"):
        dataset.map(3)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="cannot be called"):
        dataset.filter(lambda one, two, three: True)


@pytest.mark.parametrize("name", ["sample_id", "slot", "valid"])
def test_columns_with_names_of_our_own_are_refused(tmp_path: Path, dataset: dataflow.Dataset, name: str) -> None:
    """They would be lost in the batch."""
    with dataflow.ShardWriter(str(tmp_path / "x")) as writer:
        writer.write({"number": 1, name: 7})
    own = dataflow.open(str(tmp_path / "x"))
    with pytest.raises(OptionError, match=name):
        dataflow.DataLoader(own)
    assert next(iter(dataflow.DataLoader(own.select("number"))))["number"].tolist() == [1]
    renamed = own.map(lambda sample: {"number": sample["number"], "mine": sample[name]})
    assert next(iter(dataflow.DataLoader(renamed)))["mine"].tolist() == [7]
    loader = dataflow.DataLoader(dataset.map(lambda sample: {**sample, name: 7}))
    with pytest.raises(DataflowError, match=name):
        next(iter(loader))


@pytest.mark.parametrize(
    ("options", "length"),
    [
        *[({"batch_size": 8}, 13), ({"batch_size": 8, "drop_last": True}, 12), ({"batch_size": 1}, 100)],
        *[({"batch_size": 100, "drop_last": True}, 1), ({"batch_size": 1000}, 1)],
        *[({"batch_size": 8, "rank": 2, "world_size": 3}, 5), ({"batch_size": 8, "epochs": 3}, 38)],
        *[({"batch_size": 8, "rank": 2, "world_size": 3, "drop_last": True}, 4)],
        *[({"batch_size": 8, "epochs": 3, "drop_last": True}, 37), ({"batch_size": 8, "steps_per_epoch": 7}, 7)],
        *[({"batch_size": 8, "steps_per_epoch": 7, "epochs": 2}, 14), ({"batch_size": 8, "end": "exact"}, 13)],
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:.*lanes for")
def test_len_is_what_comes(dataset: dataflow.Dataset, options: dict[str, Any], length: int) -> None:
    loader = dataflow.DataLoader(dataset, shuffle=True, num_workers=1, **options)
    assert len(loader) == length == sum(1 for _ in loader) == sum(1 for _ in loader)


def test_len_of_a_filtered_stream(dataset: dataflow.Dataset) -> None:
    filtered = dataset.filter(lambda sample: sample["number"] % 2)
    assert len(dataflow.DataLoader(filtered, batch_size=8, steps_per_epoch=9)) == 9
    loader = dataflow.DataLoader(filtered, batch_size=8, end="exact")
    with pytest.raises(TypeError, match="steps_per_epoch"):
        len(loader)
    assert sum(1 for _ in loader) == 7


def test_the_default_number_of_workers_follows_the_processors(
    dataset: dataflow.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpus = len(os.sched_getaffinity(0))
    assert 1 <= dataflow.DataLoader(dataset).num_workers <= cpus
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(cpus))
    assert dataflow.DataLoader(dataset).num_workers == 1
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(1000 * cpus))
    assert dataflow.DataLoader(dataset).num_workers == 1
    assert dataflow.DataLoader(dataset, num_workers=0).num_workers == 0


def test_lanes_follow_from_the_manifest_alone(dataset: dataflow.Dataset) -> None:
    lanes = dataflow.DataLoader(dataset, shuffle=True).lanes
    assert lanes == 1  # 25 blocks
    for options in ({"batch_size": 50}, {"num_workers": 7}, {"rank": 0, "world_size": 1}, {"prefetch_factor": 9}):
        assert dataflow.DataLoader(dataset, shuffle=True, **options).lanes == lanes  # type: ignore[arg-type]
    assert dataflow.DataLoader(dataset, shuffle=True, lanes=5).lanes == 5
    assert dataflow.DataLoader(dataset, shuffle=False, lanes=5).lanes == 1


def test_few_lanes_for_many_ranks_are_warned_about(dataset: dataflow.Dataset) -> None:
    with pytest.warns(UserWarning, match=r"8 lanes for 4 ranks.*lanes="):
        dataflow.DataLoader(dataset, shuffle=True, lanes=8, rank=0, world_size=4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dataflow.DataLoader(dataset, shuffle=True, lanes=16, rank=0, world_size=4)
        dataflow.DataLoader(dataset, shuffle=False, rank=0, world_size=4)


def test_rank_as_given(dataset: dataflow.Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "5")
    monkeypatch.setenv("WORLD_SIZE", "6")
    loader = dataflow.DataLoader(dataset, rank=1, world_size=2)
    assert (loader.rank, loader.world_size) == (1, 2)


def test_rank_of_the_environment_is_logged(
    dataset: dataflow.Dataset, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("RANK", "5")
    loader = dataflow.DataLoader(dataset)
    assert (loader.rank, loader.world_size) == (0, 1), "only where both are set"
    monkeypatch.setenv("WORLD_SIZE", "6")
    with caplog.at_level(logging.INFO, "dataflow"):
        loader = dataflow.DataLoader(dataset)
    assert (loader.rank, loader.world_size) == (5, 6)
    assert "rank 5 of 6, from RANK and WORLD_SIZE" in caplog.text
    for wrong in ("six", "5", "", "-1"):
        monkeypatch.setenv("WORLD_SIZE", wrong)
        with pytest.raises(OptionError, match=r"WORLD_SIZE|world_size"):
            dataflow.DataLoader(dataset)


def test_rank_of_slurm_only_when_asked(dataset: dataflow.Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_PROCID", "3")
    monkeypatch.setenv("SLURM_NTASKS", "4")
    loader = dataflow.DataLoader(dataset)
    assert (loader.rank, loader.world_size) == (0, 1)
    loader = dataflow.DataLoader(dataset, rank="slurm")
    assert (loader.rank, loader.world_size) == (3, 4)
    monkeypatch.setenv("SLURM_NTASKS", "2")
    with pytest.raises(OptionError, match="rank=3"):
        dataflow.DataLoader(dataset, rank="slurm")


def in_process_group(rank: int, ranks: int, url: str, folder: str) -> None:
    """What one rank of a real process group sees."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=ranks)
    dataset = dataflow.open(url)
    plain = dataflow.DataLoader(dataset, batch_size=4)
    assert (plain.rank, plain.world_size) == (rank, ranks)
    given = dataflow.DataLoader(dataset, rank=0, world_size=1)
    assert (given.rank, given.world_size) == (0, 1)
    # Ranks that differ in tensor parallelism alone get the same batches.
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    data = dataflow.DataLoader(dataset, batch_size=4, shuffle=True, mesh=mesh["dp"])
    assert (data.rank, data.world_size) == (rank // 2, 2)
    slots = [slot for batch in data for slot in batch["slot"].tolist()]
    everybody: list[Any] = [None] * ranks
    dist.all_gather_object(everybody, slots)
    assert everybody[0] == everybody[1] != everybody[2] == everybody[3]
    assert set(everybody[0]) | set(everybody[2]) == set(range(100))
    with pytest.raises(OptionError, match=r"mesh\['dp'\]"):
        dataflow.DataLoader(dataset, mesh=mesh)
    hybrid = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    both = dataflow.DataLoader(dataset, mesh=hybrid)
    assert (both.rank, both.world_size) == (rank, ranks)
    with pytest.raises(OptionError, match="mesh="):
        dataflow.DataLoader(dataset, mesh=hybrid, rank=0, world_size=1)

    # Ranks agree on the end of a filtered epoch by a real collective.
    def agree(more: bool) -> bool:
        flag = torch.tensor([int(more)])
        dist.all_reduce(flag, dist.ReduceOp.MAX)
        return bool(flag)

    kept = dataset.filter(lambda sample: sample["number"] < 10)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exact = dataflow.DataLoader(kept, batch_size=2, shuffle=True, lanes=8, end="exact", agree=agree)
    found = []
    steps = 0
    for batch in exact:
        steps += 1
        found += batch["sample_id"][batch["valid"]].tolist()
        dist.all_reduce(torch.zeros(1))
    dist.all_gather_object(everybody, (steps, found))
    assert len({steps for steps, _ in everybody}) == 1
    assert sorted(sample for _, found in everybody for sample in found) == list(range(10))
    states: list[Any] = [None] * ranks
    dist.all_gather_object(states, exact.state_dict())
    assert dataflow.merge_states(states)["epoch"] == 1
    dist.destroy_process_group()


def test_ranks_of_a_process_group_and_of_a_mesh(dataset: dataflow.Dataset, tmp_path: Path) -> None:
    torch.multiprocessing.spawn(in_process_group, (4, dataset.manifest.url, str(tmp_path)), nprocs=4)


def test_states_that_are_none_are_refused(dataset: dataflow.Dataset) -> None:
    loader = dataflow.DataLoader(dataset)
    before = loader.state_dict()
    for wrong in (None, {}, [], "state", {"version": 1}, {"model": {}}, {**before, "slots": -1}):
        with pytest.raises(StateError):
            loader.load_state_dict(wrong)  # type: ignore[arg-type]
    assert loader.state_dict() == before, "a state that is refused changes nothing"


def test_stats_and_report(dataset: dataflow.Dataset) -> None:
    loader = dataflow.DataLoader(dataset, batch_size=8, num_workers=1)
    with pytest.raises(DataflowError, match="iterate"):
        loader.stats()
    for _ in loader:
        pass
    stats = loader.stats()
    assert stats["steps"] == 13
    assert stats["stages"]["fetch"]["blocks"] == 25
    assert stats["stages"]["fetch"]["bytes"] == dataset.manifest.num_bytes
    assert 0 <= stats["wait_share"] <= 1
    assert set(stats["stages"]) == {"plan", "fetch", "read", "assemble"}
    for clocks in stats["stages"].values():
        assert all(clocks[kind] >= 0 for kind in ("busy", "starved", "blocked"))
    assert 0 < sum(stats["waited_for"].values()) <= stats["waited"] + 1e-9
    report = loader.report()
    assert "13 batches; 25 blocks" in report
    assert "the consumer waited" in report


def test_the_stage_that_is_slow_is_the_one_that_is_blamed(dataset: dataflow.Dataset) -> None:
    import threading

    never = threading.Event()
    slow = dataset.map(lambda sample: never.wait(0.003) or sample)
    loader = dataflow.DataLoader(slow, batch_size=10, num_workers=1)
    for _ in loader:
        pass
    stats = loader.stats()
    assert stats["wait_share"] > 0.8
    assert max(stats["waited_for"], key=stats["waited_for"].get) == "assemble"
    assert "mostly for assemble" in loader.report()
    loader = dataflow.DataLoader(dataset, batch_size=10, num_workers=1)
    for _ in loader:
        never.wait(0.02)
    assert loader.stats()["wait_share"] < 0.3
