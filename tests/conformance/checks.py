"""What any loader has to satisfy. Every check compares sample ids and slots, and raises AssertionError."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from tests.conformance.adapter import Adapter
from tests.conformance.job import Job, Mode, Step, Way, delivered

Rows = list[tuple[int, Any]]


def text(state: dict[str, Any]) -> str:
    """A state as it is saved."""
    return json.dumps(state)


def saved(state: dict[str, Any]) -> dict[str, Any]:
    """A state as it is read back."""
    out: dict[str, Any] = json.loads(json.dumps(state))
    return out


def straight(adapter: Adapter, dataset: Any, mode: Mode, rows: int, **options: Any) -> Rows:
    """The first rows of the stream, of an undisturbed run on one rank."""
    out: Rows = []
    with Job(adapter, dataset, mode, Way(batch=7), **options) as job:
        while len(out) < rows:
            out += delivered(job.run(1))
    return out


def resumed(adapter: Adapter, dataset: Any, mode: Mode, way: Way, state: dict[str, Any] | None, **options: Any) -> Job:
    """A job that continues from the state of another, which it has to accept."""
    try:
        return Job(adapter, dataset, mode, way, state, **options)
    except Exception as error:
        raise AssertionError(f"the merged state of a job does not load: {error}") from error


def check_every_sample_once(
    adapter: Adapter, dataset: Any, mode: Mode, way: Way, epochs: int = 2, **options: Any
) -> None:
    """Each epoch holds every sample exactly once, in an order of its own, at consecutive slots."""
    expected = [number for number in range(dataset.num_rows) if mode.kept(number)]
    orders = []
    with Job(adapter, dataset, mode, way, **options) as job:
        for _ in range(epochs):
            rows = delivered(job.epoch())
            samples = [sample for _, sample in rows]
            assert sorted(samples) == expected, "an epoch does not hold every sample once"
            if not mode.drops:
                assert [slot for slot, _ in rows] == list(range(len(expected))), "slots are not consecutive"
            orders.append([sample for _, sample in sorted(rows)])
    if len(expected) > 10:
        assert orders[0] != orders[1], "two epochs have one order"
        assert expected not in orders, "the order is not shuffled"


def check_same_stream(
    adapter: Adapter, dataset: Any, mode: Mode, ways: Sequence[Way], rows: int, **options: Any
) -> None:
    """Whatever the ways, the global stream is that of one rank; and so are the states where steps end alike."""
    expected = straight(adapter, dataset, mode, rows, **options)
    at_slot = dict(expected)
    states: dict[int, str] = {}
    for way in ways:
        found: Rows = []
        with Job(adapter, dataset, mode, way, **options) as job:
            while len(found) < rows:
                found += delivered(job.run(1))
                state = job.merged()
                known = states.setdefault(state["slots"] + (state["epoch"] << 32), text(state))
                assert text(state) == known, f"states differ after slot {state['slots']}, {way}:\n{state}\n{known}"
        reached = min(len(found), len(expected))
        assert found[:reached] == expected[:reached], f"another stream: {way}"
        if mode.options.get("steps_per_epoch"):
            assert [slot for slot, _ in found] == list(range(len(found))), f"slots are not consecutive: {way}"
            assert all(at_slot.get(slot, sample) == sample for slot, sample in found)


def check_chain(adapter: Adapter, dataset: Any, mode: Mode, legs: Sequence[tuple[Way, int]], **options: Any) -> None:
    """Runs that are stopped and resumed, each in another way, give what an undisturbed run gives, ends included."""
    found: Rows = []
    state = None
    for way, steps in legs:
        with resumed(adapter, dataset, mode, way, state, **options) as job:
            if state is not None:
                for now in job.states():
                    assert text(now) == text(state), "the state right after a load is another one"
            found += delivered(job.run(steps))
            state = saved(job.merged())
    expected = straight(adapter, dataset, mode, len(found), **options)
    assert found == expected[: len(found)], "resumed runs give another stream than a straight one"


def check_resume_anywhere(
    adapter: Adapter, dataset: Any, mode: Mode, way: Way, other: Way, epochs: int = 2, every: int = 1, **options: Any
) -> None:
    """A state from before any batch, after each batch, and after each end, continues the run in another way."""
    states: list[tuple[int, dict[str, Any]]] = []
    rows: Rows = []
    with Job(adapter, dataset, mode, way, **options) as job:
        states.append((0, saved(job.merged())))
        for _ in range(epochs):
            while (step := job.step()) is not None:
                rows += delivered([step])
                states.append((len(rows), saved(job.merged())))
            states.append((len(rows), saved(job.merged())))
    # The last state has nothing after it to compare with but what comes in the next epoch.
    rows = straight(adapter, dataset, mode, len(rows) + 5, **options)
    for done, state in states[::every] + states[-2:]:
        with resumed(adapter, dataset, mode, other, state, **options) as job:
            found: Rows = []
            wanted = min(len(rows), done + 2 * other.step + 3) - done
            with suppress(StopIteration):
                while len(found) < wanted:
                    found += delivered(job.run(1))
        assert found[:wanted] == rows[done : done + wanted], f"another continuation after {done} rows: {state}"


def check_rank_missing_is_refused(
    adapter: Adapter, dataset: Any, mode: Mode, way: Way, steps: int, **options: Any
) -> None:
    """Where states are of single ranks, a merge without one of them fails and names lanes; so does loading one alone.

    Where ranks do not divide the lanes, the others may know all that one knows: then it is not missed.
    """
    with Job(adapter, dataset, mode, way, **options) as job:
        job.run(steps)
        states, whole = job.states(), job.merged()
    missed = 0
    for missing in range(way.ranks):
        rest = [state for rank, state in enumerate(states) if rank != missing]
        try:
            merged = adapter.merge_states(rest)
        except Exception as error:
            if "lanes" not in str(error):
                raise AssertionError(f"the error does not name the lanes: {error}") from error
            missed += 1
        else:
            assert text(merged) == text(whole), f"the state of rank {missing} is lost silently"
    assert missed, "states of single ranks were accepted without one of them"
    with Job(adapter, dataset, mode, way, **options) as job:
        for loader in job.loaders:
            for state in states:
                if text(state) != text(whole):
                    refused(lambda loader=loader, state=state: loader.load_state_dict(state), "lanes")


def check_equal_steps(adapter: Adapter, dataset: Any, mode: Mode, way: Way, **options: Any) -> list[int]:
    """All ranks take equally many steps of equally many rows (`Job` sees to it), and as many as len() says."""
    counts = []
    with Job(adapter, dataset, mode, way, **options) as job:
        for _ in range(2):
            steps = job.epoch()
            counts.append(len(steps))
            with suppress(TypeError):
                assert {len(loader) for loader in job.loaders} == {len(steps)}, "len() is not the number of batches"
            check_padding(steps)
            if mode.exact and (options.get("lanes") or way.step + 1) <= way.step:
                # Each step asks every lane, so that all ranks know at once when the last has ended.
                assert all(any(any(batch.valid) for batch in step) for step in steps), "a step without a sample"
    return counts


def check_padding(steps: Sequence[Step]) -> None:
    """Padding repeats samples that are there anyway, and only ranks' last rows are padding."""
    for number, step in enumerate(steps):
        for batch in step:
            assert batch.valid == sorted(batch.valid, reverse=True) or not all(batch.valid)
            if number + 1 < len(steps) and len(step[0].slots) != len(steps[number + 1][0].slots):
                assert number + 2 == len(steps), "only the last batch may be smaller"


def refused(call: Any, *words: str) -> None:
    """A call has to fail with an error that has these words."""
    try:
        call()
    except Exception as error:
        missing = [word for word in words if word not in str(error)]
        if missing:
            raise AssertionError(f"the error does not speak of {missing}: {error}") from error
        return
    raise AssertionError("was accepted")
