"""`dataflow export`: a dataset as files of other formats."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

__all__ = ["export"]


class _Format(StrEnum):
    TAR = "tar"
    PARQUET = "parquet"
    JSONL = "jsonl"


def export(
    url: Annotated[str, typer.Argument(metavar="URL", help="Folder of the dataset.")],
    target: Annotated[str, typer.Argument(metavar="DST", help="Empty folder for the files; local or s3://, ...")],
    format: Annotated[_Format, typer.Option(help="Of the files; tar is WebDataset's.")],
    shard_mib: Annotated[float, typer.Option(help="Size of a file in MiB.")] = 256,
    columns: Annotated[str | None, typer.Option(help="Columns to write, separated by commas. Default: all.")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Threads that read.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Write the rows of a dataset as tars, Parquet files or JSON lines, in stored order."""
    import json

    from dataflow.cli.progress import Progress
    from dataflow.cli.text import bytes_text, count_text
    from dataflow.dataset import Manifest
    from dataflow.errors import OptionError
    from dataflow.operations.export import export as export_dataset

    if shard_mib <= 0:
        raise OptionError("--shard-mib must be more than 0")
    names = None if columns is None else columns.split(",")
    with Progress("exporting", Manifest.open(url).num_rows, "rows") as progress:
        done = export_dataset(
            url, target, format.value, max(1, round(shard_mib * (1 << 20))), names, workers, progress.advance
        )
    if as_json:
        facts = {"url": done.url, "files": done.files, "rows": done.num_rows, "bytes": done.num_bytes}
        typer.echo(json.dumps(facts, ensure_ascii=False))
    else:
        typer.echo(
            f"wrote {count_text(done.num_rows, 'row')} ({bytes_text(done.num_bytes)}) in "
            f"{count_text(len(done.files), 'file')} to {done.url}"
        )
