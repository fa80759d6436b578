"""Arrow's values as JSON."""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import math
from typing import Any

from dataflow.errors import OptionError

__all__ = ["json_text"]


def json_text(value: Any) -> str:
    """A value on one line: bytes as base64 (RFC 4648), times as ISO 8601, durations in seconds, decimals as text.

    Raises:
        OptionError: There is a number in it that JSON does not have.
    """
    text = json.dumps(_plain(value), ensure_ascii=False, allow_nan=False)
    # Within a line for JSON, but not for everything that splits text into lines.
    return text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029").replace("\x85", "\\u0085")


def _plain(value: Any) -> Any:
    match value:
        case float() if not math.isfinite(value):
            raise OptionError(f"JSON has no {value}")
        case bytes():
            return base64.b64encode(value).decode()
        case dict():
            return {name: _plain(item) for name, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case datetime.date() | datetime.time():  # a datetime is a date
            return value.isoformat()
        case datetime.timedelta():
            return value.total_seconds()
        case decimal.Decimal():
            return str(value)
    return value
