from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest
from PIL import Image

from tests.cli.conftest import Run
from tests.dataset.written import write
from tests.operations.photographs import encoded, photograph

CLASSES = ["cat", "<script>alert(1)</script>", "owl & co"]
INSTALL = "apt-get install chromium"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stats") / "photographs"
    write(
        folder,
        [
            {
                "key": f"k{number}",
                "image": photograph() if number % 2 else encoded("PNG", (30 + number, 20)),
                "label": number % 3,
                "caption": None if number == 5 else "word " * number,
                "score": number / 7,
            }
            for number in range(30)
        ],
        rows_per_block=4,
        properties={"classes": CLASSES},
    )
    return folder


def test_a_table(run: Run, data: Path) -> None:
    out = run("stats", data).stdout
    assert out.startswith(f"{data}: 30 rows, ")
    rows = {line.split()[0]: line.split() for line in out.splitlines() if line.strip()}
    assert rows["caption"] == ["caption", "string", "characters", "1", "0", "74.14", "75", "141", "145", "145"]
    assert rows["score"][:4] == ["score", "double", "numbers", "0"]
    assert "image: images: png 15, jpeg 15, RGB 30" in out
    assert "label: cat 10, <script>alert(1)</script> 10, owl & co 10" in out
    assert rows["width"][:5] == ["width", "in", "pixels", "30", "342"]
    assert "key: " not in out  # each comes once


def test_json_and_a_sample(run: Run, data: Path) -> None:
    facts = json.loads(run("stats", data, "--json").stdout)
    assert [column["name"] for column in facts["columns"]] == ["key", "image", "label", "caption", "score"]
    assert facts["columns"][2]["values"][1] == {"value": 1, "count": 10, "name": CLASSES[1]}
    out = run("stats", data, "--sample", "8").stdout
    assert "from a sample of 10 rows" in out


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.links: list[str] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.links += [str(value) for name, value in attrs if name in ("src", "href", "data", "action")]

    def handle_data(self, data: str) -> None:
        self.words.append(data.strip())


def test_the_page_needs_nothing_else(run: Run, data: Path, tmp_path: Path) -> None:
    assert f"the page is at {tmp_path / 'page.html'}" in run("stats", data, "--html", tmp_path / "page.html").stdout
    text = (tmp_path / "page.html").read_text()
    page = Page(text)
    assert page.links == []
    assert page.tags["script"] == page.tags["link"] == page.tags["img"] == 0
    assert "url(" not in text
    assert "@import" not in text
    assert CLASSES[1] in page.words
    assert page.tags["section"] == 6
    assert page.tags["svg"] == 1 + 3 + 1 + 1 + 1 + 2
    assert "NaN" not in text


def test_a_page_on_s3(run: Run, data: Path, s3_url: str) -> None:
    from dataflow.storage import open_store

    run("stats", data, "--html", f"{s3_url}/page.html")
    assert bytes(open_store(s3_url).read_range("page.html", 0, 15)) == b"<!doctype html>"


def browse(page: Path, profile: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = shutil.which("chromium")
    if program is None:
        pytest.skip(f"chromium is not installed: {INSTALL}")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
    options += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    options += [f"--user-data-dir={profile}", "--window-size=1200,1600", "--enable-logging=stderr", *arguments]
    return subprocess.run([program, *options, page.as_uri()], capture_output=True, text=True, timeout=120, check=True)


def test_a_browser_draws_the_page(run: Run, data: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    run("stats", data, "--html", page)
    done = browse(page, tmp_path / "profile", "--dump-dom")
    assert done.stdout.count("<section>") == 6
    assert "owl &amp; co" in done.stdout
    assert not re.search(r"CONSOLE|Refused to|SyntaxError", done.stderr), done.stderr
    browse(page, tmp_path / "profile", f"--screenshot={tmp_path / 'page.png'}")
    with Image.open(tmp_path / "page.png") as shot:
        colours = {colour: count for count, colour in shot.convert("RGB").getcolors(1 << 24) or []}
    assert colours[(0x3B, 0x6F, 0xD4)] > 5_000  # bars
    assert colours[(0xFF, 0xFF, 0xFF)] > 200_000  # cards
    assert colours[(0xF6, 0xF7, 0xF9)] > 100_000  # the page around them
