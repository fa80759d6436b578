"""Patterns of paths: `*`, `?` and `[...]` within a part of a path, and `**` for any number of folders."""

from __future__ import annotations

import re

__all__ = ["has_pattern", "path_pattern"]

_MAGIC = re.compile(r"[*?[]")


def has_pattern(text: str) -> bool:
    """Whether a path is a pattern, or at least may be one."""
    return _MAGIC.search(text) is not None


def path_pattern(pattern: str) -> re.Pattern[str]:
    """The expression that the whole of a path has to match. Hidden files match only where a dot is written.

    Args:
        pattern: Parts separated by "/".
    """
    expression = ""
    parts = pattern.split("/")
    for number, part in enumerate(parts):
        last = number == len(parts) - 1
        if part == "**":
            folders = r"(?:[^/.][^/]*/)*"
            expression += folders + r"[^/.][^/]*" if last else folders
        else:
            hidden = "" if part.startswith(".") else r"(?!\.)"
            expression += hidden + _part(part) + ("" if last else "/")
    return re.compile(expression, re.DOTALL)


def _part(part: str) -> str:
    expression = ""
    at = 0
    while at < len(part):
        end = part.find("]", at + 3 if part[at : at + 2] == "[!" else at + 2)
        if part[at] == "*":
            expression += "[^/]*"
        elif part[at] == "?":
            expression += "[^/]"
        elif part[at] == "[" and end > 0:
            inside = re.sub(r"([\\^\[\]&~|])", r"\\\1", part[at + 1 : end])
            expression += f"[^/{inside[1:]}]" if inside.startswith("!") else f"[{inside}]"
            at = end
        else:
            expression += re.escape(part[at])
        at += 1
    return expression
