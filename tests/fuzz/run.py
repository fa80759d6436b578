"""Damages files of one kind and reads them, over and over: `python -m tests.fuzz.run KIND SEED COUNT FOLDER`.

A process of its own, whose memory is bounded, so that a crash, a hang or a bomb is seen from outside. What it is at is
always in FOLDER/damaged: the file, and the number of the try.
"""

from __future__ import annotations

import faulthandler
import json
import resource
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from dataflow.dataset import Manifest, index, read_block
from dataflow.errors import CorruptDataError, DataflowError, DatasetError
from dataflow.formats import Block, Place, format_of
from dataflow.storage import open_store
from tests.fuzz.damage import damaged
from tests.fuzz.kinds import KINDS, Rows

# One try takes milliseconds.
_SECONDS = 20.0
# Above what the process has when it starts.
_MOST_BYTES = 400 << 20
_BLOCK_BYTES = 2000
# A sample of the archives, with its headers.
_BESIDE = 4608


def main() -> None:
    kind, seed, count, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    random = Random(f"{kind} {seed}")
    attempt = {"manifest": _Manifests, "indexed": _Indexed, "skip": _Skipping}.get(kind, _Shards)(kind, folder)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcomes: Counter[str] = Counter()
    for number in range(count):
        (folder / "number").write_text(str(number))
        faulthandler.dump_traceback_later(_SECONDS, exit=True)
        outcomes[attempt.once(random)] += 1
    faulthandler.cancel_dump_traceback_later()
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
    assert grown < _MOST_BYTES, f"memory grew by {grown} bytes"
    print(json.dumps(outcomes))


class _Shards:
    """Shards that were damaged before they are indexed: an error of ours, or the rows that another reader finds."""

    def __init__(self, kind: str, folder: Path) -> None:
        suffix, make, self._oracle = KINDS[kind]
        self._path = folder / f"damaged{suffix}"
        self._whole = make()
        self._store = open_store(str(folder))
        found = format_of(self._path.name)
        assert found is not None
        self._format = found
        self._path.write_bytes(self._whole)
        rows = self._rows(self._whole)
        self._num_rows = len(rows)
        assert _text(rows) == _text(self._oracle(self._whole))

    def once(self, random: Random) -> str:
        data = damaged(self._whole, random)
        self._path.write_bytes(data)
        try:
            rows = self._rows(data)
        except DataflowError:
            return "refused"
        try:
            expected = self._oracle(data)
        except Exception:
            # It looks at more than the rows need, such as statistics in a footer.
            assert len(rows) == self._num_rows, f"{len(rows)} rows of a file that another reader refuses"
            return "read"
        assert _text(rows) == _text(expected), "other rows than another reader finds"
        return "read"

    def _rows(self, data: bytes) -> Rows:
        found = self._format.index(self._store, self._path.name, _BLOCK_BYTES)
        rows: Rows = []
        for block in found.blocks:
            place = Place(block.start, block.rows, block.skip, found.detail)
            batch = self._format.read(data[block.start : block.start + block.length], found.schema, place)
            assert batch.num_rows == block.rows
            rows += batch.to_pylist()
        return rows


class _Indexed:
    """Shards that are damaged after they were indexed: an error that names the block, or the rows that were indexed."""

    def __init__(self, kind: str, folder: Path) -> None:
        self._datasets = []
        for name, (suffix, make, _) in KINDS.items():
            place = folder / name
            place.mkdir()
            (place / f"shard{suffix}").write_bytes(make())
            manifest = index(str(place), block_bytes=_BLOCK_BYTES)
            store = open_store(str(place))
            blocks = [_text(read_block(store, manifest, block).to_pylist()) for block in range(manifest.num_blocks)]
            self._datasets.append((place / f"shard{suffix}", make(), manifest, store, blocks))

    def once(self, random: Random) -> str:
        path, whole, manifest, store, blocks = random.choice(self._datasets)
        path.write_bytes(damaged(whole, random))
        block = random.randrange(manifest.num_blocks)
        try:
            rows = read_block(store, manifest, block).to_pylist()
        except CorruptDataError as error:
            if f"block {block} " not in str(error):
                raise
            return "refused"
        assert _text(rows) == blocks[block], "other rows than were indexed"
        return "read"


