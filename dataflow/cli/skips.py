"""Tells what was left out: counted by reason, with names, so that nothing is lost silently."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

import typer

from dataflow.cli.text import count_text
from dataflow.errors import OptionError
from dataflow.formats import Skipped

__all__ = ["print_skipped", "write_report"]

_SHOWN = 3


def print_skipped(skipped: Iterable[Skipped], thing: str, every_name: bool) -> None:
    """Prints one line a reason.

    Args:
        skipped: What was left out, and why.
        thing: What these are called, e.g. "file".
        every_name: Print all names, one a line, with how that was seen, instead of a few examples.
    """
    by_reason: dict[str, list[Skipped]] = {}
    for item in skipped:
        by_reason.setdefault(item.reason, []).append(item)
    for reason, items in by_reason.items():
        head = f"skipped {count_text(len(items), thing)}: {reason}"
        if every_name:
            typer.echo(
                "\n  ".join([head, *(f"{item.name}: {item.note}" if item.note else item.name for item in items)])
            )
        else:
            shown = ", ".join(item.name for item in items[:_SHOWN])
            typer.echo(f"{head} ({shown}{', ...' if len(items) > _SHOWN else ''})")


def write_report(path: str, skipped: Iterable[Skipped]) -> None:
    """Writes one line of JSON for each: `name`, `reason`, and in `note` how that was seen.

    Raises:
        OptionError: The file cannot be written.
    """
    try:
        with Path(path).open("w") as file:
            file.writelines(json.dumps(asdict(item)) + "\n" for item in skipped)
    except OSError as error:
        raise OptionError(f"could not write the report {path}: {error.strerror}. Give another --report") from error
