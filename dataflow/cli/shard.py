"""`dataflow shard`: raw data in, a dataset out."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from dataflow.dataset import Manifest

__all__ = ["shard"]

_MIB = 1 << 20
_ROWS = "Which rows and columns"
_TOKENS = "Tokens"
_IMAGES = "Images"
_LAYOUT = "Order, sizes and speed"
_BAD = "What is bad or was left out"


class OnError(StrEnum):
    """What to do about bad files and rows."""

    RAISE = "raise"
    SKIP = "skip"


class Compression(StrEnum):
    """What to compress blocks with."""

    AUTO = "auto"
    NONE = "none"
    ZSTD = "zstd"


def shard(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SRC...",
            help="Folders, files, datasets or globs such as 'data/**/*.jsonl.zst'; local or s3://, ... "
            "A - reads a list of them from standard input, one a line.",
        ),
    ],
    target: Annotated[str, typer.Argument(metavar="DST", help="Folder of the new dataset; local or s3://, ...")],
    append: Annotated[bool, typer.Option("--append", help="Add shards to the dataset at DST.")] = False,
    columns: Annotated[
        str | None, typer.Option(metavar="A,B", help="Keep only these columns.", rich_help_panel=_ROWS)
    ] = None,
    rename: Annotated[
        list[str] | None,
        typer.Option(
            metavar="OLD=NEW", help="Rename a column, after everything else. Repeatable.", rich_help_panel=_ROWS
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Take N rows: the first ones to be written.", rich_help_panel=_ROWS),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(
            metavar="SHARES",
            help="Write several datasets, to folders in DST: 0.9,0.1 or train=0.9,val=0.1. A row's key decides.",
            rich_help_panel=_ROWS,
        ),
    ] = None,
    split_folders: Annotated[
        bool,
        typer.Option(
            "--split-folders",
            help="Make a dataset of each folder in SRC, such as train and val, to folders in DST.",
            rich_help_panel=_ROWS,
        ),
    ] = False,
    split_by: Annotated[
        str, typer.Option(metavar="COLUMN", help="Column whose value decides.", rich_help_panel=_ROWS)
    ] = "key",
    tokenizer: Annotated[
        str | None,
        typer.Option(
            metavar="bytes|FILE", help="Turn text into tokens, with a tokenizer.json.", rich_help_panel=_TOKENS
        ),
    ] = None,
    text: Annotated[str, typer.Option(metavar="COLUMN", help="Column of the text.", rich_help_panel=_TOKENS)] = "text",
    keep_text: Annotated[bool, typer.Option("--keep-text", help="Keep the text.", rich_help_panel=_TOKENS)] = False,
    eod: Annotated[
        str | None,
        typer.Option(metavar="TOKEN|ID", help="End each document with this token.", rich_help_panel=_TOKENS),
    ] = None,
    special_tokens: Annotated[
        bool,
        typer.Option("--special-tokens", help="Add those that the tokenizer adds.", rich_help_panel=_TOKENS),
    ] = False,
    drop_empty: Annotated[
        bool,
        typer.Option("--drop-empty", help="Leave out documents without tokens.", rich_help_panel=_TOKENS),
    ] = False,
    no_labels: Annotated[
        bool, typer.Option("--no-labels", help="The folders in SRC are no classes.", rich_help_panel=_IMAGES)
    ] = False,
    classes_of: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Number classes as this dataset does, such as the training split.",
            rich_help_panel=_IMAGES,
        ),
    ] = None,
    decode: Annotated[
        bool,
        typer.Option("--decode", help="Decode every image to see that it is whole.", rich_help_panel=_IMAGES),
    ] = False,
    transcode: Annotated[
        str | None,
        typer.Option(
            metavar="jpeg:q=90,subsampling=420,max_side=512",
            help="Make upright JPEGs of images, with what is not as given there. Lossy.",
            rich_help_panel=_IMAGES,
        ),
    ] = None,
    transcode_columns: Annotated[
        str | None,
        typer.Option(
            metavar="A,B",
            help="Columns of these images. Default: the one named image, jpg, ...",
            rich_help_panel=_IMAGES,
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(help="Seed of the order in which rows are written.", rich_help_panel=_LAYOUT)
    ] = 0,
    keep_order: Annotated[
        bool, typer.Option("--keep-order", help="Write rows in the order of SRC.", rich_help_panel=_LAYOUT)
    ] = False,
    block_mib: Annotated[
        float | None,
        typer.Option(help="Size of a block in MiB. Default: 1/4096 of the data, 1/16 to 2.", rich_help_panel=_LAYOUT),
    ] = None,
    shard_mib: Annotated[float, typer.Option(help="Size of a shard in MiB.", rich_help_panel=_LAYOUT)] = 256,
    compression: Annotated[
        Compression,
        typer.Option(help="Of blocks. auto: zstd, unless rows hold media.", rich_help_panel=_LAYOUT),
    ] = Compression.AUTO,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Processes. The shards are the same for any number. Default: one for each CPU.",
            rich_help_panel=_LAYOUT,
        ),
    ] = None,
    on_error: Annotated[
        OnError,
        typer.Option(help="Stop at bad files and rows, or leave them out and report them.", rich_help_panel=_BAD),
    ] = OnError.RAISE,
    report: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write what was skipped to a file, as lines of JSON.", rich_help_panel=_BAD),
    ] = None,
    list_skipped: Annotated[
        bool, typer.Option("--list-skipped", help="Print every name that was skipped.", rich_help_panel=_BAD)
    ] = False,
) -> None:
    """Turn images, text or shards of any kind into a dataset.

    Images get a `label` from their folders, or columns from metadata and files beside them. Options name columns as SRC
    does. Rows are shuffled, so that every block is a fair sample of all.
    """
    import sys
    from contextlib import ExitStack

    from dataflow.cli.progress import Progress
    from dataflow.cli.shard_changes import (
        parse_columns,
        parse_renames,
        parse_shares,
        row_steps,
        tokens_step,
        transcode_step,
    )
    from dataflow.cli.skips import print_skipped, write_report
    from dataflow.dataset import Manifest
    from dataflow.errors import OptionError
    from dataflow.formats import Skipped
    from dataflow.sharding import Done, ShardOptions, shard_folders, shard_splits
    from dataflow.sharding import shard as make_shards

    if shard_mib <= 0 or (block_mib is not None and block_mib <= 0):
        raise OptionError("--block-mib and --shard-mib must be more than 0")
    tokens = None
    if tokenizer is not None:
        tokens = tokens_step(tokenizer, text, keep_text, eod, special_tokens, drop_empty)
    elif keep_text or eod is not None or special_tokens or drop_empty or text != "text":
        raise OptionError("--text, --keep-text, --eod, --special-tokens and --drop-empty need --tokenizer")
    if transcode_columns is not None and transcode is None:
        raise OptionError("--transcode-columns needs --transcode")
    jpegs = None if transcode is None else transcode_step(transcode, parse_columns(transcode_columns))
    if sources == ["-"]:
        sources = [line for line in sys.stdin.read().splitlines() if line]
    options = ShardOptions(
        seed=None if keep_order else seed,
        block_bytes=None if block_mib is None else max(1, round(block_mib * _MIB)),
        shard_bytes=max(1, round(shard_mib * _MIB)),
        labels=not no_labels,
        classes=None if classes_of is None else tuple(_classes(Manifest.open(classes_of))),
        decode=decode,
        on_error=on_error.value,
        append=append,
        steps=tuple(
            row_steps(
                parse_columns(columns), jpegs, None if tokens is None else text, tokens, parse_renames(rename or [])
            )
        ),
        limit=limit,
        compression=compression.value,
    )
    skipped: list[Skipped] = []
    with ExitStack() as stack:
        shown: list[Progress] = []

        def show(done: Done) -> None:
            if done.rows == done.num_bytes == 0:
                stack.close()  # the one of the split before this
                shown[:] = [stack.enter_context(Progress("sharding", done.all_rows, done.unit))]
            shown[0].advance(done.rows, done.num_bytes)

        if split_folders:
            if len(sources) != 1 or split is not None:
                raise OptionError("--split-folders takes one SRC, the folder of the splits, and no --split")
            folders = shard_folders(
                sources[0], target, options, workers=workers, on_progress=show, on_skip=skipped.append
            )
            made = list(folders.values())
        elif split is None:
            made = [make_shards(sources, target, options, workers=workers, on_progress=show, on_skip=skipped.append)]
        else:
            shares = parse_shares(split)
            splits = shard_splits(
                sources,
                target,
                shares,
                options,
                by=split_by,
                workers=workers,
                on_progress=show,
                on_skip=skipped.append,
            )
            made = list(splits.values())
    if report is not None:
        write_report(report, skipped)
    print_skipped(skipped, "item", list_skipped)
    _print_made(made, append)


def _print_made(made: list[Manifest], append: bool) -> None:
    from dataflow.cli.text import bytes_text, count_text

    if "classes" in made[0].properties:
        names = made[0].properties["classes"]
        typer.echo(f"{count_text(len(names), 'class')}: {', '.join(names[:5])}{', ...' if len(names) > 5 else ''}")
    for manifest in made:
        typer.echo(
            f"{'now there are' if append else 'wrote'} {count_text(manifest.num_rows, 'row')} "
            f"({bytes_text(manifest.num_bytes)}) in {count_text(manifest.num_blocks, 'block')}, "
            f"{count_text(manifest.num_shards, 'shard')} {'at' if append else 'to'} {manifest.url}"
        )


def _classes(manifest: Manifest) -> list[str]:
    from dataflow.errors import DatasetError

    classes = manifest.properties.get("classes")
    if not isinstance(classes, list):
        raise DatasetError(f"{manifest.url} has no list of classes: give --classes-of a dataset made of class folders")
    return classes
