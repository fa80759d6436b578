"""nginx over a folder as a fast S3 store, and haproxy before it that adds latency to every request."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

_SYSTEM_PROGRAMS = "/usr/sbin"

# The error log is opened once by the master, so that "start worker process" says that it listens.
_NGINX = """
daemon off;
worker_processes {workers};
pid {state}/nginx.pid;
error_log stderr notice;
{user}
events {{ worker_connections 1024; }}
http {{
    log_format bytes '$body_bytes_sent $uri';
    access_log {state}/access.log bytes;
    client_body_temp_path {state}/body;
    proxy_temp_path {state}/proxy;
    fastcgi_temp_path {state}/fastcgi;
    uwsgi_temp_path {state}/uwsgi;
    scgi_temp_path {state}/scgi;
    sendfile on;
    tcp_nopush on;
    keepalive_requests 1000000;
    default_type application/octet-stream;
    server {{
        listen 127.0.0.1:{port} backlog=1024;
        root {folder};
    }}
}}
"""

_DELAY = """
core.register_action("delay", {{ "http-req" }}, function(transaction)
    core.msleep({milliseconds})
end)
"""

_HAPROXY = """
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


def s3_environment(endpoint: str) -> dict[str, str]:
    """What makes S3 clients use a server that checks no signature."""
    return {
        "AWS_ACCESS_KEY_ID": "anyone",
        "AWS_SECRET_ACCESS_KEY": "unchecked",
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_REGION": "us-east-1",
    }


class Nginx:
    """Serves `folder`, whose folders are buckets, from `with` to the end of the block."""

    def __init__(self, folder: Path, workers: int = 1) -> None:
        self.folder = folder.resolve()
        self.workers = workers

    def __enter__(self) -> Nginx:
        program = _program("nginx")
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        self.endpoint = f"http://127.0.0.1:{port}"
        self._state = tempfile.TemporaryDirectory(prefix="bench-nginx-")
        configuration = Path(self._state.name) / "nginx.conf"
        configuration.write_text(
            _NGINX.format(
                state=self._state.name,
                port=port,
                folder=self.folder,
                workers=self.workers,
                user="user root;" if os.geteuid() == 0 else "",
            )
        )
        self._process = subprocess.Popen(
            [program, "-p", self._state.name, "-e", "stderr", "-c", str(configuration)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stderr is not None
        said = []
        for line in self._process.stderr:
            said.append(line)
            if "start worker process " in line:
                return self
        raise SystemExit("nginx did not start; it said:\n" + "".join(said))

    def __exit__(self, *_: Any) -> None:
        self._process.terminate()
        self._process.communicate()
        self._state.cleanup()

    def bytes_sent(self, name: str) -> int:
        """Bytes of bodies sent so far from files with `name` in their paths; needs a single worker."""
        # The worker logs a request before it answers the next one, so after this answer the log is complete.
        try:
            urllib.request.urlopen(f"{self.endpoint}/{secrets.token_hex(8)}").close()
        except urllib.error.HTTPError as error:
            error.close()
        lines = (Path(self._state.name) / "access.log").read_text().splitlines()
        return sum(int(sent) for sent, _, path in (line.partition(" ") for line in lines) if name in path)


class Delay:
    """Adds `milliseconds` to each request for `endpoint`, from `with` to the end of the block."""

    def __init__(self, endpoint: str, milliseconds: int) -> None:
        self._target = endpoint
        self._milliseconds = milliseconds

    def __enter__(self) -> Delay:
        program = _program("haproxy")
        self._folder = tempfile.TemporaryDirectory(prefix="bench-haproxy-")
        folder = Path(self._folder.name)
        # The socket is handed over while it already listens: there is nothing to wait for, and no port to lose.
        with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
            self.endpoint = f"http://127.0.0.1:{listener.getsockname()[1]}"
            (folder / "delay.lua").write_text(_DELAY.format(milliseconds=self._milliseconds))
            address = urlsplit(self._target).netloc
            (folder / "haproxy.cfg").write_text(
                _HAPROXY.format(folder=folder, descriptor=listener.fileno(), address=address)
            )
            self._process = subprocess.Popen(
                [program, "-db", "-q", "-f", str(folder / "haproxy.cfg")], pass_fds=[listener.fileno()]
            )
        return self

    def __exit__(self, *_: Any) -> None:
        self._process.terminate()
        self._process.wait()
        self._folder.cleanup()


def _program(name: str) -> str:
    program = shutil.which(name, path=f"{os.environ.get('PATH', '')}:{_SYSTEM_PROGRAMS}")
    if program is None:
        raise SystemExit(f"{name} is not installed: apt-get install {name}")
    return program
