"""The `dataflow` command. Each command is a file here, and imports what it needs when it runs."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from dataflow.cli import bench, demo, exclude, export, head, index, info, merge, replay, shard, stats, verify
from dataflow.errors import DataflowError

__all__ = ["app"]


class _Commands(TyperGroup):
    """Commands whose expected failures are one line on standard error, never a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except DataflowError as error:
            typer.echo("error: " + " ".join(str(error).split("\n")), err=True)
            raise typer.Exit(1) from None


app = typer.Typer(
    cls=_Commands,
    help="Turn raw data into shards, index shards that exist, and look at datasets.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def _set_up() -> None:
    import logging

    logging.basicConfig(format="%(levelname)s: %(message)s")
    logging.addLevelName(logging.WARNING, "warning")


app.command()(shard.shard)
app.command()(index.index)
app.command()(info.info)
app.command()(head.head)
app.command()(stats.stats)
app.command()(verify.verify)
app.command()(bench.bench)
app.command()(exclude.exclude)
app.command()(merge.merge)
app.command()(export.export)
app.command()(replay.replay)
app.command()(demo.demo)
