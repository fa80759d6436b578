"""MosaicML Streaming: what it lays out before an epoch, with its own functions and defaults; 625 samples a shard."""

from bench.peers.ordering import SAMPLES, timed


def first() -> int:
    import numpy as np

    from bench.peers.mosaicml import get_partitions, get_shuffle

    nodes, workers, batch = 64, 2, 64
    shards = np.full(SAMPLES // 625, 625, np.int64)
    work = get_partitions("relaxed", SAMPLES, nodes, 1, 1, workers, batch)
    shuffled = get_shuffle("py1e", shards, nodes, 9176, 0, max(4_000_000 // nodes, 1 << 18))
    work = np.where(work != -1, shuffled[work], -1)
    small_per_big = np.arange(SAMPLES)  # it samples its streams anew for every epoch
    return int(np.where(work != -1, small_per_big[work], -1).flat[0])


if __name__ == "__main__":
    timed(first)
