"""How obstore's clients are set up."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from dataflow.storage.amazon import amazon_settings
from dataflow.storage.client_module import client_module
from dataflow.storage.location import scheme_of
from dataflow.storage.retry import RetryPolicy

__all__ = ["PARTS_AT_ONCE", "PART_BYTES", "new_bulk_client", "new_read_client", "sign"]

PART_BYTES = 8 << 20
PARTS_AT_ONCE = 4
_SIGNED_FOR = timedelta(minutes=15)
# The client has no idle timeout for sending, only one for a whole request. All parts in flight share the line, so
# this asks for 280 KB/s in all.
_BULK_REQUEST_SECONDS = 120.0


def new_read_client(url: str, policy: RetryPolicy) -> Any:
    """A client for operations of one request: an idle timeout, and no retries, which the caller does better."""
    idle = timedelta(seconds=policy.idle_seconds)
    # A total timeout would kill slow downloads that are healthy; the client always has one, so it is a long one.
    return _new_client(url, {"connect_timeout": idle, "read_timeout": idle, "timeout": timedelta(days=1)}, {})


def new_bulk_client(url: str, policy: RetryPolicy) -> Any:
    """A client for operations of many requests, uploads in parts and listings: each request is retried by itself."""
    return _new_client(
        url,
        {
            "connect_timeout": timedelta(seconds=policy.idle_seconds),
            "timeout": timedelta(seconds=max(policy.idle_seconds, _BULK_REQUEST_SECONDS)),
        },
        {
            "max_retries": policy.attempts - 1,
            "retry_timeout": timedelta(seconds=policy.budget_seconds),
            "backoff": {
                "init_backoff": timedelta(seconds=policy.first_wait_seconds),
                "max_backoff": timedelta(seconds=policy.longest_wait_seconds),
            },
        },
    )


def sign(client: Any, path: str) -> str:
    """A URL from which one object can be read without credentials for a while; made here, without a request."""
    return str(client_module().sign(client, "GET", path, _SIGNED_FOR))


def _new_client(url: str, client_options: dict[str, Any], retry_config: dict[str, Any]) -> Any:
    stores = client_module().store
    retry_config = {"max_retries": 0} | retry_config
    if scheme_of(url) != "s3":
        return stores.from_url(url, client_options=client_options, retry_config=retry_config)
    settings = amazon_settings()
    config: dict[str, Any] = {"region": settings.region, "disable_bulk_delete": True}
    if settings.endpoint:
        config["endpoint"] = settings.endpoint
        client_options["allow_http"] = settings.endpoint.startswith("http://")
    if settings.access_key_id and settings.secret_access_key:
        config["access_key_id"] = settings.access_key_id
        config["secret_access_key"] = settings.secret_access_key
        if settings.session_token:
            config["session_token"] = settings.session_token
    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    return stores.S3Store(
        bucket, prefix=prefix or None, config=config, client_options=client_options, retry_config=retry_config
    )
