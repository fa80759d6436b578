"""`dataflow merge`: one dataset of several, without copying a shard."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["merge"]


def merge(
    urls: Annotated[list[str], typer.Argument(metavar="URL URL...", help="Folders of the datasets, in order.")],
    out: Annotated[str, typer.Option(metavar="URL", help="Folder for the manifest.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Write one manifest over the shards of several datasets. The shards stay where they are and are not read."""
    import json

    from dataflow.cli.text import bytes_text, count_text
    from dataflow.operations.merge import merge as merge_datasets

    merged = merge_datasets(urls, out)
    manifest = merged.manifest
    if as_json:
        facts = {
            "url": manifest.url,
            "base": manifest.base_url,
            "fingerprint": manifest.fingerprint,
            "shards": manifest.num_shards,
            "rows": manifest.num_rows,
            "dropped_properties": merged.dropped,
        }
        typer.echo(json.dumps(facts, ensure_ascii=False))
        return
    if merged.dropped:
        typer.echo(f"left out the properties that differ: {', '.join(merged.dropped)}")
    typer.echo(
        f"merged {count_text(len(urls), 'dataset')} into {count_text(manifest.num_rows, 'row')} "
        f"({bytes_text(manifest.num_bytes)}) in {count_text(manifest.num_shards, 'shard')} below {manifest.base_url}; "
        f"the manifest is at {manifest.url}"
    )
