"""A dataset: the rows that a manifest describes, and what is to be done with each."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from functools import cached_property
from itertools import dropwhile
from typing import Any, SupportsIndex

import pyarrow as pa

from dataflow.dataset.block_source import BlockSource, check_verify, choose_cache
from dataflow.dataset.blocks import Blocks, StoredBlocks
from dataflow.dataset.codec import Codec
from dataflow.dataset.expanding import EXPANDING, FlatMap, Pack, Window, check_pack, check_window
from dataflow.dataset.function_pickle import pickle_function
from dataflow.dataset.manifest import Manifest
from dataflow.dataset.numbered_rows import NumberedRows
from dataflow.dataset.stage_schema import schema_after
from dataflow.dataset.stages import Decode, Filter, Map, Select, Stage, function_name, takes_generator
from dataflow.errors import OptionError
from dataflow.storage import Store, open_store
from dataflow.storage.cache import BlockCache

__all__ = ["Dataset", "open_dataset"]


def open_dataset(
    url: str, *, verify: float | bool = 1.0, cache: str | None = None, cache_limit: int | str | None = None
) -> Dataset:
    """Opens the dataset at a URL. Only its manifest is read.

    Args:
        url: The dataset's folder.
        verify: Share of the blocks whose checksum is compared when they are read, from 0 (or False) to 1 (or True).
            Always the same blocks. What goes through a cache is always compared.
        cache: Folder on a local disk where blocks of a remote dataset are kept, for all processes of the host. Datasets
            on a local disk are never copied there.
        cache_limit: Most bytes that the cache may take: a number, or a text such as "200GiB". Needed with `cache`.

    Raises:
        DatasetError: There is no dataset; says what there is instead and what to do.
        OptionError: An argument makes no sense, or the cache is too small for the dataset.
        StorageError: The store could not be read.
    """
    share = check_verify(verify)
    manifest = Manifest.open(url)
    return Dataset(manifest, (), share, choose_cache(manifest, open_store(manifest.base_url), cache, cache_limit))


class Dataset:
    """Rows in shards and the stages that each goes through. Immutable: every method returns a new dataset.

    Nothing is read before a row is asked for. A dataset pickles as its URL, its stages and the
    arguments of `open`, also after use.

    Args:
        manifest: Which rows there are.
        stages: What is done with each, in order.
        verify: Share of the blocks whose checksum is compared.
        cache: Where blocks are kept on this host.
    """

    def __init__(
        self,
        manifest: Manifest,
        stages: tuple[Stage, ...] = (),
        verify: float = 1.0,
        cache: BlockCache | None = None,
    ) -> None:
        self.manifest = manifest
        self.stages = stages
        self._verify = verify
        self._cache = cache
        self._rows: NumberedRows | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Dataset, (self.manifest, self.stages, self._verify, self._cache)

    def __repr__(self) -> str:
        stages = "".join(f".{kind}({name or ', '.join(parameters)})" for kind, name, parameters in self.pipeline)
        return f"{type(self).__name__}({self.url!r}, {self.num_rows} rows){stages}"

    @property
    def url(self) -> str:
        """The dataset's folder."""
        return self.manifest.url

    @property
    def stored_schema(self) -> pa.Schema:
        """Columns and types of a stored row."""
        return self.manifest.schema

    @property
    def num_rows(self) -> int:
        """Number of rows before any filter."""
        return self.manifest.num_rows

    @property
    def num_blocks(self) -> int:
        """Number of blocks."""
        return self.manifest.num_blocks

    @property
    def fingerprint(self) -> str:
        """Identity of the data, whatever its place and stages."""
        return self.manifest.fingerprint

    @property
    def pipeline(self) -> tuple[tuple[str, str, tuple[Any, ...]], ...]:
        """Kind, name and parameters of each stage: what a loader's state is checked against."""
        return tuple(stage.describe() for stage in self.stages)

    @property
    def schema(self) -> pa.Schema | None:
        """Columns and types of a row; None after a `map` and what is like it, which may return anything."""
        return schema_after(self.stored_schema, self.stages)

    @property
    def columns(self) -> tuple[str, ...]:
        """Stored columns that have to be read: a `select` before anything else leaves the others alone."""
        columns = tuple(self.stored_schema.names)
        for stage in self.stages[: len(self.stages) - len(self.transforms)]:
            assert isinstance(stage, Select)
            columns = stage.columns
        return columns

    @property
    def transforms(self) -> tuple[Stage, ...]:
        """The stages that rows of these columns go through: all but a `select` before anything else."""
        return tuple(dropwhile(lambda stage: isinstance(stage, Select), self.stages))

    @property
    def one_to_one(self) -> bool:
        """Whether every stored row gives one sample."""
        return not self.deciding

    @property
    def expands(self) -> bool:
        """Whether there may be more samples than stored rows."""
        return any(isinstance(stage, EXPANDING) for stage in self.stages)

    @property
    def deciding(self) -> str:
        """The stages that make fewer or more samples of the rows, for messages; empty where there are none."""
        found = [stage for stage in self.stages if isinstance(stage, (Filter, *EXPANDING))]
        return " and ".join(f"{stage.describe()[0]} {stage.name!r}" for stage in found)

    @cached_property
    def store(self) -> Store:
        """Where the shards are."""
        return open_store(self.manifest.base_url)

    @cached_property
    def source(self) -> BlockSource:
        """What brings the bytes of blocks."""
        return BlockSource(self.store, self._verify, self._cache)

    @property
    def concurrency(self) -> int:
        """How many reads in flight keep its store busy."""
        return self.store.concurrency

    def blocks(self) -> Blocks:
        """The blocks, with what brings them, which counts from 0 what came from a cache."""
        return StoredBlocks(self.manifest, self.source.uncounted())

    def select(self, columns: str | Iterable[str]) -> Dataset:
        """Keeps some columns, in the order given.

        Raises:
            OptionError: There is no such column; names those that there are.
        """
        names = (columns,) if isinstance(columns, str) else tuple(columns)
        schema = self.schema
        unknown = [name for name in names if schema is not None and name not in schema.names]
        if unknown:
            assert schema is not None
            raise OptionError(f"{self.url} has no column {unknown[0]!r}; it has {', '.join(schema.names)}")
        if not names or len(set(names)) != len(names):
            raise OptionError(f"select takes one or more different columns, not {names}")
        return self._with(Select(names))

    def decode(self, **columns: Codec) -> Dataset:
        """Decodes columns of encoded values, as in `decode(image=dataflow.Image(224))`.

        A loader decodes batches as a whole where no `map`, `filter` or `collate_fn` comes after; these see arrays.

        Args:
            columns: Binary columns, and how each is decoded.

        Raises:
            OptionError: There is no such column, or it does not hold bytes; names those that there are.
        """
        if not columns:
            raise OptionError("decode() names no column: give it as in decode(image=dataflow.Image(224))")
        schema = self.schema
        for name, codec in columns.items():
            if not all(hasattr(codec, method) for method in ("describe", "decode", "decode_batch")):
                raise OptionError(f"decode({name}={codec!r}): give a codec, such as dataflow.Image(224)")
            if schema is None:
                continue
            if name not in schema.names:
                raise OptionError(f"{self.url} has no column {name!r}; it has {', '.join(schema.names)}")
            kind = schema.field(name).type
            if not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
                raise OptionError(f"column {name!r} of {self.url} holds {kind}, not bytes that can be decoded")
            for beside in Decode(name, codec).companions:
                if beside in schema.names:
                    raise OptionError(f"decode({name}=) adds a column {beside!r}, which {self.url} has already")
        dataset = self
        for name, codec in columns.items():
            dataset = dataset._with(Decode(name, codec))
        return dataset

    def map(self, fn: Callable[..., Any], name: str | None = None, *, processes: int | None = None) -> Dataset:
        """Replaces each row by `fn(row)`, or `fn(row, rng)` if `fn` has a second parameter.

        Args:
            fn: Takes a row as a dict. `rng` is a `numpy.random.Generator` of the row's own, the same whoever runs it.
            name: What a loader's state knows the stage by; None takes the function's qualified name.
            processes: In how many processes of its own a loader runs `fn`, for functions that hold Python's
                interpreter lock. The samples are the same. None runs it in the loader's threads.

        Raises:
            OptionError: `fn` cannot be called with a row, or cannot be sent to processes; or `processes` is not a
                positive integer.
        """
        name = name or function_name(fn)
        takes_rng = takes_generator(fn)
        if processes is not None:
            if type(processes) is not int or processes < 1:
                raise OptionError(f"map(processes={processes!r}): give a positive integer, or leave it out")
            pickle_function(fn, name)  # an error belongs here, not into the first batch
        return self._with(Map(fn, name, takes_rng, processes))

    def filter(self, fn: Callable[..., Any], name: str | None = None) -> Dataset:
        """Keeps the rows for which `fn` is true; arguments as for `map`."""
        return self._with(Filter(fn, name or function_name(fn), takes_generator(fn)))

    def flat_map(self, fn: Callable[..., Any], name: str | None = None) -> Dataset:
        """Replaces each row by the rows that `fn` returns: none, one, or several; arguments as for `map`.

        Samples of one row come one after the other in their lane. Batches have `parts`, which says the how-manieth of
        its row each is.
        """
        return self._with(FlatMap(fn, name or function_name(fn), takes_generator(fn)))

    def window(
        self, columns: str | Iterable[str], size: int, stride: int | None = None, *, partial: str = "keep"
    ) -> Dataset:
        """Replaces each row by windows over some of its columns; the others are in each of them.

        Args:
            columns: Columns of lists or arrays, of one length in each row.
            size: Elements of a window.
            stride: Elements from the start of one to that of the next; by default `size`, so that they do not overlap.
            partial: What becomes of a last window that is not full: "keep" or "drop".

        Raises:
            OptionError: An argument makes no sense, or there is no such column.
        """
        names = (columns,) if isinstance(columns, str) else tuple(columns)
        return self._with(check_window(Window(names, size, size if stride is None else stride, partial), self.schema))

    def pack(
        self,
        seq_len: int,
        column: str = "tokens",
        *,
        mode: str = "best_fit",
        window: int = 1024,
        loss_mask: str | None = None,
        long: str = "split",
        pad_token: int = 0,
    ) -> Dataset:
        """Puts documents together into rows of `seq_len` tokens, for training without padding.

        Rows have `tokens`, `labels` (the next token, -100 where there is none to learn), `position_ids` within each
        document and `document_ids` (-1 where a row is filled up), all int64; batches have the `cu_seqlens` and the
        `max_seqlen` that variable-length attention takes, and the `sample_ids` of the documents in each row.

        Args:
            seq_len: Tokens of a row.
            column: Column of lists of tokens.
            mode: "best_fit" or "first_fit", which leave documents whole, or "concat", which lays them end to end and
                cuts where a row is full.
            window: Documents of a lane that are packed together at a time; more waste less and take more memory.
            loss_mask: Column of lists that are true for the tokens to be learned.
            long: What becomes of documents longer than a row: "split" or "drop". `stats()["packing"]` counts them.
            pad_token: What rows are filled up with.

        Raises:
            OptionError: An argument makes no sense, or there is no such column.
        """
        stage = Pack(seq_len, column, mode, window, loss_mask, long, pad_token)
        return self._with(check_pack(stage, self.schema))

    def __len__(self) -> int:
        self._check_countable("has no length")
        return self.num_rows

    def __getitem__(self, index: SupportsIndex) -> Any:
        """Reads one row, numbered in stored order, and runs the stages on it.

        A stage that takes random numbers gets some that depend on the row alone, not those of a loader's epoch.

        Raises:
            IndexError: There is no such row.
            TypeError: `index` is no integer, or a filter leaves the numbers of rows open.
            CorruptDataError: The block that holds the row is damaged, or a value of the row cannot be decoded.
        """
        self._check_countable("has no row numbers")
        try:
            number = operator.index(index)
        except TypeError:
            raise TypeError(f"rows are numbered with integers, not {type(index).__name__}") from None
        if not -self.num_rows <= number < self.num_rows:
            raise IndexError(f"row {number} of {self.manifest.url}, which has {self.num_rows} rows")
        rows = self._rows
        if rows is None:
            rows = self._rows = NumberedRows(self.manifest, self.source, self.columns, self.transforms)
        return rows.read(number % self.num_rows)

    def _with(self, stage: Stage) -> Dataset:
        return Dataset(self.manifest, (*self.stages, stage), self._verify, self._cache)

    def _check_countable(self, problem: str) -> None:
        if not self.one_to_one:
            raise TypeError(
                f"a dataset with {self.deciding} {problem}: what comes of a row is known only when it is read. "
                "num_rows counts rows before that"
            )
