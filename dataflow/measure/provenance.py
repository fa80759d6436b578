"""What figures depend on, so that others can judge and repeat them."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from dataflow.dataset import Manifest
from dataflow.pipeline.resources import available_cpus, available_memory

__all__ = ["commit", "machine", "provenance", "versions"]

_PACKAGES = {
    "dataflow": "dataflow-loader",
    "torch": "torch",
    "numpy": "numpy",
    "pyarrow": "pyarrow",
    "obstore": "obstore",
}
_ROOT = Path(__file__).parent.parent.parent


def provenance(manifest: Manifest, options: Mapping[str, Any]) -> dict[str, Any]:
    """Versions, machine, dataset, options and time, JSON-able."""
    text = json.dumps(options, sort_keys=True, separators=(",", ":"))
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": versions(),
        "commit": commit(_ROOT),
        "machine": machine(),
        "dataset": {
            "url": manifest.url,
            "fingerprint": manifest.fingerprint,
            "rows": manifest.num_rows,
            "bytes": manifest.num_bytes,
            "blocks": manifest.num_blocks,
            "format": manifest.format,
        },
        "options": dict(options),
        "options_hash": hashlib.sha256(text.encode()).hexdigest(),
    }


def versions() -> dict[str, str]:
    """Of Python and the packages that speed depends on."""
    found = {"python": platform.python_version()}
    for name, distribution in _PACKAGES.items():
        try:
            found[name] = version(distribution)
        except PackageNotFoundError:  # put on the path without being installed
            continue
    return found


def machine() -> dict[str, Any]:
    """What this process may use of the machine, and how busy that is."""
    return {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": _processor(),
        "cpus": available_cpus(),
        "memory_bytes": available_memory(),
        "load_average": os.getloadavg()[0],
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def commit(folder: Path) -> str | None:
    """The commit of a checkout, with "+changes" where files differ from it; None where there is none."""
    if not (folder / ".git").exists():
        return None
    try:
        head, changes = (_git(folder, *words) for words in (("rev-parse", "HEAD"), ("status", "--porcelain", "-uno")))
    except (OSError, subprocess.CalledProcessError):  # git is not installed, or does not trust the folder
        return None
    return head + ("+changes" if changes else "")


def _git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
