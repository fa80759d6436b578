"""Where another loader does better than ours, and why: one sentence each, printed only where it is so."""

from __future__ import annotations

_MAPPED = (
    "It is one memory map of one local file and one gather, without blocks, checksums or a store; it keeps a "
    "permutation of all samples instead."
)
_LANES = "Ours fetches the blocks of its first lanes, not single samples, before the first batch is complete."
WHY = {
    ("small", "FFCV"): "Its native loader reads one memory map and checks nothing.",
    ("tokens", "torch DataLoader"): _MAPPED,
    ("tokens", "torchdata StatefulDataLoader"): _MAPPED,
    ("tokens", "torchdata nodes"): _MAPPED,
    ("tokens", "HF datasets"): "It gathers from one Arrow file in memory maps, and compares no checksums.",
    ("order", "Grain"): "Both orders are functions that are called once; what differs is what is imported.",
    (
        "writing",
        "plain concatenation",
    ): "It is the ceiling: no index, no checksums, no columns, nothing synced to the disk.",
    ("start", "Grain"): "It does not import torch, which takes most of the time of all others.",
    (
        "writing",
        "Parquet",
    ): "One process writes through Arrow alone: no order of rows, no checksums of blocks, nothing synced to the disk.",
    ("writing", "ArrayRecord"): "It leaves syncing to the kernel, and keeps neither checksums of blocks nor columns.",
    (
        "start",
        "torchdata nodes",
    ): "It starts threads alone, and has no manifest to open; both are mostly `import torch`.",
}
BY_FIGURE = {
    "memory": "Blocks for reading ahead and finished batches are held in memory; `memory_limit` sets how much.",
    "first": _LANES,
    "fresh": _LANES,
    "resumed": _LANES,
}
UNKNOWN = "Not known yet."


def why(task: str, contender: str, figure: str) -> str:
    return WHY.get((task, contender)) or BY_FIGURE.get(figure, UNKNOWN)
