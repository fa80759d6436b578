"""The ceiling: all files one after another, nothing else."""

import sys
from pathlib import Path

from bench.peers.source import files

source, target = sys.argv[1:]
Path(target).mkdir()
with open(Path(target) / "all", "wb") as file:
    for _key, data, _label in files(source):
        file.write(data)
