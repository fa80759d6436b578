"""What a process and all that it started cost, read from /proc: processor time and memory."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_TICKS = os.sysconf("SC_CLK_TCK")


def adopt_orphans() -> None:
    """Make this process the parent of grandchildren whose own parent ends, so that their times are not lost."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER) failed")


def cpu_seconds(root: int) -> float:
    """Processor time of a process, of all that descend from it, and of those of them that have ended."""
    while True:
        tree = _tree(root)
        # A process that ends moves its times to its parent: only what was read of an unchanged tree adds up.
        if tree.keys() == _tree(root).keys():
            return sum(ticks for ticks in tree.values()) / _TICKS


def memory_bytes(root: int) -> int:
    """Memory of the tree that is no file's: anonymous and shared, each page counted once."""
    total = 0
    for pid in _tree(root):
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue  # it has ended
        total += sum(int(line.split()[1]) for line in lines if line.startswith(("Pss_Anon:", "Pss_Shmem:")))
    return total << 10


def _tree(root: int) -> dict[int, int]:
    """Ticks of each process, its ended children among them."""
    parents, ticks = {}, {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                text = Path(f"/proc/{entry}/stat").read_text()
            except OSError:
                continue
            fields = text.rpartition(")")[2].split()  # a name may hold anything
            parents[int(entry)] = int(fields[1])
            ticks[int(entry)] = sum(map(int, fields[11:15]))
    found = {root}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return {pid: ticks[pid] for pid in found if pid in ticks}
