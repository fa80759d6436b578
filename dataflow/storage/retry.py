"""Trying again: how often, for how long, and what is said when it was in vain."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from dataflow.errors import StorageError, StorageNotFoundError, StorageRangeError

__all__ = ["BeyondEndError", "Failure", "FailureKind", "RetryPolicy", "ShortReadError", "with_retries"]

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How patient a store is.

    Attributes:
        attempts: The most attempts for one operation.
        budget_seconds: No new attempt starts later than this after the first one.
        idle_seconds: A connection that moves no byte for so long is given up. Slow is not idle.
        first_wait_seconds: The first pause is drawn from 0 to this, the next one from 0 to twice this, and so on.
        longest_wait_seconds: No pause is drawn from more than this.
    """

    attempts: int = 10
    budget_seconds: float = 120.0
    idle_seconds: float = 15.0
    first_wait_seconds: float = 0.2
    longest_wait_seconds: float = 15.0


class FailureKind(Enum):
    """What a failed attempt means for the next one."""

    TRANSIENT = "may pass: try again"
    PERMANENT = "will not pass"
    MISSING = "there is no such object"
    BEYOND_END = "the object is shorter"
    EXPIRED = "the credentials are no longer valid"


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed attempt, in words that are safe to print: no credentials, no signed request."""

    kind: FailureKind
    reason: str


class ShortReadError(Exception):
    """A reply that ended early, although the object is long enough."""

    def __init__(self, expected: int, received: int) -> None:
        super().__init__(f"short body: expected {expected} bytes, received {received}")


class BeyondEndError(Exception):
    """A range that the object does not have."""

    def __init__(self, size: int) -> None:
        super().__init__(f"the object has only {size} bytes; was it cut short or replaced?")


def with_retries(
    operation: Callable[[], Result],
    action: Callable[[], str],
    explain: Callable[[Exception], Failure],
    policy: RetryPolicy,
    renew: Callable[[], None] | None = None,
) -> Result:
    """Runs `operation` until it succeeds, or until there is no point in going on.

    Args:
        operation: One attempt.
        action: Says what is attempted and where, such as `read bytes 0-99 of s3://bucket/a`; called on failure only.
        explain: Says what an exception of `operation` means.
        policy: Attempts, pauses and budget.
        renew: Called once when credentials have expired, to read them anew.

    Raises:
        StorageNotFoundError: The object is missing.
        StorageRangeError: It ends before the range.
        StorageError: Everything else; says the action, the attempts, the elapsed seconds and the last reason.
    """
    started = time.monotonic()
    # The first attempt stays clear of the retry machinery: nearly all reads end here.
    try:
        return operation()
    except (AttributeError, NameError, AssertionError):
        raise  # a defect of ours, which no further attempt mends
    except Exception as error:
        first_error = error
    return _try_again(operation, action, explain, policy, renew, first_error, started)


def _try_again(
    operation: Callable[[], Result],
    action: Callable[[], str],
    explain: Callable[[Exception], Failure],
    policy: RetryPolicy,
    renew: Callable[[], None] | None,
    first_error: Exception,
    started: float,
) -> Result:
    import tenacity

    earlier = [first_error]
    renewals = 0

    def attempt() -> Result:
        if earlier:
            raise earlier.pop()
        return operation()

    def is_worth_another(error: BaseException) -> bool:
        nonlocal renewals
        if not isinstance(error, Exception):
            return False
        kind = explain(error).kind
        if kind is FailureKind.EXPIRED and renew is not None and renewals == 0:
            renewals += 1
            renew()
            return True
        return kind is FailureKind.TRANSIENT

    retrying = tenacity.Retrying(
        stop=tenacity.stop_after_attempt(policy.attempts)
        | tenacity.stop_before_delay(policy.budget_seconds - (time.monotonic() - started)),
        wait=tenacity.wait_random_exponential(multiplier=policy.first_wait_seconds, max=policy.longest_wait_seconds),
        retry=tenacity.retry_if_exception(is_worth_another),
        reraise=True,
    )
    try:
        return retrying(attempt)
    except Exception as error:
        failure = explain(error)
        attempts = retrying.statistics["attempt_number"]
    # Raised outside the handler and without the client's exception: that one may carry a signed request.
    elapsed = time.monotonic() - started
    message = f"could not {action()}: {failure.reason} (attempts: {attempts}, {elapsed:.1f} s)"
    if failure.kind is FailureKind.MISSING:
        raise StorageNotFoundError(message)
    if failure.kind is FailureKind.BEYOND_END:
        raise StorageRangeError(message)
    raise StorageError(message)
