"""Every code block of the README and the documents runs, in the order in which it stands there."""

from __future__ import annotations

import gzip
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dataflow.cli import app
from dataflow.cli.s3_server import S3Server
from tests.cli.conftest import picture
from tests.conftest import use_store
from tests.formats.archives import pack

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)]+)\)")
CLASSES = ("cat", "dog", "owl")
DATASET = "s3://bucket/photos"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the raw data that the documents speak of, and an S3 server with an empty bucket."""
    for number in range(600):
        name = CLASSES[number % 3]
        _write(tmp_path / "photos" / name / f"{number:04d}.jpg", picture(number))
        _write(tmp_path / "photos-validation" / "owl" / f"{number % 7:04d}.jpg", picture(number))
    lines = []
    for number in range(10):
        _write(tmp_path / "captions" / f"{number:04d}.jpg", picture(number))
        lines.append(json.dumps({"file_name": f"{number:04d}.jpg", "caption": f"number {number}", "boxes": [number]}))
    _write(tmp_path / "captions" / "metadata.jsonl", "\n".join(lines).encode())
    for name in ("train/cat/1.jpg", "train/owl/2.jpg", "val/cat/3.jpg"):
        _write(tmp_path / "photos-in-splits" / name, picture(len(name)))
    for part in range(2):
        rows = ({"key": f"{part}-{n:03d}", "text": f"document {n} " * (n % 7)} for n in range(200))
        documents = "".join(json.dumps(row) + "\n" for row in rows).encode()
        _write(tmp_path / "texts" / f"part-{part}.jsonl.gz", gzip.compress(documents))
    for tar in range(3):
        members = ((f"{tar}_{number:03d}.jpg", picture(number)) for number in range(20))
        _write(tmp_path / "tars" / f"{tar}.tar", pack(members))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with S3Server(bucket="bucket") as server:
        use_store(monkeypatch, server.environment)
        yield tmp_path


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def _command(line: str) -> None:
    program, *arguments = shlex.split(line)
    assert program == "dataflow"
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, f"{line}: {result.output}"


@pytest.mark.filterwarnings("ignore:.* lanes for .* ranks")  # the dataset is tiny
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_code_blocks_run(page: Path, place: Path) -> None:
    text = page.read_text()
    blocks = list(BLOCK.finditer(text))
    assert text.count("```") == 2 * len(blocks)
    if DATASET in text and f"dataflow shard photos {DATASET}" not in text:
        _command(f"dataflow shard photos {DATASET}")
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks:
        language, code = block.groups()
        assert language in ("python", "sh"), f"{page.name}: a block of {language!r}"
        if language == "sh":
            for line in code.splitlines():
                _command(line)
        else:
            # Lines of a traceback are those of the page.
            lines_before = text.count("\n", 0, block.start(2))
            exec(compile("\n" * lines_before + code, str(page), "exec"), names)


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(page.read_text()):
        if link.startswith("http"):
            continue
        target, _, anchor = link.partition("#")
        file = page.parent / target if target else page
        assert file.is_file(), link
        if anchor:
            headings = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE)
            anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor in anchors, link
