"""`dataflow replay`: what would a run see next?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["replay"]


def replay(
    state: Annotated[Path, typer.Argument(metavar="STATE", help="File with a loader's state as JSON.")],
    url: Annotated[str, typer.Argument(metavar="URL", help="Folder of the dataset that it is of.")],
    steps: Annotated[int, typer.Option(min=1, help="Steps to show.")] = 1,
    batch_size: Annotated[int, typer.Option(min=1, help="Samples of a step, over all ranks.")] = 1,
    shuffle: Annotated[bool, typer.Option(help="Whether the run shuffles.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a sample.")] = False,
) -> None:
    """Show the samples that a run would see next that goes on from a state. Nothing but the manifest is read."""
    import json

    from dataflow.errors import OptionError
    from dataflow.operations.replay import replay as replay_state

    try:
        saved = json.loads(state.read_bytes())
    except (OSError, ValueError) as error:
        raise OptionError(f"{state} cannot be read as JSON: {error}. Give a file that json.dump() wrote") from error
    step = -1
    for sample in replay_state(url, saved, steps, batch_size, shuffle=shuffle):
        if as_json:
            typer.echo(json.dumps(sample._asdict()))
            continue
        if sample.step != step:
            step = sample.step
            typer.echo(typer.style(f"step {step}", bold=True))
        typer.echo(
            f"  slot {sample.slot}  epoch {sample.epoch}  sample {sample.sample_id}  "
            f"row {sample.row} of block {sample.block}  {sample.shard}"
        )
