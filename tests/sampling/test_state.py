"""States: read back whatever was written, refuse everything else, and merge to one canonical form."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataflow.errors import StateError
from dataflow.sampling.cursor_table import LaneCursor
from dataflow.sampling.lanes import delivered_items
from dataflow.sampling.state import StreamState, merge_states, pipeline_fingerprint
from tests.sampling import reference

EXAMPLES = [pytest.param(80, id="quick"), pytest.param(500, id="soak", marks=pytest.mark.soak)]
some_examples = pytest.mark.parametrize("examples", EXAMPLES)


def cursor_after(lane: int, slots: int, lanes: int) -> LaneCursor:
    """A lane that dropped one sample in three, and lane number of them at the start."""
    items = delivered_items(lane, slots, lanes)
    return LaneCursor(items, items + items // 2 + lane if items else 0)


def rank_states(slots: int, lanes: int, ranks: int, batch: int) -> list[dict[str, Any]]:
    """What each rank knows after whole global batches: lanes it ran, as far as its own last item of each."""
    known: list[dict[int, LaneCursor]] = [{} for _ in range(ranks)]
    for first in range(0, slots, batch):
        for rank in range(ranks):
            for slot in reference.share(first, min(batch, slots - first), lanes, ranks, rank):
                known[rank][slot % lanes] = cursor_after(slot % lanes, slot + 1, lanes)
    return [StreamState("d", "p", 3, lanes, 1, slots, cursors).to_dict() for cursors in known]


def whole_state(slots: int, lanes: int) -> dict[str, Any]:
    cursors = {lane: cursor_after(lane, slots, lanes) for lane in range(lanes)}
    return StreamState("d", "p", 3, lanes, 1, slots, cursors).to_dict()


@some_examples
def test_merged_states_are_byte_equal_whoever_made_them(examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(
        slots=st.integers(0, 120),
        lanes=st.integers(1, 24),
        ranks=st.integers(1, 9),
        batch=st.integers(1, 30),
        data=st.data(),
    )
    def check(slots: int, lanes: int, ranks: int, batch: int, data: st.DataObject) -> None:
        states = rank_states(slots, lanes, ranks, batch)
        shuffled = data.draw(st.permutations(states))
        # States travel through JSON, which turns keys to text and may be merged twice.
        travelled = [json.loads(json.dumps(state)) for state in shuffled]
        expected = json.dumps(whole_state(slots, lanes))
        assert json.dumps(merge_states(travelled)) == expected
        assert json.dumps(merge_states([*states, merge_states(travelled), *states])) == expected
        StreamState.from_dict(merge_states(travelled)).check_complete()

    check()


@some_examples
def test_a_merge_with_a_rank_missing_names_its_lanes(examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(
        slots=st.integers(1, 120),
        lanes=st.integers(1, 24),
        ranks=st.integers(2, 9),
        batch=st.integers(1, 30),
        missing=st.integers(0, 8),
    )
    def check(slots: int, lanes: int, ranks: int, batch: int, missing: int) -> None:
        missing %= ranks
        states = rank_states(slots, lanes, ranks, batch)
        reached: dict[int, int] = {}
        for rank, state in enumerate(states):
            if rank != missing:
                for lane, (items, _) in (StreamState.from_dict(state).cursors or {}).items():
                    reached[lane] = max(items, reached.get(lane, 0))
        short = [lane for lane in range(lanes) if reached.get(lane, 0) < delivered_items(lane, slots, lanes)]
        rest = [state for rank, state in enumerate(states) if rank != missing]
        if not short:
            assert merge_states(rest) == whole_state(slots, lanes)
            return
        with pytest.raises(StateError, match="merge_states") as caught:
            merge_states(rest)
        assert f"{len(short)} of {lanes} lanes ({', '.join(map(str, short[:8]))}" in str(caught.value)

    check()


def test_one_to_one_states_need_no_merge_but_have_to_agree() -> None:
    state = StreamState("d", "p", 3, 8, 1, 40).to_dict()
    assert "cursors" not in state
    assert merge_states([state]) == merge_states([state, dict(state)]) == state
    StreamState.from_dict(state).check_complete()


@pytest.mark.parametrize(
    ("name", "value"),
    [("dataset", "e"), ("pipeline", "q"), ("seed", 4), ("lanes", 7), ("epoch", 2), ("slots", 41)],
)
def test_states_of_different_streams_or_steps_do_not_merge(name: str, value: object) -> None:
    for states in (
        [StreamState("d", "p", 3, 8, 1, 40).to_dict()] * 3,
        rank_states(40, 8, 3, 8),
    ):
        changed = [states[0], states[1], {**states[2], name: value}]
        with pytest.raises(StateError, match=f"states 0 and 2 differ in {name} "):
            merge_states(changed)


def test_states_with_and_without_cursors_do_not_merge() -> None:
    bare = StreamState("d", "p", 3, 8, 1, 40).to_dict()
    with pytest.raises(StateError, match="different pipelines"):
        merge_states([*rank_states(40, 8, 2, 8), bare])
    with pytest.raises(StateError, match="different pipelines"):
        merge_states([bare, *rank_states(40, 8, 2, 8)])


def test_no_states_do_not_merge() -> None:
    with pytest.raises(StateError, match="no states"):
        merge_states([])


def test_a_cursor_beyond_the_slots_is_refused() -> None:
    cursors = {lane: LaneCursor(6 if lane == 3 else 5, 9) for lane in range(8)}
    state = StreamState("d", "p", 3, 8, 1, 40, cursors).to_dict()
    with pytest.raises(StateError, match="lane 3 gave 6 items, 40 slots need 5"):
        StreamState.from_dict(state).check_complete()
    with pytest.raises(StateError, match="lane 3"):
        merge_states([state])


def test_a_lane_that_delivered_nothing_is_left_out() -> None:
    cursors = {lane: LaneCursor(1 if lane < 3 else 0, 5 if lane < 3 else 0) for lane in range(8)}
    state = StreamState("d", "p", 0, 8, 0, 3, cursors).to_dict()
    assert state["cursors"] == {"numbers": [[5, 5, 5]]}
    lagging = StreamState("d", "p", 0, 8, 0, 11, {2: LaneCursor(1, 5), 1: LaneCursor(2, 7)}).to_dict()
    assert lagging["cursors"] == {"numbers": [[7, 5]], "lanes": [1, 2], "items": [2, 1]}


@some_examples
def test_states_come_back_through_json(examples: int) -> None:
    counts = st.integers(0, 2**62)
    cursors = st.dictionaries(st.integers(0, 63), st.builds(LaneCursor, st.integers(1, 2**62), counts))

    @settings(max_examples=examples, deadline=None)
    @given(seed=st.integers(-(2**127), 2**127 - 1), epoch=counts, slots=counts, cursors=st.none() | cursors)
    def check(seed: int, epoch: int, slots: int, cursors: dict[int, LaneCursor] | None) -> None:
        state = StreamState("d", "p", seed, 64, epoch, slots, cursors)
        text = json.dumps(state.to_dict())
        assert StreamState.from_dict(json.loads(text)) == state
        assert json.dumps(StreamState.from_dict(json.loads(text)).to_dict()) == text

    check()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=8,
)


@some_examples
def test_anything_else_is_refused_with_a_state_error(examples: int) -> None:
    valid = whole_state(40, 8)

    @settings(max_examples=examples, deadline=None)
    @given(garbage=json_values)
    def check_garbage(garbage: object) -> None:
        for use in (StreamState.from_dict, lambda state: merge_states([state])):
            with pytest.raises(StateError):
                use(garbage)

    @settings(max_examples=2 * examples, deadline=None)
    @given(name=st.sampled_from([*valid, "cursors", "cursors"]), value=json_values, drop=st.booleans())
    def check_damage(name: str, value: object, drop: bool) -> None:
        damaged = {key: part for key, part in valid.items() if key != name}
        if not drop:
            damaged[name] = value
        try:
            StreamState.from_dict(damaged).check_complete()
        except StateError:
            return
        # What passes is a state: it comes back as it was.
        assert StreamState.from_dict(damaged).to_dict() == damaged

    columns = st.one_of(st.lists(st.integers(-3, 20), max_size=9), st.just(list(range(8))), json_values)
    numbers = st.one_of(st.lists(columns, max_size=3), json_values)
    tables = st.fixed_dictionaries({}, optional={"numbers": numbers, "lanes": columns, "items": columns, "x": columns})

    @settings(max_examples=2 * examples, deadline=None)
    @given(cursors=tables)
    def check_cursors(cursors: dict[str, Any]) -> None:
        damaged = {**valid, "cursors": {**valid["cursors"], **cursors}}
        try:
            state = StreamState.from_dict(damaged)
            state.check_complete()
        except StateError:
            return
        assert all(cursor.items >= 0 for cursor in (state.cursors or {}).values())
        assert state.to_dict() == damaged

    check_garbage()
    check_damage()
    check_cursors()


@pytest.mark.parametrize("version", [0, 1, "2", None, 1.5])
def test_another_version_is_named(version: object) -> None:
    with pytest.raises(StateError, match="version"):
        StreamState.from_dict({**whole_state(40, 8), "version": version})


@pytest.mark.parametrize(
    "change",
    [
        *[{"epoch": -1}, {"slots": -1}, {"lanes": 0}, {"lanes": -4}, {"slots": 1.0}, {"slots": True}, {"seed": "3"}],
        *[
            {"dataset": None},
            {"pipeline": 3},
            {"cursors": [[1, 2]]},
            {"cursors": {}},
            {"cursors": {"numbers": [[1]]}},
            {"cursors": {"numbers": [[1]], "lanes": [8]}},
            {"cursors": {"numbers": [[1, 1]], "lanes": [2, 1]}},
            {"cursors": {"numbers": [[1, 1]], "lanes": [1, 1]}},
        ],
        *[{"cursors": {"numbers": [[-7] * 8]}}, {"cursors": {"numbers": [[7] * 8], "items": [-1] * 8}}],
        *[{"epoch": 2**127}, {"lanes": 2**70}],
    ],
    ids=str,
)
def test_values_that_cannot_be_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(StateError):
        StreamState.from_dict({**whole_state(40, 8), **change})


def test_pipeline_fingerprints_tell_pipelines_apart() -> None:
    stages = [["select", "", ["a", "b"]], ["map", "crop", []], ["filter", "large", []]]
    one = pipeline_fingerprint(64, True, stages)
    assert one == pipeline_fingerprint(64, True, [tuple(stage) for stage in stages])
    others = [
        pipeline_fingerprint(32, True, stages),
        pipeline_fingerprint(64, False, stages),
        pipeline_fingerprint(64, True, stages[:2]),
        pipeline_fingerprint(64, True, [stages[0], stages[2], stages[1]]),
        pipeline_fingerprint(64, True, [*stages[:2], ["filter", "small", []]]),
        pipeline_fingerprint(64, True, [["select", "", ["b", "a"]], *stages[1:]]),
        pipeline_fingerprint(64, True, [*stages[:2], ["map", "large", []]]),
    ]
    assert len({one, *others}) == len(others) + 1
