"""Clips and sounds through the loader: the same by every way, what comes beside them, and bad ones replaced."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pytest
import torch

import dataflow
from dataflow.errors import CorruptDataError, OptionError
from tests.codecs.clips import clip, number_of, sound, tone, write
from tests.conformance.watchdog import limited

COUNT = 24
VIDEO = dataflow.Video(3, (64, 96), at="random", every=4, layout="THWC", flip=0.0)
AUDIO = dataflow.Audio(16000, seconds=0.25, at="random")
BAD = {5: b"", 13: clip(10)[:-300], 17: None, 18: b"<html>", 20: sound(tone(0.1, 8000))}
INSTEAD = {5: 6, 13: 14, 17: 19, 18: 19, 20: 21}
Found = dict[int, tuple[int, bytes, bytes]]


@pytest.fixture(autouse=True)
def patience() -> Iterator[None]:
    """Nothing may hang."""
    with limited(120):
        yield


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Clips of many lengths, whose frames count on from a hundred times the row."""
    clips: list[bytes | None] = [clip(12 + n, gop=1 + n % 7, first=100 * n, sound=True) for n in range(COUNT)]
    for number, data in BAD.items():
        clips[number] = data
    return write(tmp_path_factory.mktemp("clips") / "clips", clips)


def load(dataset: dataflow.Dataset, **options: Any) -> dataflow.DataLoader:
    defaults: dict[str, Any] = {"batch_size": 5, "shuffle": True, "seed": 3, "lanes": 4, "on_error": "skip"}
    return dataflow.DataLoader(dataset, **{**defaults, **options})


def found(batches: Any) -> Found:
    """Slot to sample, pixels and times, of the rows that count."""
    rows: Found = {}
    for batch in batches:
        for at, (slot, sample) in enumerate(zip(batch["slot"].tolist(), batch["sample_id"].tolist(), strict=True)):
            if "valid" not in batch or batch["valid"][at]:
                assert isinstance(batch["clip"], torch.Tensor)
                assert batch["clip_seconds"].dtype == torch.float64
                pixels, seconds = batch["clip"][at].numpy(), batch["clip_seconds"][at].numpy()
                numbers = [number_of(frame) for frame in pixels]
                assert [number // 100 for number in numbers] == [sample] * 3
                assert np.diff(numbers).tolist() == [4, 4]
                assert seconds == pytest.approx([number % 100 / 30 for number in numbers])
                rows[slot] = (sample, pixels.tobytes(), seconds.tobytes())
    return rows


WAYS: dict[str, Callable[[dataflow.Dataset], dataflow.Dataset]] = {
    "batch": lambda dataset: dataset.decode(clip=VIDEO),
    "a map after": lambda dataset: dataset.decode(clip=VIDEO).map(lambda row: row),
    "a select before": lambda dataset: dataset.select(["clip", "label"]).decode(clip=VIDEO),
    "a map in processes": lambda dataset: dataset.decode(clip=VIDEO).map(lambda row: row, processes=1),
    "a select after": lambda dataset: dataset.decode(clip=VIDEO).select(["clip_seconds", "clip"]),
    "a select after a map": lambda dataset: (
        dataset.decode(clip=VIDEO).map(lambda row: row).select(["clip_seconds", "clip"])
    ),
}


@pytest.fixture(scope="module")
def straight(url: str) -> Found:
    return found(load(WAYS["batch"](dataflow.open(url)), num_workers=0))


def test_bad_clips_are_replaced_and_listed(url: str, straight: Found) -> None:
    samples = sorted(sample for sample, _, _ in straight.values())
    assert samples == sorted(INSTEAD.get(number, number) for number in range(COUNT))
    loader = load(WAYS["batch"](dataflow.open(url)))
    assert found(loader) == straight
    assert {row["sample_id"]: row["reason"] for row in loader.ledger()} == {
        5: "is empty",
        13: f"is cut off: {len(BAD[13] or b''):,} of its {len(BAD[13] or b'') + 300:,} bytes are there",
        17: "is null",
        18: "is no video or audio but HTML or XML",
        20: "has no video stream",
    }
    assert "PyAV" in loader.report()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("workers", "batch_size"), [(0, 4), (3, 7)])
