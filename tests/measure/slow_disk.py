"""A slow disk: local files through fsspec, with one arm."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

import dataflow

SEEK = 0.03


class SlowDisk(LocalFileSystem):  # type: ignore[misc]
    """Reads come one after the other, each after a seek."""

    protocol = "slowdisk"
    arm = threading.Lock()

    def cat_file(self, *arguments: Any, **options: Any) -> bytes:
        with self.arm:
            time.sleep(SEEK)
            data: bytes = super().cat_file(*arguments, **options)
            return data


def open_slowly(folder: Path) -> dataflow.Dataset:
    """The dataset in a local folder, on that disk."""
    fsspec.register_implementation("slowdisk", f"{__name__}.SlowDisk", clobber=True)
    return dataflow.open(f"slowdisk://{folder}")
