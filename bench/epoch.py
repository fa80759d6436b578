"""What an epoch cost this process."""

from __future__ import annotations

import resource
from time import perf_counter


class Usage:
    """Counts from when it is made."""

    def __init__(self) -> None:
        self._usage = resource.getrusage(resource.RUSAGE_SELF)
        self._start = perf_counter()

    def figures(self, samples: int, nbytes: int) -> dict[str, float]:
        """Rates, and processor seconds, thousands of page faults and of context switches per GB of `nbytes`."""
        seconds = perf_counter() - self._start
        now, before = resource.getrusage(resource.RUSAGE_SELF), self._usage
        user, system = now.ru_utime - before.ru_utime, now.ru_stime - before.ru_stime
        return {
            "seconds": seconds,
            "samples": samples / seconds,
            "mb": nbytes / seconds / 1e6,
            "cpu": (user + system) / nbytes * 1e9,
            "user": user / nbytes * 1e9,
            "system": system / nbytes * 1e9,
            "faults": (now.ru_minflt - before.ru_minflt) / nbytes * 1e6,
            "switches": (now.ru_nvcsw - before.ru_nvcsw + now.ru_nivcsw - before.ru_nivcsw) / nbytes * 1e6,
            "peak_mb": now.ru_maxrss / 1e3,
        }
