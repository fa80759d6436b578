"""Text becomes tokens: exactly those that the tokenizer's own library makes, in whatever way documents come."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, processors, trainers

import dataflow
from dataflow.dataset import Manifest, read_block
from dataflow.errors import CorruptDataError, OptionError
from dataflow.formats import Skipped
from dataflow.sharding import ShardOptions, Tokenize, open_tokenizer
from dataflow.storage import open_store
from tests.formats.archives import pack
from tests.sharding.conftest import Fill, contents, shard

TEXTS = [f"Dokument {n}: größer, 数 {n * n} 🦉 <|end|> " + "wort " * (n % 40) for n in range(300)]


def lines(texts: list[str | None], **more: Any) -> bytes:
    rows = ({"key": f"{n:04d}", "text": text} | more for n, text in enumerate(texts))
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def rows(manifest: Manifest) -> dict[str, dict[str, Any]]:
    store = open_store(manifest.base_url)
    found = [row for block in range(manifest.num_blocks) for row in read_block(store, manifest, block).to_pylist()]
    assert len({row["key"] for row in found}) == len(found)
    return {row["key"]: row for row in found}


@pytest.fixture(scope="module")
def library() -> Tokenizer:
    """A small BPE tokenizer with special tokens around each text, and with truncation and padding switched on."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<|begin|>", "<|end|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.post_processor = processors.TemplateProcessing("<|begin|> $A", special_tokens=[("<|begin|>", 0)])
    return tokenizer


@pytest.fixture
def file(library: Tokenizer, tmp_path: Path) -> Path:
    truncating = Tokenizer.from_str(library.to_str())
    truncating.enable_truncation(5)
    truncating.enable_padding(length=7, pad_id=1)
    truncating.save(str(tmp_path / "tokenizer.json"))
    return tmp_path / "tokenizer.json"


@pytest.mark.parametrize("special", [False, True])
def test_ids_are_those_of_the_library(
    fill: Fill, tmp_path: Path, file: Path, library: Tokenizer, special: bool
) -> None:
    source = str(fill({"a.jsonl": lines(TEXTS)}))
    options = ShardOptions(
        block_bytes=2000, shard_bytes=6_000, steps=(Tokenize(open_tokenizer(str(file)), special_tokens=special),)
    )
    made = [shard(source, str(tmp_path / f"{workers}"), options, workers=workers) for workers in (1, 2)]
    assert made[0].num_shards > 2
    assert contents(made[0].url) == contents(made[1].url)
    assert made[0].schema.equals(
        pa.schema([("key", pa.string()), ("tokens", pa.list_(pa.uint16())), ("num_tokens", pa.int32())])
    )
    found = rows(made[0])
    assert len(found) == len(TEXTS)
    for number, text in enumerate(TEXTS):
        row = found[f"{number:04d}"]
        expected = library.encode(text, add_special_tokens=special).ids
        assert row["tokens"] == expected
        assert row["num_tokens"] == len(expected)
    # What is written is compressed, and the size of blocks is that of the tokens before that.
    assert made[0].num_bytes < sum(2 * len(row["tokens"]) for row in found.values())
    assert made[0].properties["tokenizer"] == {
        "name": "sha256:" + hashlib.sha256(file.read_bytes()).hexdigest(),
        "largest_id": library.get_vocab_size() - 1,
        "end": None,
        "special_tokens": special,
    }


def test_bytes(fill: Fill, tmp_path: Path) -> None:
    tokens = Tokenize(open_tokenizer("bytes"), keep_text=True)
    made = shard(str(fill({"a.jsonl": lines(TEXTS)})), str(tmp_path / "out"), ShardOptions(steps=(tokens,)))
    found = rows(made)
    assert [found[f"{n:04d}"]["text"] for n in range(len(TEXTS))] == TEXTS
    assert all(bytes(row["tokens"]).decode() == row["text"] for row in found.values())
    # The loader hands them out as they are.
    sample = dataflow.open(made.url)[7]
    assert sample["tokens"].dtype == np.uint16
    assert sample["num_tokens"] == len(sample["tokens"])


