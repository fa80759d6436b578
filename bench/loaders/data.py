"""The same photographs and tokens in every contender's format, kept from run to run."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from bench.measure import ROOT
from bench.peers.checks import write_probes
from bench.peers.contest import LENGTH
from bench.writing import copied
from dataflow.dataset import read_block
from dataflow.sharding import ShardOptions, Transcode, shard
from dataflow.storage import open_store

BLOCK_BYTES = 2 << 20  # as a dataset of 8 GiB and more has them
SHARD_BYTES = 64 << 20  # what MosaicML Streaming and litData have by default
PROBES = 256
SMALL = Transcode(quality=90, subsampling="4:2:0", max_side=256)


class FormatFailed(Exception):
    """What its writer said last."""


@dataclass(frozen=True, slots=True)
class Data:
    """Photographs in class folders or a file of tokens, and beside it the same in other formats.

    Attributes:
        source: The folder or the file.
        peers: The Python of the other writers.
        count: Samples.
        nbytes: Bytes of all.
        tokens: Whether these are tokens.
        shard_bytes: Wanted size of a shard.
    """

    source: Path
    peers: Path
    count: int
    nbytes: int
    tokens: bool = False
    shard_bytes: int = SHARD_BYTES

    @classmethod
    def of_photos(cls, source: Path, peers: Path) -> Data:
        sizes = [path.stat().st_size for path in source.rglob("*.jpg")]
        return cls(source, peers, len(sizes), sum(sizes))

    def written(self, format: str) -> Path:
        """Where they are in a format; they are written there unless they are."""
        if format == "files":
            return self.source
        target = self.source.with_name(f"{self.source.name.removesuffix('.bin')}-{format}")
        if not target.exists():
            partial = target.with_name(target.name + ".partial")
            shutil.rmtree(partial, ignore_errors=True)
            done = subprocess.run(self._command(format, partial), cwd=ROOT, capture_output=True, text=True)
            if done.returncode:
                raise FormatFailed((done.stderr.strip() or "it failed").splitlines()[-1])
            partial.rename(target)
        return target

    def files(self, format: str) -> tuple[str, ...]:
        """Names of the shards, for those formats that want them listed."""
        suffix = {"webdataset": "*.tar", "huggingface": "*.parquet"}.get(format)
        return tuple(sorted(path.name for path in self.written(format).glob(suffix))) if suffix else ()

    def warm(self, format: str) -> None:
        """Read every file, so that the page cache has it."""
        place = self.written(format)
        for path in sorted(place.rglob("*")) if place.is_dir() else [place]:
            if path.is_file():
                path.read_bytes()

    def _command(self, format: str, target: Path) -> list[str]:
        if format == "dataflow" and not self.tokens:
            program = str(Path(sys.executable).with_name("dataflow"))
            sizes = ["--shard-mib", str(self.shard_bytes >> 20)]
            if self.shard_bytes == SHARD_BYTES:
                sizes += ["--block-mib", str(BLOCK_BYTES >> 20)]
            return [program, "shard", *sizes, str(self.source), str(target)]
        python = sys.executable if format == "dataflow" else str(self.peers)
        module = f"bench.peers.{format}_{'token_' if self.tokens else ''}writer"
        return [python, "-m", module, str(self.source), str(target), str(self.shard_bytes)]


def probes(folder: Path, peers: Path) -> Data:
    """Pictures that tell what was done to them, in shards enough for two workers."""
    source = folder / "probes"
    if not source.exists():
        write_probes(source, PROBES)
    return replace(Data.of_photos(source, peers), shard_bytes=4 << 20)


def photographs(folder: Path, photos: Path, gigabytes: float, peers: Path) -> Data:
    """Copies of the photographs in class folders."""
    return Data.of_photos(copied(photos, folder / f"photos-{gigabytes:g}", gigabytes * 1e9), peers)


def transcoded(original: Data) -> Data:
    """What `dataflow shard --transcode` makes of photographs, as files."""
    source = original.source.with_name(original.source.name + "-256")
    if not source.exists():
        shards = source.with_name(source.name + "-dataflow")
        shutil.rmtree(shards, ignore_errors=True)
        options = ShardOptions(steps=(SMALL,), shard_bytes=original.shard_bytes, block_bytes=BLOCK_BYTES)
        manifest = shard(str(original.source), str(shards), options)
        partial, store = source.with_name(source.name + ".partial"), open_store(manifest.base_url)
        for block in range(manifest.num_blocks):
            for row in read_block(store, manifest, block).select(["key", "image"]).to_pylist():
                path = partial / row["key"]
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(row["image"])
        partial.rename(source)
    return Data.of_photos(source, original.peers)


def documents(folder: Path, count: int, peers: Path) -> Data:
    """uint16 tokens; the first two of each document are its number."""
    source = folder / f"tokens-{count}.bin"
    if not source.exists():
        numbers = np.arange(count)
        values = np.random.default_rng(0).integers(0, 50_000, (count, LENGTH), dtype=np.uint16)
        values[:, 0], values[:, 1] = numbers & 0xFFFF, numbers >> 16
        values.tofile(source)
    return Data(source, peers, count, source.stat().st_size, tokens=True)
