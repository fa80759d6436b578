"""Runs Python in a process of its own, where a test is about the process."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

HEAD = """
import atexit, faulthandler, gc, os, signal, sys, threading, time
# Registered first, so that it runs last.
atexit.register(lambda: print("exited", time.perf_counter(), flush=True))
faulthandler.dump_traceback_later(50, exit=True)
# Whoever runs tests in the background of a shell has it ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
import psutil
import dataflow

def left():
    "Threads, children and descriptors of this process."
    gc.collect()
    threads = sorted(t.name for t in threading.enumerate() if t is not threading.main_thread())
    return threads, psutil.Process().children(), len(os.listdir("/proc/self/fd"))
"""


def start(code: str, *arguments: Any, new_session: bool = False, **environment: str) -> subprocess.Popen[str]:
    """Start a script that finds `arguments` in sys.argv; its errors come with its output."""
    return subprocess.Popen(
        [sys.executable, "-c", HEAD + code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **environment},
        start_new_session=new_session,
    )


def run(code: str, *arguments: Any, **environment: str) -> str:
    """The output of a script, which has to end well."""
    process = start(code, *arguments, **environment)
    output, _ = process.communicate(timeout=55)
    assert process.returncode == 0, f"ended with {process.returncode}:\n{output}"
    return output
