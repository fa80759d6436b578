"""One run of a contender: a process of its own, watched from outside."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from bench.measure import ROOT, Figures
from bench.peers.contest import Job
from bench.peers.tree import memory_bytes

LOOK = 0.2  # seconds between two looks at the memory
GRACE = 10.0  # seconds to end in, after the figures
LIMIT = 120.0


class ContenderFailed(Exception):
    """What it said last."""


def run(command: list[str], job: Job | None = None, environment: Mapping[str, str] | None = None) -> Figures:
    """Run a contender; its figures, the greatest memory of its process tree, and the seconds to its first batch."""
    with tempfile.TemporaryDirectory(prefix="contender-") as scratch, open(Path(scratch) / "out", "w+") as out:
        errors = open(Path(scratch) / "errors", "w+")  # noqa: SIM115
        start = time.monotonic()
        process = subprocess.Popen(
            command if job is None else [*command[:3], json.dumps(asdict(job)), *command[3:]],
            cwd=ROOT,
            env={**os.environ, **(environment or {}), "TMPDIR": scratch},
            stdout=out,
            stderr=errors,
            start_new_session=True,
        )
        peak, end = 0, start + LIMIT
        try:
            while process.poll() is None and time.monotonic() < end:
                peak = max(peak, memory_bytes(process.pid))
                time.sleep(LOOK)
                if out.tell() == 0 and os.fstat(out.fileno()).st_size:
                    out.seek(0, os.SEEK_END)
                    end = min(end, time.monotonic() + GRACE)
        finally:
            _end(process)
        lines, said = Path(out.name).read_text().splitlines(), Path(errors.name).read_text().strip().splitlines()
        errors.close()
    for line in reversed(lines):
        if line.startswith("{"):
            figures: Figures = json.loads(line)
            if "first_at" in figures:
                figures["first"] = figures.pop("first_at") - start
            figures["memory"] = max(peak, figures.pop("memory_at_end", 0)) / 1e6
            return figures
    named = [line for line in said if re.match(r"[\w.]*(Error|Exception)\b", line)]
    raise ContenderFailed((named or said or [f"nothing within {LIMIT:g} s"])[-1].strip())


def _end(process: subprocess.Popen[bytes]) -> None:
    """End what is left of the process and of all in its session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
