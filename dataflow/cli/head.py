"""`dataflow head`: the first rows of a dataset, readable."""

from __future__ import annotations

from typing import Annotated, Any

import typer

__all__ = ["head"]

_MOST_CHARACTERS = 200
_MOST_NUMBERS = 8


def head(
    url: Annotated[str, typer.Argument(metavar="URL", help="Folder of the dataset.")],
    rows: Annotated[int, typer.Option("-n", "--rows", min=1, help="How many rows.")] = 3,
) -> None:
    """Show the first rows: text and numbers as they are, binary values by size and kind."""
    import dataflow

    dataset = dataflow.open(url)
    schema = dataset.schema
    assert schema is not None
    width = max((len(name) for name in schema.names), default=0)
    for number in range(min(rows, len(dataset))):
        typer.echo(typer.style(f"row {number}", bold=True))
        for name, value in dataset[number].items():
            typer.echo(f"  {name:<{width}}  {_value_text(value)}")
    if rows < len(dataset):
        typer.echo(f"... {len(dataset) - rows:,} more")


def _value_text(value: Any) -> str:
    import numpy as np

    from dataflow.cli.text import bytes_text
    from dataflow.sharding.image_kind import HEAD_BYTES, image_kind

    if isinstance(value, bytes):
        kind = image_kind(value[:HEAD_BYTES])
        if not kind and value.isascii() and len(value) <= _MOST_CHARACTERS:
            return repr(value)
        return f"<{kind or 'binary'}, {bytes_text(len(value))}>"
    if isinstance(value, np.ndarray):
        text = np.array2string(value, threshold=_MOST_NUMBERS, edgeitems=3).replace("\n", "")
        return f"{text} <{value.dtype}, shape {'x'.join(map(str, value.shape))}>"
    text = repr(value.item() if isinstance(value, np.generic) else value)
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}... <{len(text)} characters>"
