"""litData: chunks of optimised samples, from one process as the others."""

from pathlib import Path

from litdata import optimize

from bench.peers.litdata_photo import photograph
from bench.peers.source import places

if __name__ == "__main__":
    source, target, shard_bytes = places()
    paths = sorted(map(str, Path(source).glob("*/*.jpg")))
    optimize(photograph, paths, target, chunk_bytes=shard_bytes, num_workers=1, verbose=False)
