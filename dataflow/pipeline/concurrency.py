"""How many reads to keep in flight: as many as still raise the throughput."""

from __future__ import annotations

_FIRST = 4
_GAIN = 1.25
_PATIENCE = 2
_SETTLED_SECONDS = 5.0


class ConcurrencyProbe:
    """Doubles the reads in flight as long as that brings more bytes a second, and tries again now and then.

    Too few leave a distant store idle; too many only take processor time and memory from the rest. The rule is that of
    TCP's slow start, with throughput in place of loss.

    Attributes:
        limit: Reads that may be in flight now.

    Args:
        most: Upper bound of the limit.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.limit = min(_FIRST, most)
        self._best = 0.0
        self._fallback = self.limit
        self._settled_at: float | None = None
        self._failures = 0
        self._since: float | None = None
        self._reads = 0
        self._nbytes = 0

    def read(self, nbytes: int, now: float, waiting: bool) -> None:
        """Count a read that ended.

        Args:
            nbytes: What it brought.
            now: Seconds, of any monotonic clock.
            waiting: Whether other requests waited for it to end: else the throughput is that of the demand.
        """
        if not waiting:
            self._since = None
            return
        if self._since is None:
            self._since, self._reads, self._nbytes = now, 0, 0
            return
        self._reads += 1
        self._nbytes += nbytes
        if self._reads < 2 * self.limit or now <= self._since:
            return
        self._judge(self._nbytes / (now - self._since), now)
        self._since = None

    def _judge(self, throughput: float, now: float) -> None:
        if self._settled_at is not None:
            if now - self._settled_at >= _SETTLED_SECONDS:
                self._settled_at, self._best = None, throughput
                self._raise()
            return
        if throughput >= _GAIN * self._best:
            self._best = throughput
            self._raise()
            return
        # On a busy machine one slow moment says nothing.
        self._failures += 1
        if self._failures >= _PATIENCE:
            self.limit, self._settled_at = self._fallback, now

    def _raise(self) -> None:
        self._failures = 0
        self._fallback = self.limit
        self.limit = min(2 * self.limit, self._most)
