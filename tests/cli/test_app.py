from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.cli.conftest import Run


def test_a_failure_is_one_line_on_standard_error(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dataflow.cli", "info", str(tmp_path / "absent")], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("error: there is nothing at ")
    assert done.stderr.count("\n") == 1


def test_help_imports_nothing_slow() -> None:
    program = (
        "import sys\n"
        "from dataflow.cli import app\n"
        "try: app(['--help'])\n"
        "except SystemExit as end: code = end.code\n"
        "slow = {'torch', 'pyarrow', 'numpy', 'obstore', 'rich.progress', 'PIL'} & set(sys.modules)\n"
        "assert code == 0 and not slow, (code, slow)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for command in ("shard", "index", "info", "head", "demo"):
        assert command in done.stdout


def test_sharding_does_not_import_torch() -> None:
    program = "import sys, dataflow.sharding, dataflow.dataset; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_wrong_options_are_refused(run: Run, tmp_path: Path) -> None:
    assert "more than 0" in run("shard", tmp_path, tmp_path / "out", "--block-mib", "0", code=1).stderr
    assert "128 bits" in run("shard", tmp_path, tmp_path / "out", "--seed", str(1 << 200), code=1).stderr
    assert "more than 0" in run("index", tmp_path, "--block-mib", "-1", code=1).stderr
    assert "lies inside" in run("shard", tmp_path, tmp_path / "out", code=1).stderr
    assert "--workers" in run("shard", tmp_path, tmp_path / "out", "--workers", "0", code=2).stderr
