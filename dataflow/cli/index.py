"""`dataflow index`: shards that exist become a dataset, without being rewritten."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

__all__ = ["index"]


class OnError(StrEnum):
    """What to do about damaged shards and rows."""

    RAISE = "raise"
    SKIP = "skip"


def index(
    source: Annotated[str, typer.Argument(metavar="SRC", help="Folder of the shards; local or s3://, ...")],
    out: Annotated[
        str | None, typer.Option(metavar="URL", help="Folder for the manifest. Default: beside the shards.")
    ] = None,
    format: Annotated[
        str | None, typer.Option(help="arrow, parquet, webdataset, jsonl, csv, tsv or text, where there are several.")
    ] = None,
    block_mib: Annotated[
        float | None, typer.Option(help="Size of a block in MiB. Default: 1/4096 of the data, 1/16 to 2.")
    ] = None,
    on_error: Annotated[
        OnError, typer.Option(help="Stop at damaged shards and rows, or leave out what is damaged in them and list it.")
    ] = OnError.RAISE,
    list_skipped: Annotated[bool, typer.Option("--list-skipped", help="Print every name that was skipped.")] = False,
) -> None:
    """Find the blocks of existing shards and write a manifest. The shards are read once and not changed."""
    from contextlib import nullcontext

    from rich.console import Console

    import dataflow.dataset
    from dataflow.cli.advice import advice
    from dataflow.cli.quiet import quiet
    from dataflow.cli.skips import print_skipped
    from dataflow.cli.text import bytes_text, count_text
    from dataflow.errors import OptionError
    from dataflow.formats import Skipped

    if block_mib is not None and block_mib <= 0:
        raise OptionError("--block-mib must be more than 0")
    skipped: list[Skipped] = []
    console = Console(stderr=True)
    status = console.status(f"indexing {source}") if console.is_terminal else nullcontext()
    with quiet("dataflow.dataset.index"), status:
        manifest = dataflow.dataset.index(source, out, format, _bytes(block_mib), skipped.append, on_error.value)
    print_skipped(skipped, "item", list_skipped)
    typer.echo(
        f"indexed {count_text(manifest.num_rows, 'row')} ({bytes_text(manifest.num_bytes)}) in "
        f"{count_text(manifest.num_blocks, 'block')}, {count_text(manifest.num_shards, 'shard')}; "
        f"the manifest is at {manifest.url}"
    )
    for sentence in advice(manifest):
        typer.echo(sentence)


def _bytes(mib: float | None) -> int | None:
    return None if mib is None else max(1, round(mib * (1 << 20)))
