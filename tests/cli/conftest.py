"""Small sources, and the command line as tests call it."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from dataflow.cli import app

Run = Callable[..., Result]


@pytest.fixture
def run() -> Run:
    """Calls `dataflow ARGUMENTS`; an exception that is not the command line's own way to fail comes through."""

    def invoke(*arguments: object, code: int = 0) -> Result:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
        assert result.exit_code == code, result.output
        return result

    return invoke


def picture(number: int, kind: str = "JPEG") -> bytes:
    """An image that differs from those with other numbers."""
    sink = io.BytesIO()
    image = Image.new("RGB", (8, 8), (number * 37 % 256, number * 101 % 256, number // 256))
    image.save(sink, kind, **({"comment": str(number)} if kind == "JPEG" else {}))
    return sink.getvalue()


@pytest.fixture
def write(tmp_path: Path) -> Callable[[dict[str, bytes]], Path]:
    """Writes files below a new source folder and returns it."""
    folders: Iterator[Path] = (tmp_path / f"source-{number}" for number in range(100))

    def fill(files: dict[str, bytes]) -> Path:
        folder = next(folders)
        folder.mkdir()
        for name, data in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
        return folder

    return fill
