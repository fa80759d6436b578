"""A store: requests that wait for their turn, answers that come after a latency, bodies that share a network."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from bench.scale.events import Events
from bench.scale.fair_share import FairShare
from bench.scale.latency import Latency
from dataflow.storage.retry import RetryPolicy

# The percentile to hedge after is that of so many answers last seen, looked up anew after some of them.
_SEEN = 2000
_LOOK_UP_EACH = 200
_AT_ONCE = 4096


@dataclass(frozen=True, slots=True)
class StoreRules:
    """What a store gives.

    Attributes:
        bandwidth: Bytes/s of all connections together.
        connection_bandwidth: Bytes/s of one connection.
        request_rate: Requests/s that it takes on; more wait, first come first served.
        latency: From when it takes a request on to the first byte of the body.
        failure_rate: Share of requests that it answers with an error that may pass, such as 503.
        hedge_percentile: A second request is made when no answer came within this percentile of the answers seen so
            far; whichever answers first is read. None makes no second requests.
        policy: How reads are tried again.
    """

    bandwidth: float
    connection_bandwidth: float
    request_rate: float
    latency: Latency
    failure_rate: float = 0.0
    hedge_percentile: float | None = None
    policy: RetryPolicy = field(default_factory=RetryPolicy)


class SimulatedStore:
    """Answers reads of ranges.

    Attributes:
        events: The clock.
        rules: What it gives.
        draws: Numbers from 0 to 1, without end.
        hedge_after: Seconds without an answer after which a second request is made; None for never.
        requests: Requests made, also those of second and later attempts.
        nbytes: Bytes of bodies sent.
        given_up: Reads that failed for good; a job would end there.

    Args:
        generator: Where latencies, failures and pauses are drawn from.
    """

    def __init__(self, events: Events, rules: StoreRules, generator: np.random.Generator) -> None:
        self.requests = 0
        self.nbytes = 0
        self.given_up = 0
        self.events = events
        self.rules = rules
        self.draws = _uniform(generator)
        self._latencies = rules.latency.draws(generator)
        self._network = FairShare(events, rules.bandwidth, rules.connection_bandwidth)
        self._next_turn = 0.0
        self._seen: deque[float] = deque(maxlen=_SEEN)
        self._answers = 0
        percent = rules.hedge_percentile
        self.hedge_after = None if percent is None else rules.latency.percentile(percent)

    def read(self, nbytes: int, begun: Callable[[float], None], done: Callable[[], None]) -> None:
        """Read a range.

        Args:
            nbytes: How long it is.
            begun: Called at its first byte, with the seconds since the start less those that requests waited for their
                turn: latencies, and pauses between attempts.
            done: Called after its last byte.
        """
        _Read(self, nbytes, begun, done).attempt()

    def request(self, answered: Callable[[bool, int], None], attempt: int) -> float:
        """Make one request; says at the time of the answer whether that is a body, and of which attempt.

        Returns:
            Seconds that it waits for its turn.
        """
        self.requests += 1
        now, rules = self.events.now, self.rules
        turn = max(now, self._next_turn)
        self._next_turn = turn + 1 / rules.request_rate
        fails = rules.failure_rate > 0 and next(self.draws) < rules.failure_rate
        seconds = next(self._latencies)
        if seconds >= rules.policy.idle_seconds:
            seconds, fails = rules.policy.idle_seconds, True
        if self.hedge_after is not None:
            self._saw(turn + seconds - now)
        self.events.at(turn + seconds, answered, not fails, attempt)
        return turn - now

    def send(self, nbytes: int, done: Callable[[], None]) -> None:
        """Send a body."""
        self.nbytes += nbytes
        self._network.add(nbytes, done)

    def _saw(self, seconds: float) -> None:
        self._seen.append(seconds)
        self._answers += 1
        if self._answers % _LOOK_UP_EACH == 0:
            self.hedge_after = float(np.percentile(self._seen, self.rules.hedge_percentile or 0.0))


class _Read:
    """One range, from the first attempt to the last byte: the rule of `dataflow.storage.retry.with_retries`."""

    __slots__ = ("_answered", "_attempts", "_begun", "_done", "_nbytes", "_open", "_started", "_store", "_waited")

    def __init__(
        self, store: SimulatedStore, nbytes: int, begun: Callable[[float], None], done: Callable[[], None]
    ) -> None:
        self._store = store
        self._nbytes = nbytes
        self._begun = begun
        self._done = done
        self._started = store.events.now
        self._attempts = 0
        self._open = 0
        self._waited = 0.0
        self._answered = False

    def attempt(self) -> None:
        store = self._store
        self._attempts += 1
        self._open = 1
        self._waited += store.request(self._answer, self._attempts)
        if store.hedge_after is not None:
            store.events.at(store.events.now + store.hedge_after, self._hedge, self._attempts)

    def _hedge(self, attempt: int) -> None:
        # Not where it was answered, be it with an error, or is being tried again.
        if attempt == self._attempts and self._open and not self._answered:
            self._open += 1
            self._store.request(self._answer, attempt)

    def _answer(self, body: bool, attempt: int) -> None:
        if self._answered or attempt != self._attempts:
            return  # the other request was faster; this connection is closed before its body
        self._open -= 1
        if body:
            self._answered = True
            self._begun(self._store.events.now - self._started - self._waited)
            self._store.send(self._nbytes, self._done)
        elif not self._open:
            self._fail()

    def _fail(self) -> None:
        store, policy = self._store, self._store.rules.policy
        longest = min(policy.longest_wait_seconds, policy.first_wait_seconds * 2 ** (self._attempts - 1))
        now, pause = store.events.now, next(store.draws) * longest
        if self._attempts >= policy.attempts or now - self._started + pause >= policy.budget_seconds:
            store.given_up += 1
            store.events.stop()
        else:
            store.events.at(now + pause, self.attempt)


def _uniform(generator: np.random.Generator) -> Iterator[float]:
    while True:
        yield from generator.random(_AT_ONCE).tolist()
