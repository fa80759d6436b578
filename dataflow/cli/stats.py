"""`dataflow stats`: what is in a dataset, as a table, a page or JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from dataflow.operations.statistics import DatasetStatistics

__all__ = ["stats"]

_NUMBERS = ("min", "mean", "median", "p95", "p99", "max")
_MOST_VALUES = 12
_PIPED_WIDTH = 140


def stats(
    url: Annotated[str, typer.Argument(metavar="URL", help="Folder of the dataset.")],
    html: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write a page with histograms; needs no network to be looked at.")
    ] = None,
    sample: Annotated[
        int | None, typer.Option(min=1, help="Look at about so many rows, spread evenly. Default: all.")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Threads that read.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show what the columns of a dataset hold: nulls, lengths, numbers, labels, formats and sizes of images."""
    from dataflow.cli.progress import Progress
    from dataflow.dataset import Manifest
    from dataflow.operations.statistics import statistics
    from dataflow.storage import open_store, split_url

    target = None if html is None else split_url(html)
    total = Manifest.open(url).num_rows
    with Progress("looking at", total if sample is None else min(sample, total), "rows") as progress:
        found = statistics(url, sample, workers, progress.advance)
    if target is not None:
        from dataflow.cli.stats_page import stats_page

        folder, name = target
        open_store(folder).put_atomic(name, stats_page(found).encode())
    if as_json:
        typer.echo(json.dumps(found.to_json(), ensure_ascii=False, allow_nan=False))
    else:
        _print(found)
        if html is not None:
            typer.echo(f"the page is at {html}")


def _print(found: DatasetStatistics) -> None:
    from rich.console import Console

    from dataflow.cli.text import bytes_text, count_text

    console = Console()
    if not console.is_terminal:
        console = Console(width=_PIPED_WIDTH)
    manifest = found.manifest
    typer.echo(
        f"{manifest.url}: {count_text(manifest.num_rows, 'row')}, {bytes_text(manifest.num_bytes)} in "
        f"{count_text(manifest.num_blocks, 'block')}, {count_text(manifest.num_shards, 'shard')}"
        + (f", {manifest.num_excluded:,} excluded" if manifest.num_excluded else "")
    )
    if found.rows < manifest.num_rows:
        typer.echo(f"from a sample of {count_text(found.rows, 'row')}")
    facts = found.to_json()
    if facts["transcoded"]:
        typer.echo(f"transcoded: {json.dumps(facts['transcoded'], ensure_ascii=False)}")
    console.print(_table(facts))
    for column in facts["columns"]:
        for line in _lines(column):
            typer.echo(f"{column['name']}: {line}")


def _table(facts: dict[str, Any]) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD)
    for name in ("column", "type", "of"):
        table.add_column(name, overflow="fold")
    for name in ("nulls", *_NUMBERS):
        table.add_column(name, justify="right", no_wrap=True)

    def add(name: str, kind: str, what: str, nulls: str, numbers: dict[str, Any] | None) -> None:
        values = [
            _number(numbers.get(key)) if numbers else "" for key in ("min", "mean", "median", "p95", "p99", "max")
        ]
        table.add_row(*map(Text, (name, kind, what, nulls, *values)))

    for column in facts["columns"]:
        measures = [
            (column[key].get("unit", "numbers"), column[key]) for key in ("lengths", "numbers") if key in column
        ]
        if "images" in column:
            measures += [(f"{side} in pixels", column["images"][side]) for side in ("width", "height")]
        (what, numbers), *more = measures or [("", None)]
        add(column["name"], column["type"], what, f"{column['nulls']:,}", numbers)
        for what, numbers in more:
            add("", "", what, "", numbers)
    table.add_section()
    add("blocks", "", "rows", "", facts["rows_per_block"])
    add("", "", "bytes", "", facts["bytes_per_block"])
    return table


def _lines(column: dict[str, Any]) -> list[str]:
    lines = []
    values = column.get("values", [])
    if values and values[0]["count"] > 1:
        shown = [f"{_value(item)} {item['count']:,}" for item in values[:_MOST_VALUES]]
        more = f", and {len(values) - len(shown):,} more" if len(values) > len(shown) else ""
        lines.append(", ".join(shown) + more)
    images = column.get("images")
    if images:
        counts = [*images["formats"].items(), *images["modes"].items()]
        lines.append("images: " + ", ".join(f"{name} {count:,}" for name, count in counts))
        for key, what in (("unreadable", "images with unreadable headers"), ("others", "values that are no images")):
            if images[key]:
                lines.append(f"{images[key]:,} {what}: see `dataflow verify`")
    for key in ("lengths", "numbers"):
        if column.get(key, {}).get("not_finite"):
            lines.append(f"{column[key]['not_finite']:,} values are infinite or not a number")
    return lines


def _value(item: dict[str, Any]) -> str:
    return str(item["name"]) if "name" in item else repr(item["value"])


def _number(value: float | None) -> str:
    if value is None:
        return ""
    if isinstance(value, int) or float(value).is_integer():
        return f"{int(value):,}" if abs(value) < 1e15 else f"{value:.4g}"
    return f"{value:,.1f}" if 100 <= abs(value) < 1e15 else f"{value:.4g}"
