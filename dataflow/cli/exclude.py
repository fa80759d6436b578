"""`dataflow exclude`: rows that are never to be delivered again, by their keys."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["exclude"]


def exclude(
    url: Annotated[str, typer.Argument(metavar="URL", help="Folder of the dataset.")],
    keys: Annotated[str, typer.Option(metavar="FILE", help="File with a key on each line; - for standard input.")],
    column: Annotated[str, typer.Option(help="Column that holds the keys.")] = "key",
    out: Annotated[
        str | None, typer.Option(metavar="URL", help="Folder for the new manifest. Default: replace the old one.")
    ] = None,
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="Exclude what is there although some keys are not found.")
    ] = False,
    workers: Annotated[int | None, typer.Option(min=1, help="Threads that read.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Exclude rows from a dataset: they are never delivered again. The shards are read once and not changed.

    Ends with 1, and changes nothing, when a key is not found; the keys are listed.
    """
    import json

    from dataflow.cli.progress import Progress
    from dataflow.cli.text import count_text
    from dataflow.dataset import Manifest
    from dataflow.operations.exclude import exclude as exclude_rows

    wanted = _read_keys(keys)
    with Progress("looking through", Manifest.open(url).num_rows, "rows") as progress:
        done = exclude_rows(url, wanted, column, out, allow_missing, workers, progress.advance)
    manifest = done.manifest
    failed = bool(done.missing) and not allow_missing
    if as_json:
        facts = {
            "url": manifest.url,
            "fingerprint": manifest.fingerprint,
            "written": done.written,
            "excluded": done.num_rows if done.written else 0,
            "excluded_in_all": manifest.num_excluded,
            "rows": manifest.num_rows,
            "missing": done.missing,
        }
        typer.echo(json.dumps(facts, ensure_ascii=False))
    else:
        for name in done.missing:
            typer.echo(f"not found: {name}")
        if failed:
            typer.echo(
                f"{count_text(len(done.missing), 'key')} not found, so that nothing was excluded. Correct them, "
                "or give --allow-missing"
            )
        elif not done.written:
            typer.echo("these rows are excluded already: nothing was changed")
        else:
            typer.echo(
                f"excluded {count_text(done.num_rows, 'row')} ({manifest.num_excluded:,} in all), "
                f"{count_text(manifest.num_rows, 'row')} left; the manifest is at {manifest.url}\n"
                "The bytes stay in the shards, which are not changed. To write shards without them: "
                f"dataflow shard {manifest.url} NEW"
            )
    if failed:
        raise typer.Exit(1)


def _read_keys(name: str) -> list[str]:
    """The lines of a file that are not empty. Only line feeds end a line: keys may hold other separators."""
    import sys

    from dataflow.errors import OptionError

    try:
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise OptionError(f"cannot read the keys in {name}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise OptionError(f"the keys in {name} are not UTF-8: {error}") from error
    return [line for line in (line.removesuffix("\r") for line in text.split("\n")) if line]
