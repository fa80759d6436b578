"""A folder for what a run needs only while it runs. It goes with the run, at the latest when the next one begins."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dataflow.errors import StorageError

__all__ = ["scratch_folder"]

_PREFIX = "dataflow-shard-"
_LOCK = "lock"


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A new folder on a local disk (`TMPDIR`); removed in the end, also after an error.

    Those of runs that were killed are removed first.

    Raises:
        StorageError: There is no place for it.
    """
    _sweep(Path(tempfile.gettempdir()))
    try:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    except OSError as error:
        raise StorageError(
            f"could not make a folder in {tempfile.gettempdir()}: {error.strerror}. Set TMPDIR to one that is writable"
        ) from error
    try:
        # The lock ends with this process, however it ends. It gets its name when it is held, so that nobody ever
        # finds one that is not.
        with open(folder / "new", "wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            os.rename(folder / "new", folder / _LOCK)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _sweep(root: Path) -> None:
    for lock in root.glob(f"{_PREFIX}*/{_LOCK}"):
        with suppress(OSError), open(lock, "rb") as file:  # somebody else's, in use, or gone meanwhile
            if os.fstat(file.fileno()).st_uid == os.getuid():
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock.parent, ignore_errors=True)
