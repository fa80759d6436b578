from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Run
from tests.dataset.written import rows_at, write


def test_merge_says_what_came_of_it(run: Run, tmp_path: Path) -> None:
    for number, name in enumerate("ab"):
        write(tmp_path / name, [{"x": number}], properties={"shuffle_seed": number, "from": "here"})
    out = run("merge", tmp_path / "a", tmp_path / "b", "--out", tmp_path / "ab").stdout
    assert "left out the properties that differ: shuffle_seed" in out
    assert "merged 2 datasets into 2 rows" in out
    assert f"in 2 shards below {tmp_path}; the manifest is at {tmp_path / 'ab'}" in out
    facts = json.loads(run("merge", tmp_path / "b", tmp_path / "a", "--out", tmp_path / "ba", "--json").stdout)
    assert (facts["rows"], facts["shards"], facts["dropped_properties"]) == (2, 2, ["shuffle_seed"])
    assert [row["x"] for row in rows_at(facts["url"])] == [1, 0]
    assert "exists already" in run("merge", tmp_path / "a", tmp_path / "b", "--out", tmp_path / "ab", code=1).stderr