@pytest.mark.parametrize(
    ("size", "added", "kind"), [(65536, 0, pa.uint16()), (65536, 1, pa.uint32()), (65537, 0, pa.uint32())]
)
def test_ids_are_as_wide_as_any_id_that_there_can_be(  # TK-04
    fill: Fill, tmp_path: Path, size: int, added: int, kind: pa.DataType
) -> None:
    vocabulary = {f"w{n}": n for n in range(size)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens([AddedToken(f"<{n}>", special=True) for n in range(added)])
    assert tokenizer.get_vocab_size(with_added_tokens=False) == size
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    words = ["w65535", f"w{size - 1}", "w0", *(f"<{n}>" for n in range(added))]
    step = Tokenize(open_tokenizer(str(tmp_path / "tokenizer.json")))
    source = str(fill({"a.jsonl": lines([" ".join(words)])}))
    made = shard(source, str(tmp_path / "out"), ShardOptions(steps=(step,)))
    assert made.schema.field("tokens").type.value_type == kind
    assert rows(made)["0000"]["tokens"] == [65535, size - 1, 0, *(size + n for n in range(added))]


@pytest.mark.parametrize("texts", [["", "b", "", "c", ""], ["", ""]], ids=["first, middle, last", "all"])
@pytest.mark.parametrize("end", [None, 256])
def test_empty_documents_have_length_0_or_are_left_out_with_a_count(  # TK-07
    fill: Fill, tmp_path: Path, texts: list[str], end: int | None
) -> None:
    source = str(fill({"a.jsonl": lines(list(texts))}))
    step = Tokenize(open_tokenizer("bytes"), end=end)
    found = rows(shard(source, str(tmp_path / "kept"), ShardOptions(steps=(step,))))
    closing = [] if end is None else [end]
    for number, text in enumerate(texts):
        assert found[f"{number:04d}"]["tokens"] == [*text.encode(), *closing]
    skipped: list[Skipped] = []
    options = ShardOptions(steps=(Tokenize(open_tokenizer("bytes"), end=end, drop_empty=True),))
    if not any(texts):
        with pytest.raises(OptionError, match="every one was left out"):
            shard(source, str(tmp_path / "dropped"), options)
        return
    assert set(rows(shard(source, str(tmp_path / "dropped"), options, on_skip=skipped.append))) == {"0001", "0003"}
    assert {item.reason for item in skipped} == {"an empty document"}
    assert sorted(item.name[:6] for item in skipped) == ["'0000'", "'0002'", "'0004'"]


def test_the_end_of_a_document_counts(fill: Fill, tmp_path: Path, file: Path, library: Tokenizer) -> None:  # TK-08
    end = open_tokenizer(str(file)).token_id("<|end|>")
    assert end == library.token_to_id("<|end|>")
    texts = ["a b c", "x", "one <|end|> inside and after"]
    source = str(fill({"a.jsonl": lines(list(texts))}))
    made = shard(source, str(tmp_path / "out"), ShardOptions(steps=(Tokenize(open_tokenizer(str(file)), end=end),)))
    for number, text in enumerate(texts):
        row = rows(made)[f"{number:04d}"]
        assert row["tokens"] == [*library.encode(text, add_special_tokens=False).ids, end]
        assert row["num_tokens"] == len(row["tokens"])


def test_null_texts_are_named_or_left_out(fill: Fill, tmp_path: Path) -> None:
    source = str(fill({"a.jsonl": lines(["a", None, "c"])}))
    with pytest.raises(CorruptDataError, match=r"a\.jsonl.*'0001' has no text"):
        shard(source, str(tmp_path / "out"), ShardOptions(steps=(Tokenize(open_tokenizer("bytes")),)))
    skipped: list[Skipped] = []
    options = ShardOptions(on_error="skip", steps=(Tokenize(open_tokenizer("bytes")),))
    assert set(rows(shard(source, str(tmp_path / "out"), options, on_skip=skipped.append))) == {"0000", "0002"}
    assert [(item.name[:6], item.reason) for item in skipped] == [("'0001'", "'text' is null")]


def test_texts_of_tars_are_bytes_of_utf8(fill: Fill, tmp_path: Path) -> None:
    source = fill({"0.tar": pack([("a.txt", "größer".encode()), ("b.txt", b"b")])})
    step = Tokenize(open_tokenizer("bytes"), "txt")
    found = rows(shard(str(source), str(tmp_path / "out"), ShardOptions(steps=(step,))))
    assert {key: bytes(row["tokens"]) for key, row in found.items()} == {"a": "größer".encode(), "b": b"b"}
    bad = fill({"0.tar": pack([("a.txt", b"\xff")])})
    with pytest.raises(CorruptDataError, match=r"0\.tar.*'txt' is not UTF-8"):
        shard(str(bad), str(tmp_path / "bad"), ShardOptions(steps=(step,)))


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (lambda file: open_tokenizer(str(file.parent / "absent.json")), "there is no tokenizer at"),
        (lambda file: open_tokenizer(str(file.parent / "other.json")), "is no tokenizer.json"),
        (
            lambda file: open_tokenizer(str(file)).token_id("<|none|>"),
            "no token '<|none|>'; its special tokens are <|be",
        ),
        (lambda file: open_tokenizer(str(file)).token_id("70000"), "no token with the id 70000"),
        (lambda file: open_tokenizer("bytes").token_id("<|end|>"), "no token '<|end|>': give a number"),
    ],
)
def test_what_is_no_tokenizer_or_token_is_an_error(file: Path, act: Callable[[Path], object], said: str) -> None:
    (file.parent / "other.json").write_text("{}")
    with pytest.raises(OptionError) as raised:
        act(file)
    assert said in str(raised.value)


def test_columns_that_cannot_be_tokenized(fill: Fill, tmp_path: Path) -> None:
    step = Tokenize(open_tokenizer("bytes"))
    for row, said in (
        ({"text": 1}, "'text' is int64"),
        ({"body": "x"}, "no column 'text': there are 'body'"),
        ({"text": "x", "tokens": [1]}, "a column 'tokens' already"),
    ):
        source = str(fill({"a.jsonl": json.dumps(row).encode()}))
        with pytest.raises(OptionError, match=said):
            shard(source, str(tmp_path / "out"), ShardOptions(steps=(step,)))


def test_more_tokens_must_be_made_in_the_same_way(fill: Fill, tmp_path: Path, file: Path) -> None:
    source, target = str(fill({"a.jsonl": lines(TEXTS[:20])})), str(tmp_path / "out")
    options = ShardOptions(steps=(Tokenize(open_tokenizer("bytes")),))
    shard(source, target, options)
    for other in (Tokenize(open_tokenizer(str(file))), Tokenize(open_tokenizer("bytes"), end=3)):
        with pytest.raises(OptionError, match="were made with"):
            shard(source, target, ShardOptions(append=True, steps=(other,)))
    assert shard(source, target, ShardOptions(append=True, steps=options.steps)).num_rows == 40
