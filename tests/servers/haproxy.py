"""haproxy in front of a store: adds latency to every request, and shares out a bandwidth, as a network would."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

INSTALL = "apt-get install haproxy"

_ACTION = """
local free_at = 0

core.register_action("delay", {{ "http-req" }}, function(transaction)
    local normal = math.sqrt(-2 * math.log(1 - math.random())) * math.cos(2 * math.pi * math.random())
    local wait = math.floor({milliseconds} * math.exp({spread} * normal) + 0.5)
    local range = transaction.http:req_get_headers()["range"]
    local first, last = string.match(range and range[0] or "", "bytes=(%d+)%-(%d+)")
    if first and {bytes_per_second} > 0 then
        local now = core.now()
        now = now.sec * 1000 + now.usec / 1000
        free_at = math.max(now, free_at) + (last - first + 1) / {bytes_per_second} * 1000
        wait = math.floor(wait + free_at - now)
    end
    core.msleep(wait)
end)
"""

_CONFIGURATION = """
global
    maxconn 4096
    lua-load {folder}/delay.lua
defaults
    mode http
    timeout connect 10s
    timeout client 5m
    timeout server 5m
    option http-keep-alive
frontend front
    bind fd@{descriptor}
    http-request lua.delay
    default_backend store
backend store
    http-reuse always
    server store {address}
"""


def haproxy_program() -> str | None:
    return shutil.which("haproxy", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


class DelayProxy:
    """Adds `milliseconds` to each request for `endpoint`, from `with` to the end of the block.

    With `bytes_per_second`, ranges that are read take so long as well, one after the other, as over one narrow line.
    With a `spread`, the standard deviation of their logarithm, latencies are log-normal, and `milliseconds` the median.
    """

    def __init__(
        self, endpoint: str, milliseconds: int = 25, bytes_per_second: int = 0, *, spread: float = 0.0
    ) -> None:
        self.target = endpoint
        self.milliseconds = milliseconds
        self.bytes_per_second = bytes_per_second
        self.spread = spread

    def __enter__(self) -> DelayProxy:
        program = haproxy_program()
        if program is None:
            raise FileNotFoundError(f"haproxy is not installed: {INSTALL}")
        self._folder = tempfile.TemporaryDirectory(prefix="haproxy-")
        folder = Path(self._folder.name)
        # The socket is handed over while it already listens: there is nothing to wait for, and no port to lose.
        with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
            self.endpoint = f"http://127.0.0.1:{listener.getsockname()[1]}"
            (folder / "delay.lua").write_text(
                _ACTION.format(
                    milliseconds=self.milliseconds, spread=self.spread, bytes_per_second=self.bytes_per_second
                )
            )
            (folder / "haproxy.cfg").write_text(
                _CONFIGURATION.format(folder=folder, descriptor=listener.fileno(), address=urlsplit(self.target).netloc)
            )
            self._process = subprocess.Popen(
                [program, "-db", "-q", "-f", str(folder / "haproxy.cfg")], pass_fds=[listener.fileno()]
            )
        return self

    def __exit__(self, *_: Any) -> None:
        self._process.terminate()
        self._process.wait()
        self._folder.cleanup()
