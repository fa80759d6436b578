"""`dataflow bench`: is the input pipeline the bottleneck, where, and what could it reach?"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import RenderableType

    from dataflow.dataset import Dataset

__all__ = ["bench"]

_PIPED_WIDTH = 120
_BAR = 36
_SIZE = 224
_PIPELINE = "The pipeline"
_MEASURING = "Measuring"


def bench(
    url: Annotated[str, typer.Argument(metavar="URL", help="Folder of the dataset.")],
    columns: Annotated[
        str | None, typer.Option(metavar="A,B", help="Read only these columns.", rich_help_panel=_PIPELINE)
    ] = None,
    image: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN[:SIZE]",
            help=f"Decode a column of images, random windows of SIZE pixels ({_SIZE}). Repeatable.",
            rich_help_panel=_PIPELINE,
        ),
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(min=1, help="Rows of a batch. Default: the accelerator's, else 64.", rich_help_panel=_PIPELINE),
    ] = None,
    shuffle: Annotated[bool, typer.Option(help="Shuffle.", rich_help_panel=_PIPELINE)] = True,
    workers: Annotated[
        int | None,
        typer.Option(min=0, help="Threads that decode. Default: one a processor.", rich_help_panel=_PIPELINE),
    ] = None,
    memory_limit: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Memory of the loader, such as 2GiB.", rich_help_panel=_PIPELINE),
    ] = None,
    step: Annotated[
        float | None,
        typer.Option(metavar="MS", help="Emulate an accelerator with steps so long.", rich_help_panel=_MEASURING),
    ] = None,
    accelerator: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Emulate one of MLPerf Storage: unet3d, resnet50 or cosmoflow, each with -a100 or -h100.",
            rich_help_panel=_MEASURING,
        ),
    ] = None,
    seconds: Annotated[float, typer.Option(help="Time for each level, about.", rich_help_panel=_MEASURING)] = 3.0,
    cold: Annotated[
        bool,
        typer.Option("--cold", help="Empty the page cache before each level; local files.", rich_help_panel=_MEASURING),
    ] = False,
    json_file: Annotated[
        str | None,
        typer.Option(
            "--json", metavar="FILE", help="Write all figures there; - prints them.", rich_help_panel=_MEASURING
        ),
    ] = None,
    html: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write a page with charts; needs no network.", rich_help_panel=_MEASURING),
    ] = None,
) -> None:
    """Measure a pipeline level by level: storage, fetch, read, decode, batch; and name what holds it."""
    from dataflow.measure import bench as measure
    from dataflow.storage import open_store, split_url
    from dataflow.storage.sizes import parse_size

    targets = {name: split_url(name) for name in (json_file, html) if name not in (None, "-")}
    dataset = _dataset(url, columns, image or [])
    arguments: dict[str, Any] = {"shuffle": shuffle, "num_workers": workers, "device": _device()}
    if batch_size is not None:
        arguments["batch_size"] = batch_size
    if memory_limit is not None:
        arguments["memory_limit"] = parse_size(memory_limit, "memory_limit")
    with _progress() as progress:
        found = measure(
            dataset,
            seconds=seconds,
            step=None if step is None else step / 1e3,
            accelerator=accelerator,
            cold=cold,
            on_progress=progress,
            **arguments,
        )
    facts = found.to_json()
    text = json.dumps(facts, ensure_ascii=False, allow_nan=False)
    for name, (folder, path) in targets.items():
        if name == html:
            from dataflow.cli.bench_page import bench_page

            open_store(folder).put_atomic(path, bench_page(facts).encode())
        else:
            open_store(folder).put_atomic(path, text.encode())
    if json_file == "-":
        typer.echo(text)
    else:
        _print(facts)
        if html is not None:
            typer.echo(f"the page is at {html}")


def _dataset(url: str, columns: str | None, images: list[str]) -> Dataset:
    import dataflow

    dataset = dataflow.open(url)
    if columns is not None:
        dataset = dataset.select(name.strip() for name in columns.split(","))
    for image in images:
        column, _, size = image.rpartition(":")
        if not column or not size.isdigit():
            column, size = image, str(_SIZE)
        dataset = dataset.decode(**{column: dataflow.Image(int(size), crop="random_resized", flip=0.5)})
    return dataset


def _device() -> str | None:
    import torch

    return "cuda" if torch.cuda.is_available() else None


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """Says what is being measured: in place on a terminal, else line by line."""
    from rich.console import Console

    console = Console(stderr=True)
    if console.is_terminal:
        with console.status("measuring") as status:
            yield lambda level: status.update(f"measuring: {level}")
    else:
        yield lambda level: console.print(f"measuring: {level}", highlight=False, markup=False)


def _print(facts: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console()
    if not console.is_terminal:
        console = Console(width=_PIPED_WIDTH)
    console.print(_table(facts))
    accelerator = facts["accelerator"]
    if accelerator is not None:
        from dataflow.cli.text import bytes_text

        asked = accelerator["least_utilisation"]
        console.print(
            Text(
                f"accelerator utilisation {accelerator['utilisation']:.1%}: {accelerator['name']} takes "
                f"{accelerator['samples_per_second']:,.1f} samples/s at best, "
                f"{bytes_text(accelerator['bytes_per_second'])}/s of this dataset"
                + (f"; MLPerf Storage asks for {asked:.0%}" if asked else "")
            )
        )
    console.print(Text(_warmth(facts)), style="dim")
    console.print(Text(facts["verdict"]["sentence"]), style="bold")
    console.print(Text(f"what would help: {facts['verdict']['remedy']}"))


def _table(facts: dict[str, Any]) -> RenderableType:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from dataflow.cli.text import bytes_text

    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("level")
    table.add_column("of the storage", no_wrap=True)
    for name in ("bytes/s", "lost", "samples/s", "cores", "p99 of reads"):
        table.add_column(name, justify="right", no_wrap=True)
    most = max(part["bytes_per_second"] for part in facts["waterfall"])
    for part, level in zip(facts["waterfall"], facts["levels"], strict=True):
        name = part["level"]
        here = round(_BAR * part["bytes_per_second"] / most)
        lost = max(0, round(_BAR * (part["bytes_per_second"] + part["lost_bytes_per_second"]) / most) - here)
        holds = name == facts["verdict"]["stage"]
        bar = Text("█" * max(1, here), style="red" if holds else "blue") + Text("░" * lost, style="dim")
        p99 = level["latency"].get("p99")
        table.add_row(
            Text(name, style="bold red" if holds else ""),
            bar,
            bytes_text(part["bytes_per_second"]) + "/s",
            _signed(-part["lost_bytes_per_second"]) if part is not facts["waterfall"][0] else "",
            f"{part['samples_per_second']:,.0f}",
            f"{level['cores']:.1f}",
            "" if p99 is None else f"{p99 * 1e3:,.1f} ms",
        )
    return table


def _signed(nbytes: float) -> str:
    from dataflow.cli.text import bytes_text

    return f"{'-' if nbytes < 0 else '+'}{bytes_text(abs(nbytes))}/s"


def _warmth(facts: dict[str, Any]) -> str:
    """How cold the storage was when it was measured."""
    storage, *_, whole = facts["levels"]
    text = f"of what the last level read, this run had read {whole['read_again']:.0%} before"
    if storage["page_cached"] is not None:
        text += f"; {storage['page_cached']:.0%} of the dataset lay in the page cache at the start"
    return ("warm: " if facts["warm"] else "cold: ") + text
