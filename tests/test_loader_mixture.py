"""Mixtures: every source in its own order, weights that change, and sources that come and go at a resume."""

from __future__ import annotations

import json
import logging
import pickle
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import dataflow
from dataflow.errors import CorruptDataError, OptionError, StateError
from tests.codecs.pictures import jpeg, write
from tests.conformance.data import write_rows

Drawn = dict[int, tuple[int, int]]
Open = Callable[[str], dataflow.Dataset]
SIZES = {"web": 500, "code": 180, "tiny": 3}

pytestmark = pytest.mark.filterwarnings("ignore:.* lanes for .* ranks")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Open:
    folder = tmp_path_factory.mktemp("mixture")
    urls = {name: write_rows(folder / name, size) for name, size in SIZES.items()}
    return lambda name: dataflow.open(urls[name])


def load(mixture: dataflow.Dataset, **options: Any) -> dataflow.DataLoader:
    defaults = {"batch_size": 12, "shuffle": True, "seed": 3, "lanes": 8, "num_workers": 1, "steps_per_epoch": 10_000}
    return dataflow.DataLoader(mixture, **{**defaults, **options})


def take(loader: dataflow.DataLoader, steps: int) -> Drawn:
    """Slot to source and row, of some steps."""
    drawn: Drawn = {}
    batches = iter(loader)
    for _ in range(steps):
        batch = next(batches)
        rows = zip(batch["source_id"].tolist(), batch["sample_id"].tolist(), strict=True)
        drawn |= dict(zip(batch["slot"].tolist(), rows, strict=True))
    return drawn


def rows_of(drawn: Drawn, source: int) -> list[int]:
    """The rows of one source in the order in which they came."""
    return [row for _, (number, row) in sorted(drawn.items()) if number == source]


def saved(loader: dataflow.DataLoader) -> dict[str, Any]:
    state: dict[str, Any] = json.loads(json.dumps(loader.state_dict()))
    return state


def three(source: Open, **options: Any) -> dataflow.Dataset:
    return dataflow.mix(
        {"web": (source("web"), 0.6), "code": (source("code"), 0.37), "tiny": (source("tiny"), 0.03)}, **options
    )


def test_counts_follow_the_weights_and_rows_come_once_an_epoch_of_their_source(source: Open) -> None:
    drawn = take(load(three(source)), 200)
    counts = Counter(number for number, _ in drawn.values())
    for number, (weight, size) in enumerate(zip((0.6, 0.37, 0.03), SIZES.values(), strict=True)):
        assert abs(counts[number] - weight * 2400) <= 12
        seen = Counter(rows_of(drawn, number))
        # MX-02: no epoch of a source begins before all of it was seen, up to what its lanes are apart.
        whole = counts[number] // size
        assert len(seen) == size
        assert set(seen.values()) <= {whole - 1, whole, whole + 1}


def test_sd02_sh08_sources_smaller_than_lanes_batch_and_ranks(source: Open) -> None:
    tiny = dataflow.mix({"tiny": (source("tiny"), 0.5), "code": (source("code"), 0.5)})
    whole = take(load(tiny), 20)
    by_rank = [take(load(tiny, batch_size=3, rank=rank, world_size=4), 20) for rank in range(4)]
    assert {slot: row for drawn in by_rank for slot, row in drawn.items()} == whole
    assert set(rows_of(whole, 0)) == {0, 1, 2}


def test_the_order_of_a_source_does_not_depend_on_the_others(source: Open) -> None:
    """Lane by lane of the source; how lanes take turns depends on the weights."""
    alone = load(dataflow.mix({"web": (source("web"), 1)}), lanes=1)
    expected = rows_of(take(alone, 30), 0)
    for weights in ((0.9, 0.1), (0.5, 0.5), (0.2, 0.8)):
        pair = dataflow.mix({"web": (source("web"), weights[0]), "code": (source("code"), weights[1])})
        found = rows_of(take(load(pair, lanes=1), 30), 0)
        assert found == expected[: len(found)]
        assert len(found) == pytest.approx(weights[0] * 360, abs=4)


def test_weights_that_change_at_a_step(source: Open) -> None:
    changing = dataflow.mix(
        {"web": (source("web"), 0.5), "code": (source("code"), 0.5)},
        schedule=[(20, {"web": 0.9, "code": 0.1}), (40, {"code": 1})],
    )
    drawn = take(load(changing), 60)
    for first, share in ((0, 0.5), (20, 0.9), (40, 0.0)):
        slots = range(12 * first, 12 * (first + 20))
        assert sum(drawn[slot][0] == 0 for slot in slots) == pytest.approx(share * 240, abs=12)
    by_rank = [take(load(changing, batch_size=4, rank=rank, world_size=3), 60) for rank in range(3)]
    assert {slot: row for part in by_rank for slot, row in part.items()} == drawn
    for stop in (5, 20, 21, 47):
        first = load(changing)
        begun = take(first, stop)
        second = load(changing, batch_size=6, rank=0, world_size=2), load(changing, batch_size=6, rank=1, world_size=2)
        for loader in second:
            loader.load_state_dict(saved(first))
            begun |= take(loader, 60 - stop)
        assert begun == drawn


