"""dataflow: the order is a function; blocks of 64 rows, as of photographs of 100 KB."""

from bench.peers.ordering import SAMPLES, timed


def first() -> int:
    import numpy as np

    from dataflow.sampling.layout import BlockLayout
    from dataflow.sampling.stream import Stream, StreamRules

    rows = 64
    empty = np.empty(0, np.int64)
    stream = Stream(StreamRules(BlockLayout(SAMPLES // rows, rows, empty, empty), 0, "", 1024, True), 0)
    located = stream.locate(np.arange(64))
    row = stream.row_permutation(0, int(located.block[0]))[located.offset[0]]
    return int(located.block[0]) * rows + int(row)


if __name__ == "__main__":
    timed(first)
