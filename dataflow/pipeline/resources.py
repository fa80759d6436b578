"""What this process may use of the machine: processors and memory, within its affinity and its cgroup."""

from __future__ import annotations

import os
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


def available_cpus() -> int:
    """Processors that this process may run on: its affinity mask, and the quota of its cgroup (version 2 or 1)."""
    cpus = len(os.sched_getaffinity(0))
    quota = _words(_CGROUP / "cpu.max") or _words(_CGROUP / "cpu/cpu.cfs_quota_us") + _words(
        _CGROUP / "cpu/cpu.cfs_period_us"
    )
    if len(quota) == 2 and quota[0].isdigit() and int(quota[0]) > 0:
        cpus = min(cpus, max(1, int(quota[0]) // int(quota[1])))
    return cpus


def available_memory() -> int:
    """Bytes of memory that this process may use: those of the machine, and the limit of its cgroup."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in (_words(_CGROUP / "memory.max"), _words(_CGROUP / "memory/memory.limit_in_bytes")):
        if limit and limit[0].isdigit():
            memory = min(memory, int(limit[0]))
    return memory


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:  # not a cgroup of this version
        return []
