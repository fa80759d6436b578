"""Tokenizers: the bytes of UTF-8, or what a `tokenizer.json` of Hugging Face says."""

from __future__ import annotations

import hashlib
import itertools
import multiprocessing
import os
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from dataflow.errors import OptionError, StorageNotFoundError
from dataflow.storage import open_store, split_url

if TYPE_CHECKING:
    from tokenizers import Tokenizer as HuggingFaceTokenizer

__all__ = ["ByteTokenizer", "FileTokenizer", "Tokenizer", "open_tokenizer"]

_MOST_FILE_BYTES = 1 << 30


class Tokenizer(Protocol):
    """Turns text into ids. It travels to worker processes, and its `repr` is part of the plan.

    Attributes:
        name: What the dataset's properties call it.
        largest_id: No id is larger, those of special and of added tokens included.
    """

    @property
    def name(self) -> str: ...

    @property
    def largest_id(self) -> int: ...

    def token_id(self, token: str) -> int:
        """The id of a token, given as its text or as the id in decimal digits.

        Raises:
            OptionError: There is no such token.
        """
        ...

    def encode(self, texts: list[str], special_tokens: bool) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The ids of all texts one after another (int64), and how many each text has (int64 [texts])."""
        ...


@dataclass(frozen=True)
class ByteTokenizer:
    """Ids are the bytes of UTF-8."""

    name = "bytes"
    largest_id = 255

    def token_id(self, token: str) -> int:
        """Any id; those above 255 are no byte of a text. See `Tokenizer`."""
        if token.isascii() and token.isdecimal() and int(token) < 1 << 32:
            return int(token)
        raise OptionError(f"the tokenizer 'bytes' has no token {token!r}: give a number, such as 256")

    def encode(self, texts: list[str], special_tokens: bool) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """See `Tokenizer`."""
        data = [text.encode() for text in texts]
        counts = np.fromiter(map(len, data), np.int64, len(data))
        return np.frombuffer(b"".join(data), np.uint8).astype(np.int64), counts


@dataclass(frozen=True)
class FileTokenizer:
    """A `tokenizer.json`. Its truncation and padding are switched off: documents come whole.

    Attributes:
        digest: SHA-256 of the file.
        content: The file.
    """

    digest: str
    content: str = field(repr=False)

    @property
    def name(self) -> str:
        """See `Tokenizer`."""
        return f"sha256:{self.digest}"

    @property
    def largest_id(self) -> int:
        """See `Tokenizer`. The size of the vocabulary is no measure: added tokens may lie anywhere."""
        return _largest_id(self.content)

    def token_id(self, token: str) -> int:
        """See `Tokenizer`."""
        tokenizer = _load(self.content)
        if token.isascii() and token.isdecimal():
            if int(token) < 1 << 32 and tokenizer.id_to_token(int(token)) is not None:
                return int(token)
            raise OptionError(f"the tokenizer has no token with the id {token}; the largest id is {self.largest_id}")
        found = tokenizer.token_to_id(token)
        if found is None:
            special = [str(added.content) for added in tokenizer.get_added_tokens_decoder().values() if added.special]
            known = f"its special tokens are {', '.join(special)}" if special else "it has no special tokens"
            raise OptionError(f"the tokenizer has no token {token!r}; {known}")
        return int(found)

    def encode(self, texts: list[str], special_tokens: bool) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """See `Tokenizer`."""
        encodings = _load(self.content).encode_batch_fast(texts, add_special_tokens=special_tokens)
        ids = [encoding.ids for encoding in encodings]
        counts = np.fromiter(map(len, ids), np.int64, len(ids))
        return np.fromiter(itertools.chain.from_iterable(ids), np.int64, int(counts.sum())), counts


def open_tokenizer(name: str) -> Tokenizer:
    """The tokenizer `bytes`, or one from a `tokenizer.json`, a path or a URL.

    Raises:
        OptionError: There is no such file, it is no tokenizer, or the package `tokenizers` is not installed.
        StorageError: The store could not be read.
    """
    if name == "bytes":
        return ByteTokenizer()
    folder, file = split_url(name)
    store = open_store(folder)
    try:
        size = store.size(file)
    except StorageNotFoundError as error:
        raise OptionError(f"there is no tokenizer at {name}: give 'bytes', or the file tokenizer.json") from error
    if size > _MOST_FILE_BYTES:
        raise OptionError(f"{name} has {size} bytes, which is no tokenizer.json")
    data = bytes(store.read_range(file, 0, size))
    try:
        tokenizer = FileTokenizer(hashlib.sha256(data).hexdigest(), data.decode())
        _load(tokenizer.content)
    except OptionError:
        raise
    except Exception as error:  # the package raises nothing more special
        raise OptionError(f"{name} is no tokenizer.json: {error}. Give the file that `tokenizers` saves") from error
    return tokenizer


@lru_cache(maxsize=2)
def _largest_id(content: str) -> int:
    return max(_load(content).get_vocab(with_added_tokens=True).values(), default=0)


@lru_cache(maxsize=2)
def _load(content: str) -> HuggingFaceTokenizer:
    if multiprocessing.parent_process() is not None:
        # Each worker process has a core of its own: threads of their own would only be in the way of each other.
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
    try:
        from tokenizers import Tokenizer as HuggingFaceTokenizer
    except ImportError as error:
        raise OptionError(
            "a tokenizer.json needs the package tokenizers, which is not installed: pip install tokenizers"
        ) from error
    tokenizer = HuggingFaceTokenizer.from_str(content)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer
