from __future__ import annotations

import hashlib
import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from dataflow.cli.bench_page import bench_page
from tests.cli.conftest import Run
from tests.cli.test_stats import Page, browse
from tests.dataset.written import write
from tests.operations.photographs import photograph

LEVELS = ["storage", "fetch", "read", "decode", "batch", "accelerator"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bench") / "photographs <1> & co"
    write(folder, [{"key": f"k{n}", "image": photograph(), "label": n % 3} for n in range(200)], rows_per_block=4)
    return folder


@pytest.fixture(scope="module")
def facts(data: Path) -> dict[str, Any]:
    import dataflow
    from dataflow.measure import bench

    dataset = dataflow.open(str(data)).select(["image", "label"]).decode(image=dataflow.Image(32))
    return bench(dataset, seconds=0.1, batch_size=8, step=0.01).to_json()


def test_the_terminal(run: Run, data: Path, tmp_path: Path) -> None:
    options = ["--image", "image:32", "--columns", "image,label", "--batch-size", 8, "--workers", 2]
    result = run("bench", data, *options, "--step", 5, "--seconds", 0.1, "--json", tmp_path / "figures.json")
    assert [line.split()[0] for line in result.stdout.splitlines() if "█" in line] == LEVELS
    assert "accelerator utilisation " in result.stdout
    assert "what would help: " in result.stdout
    assert "measuring: storage, 1 at a time" in result.stderr
    assert "measuring" not in result.stdout
    facts = json.loads((tmp_path / "figures.json").read_text())
    assert facts["verdict"]["sentence"].startswith("storage gives ")
    options_used = facts["provenance"]["options"]
    assert (options_used["batch_size"], options_used["workers"], options_used["step"]) == (8, 2, 0.005)
    assert options_used["columns"] == ["image", "label"]
    canonical = json.dumps(options_used, sort_keys=True, separators=(",", ":"))
    assert facts["provenance"]["options_hash"] == hashlib.sha256(canonical.encode()).hexdigest()
    assert {"python", "torch", "numpy", "pyarrow"} <= facts["provenance"]["versions"].keys()


def test_json_alone_and_an_accelerator(run: Run, data: Path) -> None:
    result = run("bench", data, "--no-shuffle", "--accelerator", "cosmoflow-h100", "--seconds", 0.1, "--json", "-")
    facts = json.loads(result.stdout)
    assert facts["accelerator"]["step"] == 0.0035
    assert facts["provenance"]["options"]["batch_size"] == 1
    assert facts["provenance"]["options"]["shuffle"] is False
    assert [level["name"] for level in facts["levels"]] == ["storage", "fetch", "read", "batch", "accelerator"]


def test_what_cannot_be(run: Run, data: Path, tmp_path: Path) -> None:
    assert "has no column 'picture'" in run("bench", data, "--image", "picture", code=1).output
    assert "choose from unet3d-a100" in run("bench", data, "--accelerator", "abacus", code=1).output
    assert "memory_limit is" in run("bench", data, "--memory-limit", "1kB", code=1).output
    assert "there is nothing at" in run("bench", tmp_path, code=1).output


def test_the_page_needs_nothing_else(facts: dict[str, Any]) -> None:
    text = bench_page(facts)
    page = Page(text)
    assert page.links == []
    assert page.tags["script"] == page.tags["link"] == page.tags["img"] == 0
    assert "url(" not in text
    assert "@import" not in text
    assert "NaN" not in text
    assert any("photographs <1> & co" in words for words in page.words)
    sentence = facts["verdict"]["sentence"]
    assert sentence[0].upper() + sentence[1:] + "." in page.words
    # The waterfall, throughput over time, connections with two histograms, and the clocks of four stages.
    assert page.tags["svg"] == 6 + 6 + 3 + 4
    assert page.words.count("p99") >= 2


def test_the_waterfall_falls(facts: dict[str, Any]) -> None:
    """What a level gives and what it loses end where the level above ends."""
    rows = re.findall(r'class="lost" x="([\d.]+)" y="0" width="([\d.]+)"', bench_page(facts))
    assert len(rows) == len(LEVELS)
    for (above, _), (here, lost) in pairwise(rows):
        if float(lost):
            assert float(here) + float(lost) == pytest.approx(float(above), abs=0.02)
        else:
            assert float(here) >= float(above)


def test_a_browser_draws_the_page(facts: dict[str, Any], tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(bench_page(facts))
    done = browse(page, tmp_path / "profile", "--dump-dom")
    assert done.stdout.count("<section ") == 7
    assert not re.search(r"CONSOLE|Refused to|SyntaxError", done.stderr), done.stderr
    for scheme, card, bar in (
        ((), (0xFF, 0xFF, 0xFF), (0x3B, 0x6F, 0xD4)),
        (
            ("--force-dark-mode", "--blink-settings=preferredColorScheme=0"),
            (0x1A, 0x1F, 0x28),
            (0x6B, 0x9B, 0xFF),
        ),
    ):
        browse(page, tmp_path / "profile", *scheme, f"--screenshot={tmp_path / 'page.png'}")
        with Image.open(tmp_path / "page.png") as shot:
            colours = {colour: count for count, colour in shot.convert("RGB").getcolors(1 << 24) or []}
        assert colours[card] > 200_000
        assert colours[bar] > 5_000
