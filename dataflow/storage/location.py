"""URLs and paths: how they are taken apart, put together and refused."""

from __future__ import annotations

import os
from urllib.parse import unquote

from dataflow.errors import OptionError

__all__ = ["check_path", "check_prefix", "check_range", "join_url", "local_path", "scheme_of", "split_url", "tidy_url"]


def scheme_of(url: str) -> str:
    """The part before `://`, in lower case; empty for a plain path."""
    scheme, separator, _ = url.partition("://")
    return scheme.lower() if separator else ""


def tidy_url(url: str) -> str:
    """A URL without slashes at its end.

    Raises:
        OptionError: The URL is empty or carries credentials.
    """
    if not url:
        raise OptionError("the URL is empty: give a path, file://..., s3://bucket/prefix, gs://... or az://...")
    scheme, separator, rest = url.partition("://")
    if not separator:
        return url.rstrip("/") or "/"
    authority, slash, path = rest.partition("/")
    if ":" in authority.rpartition("@")[0]:
        # The URL is not repeated: it would put the secret into a log.
        raise OptionError(
            f"a {scheme}:// URL carries a password: take it out, credentials come from the environment and its files"
        )
    return (
        f"{scheme.lower()}://{(authority + slash + path).rstrip('/')}" if rest.strip("/") else f"{scheme.lower()}:///"
    )


def local_path(url: str) -> str:
    """The absolute path of a plain path or a `file://` URL."""
    if scheme_of(url) == "file":
        authority, slash, path = url[len("file://") :].partition("/")
        if authority not in ("", "localhost") or not slash:
            raise OptionError(f"{url!r} names another host: a file URL is file:///absolute/path")
        url = "/" + unquote(path)
    return os.path.abspath(os.path.expanduser(url))


def split_url(url: str) -> tuple[str, str]:
    """Splits the URL of one object into the URL of its folder and its name.

    Raises:
        OptionError: There is no name in it, as in `s3://bucket`.
    """
    tidy = tidy_url(url)
    scheme, separator, rest = tidy.partition("://")
    if not separator:
        folder, name = os.path.split(tidy)
        folder = folder or "."
    else:
        parent, slash, name = rest.rpartition("/")
        if not slash:
            name = ""
        folder = f"{scheme}://{parent or '/'}"
    if name in ("", ".", ".."):
        raise OptionError(f"{url!r} names no object: give the URL of a file, such as {join_url(tidy, 'data.arrow')!r}")
    return folder, unquote(name) if scheme == "file" and separator else name


def join_url(root: str, path: str) -> str:
    """The URL of `path` below `root`."""
    return f"{root.rstrip('/')}/{path}"


def check_path(path: str) -> str:
    """Returns `path` when it names an object below a root.

    Raises:
        OptionError: It is empty, absolute, has a "." or ".." or an empty part, or a character that no store takes.
    """
    parts = path.split("/")
    if "" in parts or "." in parts or ".." in parts or "\0" in path:
        raise OptionError(
            f"{path!r} is no path inside a store: give a relative path with '/' between its parts, without '..'"
        )
    return path


def check_prefix(prefix: str) -> str:
    """Returns the folder to list, without a slash at its end; empty is the root."""
    prefix = prefix.rstrip("/")
    return check_path(prefix) if prefix else ""


def check_range(path: str, start: int, length: int) -> None:
    """Refuses a range that no object has.

    Raises:
        OptionError: `start` or `length` is negative.
    """
    if start < 0 or length < 0:
        raise OptionError(f"cannot read {length} bytes of {path!r} from {start}: neither may be negative")
