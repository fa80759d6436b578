"""litData: chunks of tokens, as its TokensLoader reads them."""

from functools import partial
from typing import Any

import torch
from litdata import TokensLoader, optimize

from bench.peers.source import LENGTH, places, tokens


def document(source: str, number: int) -> Any:
    return torch.from_numpy(tokens(source)[number].copy())


if __name__ == "__main__":
    source, target, shard_bytes = places()
    # In tokens: a chunk holds whole documents.
    size = shard_bytes // 2 // LENGTH * LENGTH
    numbers = list(range(len(tokens(source))))
    loader = TokensLoader(LENGTH)
    optimize(
        partial(document, source), numbers, target, chunk_size=size, num_workers=1, item_loader=loader, verbose=False
    )
