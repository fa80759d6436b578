"""What all writers take: files, each read whole, and token documents."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LENGTH = 2048


def places() -> tuple[str, str, int]:
    """From the command line: the source, the target, and the size of a shard, which is 256 MiB unless it is given."""
    source, target, *shard_bytes = sys.argv[1:]
    return source, target, int(shard_bytes[0]) if shard_bytes else 256 << 20


def files(folder: str) -> Iterator[tuple[str, bytes, int]]:
    """Key, bytes and number of the class of every file in class folders."""
    for number, name in enumerate(sorted(path.name for path in Path(folder).iterdir())):
        for path in sorted((Path(folder) / name).iterdir()):
            yield f"{name}/{path.stem}", path.read_bytes(), number


def tokens(file: str) -> Any:
    """uint16 [documents, 2048]."""
    import numpy as np

    return np.memmap(file, np.uint16, "r").reshape(-1, LENGTH)