def shares(drawn: Drawn, sources: int) -> list[float]:
    counts = Counter(number for number, _ in drawn.values())
    return [counts[number] / len(drawn) for number in range(sources)]


def test_tr06_weights_that_are_changed_at_a_resume(source: Open, caplog: pytest.LogCaptureFixture) -> None:
    def pair(web: float, code: float) -> dataflow.Dataset:
        return dataflow.mix({"web": (source("web"), web), "code": (source("code"), code)})

    first = load(pair(0.5, 0.5))
    before = take(first, 10)
    second = load(pair(0.1, 0.9))
    with caplog.at_level(logging.WARNING):
        second.load_state_dict(saved(first))
    assert "source 'web' has a share of 0.1 of the mixture, not of 0.5" in caplog.text
    after = take(second, 40)
    assert shares(after, 2) == pytest.approx([0.1, 0.9], abs=0.02)
    for number, name in enumerate(("web", "code")):
        rows = rows_of(before, number) + rows_of(after, number)
        # Positions go on: nothing comes again before all of the source has come, nothing is left out.
        size = SIZES[name]
        counts = Counter(rows)
        assert max(counts.values()) - min(counts.get(row, 0) for row in range(size)) <= 1 + (len(rows) % size > 0)
        assert max(counts.values()) <= -(-len(rows) // size) + 1
    # The passed weights are part of the state, so that another resume finds its place again.
    third = load(pair(0.1, 0.9))
    third.load_state_dict(saved(second))
    fourth = load(pair(0.1, 0.9))
    fourth.load_state_dict(saved(second))
    assert take(third, 5) == take(fourth, 5)
    assert [slot for slot, _ in saved(third)["mixture"]["segments"]] == [0, 120]


def test_a_loader_that_loads_one_state_after_the_other(source: Open) -> None:
    first = load(dataflow.mix({"web": (source("web"), 0.5), "code": (source("code"), 0.5)}))
    states = [saved(first)]
    for _ in range(2):
        take(first, 10)
        states.append(saved(first))
        first = load(dataflow.mix({"web": (source("web"), 0.5), "code": (source("code"), 0.5)}))
        first.load_state_dict(states[-1])
    other = dataflow.mix({"web": (source("web"), 0.9), "code": (source("code"), 0.1)})
    reused = load(other)
    for state in (states[2], states[1], states[0], states[2]):
        fresh = load(other)
        for loader in (fresh, reused):
            loader.load_state_dict(state)
        assert fresh.state_dict() == reused.state_dict()
        assert take(fresh, 4) == take(reused, 4)


def test_the_same_weights_written_otherwise_are_no_change(source: Open, caplog: pytest.LogCaptureFixture) -> None:
    first = load(dataflow.mix({"web": (source("web"), 0.75), "code": (source("code"), 0.25)}))
    straight = take(first, 10)
    state = saved(first)
    second = load(dataflow.mix({"code": (source("code"), 1), "web": (source("web"), 3)}))
    second.load_state_dict(state)
    assert not caplog.records
    assert second.state_dict() == state
    swapped = {slot: (1 - number, row) for slot, (number, row) in take(second, 10).items()}
    assert straight | swapped == take(load(dataflow.mix({"web": (source("web"), 3), "code": (source("code"), 1)})), 20)


def test_tr06_a_source_that_comes_and_one_that_goes_at_a_resume(source: Open) -> None:
    first = load(dataflow.mix({"web": (source("web"), 0.5), "code": (source("code"), 0.5)}))
    before = take(first, 15)
    second = load(dataflow.mix({"web": (source("web"), 0.5), "tiny": (source("tiny"), 0.5)}))
    second.load_state_dict(saved(first))
    between = take(second, 15)
    assert shares(between, 2) == pytest.approx([0.5, 0.5], abs=0.05)
    third = load(three(source))
    third.load_state_dict(saved(second))
    after = take(third, 15)
    web = rows_of(before, 0) + rows_of(between, 0) + rows_of(after, 0)
    assert len(set(web)) == len(web), "rows of the source that stayed came again within its epoch"
    code = rows_of(before, 1) + rows_of(after, 1)
    assert len(set(code)) == len(code), "the source that came back did not go on where it was"


def test_states_of_other_data_are_refused(source: Open, tmp_path: Path) -> None:
    first = load(three(source))
    take(first, 3)
    state = saved(first)
    other = dataflow.open(write_rows(tmp_path / "other", 99))
    with pytest.raises(StateError, match="source 'web' with data"):
        load(dataflow.mix({"web": (other, 0.6), "code": (source("code"), 0.4)})).load_state_dict(state)
    with pytest.raises(StateError, match="of a mixture"):
        load(source("web")).load_state_dict(state)
    plain = load(source("web"))
    with pytest.raises(StateError, match="not of a mixture"):
        load(three(source)).load_state_dict(saved(plain))
    for damaged in (
        {},
        [],
        {**state["mixture"], "segments": []},
        {**state["mixture"], "segments": [[1, {"web": "1"}]]},
        {**state["mixture"], "segments": [[0, {"web": "x"}]]},
        {**state["mixture"], "segments": [[0, {"other": "1"}]]},
        {**state["mixture"], "sources": {"web": ["f", 0]}},
    ):
        loader = load(three(source))
        with pytest.raises(StateError, match="damaged"):
            loader.load_state_dict({**state, "mixture": damaged})
        loader.load_state_dict(state)


def test_states_are_small_and_the_same_on_all_ranks(source: Open) -> None:
    states = set()
    for rank in range(4):
        loader = load(three(source), batch_size=3, rank=rank, world_size=4)
        take(loader, 7)
        states.add(json.dumps(loader.state_dict()))
    assert len(states) == 1
    assert len(states.pop()) < 1024


@pytest.mark.parametrize("until", ["first", "all"])
def test_mx01_what_an_epoch_is(source: Open, until: str) -> None:
    mixture = dataflow.mix({"web": (source("web"), 0.5), "code": (source("code"), 0.5)}, until=until)
    loader = load(mixture, batch_size=1, steps_per_epoch=None)
    seen = Counter(number for number, _ in take(loader, len(loader)).values())
    if until == "first":
        assert seen[1] == SIZES["code"]
        assert seen[0] < SIZES["web"]
    else:
        assert seen[0] == SIZES["web"]
        assert seen[1] >= SIZES["code"]
    assert len(list(loader)) == len(loader)


def test_temperatures(source: Open) -> None:
    datasets = {name: source(name) for name in ("web", "code")}
    for options, shared in (({}, 500 / 680), ({"temperature": 1}, 500 / 680), ({"temperature": 1e9}, 0.5)):
        assert shares(take(load(dataflow.mix(datasets, **options)), 100), 2)[0] == pytest.approx(shared, abs=0.01)


def test_a_mixture_of_mixtures_is_one_of_all_sources(source: Open) -> None:
    inner = dataflow.mix({"code": (source("code"), 3), "tiny": (source("tiny"), 1)})
    outer = dataflow.mix({"web": (source("web"), 0.6), "rest": (inner, 0.4)})
    assert list(outer.sources) == ["web", "rest/code", "rest/tiny"]
    assert shares(take(load(outer), 100), 3) == pytest.approx([0.6, 0.3, 0.1], abs=0.01)


def test_epochs_follow_one_another(source: Open) -> None:
    loader = load(three(source), steps_per_epoch=5)
    slots = [slot for _ in range(3) for batch in loader for slot in batch["slot"].tolist()]
    assert slots == list(range(180))
    loader.set_epoch(1)
    assert next(iter(loader))["slot"][0] == 60


def test_stages_upon_a_mixture(source: Open) -> None:
    mixture = three(source).map(lambda row, rng: {**row, "drawn": int(rng.integers(1 << 40))}, name="draw")
    one, two = (take_column(load(mixture, num_workers=workers), "drawn", 30) for workers in (0, 3))
    assert one == two
    assert len(set(one)) == len(one), "rows of the same number in different sources drew the same"
    assert "map(draw)" in repr(mixture)
    again = pickle.loads(pickle.dumps(three(source)))
    assert take(load(again), 3) == take(load(three(source)), 3)


def take_column(loader: dataflow.DataLoader, column: str, steps: int) -> list[int]:
    batches = iter(loader)
    return [value for _ in range(steps) for value in next(batches)[column].tolist()]


def test_images_of_a_mixture_with_bad_rows(tmp_path: Path) -> None:
    good = jpeg()
    first = dataflow.open(write(tmp_path / "first", [good] * 8))
    second = dataflow.open(write(tmp_path / "second", [good, b"", good, good] * 2))
    mixture = dataflow.mix({"first": (first, 1), "second": (second, 1)}).decode(image=dataflow.Image(16))
    loader = load(mixture, on_error="skip", batch_size=4)
    drawn = take(loader, 10)
    assert {row for number, row in drawn.values() if number == 1} == {0, 2, 3, 4, 6, 7}
    assert {(entry["url"], entry["sample_id"]) for entry in loader.ledger()} == {
        (second.url, 1),
        (second.url, 5),
    }
    with pytest.raises(CorruptDataError, match="second"):
        take(load(mixture), 10)


def test_columns_are_those_that_all_have(source: Open, tmp_path: Path) -> None:
    with dataflow.ShardWriter(str(tmp_path / "more")) as writer:
        for number in range(40):
            writer.write({"extra": "x", "number": number})
    both = dataflow.mix({"web": (source("web"), 1), "more": (dataflow.open(str(tmp_path / "more")), 1)})
    assert both.columns == ("number",)
    drawn = take(load(both), 5)
    assert len({number for number, _ in drawn.values()}) == 2
    with dataflow.ShardWriter(str(tmp_path / "text")) as writer:
        writer.write({"number": "1"})
    with pytest.raises(OptionError, match=r"'number' holds int64 in source 'web', and string in 'text'"):
        dataflow.mix({"web": (source("web"), 1), "text": (dataflow.open(str(tmp_path / "text")), 1)})
    with pytest.raises(OptionError, match="no column in common"):
        dataflow.mix({"web": (source("web"), 1), "more": (dataflow.open(str(tmp_path / "more")).select("extra"), 1)})


@pytest.mark.parametrize(
    ("sources", "options", "words"),
    [
        ({}, {}, "no sources"),
        ({"a": ("web", -1)}, {}, "weight of source 'a' is -1"),
        ({"a": ("web", "1")}, {}, "weight of source 'a'"),
        ({"a": ("web", float("nan"))}, {}, "weight of source 'a'"),
        ({"a": ("web", 0)}, {}, "all weights are 0"),
        ({"a": ("web", 1), "b": "code"}, {}, "a weight for each"),
        ({"a": ("web", 1)}, {"temperature": 2}, "not some of both"),
        ({"a": "web"}, {"temperature": 0}, "temperature=0"),
        ({"a": ("web", 1)}, {"until": "last"}, "'all', 'first' or None"),
        ({"a": ("web", 1)}, {"schedule": [(0, {"a": 1})]}, "does not come after 0"),
        ({"a": ("web", 1)}, {"schedule": [(5, {"b": 1})]}, "source 'b', there are a"),
    ],
)
def test_mixtures_that_make_no_sense(source: Open, sources: Any, options: dict[str, Any], words: str) -> None:
    opened = {
        name: (source(given[0]), given[1]) if isinstance(given, tuple) else source(given)
        for name, given in sources.items()
    }
    with pytest.raises(OptionError, match=words):
        dataflow.mix(opened, **options)


def test_what_a_mixture_cannot_do_is_refused(source: Open) -> None:
    mixture = three(source)
    with pytest.raises(OptionError, match="filter 'odd' cannot stand upon a mixture"):
        mixture.filter(lambda row: row["number"] % 2, name="odd")
    with pytest.raises(OptionError, match=r"other stages than select"):
        dataflow.mix({"web": (source("web").map(dict, name="same"), 1)})
    with pytest.raises(OptionError, match="has no size"):
        dataflow.mix({"inner": mixture, "web": source("web")})
    with pytest.raises(OptionError, match="stages, until= or schedule= of its own"):
        dataflow.mix({"inner": (three(source, until="all"), 1)})
    with pytest.raises(OptionError, match=r"datasets from dataflow\.open"):
        dataflow.mix({"web": ("s3://bucket/web", 1)})  # type: ignore[dict-item]
    with pytest.raises(OptionError, match="of the source"):
        load(mixture).restore(3)
    with pytest.raises(OptionError, match="has no end"):
        dataflow.DataLoader(mixture)
    with pytest.raises(OptionError, match="samples, and a step takes"):
        dataflow.DataLoader(dataflow.mix({"tiny": (source("tiny"), 1)}, until="all"), batch_size=50)
    with pytest.raises(TypeError, match="ask those"):
        len(mixture)
    with pytest.raises(TypeError, match="ask those"):
        mixture[0]


def test_open_blocks_of_many_sources_are_bounded(source: Open) -> None:
    """Lanes of all sources together are at most twice those of the mixture, and one a source."""
    many = dataflow.mix({f"source {number}": (source("web"), number + 1) for number in range(50)})
    loader = load(many, lanes=64)
    rules = loader._blueprint.corpus.rules()
    assert sum(rules.own) <= 2 * 64 + 50  # type: ignore[union-attr]
    drawn = take(loader, 100)
    assert loader.stats()["block_bytes"]["peak"] <= loader.stats()["working_set"]["blocks"]
    for (slot, _), (following, _) in pairwise(sorted(drawn.items())):
        assert following == slot + 1
