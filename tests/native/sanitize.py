"""Runs this folder's tests against a build of the native core with sanitizers: `make sanitize`."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest


def main(build: Path) -> int:
    (library,) = build.glob("_native*.so")
    spec = importlib.util.spec_from_file_location("dataflow._native", library)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules["dataflow._native"] = module  # before anything imports the package
    tests = Path(__file__).parent
    # A sanitizer writes its report as the process dies: uncaptured, or it is lost.
    return pytest.main([str(tests), f"--confcutdir={tests}", "--capture=no", "-p", "no:cacheprovider", "-q"])


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
