"""What the errors of obstore mean, in words that are safe to print."""

from __future__ import annotations

import re

from dataflow.storage.retry import BeyondEndError, Failure, FailureKind, ShortReadError
from dataflow.storage.signed_reads import BrokenReplyError, RefusedError

__all__ = ["explain_object_error"]

_STATUS = re.compile(r"status code: (\d{3}[^:\n]*)")
_CODE = re.compile(r"<Code>([^<]{1,100})</Code>")
_MESSAGE = re.compile(r"<Message>([^<]{1,300})</Message>")
_CLIENT_RETRIES = re.compile(r"\bretries: (\d+)")
_QUERY = re.compile(r"\?\S*")
# What is asked of the machine itself (Amazon, Google, Azure) when no credentials were found.
_METADATA_PATHS = ("/latest/api/token", "/latest/meta-data", "/computeMetadata/", "/metadata/identity")

_RETRIED_STATUS = frozenset({408, 429, 500, 502, 503, 504})
_EXPIRED_CODES = frozenset({"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired"})
_PERMANENT_ERRORS = frozenset({"InvalidPathError", "NotSupportedError", "UnknownConfigurationKeyError"})
# The text itself says only "body error"; the cause is in the structure printed after it.
_DETAILS = {
    "UnexpectedEof": "the body ended early",
    "ConnectionReset": "connection reset",
    "ConnectionRefused": "connection refused",
    "TimedOut": "nothing arrived in time",
    "dns error": "the host name does not resolve",
    "InvalidCertificate": "the certificate is not valid",
}


def explain_object_error(error: Exception) -> Failure:
    """Sorts an error, and keeps of its text only what holds no credentials."""
    if isinstance(error, (ShortReadError, BrokenReplyError)):
        return Failure(FailureKind.TRANSIENT, str(error))
    if isinstance(error, RefusedError):
        return _explain_status(int(error.status[:3]), error.status, error.body, "")
    if isinstance(error, BeyondEndError):
        return Failure(FailureKind.BEYOND_END, str(error))
    text, _, structure = str(error).partition("\n\nDebug source")
    if any(path in text for path in _METADATA_PATHS):
        # That service may just be busy, so it gets a second chance, as expired credentials do.
        return Failure(
            FailureKind.EXPIRED,
            "no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or what the store asks for; "
            "the machine itself gives none",
        )
    status = _STATUS.search(text)
    if status is None:
        return _explain_without_status(error, text, structure)
    return _explain_status(int(status[1][:3]), status[1].strip(), text, structure)


def _explain_status(number: int, status: str, text: str, structure: str) -> Failure:
    code, message = _CODE.search(text), _MESSAGE.search(text)
    # The rest of the body stays out: a signature error repeats the signed request, session token and all.
    reason = ": ".join([status] + [found[1] for found in (code, message) if found]) + _client_retries(structure)
    if (code and code[1] in _EXPIRED_CODES) or number == 401:
        return Failure(FailureKind.EXPIRED, f"{reason}: the credentials have expired or are not valid, renew them")
    if number == 400 and code is None:
        return Failure(FailureKind.EXPIRED, f"{reason}: no reason given; most often the credentials have expired")
    if number == 404:
        return Failure(FailureKind.MISSING, reason)
    if number == 416:
        return Failure(FailureKind.BEYOND_END, reason)
    return Failure(FailureKind.TRANSIENT if number in _RETRIED_STATUS else FailureKind.PERMANENT, reason)


def _explain_without_status(error: Exception, text: str, structure: str) -> Failure:
    # Query strings go: with Azure they may hold a signature.
    reason = _QUERY.sub("", text).strip()
    detail = next((meaning for sign, meaning in _DETAILS.items() if sign in structure), None)
    reason += f": {detail}" if detail else ""
    if isinstance(error, FileNotFoundError):
        return Failure(FailureKind.MISSING, reason)
    if isinstance(error, (OSError, ValueError, TypeError)) or type(error).__name__ in _PERMANENT_ERRORS:
        return Failure(FailureKind.PERMANENT, reason)
    return Failure(FailureKind.TRANSIENT, reason)


def _client_retries(structure: str) -> str:
    retries = _CLIENT_RETRIES.search(structure)
    return f" (after {retries[1]} retries of one request)" if retries and retries[1] != "0" else ""
