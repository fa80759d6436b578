"""Grain: its index shuffle is a function, too."""

from bench.peers.ordering import SAMPLES, timed


def first() -> int:
    import grain

    return grain.MapDataset.range(SAMPLES).shuffle(0)[0]


if __name__ == "__main__":
    timed(first)
