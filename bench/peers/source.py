"""The files that all writers take, each read whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def files(folder: str) -> Iterator[tuple[str, bytes, int]]:
    """Key, bytes and number of the class of every file in class folders."""
    for number, name in enumerate(sorted(path.name for path in Path(folder).iterdir())):
        for path in sorted((Path(folder) / name).iterdir()):
            yield f"{name}/{path.stem}", path.read_bytes(), number
