"""`dataflow shard`: raw data in, a dataset out."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from dataflow.dataset import Manifest

__all__ = ["shard"]

_MIB = 1 << 20


class OnError(StrEnum):
    """What to do about bad files and rows."""

    RAISE = "raise"
    SKIP = "skip"


def shard(
    source: Annotated[
        str,
        typer.Argument(metavar="SRC", help="Folder of images, of WebDataset tars, or a dataset; local or s3://, ..."),
    ],
    target: Annotated[str, typer.Argument(metavar="DST", help="Folder of the new dataset; local or s3://, ...")],
    seed: Annotated[int, typer.Option(help="Seed of the order in which rows are written.")] = 0,
    keep_order: Annotated[bool, typer.Option("--keep-order", help="Write rows in the order of SRC.")] = False,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Processes. The shards are the same for any number. Default: one for each CPU."),
    ] = None,
    block_mib: Annotated[
        float | None, typer.Option(help="Size of a block in MiB. Default: 1/4096 of the data, 1/16 to 2.")
    ] = None,
    shard_mib: Annotated[float, typer.Option(help="Size of a shard in MiB.")] = 256,
    no_labels: Annotated[bool, typer.Option("--no-labels", help="The folders in SRC are no classes.")] = False,
    classes_of: Annotated[
        str | None, typer.Option(metavar="URL", help="Number classes as this dataset does, such as the training split.")
    ] = None,
    decode: Annotated[bool, typer.Option("--decode", help="Decode every image to see that it is whole.")] = False,
    on_error: Annotated[
        OnError, typer.Option(help="Stop at bad files and rows, or leave them out and report them.")
    ] = OnError.RAISE,
    append: Annotated[bool, typer.Option("--append", help="Add shards to the dataset at DST.")] = False,
    report: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write what was skipped to a file, as lines of JSON.")
    ] = None,
    list_skipped: Annotated[bool, typer.Option("--list-skipped", help="Print every name that was skipped.")] = False,
) -> None:
    """Turn images or tars into a dataset.

    Rows are shuffled before they are cut into blocks, so that every block is a fair sample of all. In a folder of
    images the first-level folders are the classes (column `label`), or metadata.jsonl gives the columns.
    """
    from contextlib import ExitStack

    from dataflow.cli.progress import Progress
    from dataflow.cli.skips import print_skipped, write_report
    from dataflow.cli.text import bytes_text, count_text
    from dataflow.dataset import Manifest
    from dataflow.errors import OptionError
    from dataflow.formats import Skipped
    from dataflow.sharding import Done, ShardOptions
    from dataflow.sharding import shard as make_shards

    if shard_mib <= 0 or (block_mib is not None and block_mib <= 0):
        raise OptionError("--block-mib and --shard-mib must be more than 0")
    options = ShardOptions(
        seed=None if keep_order else seed,
        block_bytes=None if block_mib is None else max(1, round(block_mib * _MIB)),
        shard_bytes=max(1, round(shard_mib * _MIB)),
        labels=not no_labels,
        classes=None if classes_of is None else tuple(_classes(Manifest.open(classes_of))),
        decode=decode,
        on_error=on_error.value,
        append=append,
    )
    skipped: list[Skipped] = []
    with ExitStack() as stack:
        shown: list[Progress] = []

        def show(done: Done) -> None:
            if not shown:
                shown.append(stack.enter_context(Progress("sharding", done.all_rows, done.unit)))
            shown[0].advance(done.rows, done.num_bytes)

        manifest = make_shards(source, target, options, workers=workers, on_progress=show, on_skip=skipped.append)
    if report is not None:
        write_report(report, skipped)
    print_skipped(skipped, "item", list_skipped)
    if "classes" in manifest.properties:
        names = manifest.properties["classes"]
        typer.echo(f"{count_text(len(names), 'class')}: {', '.join(names[:5])}{', ...' if len(names) > 5 else ''}")
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
