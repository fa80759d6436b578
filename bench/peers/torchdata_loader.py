"""torchdata's StatefulDataLoader: torch's DataLoader with a state; the files and decoder are those of torch_loader."""

from __future__ import annotations

from typing import Any

from torchdata.stateful_dataloader import StatefulDataLoader

from bench.peers.contest import Job, contend, listed, stacked
from bench.peers.torch_loader import Tokens, photos


def images(job: Job) -> Any:
    from bench.peers.crop import with_simplejpeg

    return photos(job, with_simplejpeg, stacked, StatefulDataLoader)


def raw(job: Job) -> Any:
    return photos(job, bytes, listed, StatefulDataLoader)


def tokens(job: Job) -> Any:
    return StatefulDataLoader(Tokens(job), job.batch, True, collate_fn=lambda batch: batch)


if __name__ == "__main__":
    contend(images=images, raw=raw, tokens=tokens)
