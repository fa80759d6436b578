"""Pipelines that are not one to one, and by what their samples are told apart.

All begin with rows that hold their own number. What a batch names has to agree with what is in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import dataflow

SEQ_LEN = 32
Sample = dict[str, Any]


@dataclass(frozen=True)
class Pipeline:
    """Stages, and what tells their samples apart.

    Attributes:
        build: Puts the stages upon a dataset.
        identify: What each sample of a batch is, hashable; checks the batch.
        expected: All samples of an epoch of so many rows, in any order; None where it depends on how rows meet.
    """

    build: Callable[[Any], Any]
    identify: Callable[[Mapping[str, Any]], list[Any]]
    expected: Callable[[int], list[Any]] | None


def numbers(batch: Mapping[str, Any]) -> list[int]:
    """The numbers of rows."""
    samples: list[int] = batch["sample_id"].tolist()
    assert batch["number"].tolist() == samples, "the data are not those of the samples that the batch names"
    return samples


def parts(batch: Mapping[str, Any]) -> list[Any]:
    """The number of the row, and which parts of it."""
    found = [(number, *part) for number, part in zip(numbers(batch), batch["parts"].tolist(), strict=True)]
    assert [tuple(place) for place in batch["place"].tolist()] == found, "the data are not those of the parts"
    return found


def windows(batch: Mapping[str, Any]) -> list[Any]:
    """The number of the row, which part, and the tokens."""
    tokens = [tuple(row.tolist()) for row in batch["tokens"]]
    found = [(number, *part) for number, part in zip(numbers(batch), batch["parts"].tolist(), strict=True)]
    assert [row[0] for row in tokens] == [1000 * number + 4 * part for number, part in found]
    return list(zip(found, tokens, strict=True))


def packed(batch: Mapping[str, Any]) -> list[Any]:
    """The rows that documents are from, and their tokens."""
    found = []
    for row, (tokens, documents) in enumerate(zip(batch["tokens"], batch["document_ids"], strict=True)):
        ids = batch["sample_ids"][row].tolist()
        kept = tokens[documents >= 0]
        assert [int(token) // 1000 for token in kept] == [ids[int(n)] for n in documents[documents >= 0]]
        found.append((tuple(ids), tuple(kept.tolist())))
    assert [ids[0] for ids, _ in found] == batch["sample_id"].tolist()
    return found


def length_of(number: int) -> int:
    """Tokens of a row: some have none, some more than fit."""
    return number * 7 % 23 + (60 if number % 17 == 3 else 0) if number % 13 else 0


def tokens_of(number: int) -> list[int]:
    return list(range(1000 * number, 1000 * number + length_of(number)))


def with_tokens(row: Sample) -> Sample:
    return {"number": row["number"], "tokens": np.array(tokens_of(int(row["number"])), np.int64)}


def several(row: Sample) -> list[Sample]:
    number = int(row["number"])
    return [{"number": number, "place": np.array([number, part])} for part in range(number * 5 % 4)]


def pairs(row: Sample) -> list[Sample]:
    return [{**row, "place": np.append(row["place"], part)} for part in range(2)]


def is_kept(row: Sample) -> bool:
    return int(row["place"].sum()) % 3 > 0


def again(row: Sample, rng: Any) -> list[Sample]:
    number = int(row["number"])
    return [{"number": number, "place": np.array([number, part])} for part in range(int(rng.integers(3)))]


def halves(row: Sample) -> list[Sample]:
    return [{"tokens": row["tokens"][:16]}, {"tokens": row["tokens"][16:]}]


def halved(batch: Mapping[str, Any]) -> list[Any]:
    return [(place, tuple(row.tolist())) for place, row in zip(batch["parts"].tolist(), batch["tokens"], strict=True)]


def mixed(dataset: Any, weights: list[float]) -> Any:
    """The same rows under several names: each has an order of its own."""
    return dataflow.mix({f"source {number}": (dataset, weight) for number, weight in enumerate(weights)})


def drawn(batch: Mapping[str, Any]) -> list[Any]:
    """The source, and the number of the row."""
    return list(zip(batch["source_id"].tolist(), numbers(batch), strict=True))


def _several_of(count: int) -> list[Any]:
    return [(number, part) for number in range(count) for part in range(number * 5 % 4)]


def _windows_of(count: int) -> list[Any]:
    found = []
    for number in range(count):
        tokens = tokens_of(number)
        starts = [at for at in range(0, len(tokens), 4) if at == 0 or at + 2 < len(tokens)]
        found += [((number, at // 4), tuple(tokens[at : at + 6])) for at in starts]
    return found


def _packs(mode: str, **options: Any) -> Pipeline:
    def build(dataset: Any) -> Any:
        return dataset.map(with_tokens, name="tokens").pack(SEQ_LEN, mode=mode, **options)

    return Pipeline(build, packed, None)


PIPELINES: dict[str, Pipeline] = {
    "map": Pipeline(lambda dataset: dataset.map(dict, name="same"), numbers, lambda count: list(range(count))),
    "flat_map": Pipeline(lambda dataset: dataset.flat_map(several, name="several"), parts, _several_of),
    "random flat_map": Pipeline(lambda dataset: dataset.flat_map(again, name="again"), parts, None),
    "flat_map, flat_map, filter": Pipeline(
        lambda dataset: (
            dataset.flat_map(several, name="several").flat_map(pairs, name="pairs").filter(is_kept, name="kept")
        ),
        parts,
        lambda count: [(*place, n) for place in _several_of(count) for n in range(2) if (sum(place) + n) % 3 > 0],
    ),
    "window": Pipeline(
        lambda dataset: dataset.map(with_tokens, name="tokens").window("tokens", 6, 4), windows, _windows_of
    ),
    "pack best_fit": _packs("best_fit", window=20),
    "pack first_fit": _packs("first_fit", window=20, long="drop"),
    "pack concat": _packs("concat"),
    "filter, window, pack": Pipeline(
        lambda dataset: (
            dataset.filter(lambda row: row["number"] % 3 != 1, name="third")
            .map(with_tokens, name="tokens")
            .window("tokens", 10)
            .pack(SEQ_LEN, window=12)
        ),
        packed,
        None,
    ),
    "mix": Pipeline(lambda dataset: mixed(dataset, [0.7, 0.3]), drawn, None),
    "mix of many, map": Pipeline(
        lambda dataset: mixed(dataset, [0.5, 0.25, 0.2, 0.04, 0.01]).map(dict, name="same"), drawn, None
    ),
    "pack, flat_map": Pipeline(
        lambda dataset: (
            dataset.map(with_tokens, name="tokens").pack(SEQ_LEN, window=12).flat_map(halves, name="halves")
        ),
        halved,
        None,
    ),
}