def test_the_same_by_every_way(url: str, straight: Found, way: str, workers: int, batch_size: int) -> None:
    assert found(load(WAYS[way](dataflow.open(url)), num_workers=workers, batch_size=batch_size)) == straight


def test_the_same_decoded_after_a_map(tmp_path: Path) -> None:
    dataset = dataflow.open(write(tmp_path, [clip(12 + n, first=100 * n) for n in range(8)]))
    expected = found(load(dataset.decode(clip=VIDEO)))
    assert found(load(dataset.map(lambda row: row).decode(clip=VIDEO), on_error="raise")) == expected
    kept = dataset.map(lambda row: row).select(["clip"]).decode(clip=VIDEO)
    assert found(load(kept, on_error="raise")) == expected
    filtered = dataset.decode(clip=VIDEO).filter(lambda row: row["clip_seconds"].shape == (3,))
    assert found(load(filtered, end="exact")) == expected


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.filterwarnings("ignore:.* lanes for .* ranks")
def test_the_same_for_any_number_of_ranks(url: str, straight: Found, ranks: int) -> None:
    rows: Found = {}
    for rank in range(ranks):
        rows |= found(load(WAYS["batch"](dataflow.open(url)), rank=rank, world_size=ranks))
    assert rows == straight


def test_the_same_after_a_resume(url: str, straight: Found) -> None:
    loader = load(WAYS["batch"](dataflow.open(url)))
    rows = found([next(iter(loader))])
    state = json.loads(json.dumps(loader.state_dict()))
    resumed = load(WAYS["batch"](dataflow.open(url)), batch_size=7)
    resumed.load_state_dict(state)
    assert rows | found(resumed) == straight
    other = dataflow.open(url).decode(clip=dataflow.Video(3, (64, 96), at="random", every=3, layout="THWC"))
    with pytest.raises(dataflow.errors.StateError):
        load(other).load_state_dict(state)


def test_random_frames_differ_from_epoch_to_epoch(url: str) -> None:
    dataset = WAYS["batch"](dataflow.open(url))
    seen = [{row[0]: row[2] for row in found(load(dataset, seed=seed)).values()} for seed in (1, 2)]
    assert seen[0].keys() == seen[1].keys()
    assert sum(seen[0][sample] != seen[1][sample] for sample in seen[0]) > len(seen[0]) // 2


