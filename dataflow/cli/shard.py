"""`dataflow shard`: raw data in, a dataset out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from dataflow.dataset import Manifest

__all__ = ["shard"]

_MIB = 1 << 20


def shard(
    source: Annotated[
        str,
        typer.Argument(metavar="SRC", help="Folder of images, of WebDataset tars, or a dataset; local or s3://, ..."),
    ],
    target: Annotated[str, typer.Argument(metavar="DST", help="Folder of the new dataset; local or s3://, ...")],
    seed: Annotated[int, typer.Option(help="Seed of the order in which rows are written.")] = 0,
    keep_order: Annotated[bool, typer.Option("--keep-order", help="Write rows in the order of SRC.")] = False,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Threads that read. The shards are the same for any number.")
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
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave out and list bad files and rows instead of stopping.")
    ] = False,
    list_skipped: Annotated[bool, typer.Option("--list-skipped", help="Print every name that was skipped.")] = False,
) -> None:
    """Turn images or tars into a dataset.

    Rows are shuffled before they are cut into blocks, so that every block is a fair sample of all. In a folder of
    images the first-level folders are the classes (column `label`), or metadata.jsonl gives the columns.
    """
    from dataflow.cli.progress import Progress
    from dataflow.cli.skips import print_skipped
    from dataflow.cli.sources import ImageOptions, open_source
    from dataflow.cli.text import bytes_text, count_text
    from dataflow.dataset import Manifest, ShardWriter
    from dataflow.dataset.target import prepare_target
    from dataflow.errors import OptionError
    from dataflow.sampling.keys import key
    from dataflow.storage import open_store

    if shard_mib <= 0 or (block_mib is not None and block_mib <= 0):
        raise OptionError("--block-mib and --shard-mib must be more than 0")
    key(seed)
    store = open_store(source)
    destination = open_store(target)
    if f"{destination.url}/".startswith(f"{store.url}/"):
        raise OptionError(f"{destination.url} lies inside {store.url}: write the dataset beside its source")
    prepare_target(destination)  # before hours of reading
    classes = None if classes_of is None else _classes(Manifest.open(classes_of))
    with open_source(source, ImageOptions(not no_labels, classes, skip_bad, decode)) as rows:
        properties = rows.properties | {"shuffle_seed": None if keep_order else seed}
        with (
            ShardWriter(
                target,
                rows.schema,
                block_bytes=None if block_mib is None else max(1, round(block_mib * _MIB)),
                total_bytes=rows.num_bytes,
                shard_bytes=max(1, round(shard_mib * _MIB)),
                properties=properties,
            ) as writer,
            Progress("sharding", rows.num_items, rows.unit) as progress,
        ):
            for batch in rows.batches(None if keep_order else seed, workers or store.concurrency):
                writer.write_batch(batch)
                progress.advance(batch.num_rows, batch.nbytes)
        print_skipped(rows.skipped, "file" if rows.unit == "images" else "item", list_skipped)
    manifest = Manifest.open(target)
    if "classes" in properties:
        names = properties["classes"]
        typer.echo(f"{count_text(len(names), 'class')}: {', '.join(names[:5])}{', ...' if len(names) > 5 else ''}")
    typer.echo(
        f"wrote {count_text(manifest.num_rows, 'row')} ({bytes_text(manifest.num_bytes)}) in "
        f"{count_text(manifest.num_blocks, 'block')}, {count_text(manifest.num_shards, 'shard')} to {manifest.url}"
    )


def _classes(manifest: Manifest) -> list[str]:
    from dataflow.errors import DatasetError

    classes = manifest.properties.get("classes")
    if not isinstance(classes, list):
        raise DatasetError(f"{manifest.url} has no list of classes: give --classes-of a dataset made of class folders")
    return classes
