"""`dataflow verify`: is every byte of a dataset as it should be?"""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["verify"]


def verify(
    url: Annotated[str, typer.Argument(metavar="URL", help="Folder of the dataset.")],
    decode: Annotated[bool, typer.Option(help="Decode every image whole, or only look at how it begins.")] = True,
    workers: Annotated[int | None, typer.Option(min=1, help="Threads that decode. Default: one a processor.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Read every byte of a dataset, and list all shards, blocks and rows that are bad. Ends with 1 if there are any."""
    import json

    from dataflow.cli.progress import Progress
    from dataflow.cli.quiet import quiet
    from dataflow.cli.text import bytes_text, count_text
    from dataflow.dataset import Manifest
    from dataflow.operations.verify import verify as verify_dataset

    with quiet("dataflow.dataset.block"), Progress("verifying", Manifest.open(url).num_rows, "rows") as progress:
        done = verify_dataset(url, decode, workers, progress.advance)
    manifest, faults = done.manifest, done.faults
    if as_json:
        facts = {
            "url": manifest.url,
            "fingerprint": manifest.fingerprint,
            "shards": manifest.num_shards,
            "blocks": manifest.num_blocks,
            "rows": manifest.num_rows,
            "bytes": manifest.num_bytes,
            "sound": not faults,
            "faults": [fault.to_json() for fault in faults],
        }
        typer.echo(json.dumps(facts, ensure_ascii=False))
    else:
        for fault in faults:
            typer.echo(f"{fault.kind}: {fault.message}")
        if faults:
            shards = len({fault.shard for fault in faults})
            typer.echo(
                f"{count_text(len(faults), 'fault')} in {shards:,} of {count_text(manifest.num_shards, 'shard')} of "
                f"{manifest.url}"
            )
        else:
            typer.echo(
                f"{manifest.url} is sound: {count_text(manifest.num_rows, 'row')}, "
                f"{bytes_text(manifest.num_bytes)} in {count_text(manifest.num_blocks, 'block')}, "
                f"{count_text(manifest.num_shards, 'shard')}"
            )
    if faults:
        raise typer.Exit(1)
