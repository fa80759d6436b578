"""Decoded columns through the loader: the same pixels by every way, and errors that say where."""

from __future__ import annotations

import gc
import os
import pickle
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import dataflow
from dataflow.errors import CorruptDataError, OptionError, StateError
from tests.codecs.pictures import jpeg, many, saved, smooth, write
from tests.conformance.watchdog import limited

COUNT = 120
IMAGE = dataflow.Image((24, 20), crop="random_resized", flip=0.5)
Seen = dict[int, tuple[int, bytes]]


@pytest.fixture(autouse=True)
def patience() -> Iterator[None]:
    """Nothing may hang."""
    with limited(120):
        yield


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Images of many sizes, JPEGs in all orientations and PNGs."""
    images = many(COUNT)
    for number in range(0, COUNT, 5):
        images[number] = jpeg(90 + number, 60, orientation=1 + number // 5 % 8)
    for number in range(3, COUNT, 11):
        images[number] = saved(smooth(50 + number, 70))
    return write(tmp_path_factory.mktemp("images") / "images", images)


def seen(batches: Any) -> Seen:
    """Slot to sample and pixels, of the rows that count."""
    found: Seen = {}
    for batch in batches:
        valid = batch["valid"].tolist() if "valid" in batch else [True] * len(batch["slot"])
        images = batch["image"]
        for at, counts in enumerate(valid):
            if counts:
                slot = int(batch["slot"][at])
                assert slot not in found
                pixels = images[at].numpy() if isinstance(images, torch.Tensor) else np.asarray(images[at])
                found[slot] = (int(batch["sample_id"][at]), pixels.tobytes())
                if "label" in batch:
                    assert batch["label"][at] == batch["sample_id"][at]
    return found


def decoding(url: str, image: dataflow.Image = IMAGE) -> dataflow.Dataset:
    return dataflow.open(url).decode(image=image)


def load(dataset: dataflow.Dataset, **options: Any) -> dataflow.DataLoader:
    return dataflow.DataLoader(dataset, **{"batch_size": 8, "shuffle": True, "seed": 3, "lanes": 4, **options})


@pytest.fixture(scope="module")
def straight(url: str) -> Seen:
    """An epoch, in one thread."""
    return seen(load(decoding(url), num_workers=0))


def test_a_batch_has_one_tensor_of_images(url: str) -> None:
    batch = next(iter(load(decoding(url))))
    assert list(batch) == ["image", "label", "key", "sample_id", "slot"]
    assert (batch["image"].shape, batch["image"].dtype) == ((8, 3, 24, 20), torch.uint8)
    batch = next(iter(load(decoding(url, dataflow.Image(16, layout="NHWC", dtype="float16")))))
    assert (batch["image"].shape, batch["image"].dtype) == ((8, 16, 16, 3), torch.float16)


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("batch_size", [1, 7, 64])
def test_the_same_for_any_workers_and_batch_size(url: str, straight: Seen, workers: int, batch_size: int) -> None:
    assert seen(load(decoding(url), num_workers=workers, batch_size=batch_size)) == straight


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.filterwarnings("ignore:.* lanes for .* ranks")
def test_the_same_for_any_number_of_ranks(url: str, straight: Seen, ranks: int) -> None:
    found: Seen = {}
    for rank in range(ranks):
        found |= seen(load(decoding(url), rank=rank, world_size=ranks))
    assert found == straight


WAYS: dict[str, Callable[[dataflow.Dataset], dataflow.Dataset]] = {
    "a map after": lambda dataset: dataset.decode(image=IMAGE).map(lambda sample: sample),
    "a map before": lambda dataset: dataset.map(lambda sample: sample).decode(image=IMAGE),
    "a select before": lambda dataset: dataset.select(["image", "label"]).decode(image=IMAGE),
    "a select after": lambda dataset: dataset.decode(image=IMAGE).select(["label", "image"]),
    "a select between": lambda dataset: (
        dataset.map(lambda sample: sample).select(["image", "key"]).decode(image=IMAGE).select(["image"])
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_same_by_every_way(url: str, straight: Seen, way: str) -> None:
    assert seen(load(WAYS[way](dataflow.open(url)))) == straight


def test_the_same_with_a_function_that_collates(url: str, straight: Seen) -> None:
    def collate(samples: list[dict[str, Any]]) -> dict[str, Any]:
        assert all(sample["image"].shape == (3, 24, 20) for sample in samples)
        return {"image": np.stack([sample["image"] for sample in samples])}

    assert seen(load(decoding(url), collate_fn=collate)) == straight


FILTERED: dict[str, Callable[[dataflow.Dataset], dataflow.Dataset]] = {
    "before": lambda dataset: dataset.filter(lambda row: row["label"] % 3 == 0).decode(image=IMAGE),
    "after": lambda dataset: dataset.decode(image=IMAGE).filter(lambda row: row["label"] % 3 == 0),
    "between": lambda dataset: (
        dataset.map(lambda row: row).filter(lambda row: row["label"] % 3 == 0).decode(image=IMAGE).map(lambda row: row)
    ),
}


@pytest.mark.parametrize("way", FILTERED)
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.filterwarnings("ignore:.* lanes for .* ranks")
def test_filters_leave_pixels_alone(url: str, straight: Seen, way: str, ranks: int) -> None:
    expected = {sample: pixels for sample, pixels in straight.values() if sample % 3 == 0}
    found: Seen = {}
    for rank in range(ranks):
        # In one process, ranks cannot agree: the first is taken to go on for as long as the longest.
        loader = load(
            FILTERED[way](dataflow.open(url)), end="exact", rank=rank, world_size=ranks, agree=_until(40 // ranks)
        )
        found |= seen(loader)
    assert dict(found.values()) == expected


def _until(slots: int) -> Callable[[bool], bool]:
    left = [-(-slots // 8) + 1]

    def agree(more: bool) -> bool:
        left[0] -= 1
        return more or left[0] > 0

    return agree


@pytest.mark.parametrize("way", ["before", "after"])
@pytest.mark.filterwarnings("ignore:.* lanes for .* ranks")
def test_a_rank_that_never_had_a_row_gets_images_too(url: str, way: str) -> None:
    """Whatever fills it up, a batch has the shape that batches have on all ranks."""
    dataset = dataflow.open(url)
    if way == "before":
        dataset = dataset.filter(lambda row: row["label"] == 6).decode(image=IMAGE)
    else:
        dataset = dataset.decode(image=IMAGE).filter(lambda row: row["label"] == 6)
    rows: list[int] = []
    for rank in range(2):
        loader = load(dataset, end="exact", rank=rank, world_size=2, agree=_until(1))
        batch = next(iter(loader))
        assert (batch["image"].shape, batch["image"].dtype) == ((8, 3, 24, 20), torch.uint8)
        rows += batch["sample_id"].tolist()
    assert set(rows) == {6}


@given(stop=st.integers(0, 14), batch=st.integers(1, 20), workers=st.sampled_from([0, 2]))
@settings(max_examples=12, deadline=None)
def test_the_same_after_a_resume(url: str, straight: Seen, stop: int, batch: int, workers: int) -> None:
    loader = load(decoding(url))
    found: Seen = {}
    for _, taken in zip(range(stop), loader, strict=False):
        found |= seen([taken])
    resumed = load(decoding(url), batch_size=batch, num_workers=workers)
    resumed.load_state_dict(loader.state_dict())
    if stop < 15:
        found |= seen(resumed)
    assert found == straight


def test_epochs_and_seeds_draw_other_windows(url: str, straight: Seen) -> None:
    loader = load(decoding(url))
    first, second = (dict(seen(loader).values()) for _ in range(2))
    assert first == dict(straight.values())
    assert first.keys() == second.keys()
    assert sum(first[sample] == second[sample] for sample in first) <= 2
    other = dict(seen(load(decoding(url), seed=4)).values())
    assert sum(first[sample] == other[sample] for sample in first) <= 2


def test_rows_are_decoded_too(url: str) -> None:
    dataset = decoding(url)
    assert dataset[3]["image"].shape == (3, 24, 20)
    assert (dataset[3]["image"] == dataset[3]["image"]).all()
    centre = decoding(url, dataflow.Image(16))
    for batch in dataflow.DataLoader(centre, batch_size=10):
        for number, image in zip(batch["sample_id"].tolist(), batch["image"], strict=True):
            assert (centre[number]["image"] == image.numpy()).all()
        break
    assert pickle.loads(pickle.dumps(centre))[3]["image"].tobytes() == centre[3]["image"].tobytes()


def test_two_columns_have_windows_of_their_own(tmp_path: Path) -> None:
    schema = pa.schema([("left", pa.binary()), ("right", pa.large_binary())])
    with dataflow.ShardWriter(str(tmp_path), schema, rows_per_block=4) as writer:
        for data in many(12):
            writer.write({"left": data, "right": data})
    spec = dataflow.Image(16, crop="random_resized")
    batch = next(iter(load(dataflow.open(str(tmp_path)).decode(left=spec, right=spec))))
    assert not (batch["left"] == batch["right"]).all()
    batch = next(iter(load(dataflow.open(str(tmp_path)).decode(left=dataflow.Image(16), right=dataflow.Image(16)))))
    assert (batch["left"] == batch["right"]).all()
    only = dataflow.open(str(tmp_path)).decode(left=spec, right=spec).select("right")
    assert list(next(iter(load(only)))) == ["right", "sample_id", "slot"]


def test_the_schema_says_what_comes_out(url: str) -> None:
    schema = decoding(url, dataflow.Image((24, 20), dtype="float32")).schema
    assert schema is not None
    assert schema.names == ["image", "label", "key"]
    assert schema.field("image").type.shape == [3, 24, 20]
    assert str(schema.field("image").type.value_type) == "float"


def test_what_cannot_be_decoded_is_refused_at_once(url: str) -> None:
    dataset = dataflow.open(url)
    for columns, said in (
        ({"picture": IMAGE}, "no column 'picture'; it has image, label, key"),
        ({"label": IMAGE}, "holds int64"),
        ({"key": IMAGE}, "holds string"),
        ({"image": 224}, "dataflow.Image"),
        ({}, "names no column"),
    ):
        with pytest.raises(OptionError, match=said):
            dataset.decode(**columns)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="not bytes"):
        decoding(url).decode(image=IMAGE)


@pytest.mark.parametrize(
    "other",
    [
        lambda dataset: dataset,
        lambda dataset: dataset.decode(image=dataflow.Image((24, 20), crop="random_resized", flip=0.4)),
        lambda dataset: dataset.decode(image=dataflow.Image((24, 20), crop="random_resized", flip=0.5, layout="NHWC")),
        lambda dataset: dataset.map(lambda row: row).decode(image=IMAGE),
    ],
)
def test_a_state_belongs_to_its_decoding(url: str, other: Any) -> None:
    state = load(decoding(url)).state_dict()
    again = load(decoding(url, dataflow.Image((24, 20), crop="random_resized", flip=0.5, max_pixels=10_000_000)))
    again.load_state_dict(state)
    with pytest.raises(StateError, match="another pipeline"):
        load(other(dataflow.open(url))).load_state_dict(state)


BAD = {
    "cut off": jpeg()[:-200],  # IM-01
    "empty": b"",  # IM-09
    "HTML": b"<html>404</html>",  # IM-08
    "null": None,
}
BAD_WAYS: dict[str, Callable[[dataflow.Dataset], dataflow.Dataset]] = {
    "batch": lambda dataset: dataset.decode(image=IMAGE),
    "without its key": lambda dataset: dataset.select("image").decode(image=IMAGE),
    "sample": lambda dataset: dataset.decode(image=IMAGE).map(lambda row: row),
    "after a map": lambda dataset: dataset.map(lambda row: row).decode(image=IMAGE),
    "filter": lambda dataset: dataset.decode(image=IMAGE).filter(lambda row: True),
    "after a filter": lambda dataset: dataset.filter(lambda row: True).decode(image=IMAGE),
}


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("way", BAD_WAYS)
@pytest.mark.parametrize("workers", [0, 2])
def test_a_bad_image_is_named_where_its_batch_is_asked_for(tmp_path: Path, bad: str, way: str, workers: int) -> None:
    images: list[bytes | None] = [*many(24)]
    images[17] = BAD[bad]
    url = write(tmp_path, images)
    dataset = BAD_WAYS[way](dataflow.open(url))
    options: dict[str, Any] = {"end": "exact"} if "filter" in way else {}
    iterator = iter(dataflow.DataLoader(dataset, batch_size=4, num_workers=workers, **options))
    for number in range(4):
        assert next(iterator)["sample_id"].tolist() == [*range(4 * number, 4 * number + 4)]
    with pytest.raises(CorruptDataError, match=r"row 1 of block 4 .*\.arrow, sample 17, key 'picture-17'\)") as caught:
        next(iterator)
    assert url in str(caught.value)
    assert "column 'image' " in str(caught.value)
    assert "dataflow exclude" in str(caught.value)


def test_a_bad_image_is_named_when_its_row_is_asked_for(tmp_path: Path) -> None:
    dataset = dataflow.open(write(tmp_path, [*many(5), b"nothing"])).decode(image=IMAGE)
    with pytest.raises(CorruptDataError, match=r"row 1 of block 1 .*sample 5, key 'picture-5'.*'image' is no image"):
        dataset[5]


def test_maps_may_put_anything_in_the_column(url: str) -> None:
    dataset = dataflow.open(url).map(lambda row: {"image": "text"}).decode(image=IMAGE)
    with pytest.raises(CorruptDataError, match="holds str, not bytes"):
        next(iter(load(dataset)))


def test_pillow_may_be_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = write(tmp_path, [saved(smooth())] * 4)
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(OptionError, match=r"pip install 'dataflow-loader\[images\]'"):
        next(iter(load(decoding(url))))


def test_batches_that_are_kept_stay_as_they_were(url: str) -> None:
    loader = load(decoding(url), epochs=6, num_workers=2)
    kept: list[tuple[torch.Tensor, torch.Tensor]] = []
    for number, batch in enumerate(loader):
        if number % 4 == 0:
            kept.append((batch["image"], batch["image"].clone()))
        elif number % 4 == 1:
            view = batch["image"][1:3, :, ::2]
            kept.append((view, view.clone()))
    assert len(kept) == 46
    assert all(torch.equal(held, copy) for held, copy in kept)
    assert loader.stats()["slabs"]["count"] >= 46


def test_memory_is_flat(url: str) -> None:
    image = dataflow.Image(128, dtype="float32")  # 1.5 MB a batch
    loader = load(decoding(url, image), epochs=8, num_workers=2, prefetch_factor=2)
    process = psutil.Process(os.getpid())
    sizes = []
    for number, batch in enumerate(loader):
        assert batch["image"].shape[1:] == (3, 128, 128)
        if number % 15 == 14:
            gc.collect()
            sizes.append(process.memory_info().rss)
    slabs = loader.stats()["slabs"]
    # The batches that wait, and one each for the consumer and for every worker.
    assert slabs["count"] <= 4 + 2 + 2
    assert slabs["peak_bytes"] == slabs["count"] * 8 * 3 * 128 * 128 * 4
    assert sizes[-1] - sizes[1] < 4 << 20


def test_decoded_batches_count_as_memory(url: str) -> None:
    with pytest.raises(OptionError, match="memory_limit"):
        load(decoding(url, dataflow.Image(512)), memory_limit=4 << 20)
    plain, decoded = (load(dataset, num_workers=1) for dataset in (dataflow.open(url), decoding(url)))
    sizes = []
    for loader in (plain, decoded):
        next(iter(loader))
        sizes.append(loader.stats()["working_set"]["batches"])
    assert sizes[1] - sizes[0] == 3 * 8 * 3 * 24 * 20


def test_the_report_names_the_decoder(url: str) -> None:
    loader = load(decoding(url))
    next(iter(loader))
    assert "column 'image' is decoded by " in loader.report()
    assert loader.stats()["decoders"].keys() == {"image"}
    plain = load(dataflow.open(url))
    next(iter(plain))
    assert "decoded by" not in plain.report()
    assert plain.stats()["slabs"] == {"count": 0, "peak_bytes": 0}
