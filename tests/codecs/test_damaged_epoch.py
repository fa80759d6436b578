"""An epoch over damaged files of every kind: those, and only those, are replaced and listed that do not decode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import dataflow
from dataflow import _native
from dataflow.errors import CorruptDataError
from dataflow.storage import join_url
from tests.codecs.damage import Damaged, decodes, hundred, pillow_decodes
from tests.codecs.pictures import saved, write
from tests.operations.photographs import picture

pytestmark = [
    pytest.mark.filterwarnings("ignore:.* lanes for .* ranks"),
    pytest.mark.filterwarnings("ignore:Corrupt EXIF data"),
    pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning"),
]

ROWS_PER_BLOCK = 8
LANES = 8
# The whole picture: damage that lies beside a window need not be seen.
IMAGE = dataflow.Image((32, 24), crop="none")


@dataclass(frozen=True)
class Damage:
    """A dataset with damaged rows."""

    url: str
    num_rows: int
    damaged: dict[int, Damaged]
    refused: list[int]

    def instead(self, row: int) -> int:
        """The row that comes instead: the next one of the block that decodes, after the last one the first."""
        first = row - row % ROWS_PER_BLOCK
        turn = [first + (row - first + step) % ROWS_PER_BLOCK for step in range(ROWS_PER_BLOCK)]
        return next(each for each in turn if each not in self.refused)

    def place(self, row: int) -> tuple[str, int, int]:
        """Shard, block and row within it."""
        manifest = dataflow.open(self.url).manifest
        block = row // ROWS_PER_BLOCK
        shard = int((manifest.first_blocks <= block).sum()) - 1
        return join_url(manifest.base_url, manifest.shard_path(shard)), block, row % ROWS_PER_BLOCK


def make(folder: Path, num_rows: int, damaged: Sequence[Damaged]) -> Damage:
    source = picture()
    good = [
        saved(source.crop((left, top, left + 40 + number % 17, top + 30 + number % 13)), "JPEG", quality=85)
        for number, (left, top) in enumerate((5 * n % 500, 3 * n % 300) for n in range(num_rows))
    ]
    # Two or three in some blocks, none in others, at the ends of blocks and within.
    every = num_rows // len(damaged)
    places = {number * every + number % min(every, 5) * (number % 3): each for number, each in enumerate(damaged)}
    assert len(places) == len(damaged)
    images = [places[row].data if row in places else good[row] for row in range(num_rows)]
    refused = [row for row, data in enumerate(images) if not decodes(data)]
    assert set(refused) <= places.keys()
    return Damage(write(folder / "images", images, ROWS_PER_BLOCK), num_rows, places, refused)


def load(damage: Damage, **options: Any) -> dataflow.DataLoader:
    dataset = dataflow.open(damage.url).decode(image=IMAGE)
    return dataflow.DataLoader(dataset, **{"batch_size": 16, "seed": 1, "lanes": LANES, "on_error": "skip", **options})


def delivered(loaders: Sequence[dataflow.DataLoader]) -> dict[int, tuple[int, bytes]]:
    """Slot to sample and pixels."""
    found: dict[int, tuple[int, bytes]] = {}
    for loader in loaders:
        for batch in loader:
            for at, (slot, sample) in enumerate(zip(batch["slot"].tolist(), batch["sample_id"].tolist(), strict=True)):
                if "valid" not in batch or batch["valid"][at]:
                    assert int(batch["label"][at]) == sample
                    found[slot] = sample, batch["image"][at].numpy().tobytes()
    return found


def check_ledger(damage: Damage, loaders: Sequence[dataflow.DataLoader]) -> None:
    listed = {entry["sample_id"]: entry for loader in loaders for entry in loader.ledger()}
    assert sorted(listed) == damage.refused
    for row, entry in listed.items():
        assert (entry["shard"], entry["block"], entry["row"]) == damage.place(row)
        assert (entry["key"], entry["column"]) == (f"picture-{row}", "image")
        assert entry["reason"] == reason(damage.damaged[row].data)


def reason(data: bytes | None) -> str:
    if data is None:
        return "is null"
    with pytest.raises(CorruptDataError) as caught:
        IMAGE.decode(data, key=0)
    return str(caught.value)


def check_skipping(damage: Damage, ways: Sequence[dict[str, Any]]) -> None:
    labels = dataflow.open(damage.url).select("label")
    plain = dataflow.DataLoader(labels, batch_size=16, shuffle=True, seed=1, lanes=LANES)
    order = [sample for batch in plain for sample in batch["sample_id"].tolist()]
    assert sorted(order) == list(range(damage.num_rows))
    expected = [damage.instead(row) if row in damage.refused else row for row in order]
    first: dict[int, tuple[int, bytes]] = {}
    for way in ways:
        way = {"world_size": 1, **way}
        loaders = [load(damage, shuffle=True, **way, rank=rank) for rank in range(way["world_size"])]
        found = delivered(loaders)
        assert [found[slot][0] for slot in range(damage.num_rows)] == expected
        check_ledger(damage, loaders)
        first = first or found
        assert found == first
    stored = [load(damage, shuffle=False, lanes=1, num_workers=2)]
    samples = [sample for _, (sample, _) in sorted(delivered(stored).items())]
    assert samples == [damage.instead(row) if row in damage.refused else row for row in range(damage.num_rows)]
    check_ledger(damage, stored)


def check_raising(damage: Damage) -> None:
    """The error of each names key, shard and reason; a run without skipping stops at the first."""
    dataset = dataflow.open(damage.url).decode(image=IMAGE)
    for row in damage.refused:
        with pytest.raises(CorruptDataError) as caught:
            dataset[row]
        check_message(damage, row, str(caught.value))
    batches = iter(load(damage, on_error="raise", batch_size=4, num_workers=2))
    for _ in range(damage.refused[0] // 4):
        next(batches)
    with pytest.raises(CorruptDataError) as caught:
        next(batches)
    check_message(damage, damage.refused[0], str(caught.value))


def check_message(damage: Damage, row: int, message: str) -> None:
    shard, block, at = damage.place(row)
    for part in (
        f"row {at} of block {block} ",
        shard,
        f"sample {row}, key 'picture-{row}'",
        reason(damage.damaged[row].data),
    ):
        assert part in message


WAYS = [
    {"num_workers": 0},
    {"num_workers": 3, "batch_size": 7},
    {"num_workers": 2, "world_size": 2},
]


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Damage:
    return make(tmp_path_factory.mktemp("damage"), 200, hundred()[:10])


def test_im01_ten_in_two_hundred_are_replaced_and_listed(few: Damage) -> None:
    check_skipping(few, WAYS)


def test_im01_ten_in_two_hundred_are_named(few: Damage) -> None:
    check_raising(few)


def test_what_is_certain_about_damage_is_so() -> None:
    """The reference that the other tests here compare with, against what is known by how files were damaged."""
    damaged = hundred()
    assert len(damaged) == 100
    for what, data, refused in damaged:
        good = decodes(data)
        # A stricter decoder never takes what Pillow refuses.
        assert not good or pillow_decodes(data or b""), what
        if refused is not None and _native.decode_available():
            assert good == (not refused), what


@pytest.fixture(scope="module")
def all_kinds(tmp_path_factory: pytest.TempPathFactory) -> Damage:
    return make(tmp_path_factory.mktemp("damage"), 2000, hundred())


@pytest.mark.soak
def test_im01_a_hundred_in_two_thousand_are_replaced_and_listed(all_kinds: Damage) -> None:
    assert len(all_kinds.refused) > 70
    check_skipping(all_kinds, [*WAYS, {"num_workers": 2, "world_size": 8, "batch_size": 3}, {"prefetch_factor": 8}])


@pytest.mark.soak
def test_im01_a_hundred_in_two_thousand_are_named(all_kinds: Damage) -> None:
    check_raising(all_kinds)