class _Skipping:
    """Shards that are indexed without what is damaged: no error after that, and what is left is as it was."""

    def __init__(self, kind: str, folder: Path) -> None:
        self._folder = folder
        self._store = open_store(str(folder))
        self._whole = {name: make() for name, (_, make, _) in KINDS.items()}

    def once(self, random: Random) -> str:
        name = random.choice(list(KINDS))
        suffix, _, oracle = KINDS[name]
        whole = self._whole[name]
        single = name in ("tar", "json lines")
        data = damaged(whole, random, (1,)) if single else damaged(whole, random)
        path = f"damaged{suffix}"
        (self._folder / path).write_bytes(data)
        kind = format_of(path)
        assert kind is not None
        block_bytes = 1 if name == "tar" else _BLOCK_BYTES
        try:
            strict = kind.index(self._store, path, block_bytes)
        except DataflowError:
            strict = None
        try:
            found = kind.index(self._store, path, block_bytes, skip_bad=True)
        except DataflowError:
            assert strict is None
            assert not single or name == "json lines"  # which may become an array, or lines without columns
            return "refused"
        rows: list[Rows] = []
        for block in found.blocks:
            place = Place(block.start, block.rows, block.skip, found.detail)
            batch = kind.read(data[block.start : block.start + block.length], found.schema, place)
            assert batch.num_rows == block.rows
            rows.append(batch.to_pylist())
        assert found == strict or (strict is None and found.skipped), "left out without a word"
        if name == "json lines":
            _check_lines(whole, data, [row for block in rows for row in block], len(found.skipped))
        elif name == "tar":
            _check_samples(
                whole, data, [(block, row) for block, (row,) in zip(found.blocks, rows, strict=True)], oracle
            )
        return "refused" if strict is None else "read"


def _same_ends(whole: bytes, data: bytes) -> tuple[int, int]:
    """How many bytes at the start are the same, and how many at the end."""
    most = min(len(whole), len(data))
    start = next((place for place in range(most) if whole[place] != data[place]), most)
    most -= start
    return start, next((place for place in range(most) if whole[-1 - place] != data[-1 - place]), most)


def _check_lines(whole: bytes, data: bytes, rows: Rows, skipped: int) -> None:
    """Each row is one of those there were, or what a line says where the damage is; each line is a row or listed."""
    start, end = _same_ends(whole, data)
    first = whole.rfind(b"\n", 0, start) + 1
    following = whole.find(b"\n", len(whole) - end)
    tail = b"" if following < 0 else whole[following + 1 :]
    possible = [*whole[:first].split(b"\n"), *data[first : len(data) - len(tail)].split(b"\n"), *tail.split(b"\n")]
    lines = iter(_text([row for line in possible if isinstance(row := _json(line), dict)]))
    assert all(row in lines for row in _text(rows)), "a row that no line has, or in another order"
    filled = [line for line in data.split(b"\n") if line.strip(b" \t\r")]
    assert len(rows) + skipped == len(filled), "lines that are neither rows nor listed"


def _json(line: bytes) -> Any:
    try:
        return json.loads(line.removeprefix(b"\xef\xbb\xbf"))
    except (ValueError, RecursionError):
        return None


def _check_samples(
    whole: bytes, data: bytes, rows: list[tuple[Block, dict[str, Any]]], oracle: Callable[[bytes], Rows]
) -> None:
    """Each row is one of those there were, or lies where the damage is, or beside that."""
    start, end = _same_ends(whole, data)
    before = _text(oracle(whole))
    for block, row in rows:
        touched = block.start <= len(data) - end + _BESIDE and block.start + block.length >= start - _BESIDE
        assert touched or _text([row])[0] in before, "another sample than there was"


class _Manifests:
    """Manifests: whatever is damaged is found."""

    def __init__(self, kind: str, folder: Path) -> None:
        for number in range(3):
            (folder / f"shard-{number}.arrow").write_bytes(KINDS["arrow"][1]())
        index(str(folder))
        self._folder = folder
        self._path = folder / "manifest.arrow"
        self._whole = self._path.read_bytes()

    def once(self, random: Random) -> str:
        self._path.write_bytes(damaged(self._whole, random))
        try:
            Manifest.open(str(self._folder))
        except DatasetError:
            return "refused"
        raise AssertionError("a damaged manifest was opened")


def _text(rows: list[dict[str, Any]]) -> list[str]:
    """Rows as text, without what is null, integers as floats: that compares numbers that are none, too."""
    return [repr(_plain(row)) for row in rows]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return sorted((name, _plain(item)) for name, item in value.items() if item is not None)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return float(value) if isinstance(value, int) else value


if __name__ == "__main__":
    main()
