"""`dataflow info`: what a dataset is, and what it costs to read it on some ranks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from dataflow.dataset import Manifest

__all__ = ["info"]


def info(
    url: Annotated[str, typer.Argument(metavar="URL", help="Folder of the dataset.")],
    ranks: Annotated[int, typer.Option(min=1, help="Data-parallel ranks to say the costs for.")] = 1,
    batch_size: Annotated[int, typer.Option(min=1, help="Rows of a batch on each rank.")] = 64,
    lanes: Annotated[int | None, typer.Option(min=1, help="Lanes, where not the default.")] = None,
) -> None:
    """Show shards, blocks, rows, columns and properties, and memory and reads for some ranks."""
    from dataflow.cli.advice import advice
    from dataflow.cli.text import bytes_text
    from dataflow.dataset import Manifest

    manifest = Manifest.open(url)
    usual = int((manifest.rows == manifest.block_rows).sum())
    other = manifest.num_blocks - usual
    _print(
        {
            "url": manifest.url,
            "shards": f"{manifest.num_shards:,} ({manifest.format}"
            + (f", at {manifest.base_url})" if manifest.base_url != manifest.url else ")"),
            "blocks": f"{manifest.num_blocks:,}",
            "rows": f"{manifest.num_rows:,}"
            + (f" (and {manifest.num_excluded:,} that are excluded)" if manifest.num_excluded else ""),
            "bytes": f"{manifest.num_bytes:,} ({bytes_text(manifest.num_bytes)})",
            "rows per block": f"{manifest.block_rows:,}" + (f" (another number in {other:,})" if other else ""),
            "fingerprint": manifest.fingerprint,
        }
    )
    typer.echo(typer.style("columns", bold=True))
    width = max(len(name) for name in manifest.schema.names)
    for field in manifest.schema:
        typer.echo(f"  {field.name:<{width}}  {field.type}")
    if manifest.properties:
        typer.echo(typer.style("properties", bold=True))
        for name, value in manifest.properties.items():
            text = json.dumps(value, ensure_ascii=False)
            typer.echo(f"  {name}: {text if len(text) <= 200 else f'{text[:200]}... ({len(value):,} items)'}")
    typer.echo(typer.style(f"reading, shuffled, on {ranks} rank{'s' if ranks > 1 else ''}", bold=True))
    _print(_costs(manifest, ranks, batch_size, lanes))
    for sentence in advice(manifest):
        typer.echo(sentence)


def _costs(manifest: Manifest, ranks: int, batch_size: int, given: int | None) -> dict[str, str]:
    from dataflow.cli.text import bytes_text
    from dataflow.pipeline.working_set import usual_block_bytes
    from dataflow.sampling.lanes import default_lanes
    from dataflow.sampling.ranks import lanes_of_rank

    block = usual_block_bytes(manifest)
    lanes = given or default_lanes(manifest.num_blocks, block)
    # The ends of lanes cut blocks, and where ranks do not divide the lanes, those at two borders a rank are shared.
    reads = 1 + (lanes - 1) / max(1, manifest.num_blocks)
    here = lanes_of_rank(lanes, ranks)
    if lanes % ranks:
        reads = min(reads + 2 * ranks / lanes, reads + ranks - 1)
    return {
        "  lanes": f"{lanes:,}, of which a rank reads {here:,}",
        "  open blocks": f"{bytes_text(here * block)} on a rank",
        "  reads per block": f"about {reads:.3f}",
        "  batches": f"{manifest.num_rows // (batch_size * ranks):,} an epoch, of {batch_size:,} rows on a rank",
    }


def _print(facts: dict[str, str]) -> None:
    width = max(map(len, facts))
    for name, value in facts.items():
        typer.echo(f"{name:<{width}}  {value}")
