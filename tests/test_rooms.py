"""A room imports only rooms below it: what is lower knows nothing of what is built on it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import dataflow

ROOMS = (
    "errors",
    "storage",
    "formats",
    "dataset",
    "sampling",
    "codecs",
    "pipeline",
    "loader",
    "sharding",
    "operations",
    "measure",
    "integrations",
    "cli",
)
# Blocks are numbered and hashed with the native core, which is no room.
NATIVE = "_native"


def imported(path: Path) -> Iterator[tuple[str, int]]:
    """The rooms that a file imports, anywhere in it, and in which line."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "dataflow":
            parts = node.module.split(".")
            names = [parts[1]] if len(parts) > 1 else [alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name.split(".")[1] for alias in node.names if alias.name.startswith("dataflow.")]
        else:
            continue
        for name in names:
            if name != NATIVE:
                yield name, node.lineno


def test_no_room_imports_a_higher_one() -> None:
    root = Path(dataflow.__file__).parent
    wrong = []
    for path in sorted(root.rglob("*.py")):
        room = path.relative_to(root).parts[0].removesuffix(".py")
        if room == "__init__":
            continue
        assert room in ROOMS, f"{path} is in no room that is known here"
        for name, line in imported(path):
            if name in ROOMS and ROOMS.index(name) > ROOMS.index(room):
                wrong.append(f"{path}:{line} imports {name}")
    assert not wrong, "\n".join(wrong)
