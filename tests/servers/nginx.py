"""nginx over a folder: a fast store that serves path-style S3 reads, with a log of every byte it sent.

It checks no signature and lists nothing: for bytes, requests and throughput, not for correctness.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

INSTALL = "apt-get install nginx"

_CONFIGURATION = """
daemon off;
worker_processes {workers};
pid {state}/nginx.pid;
error_log stderr notice;
{user}
events {{ worker_connections 1024; }}
http {{
    log_format bytes '$request_method $status $body_bytes_sent $uri $http_range';
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
        {limits}
    }}
}}
"""


def nginx_program() -> str | None:
    return shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


def environment_for(endpoint: str) -> dict[str, str]:
    """What makes S3 clients use a server that checks no signature."""
    return {
        "AWS_ACCESS_KEY_ID": "anyone",
        "AWS_SECRET_ACCESS_KEY": "unchecked",
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_REGION": "us-east-1",
    }


@dataclass(frozen=True)
class Served:
    """One line of the log."""

    method: str
    status: int
    bytes_sent: int  # of the body
    path: str
    byte_range: str  # as asked for, such as "bytes=0-99"; "-" is the whole object


class Nginx:
    """Serves `folder` from `with` to the end of the block; the first folder below it is the bucket.

    Args:
        folder: What is served.
        workers: Processes of the server.
        connection_rate: Bytes/s of a connection; None does not limit it.
    """

    def __init__(self, folder: Path, workers: int = 1, connection_rate: int | None = None) -> None:
        self.folder = folder
        self.workers = workers
        self.connection_rate = connection_rate

    def __enter__(self) -> Nginx:
        program = nginx_program()
        if program is None:
            raise FileNotFoundError(f"nginx is not installed: {INSTALL}")
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port = listener.getsockname()[1]
        self.endpoint = f"http://127.0.0.1:{port}"
        self.environment = environment_for(self.endpoint)
        self._state = tempfile.TemporaryDirectory(prefix="nginx-")
        configuration = Path(self._state.name) / "nginx.conf"
        configuration.write_text(
            _CONFIGURATION.format(
                state=self._state.name,
                port=port,
                folder=self.folder,
                workers=self.workers,
                # Larger pieces come with too few pauses between them, of smaller ones the pauses add up.
                limits=f"limit_rate {self.connection_rate}; sendfile_max_chunk 16k;" if self.connection_rate else "",
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
                break
        else:
            raise RuntimeError("nginx did not start; it said:\n" + "".join(said))
        return self

    def __exit__(self, *_: Any) -> None:
        self._process.terminate()
        self._process.communicate()
        self._state.cleanup()

    def served(self) -> list[Served]:
        """Everything sent so far, in order."""
        # The only worker logs a request before it answers the next one, so after this answer the log is complete.
        marker = f"/{secrets.token_hex(8)}"
        try:
            urllib.request.urlopen(self.endpoint + marker).close()
        except urllib.error.HTTPError as error:
            error.close()
        lines = []
        for line in (Path(self._state.name) / "access.log").read_text().splitlines():
            method, status, sent, rest = line.split(" ", 3)
            path, _, byte_range = rest.rpartition(" ")
            lines.append(Served(method, int(status), int(sent), path, byte_range))
        return [line for line in lines if line.status != 404]

    def bytes_sent(self, within: str = "") -> int:
        """Bytes of bodies sent so far, of files with `within` in their paths."""
        return sum(line.bytes_sent for line in self.served() if within in line.path)