def test_a_bad_clip_is_an_error_that_names_its_row(url: str) -> None:
    with pytest.raises(CorruptDataError, match=r"row 1 of block 1 .*clip-5.*column 'clip' is empty"):
        list(load(WAYS["batch"](dataflow.open(url)), shuffle=False, on_error="raise"))
    dataset = WAYS["batch"](dataflow.open(url))
    with pytest.raises(CorruptDataError, match="column 'clip' is null"):
        dataset[17]
    row = dataset[2]
    assert list(row) == ["clip", "label", "key", "clip_seconds"]
    assert [number_of(frame) // 100 for frame in row["clip"]] == [2, 2, 2]
    assert row["clip_seconds"].shape == (3,)


def test_columns_have_types(url: str) -> None:
    dataset = dataflow.open(url).decode(clip=VIDEO)
    assert dataset.schema is not None
    assert dataset.schema.names == ["clip", "label", "key", "clip_seconds"]
    assert dataset.schema.field("clip").type == pa.fixed_shape_tensor(pa.uint8(), (3, 64, 96, 3))
    assert dataset.schema.field("clip_seconds").type == pa.fixed_shape_tensor(pa.float64(), (3,))
    ragged = dataflow.open(url).decode(clip=dataflow.Audio(channels=2)).schema
    assert ragged is not None
    assert ragged.field("clip").type == pa.list_(pa.list_(pa.float32()), 2)
    fixed = dataflow.open(url).decode(clip=AUDIO).schema
    assert fixed is not None
    assert fixed.field("clip_length").type == pa.int64()


def test_a_column_that_is_there_is_not_replaced(tmp_path: Path) -> None:
    schema = pa.schema([("audio", pa.binary()), ("audio_length", pa.int64())])
    with dataflow.ShardWriter(str(tmp_path), schema) as writer:
        writer.write({"audio": b"", "audio_length": 1})
    dataset = dataflow.open(str(tmp_path))
    with pytest.raises(OptionError, match="adds a column 'audio_length'"):
        dataset.decode(audio=AUDIO)
    assert dataset.decode(audio=dataflow.Audio()).schema is not None


@pytest.fixture(scope="module")
def sounds(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Sounds of different lengths and rates, with one that is none."""
    rates = (8000, 16000, 44100)
    clips: list[bytes | None] = [sound(tone(0.1 + 0.02 * n, rates[n % 3]), rates[n % 3]) for n in range(20)]
    clips[6] = b"no sound"
    return write(tmp_path_factory.mktemp("sounds") / "sounds", clips)


def counts(sample: int) -> int:
    return round((0.1 + 0.02 * (7 if sample == 6 else sample)) * 16000)


def test_sounds_of_one_length(sounds: str) -> None:
    for each in (
        dataflow.open(sounds).decode(clip=AUDIO),
        dataflow.open(sounds).decode(clip=AUDIO).map(lambda row: row),
    ):
        loader = load(each)
        samples = []
        for batch in loader:
            assert batch["clip"].dtype == torch.float32
            assert batch["clip"].shape[1:] == (4000,)
            for values, length, sample in zip(
                batch["clip"], batch["clip_length"].tolist(), batch["label"].tolist(), strict=True
            ):
                assert length == pytest.approx(min(4000, counts(sample)), abs=1)
                assert not values[length:].any()
                assert values[:length].abs().max() > 0.3
                samples.append(sample)
        assert sorted(samples) == [*range(6), 7, *range(7, 20)]
        assert [row["sample_id"] for row in loader.ledger()] == [6]


def test_sounds_as_long_as_they_are(sounds: str) -> None:
    dataset = dataflow.open(sounds).decode(clip=dataflow.Audio(16000))
    expected: dict[int, bytes] = {}
    for each in (dataset, dataset.map(lambda row: row), dataset.select(["label", "clip"])):
        rows: dict[int, bytes] = {}
        for batch in load(each):
            assert isinstance(batch["clip"], list)
            assert "clip_length" not in batch
            for values, sample in zip(batch["clip"], batch["label"].tolist(), strict=True):
                assert len(values) == pytest.approx(counts(sample), abs=1)
                rows[sample] = values.numpy().tobytes()
        assert len(rows) == 19
        assert rows == (expected := expected or rows)


def test_sounds_padded_to_the_longest_of_a_batch(sounds: str) -> None:
    dataset = dataflow.open(sounds).decode(clip=dataflow.Audio(16000))
    for each in (dataset, dataset.map(lambda row: row)):
        for batch in load(each, pad={"clip": 0.0}):
            lengths = batch["clip_length"].tolist()
            assert batch["clip"].shape == (len(lengths), max(lengths))
            assert lengths == pytest.approx([counts(sample) for sample in batch["label"].tolist()], abs=1)
            assert all(not row[length:].any() for row, length in zip(batch["clip"], lengths, strict=True))


def test_only_the_lengths(sounds: str) -> None:
    dataset = dataflow.open(sounds).decode(clip=AUDIO).select(["clip_length"])
    batch = next(iter(load(dataset, shuffle=False)))
    assert list(batch) == ["clip_length", "sample_id", "slot"]
    assert batch["clip_length"].tolist() == pytest.approx([min(4000, counts(n)) for n in range(5)], abs=1)


def test_memory_of_batches_is_used_again(url: str) -> None:
    loader = load(dataflow.open(url).decode(clip=VIDEO), epochs=4)
    for batch in loader:
        del batch
    slabs = loader.stats()["slabs"]
    assert 0 < slabs["count"] <= 2 * 16
    assert slabs["peak_bytes"] <= 16 * 5 * (3 * 64 * 96 * 3 + 24)


def test_memory_stays_level() -> None:
    data = clip(30, gop=5, size=(160, 120), sound=True)
    video, audio = dataflow.Video(8, 112, at="random", crop="random_resized"), dataflow.Audio(seconds=0.5, at="random")

    def decode(count: int) -> int:
        for key in range(count):
            video.decode(data, key)
            audio.decode(data, key)
        gc.collect()
        return int(psutil.Process().memory_info().rss)

    before = decode(20)
    assert decode(60) - before < 16 << 20
