"""One rank of the demo's training run: `python -m dataflow.cli.demo.rank URL FOLDER BATCH_SIZE [STATE]`.

RANK and WORLD_SIZE are in the environment, as launchers put them there. After every step the rank saves the loader's
state, and notes which samples it has seen; a line on standard output tells the number of the step.
"""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed
import xxhash
from PIL import Image

import dataflow
from dataflow.cli.demo.records import Records, state_path

SEED = 7


def decode(sample: dict[str, Any]) -> dict[str, Any]:
    """Pixels of a tile, its label, and a hash of its bytes that tells it from all others."""
    with Image.open(io.BytesIO(sample["image"])) as image:
        pixels = np.asarray(image)
    digest = np.int64(xxhash.xxh3_64_intdigest(sample["image"]) >> 1)
    return {"pixels": pixels, "label": sample["label"], "digest": digest}


def train(url: str, folder: Path, batch_size: int, state: Path | None) -> None:
    """Streams the rest of an epoch."""
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if world_size > 1:
        torch.distributed.init_process_group(
            "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=world_size
        )
    loader = dataflow.DataLoader(dataflow.open(url).map(decode), batch_size=batch_size, shuffle=True, seed=SEED)
    if state is not None:
        loader.load_state_dict(json.loads(state.read_text()))
    with Records(folder, rank) as records:
        for step, batch in enumerate(loader, start=1):
            brightness = batch["pixels"].float().mean()  # what stands in for training
            if world_size > 1:
                torch.distributed.all_reduce(brightness)  # ranks go step by step, as in training
            records.add(batch)
            _save(state_path(folder, rank, step), json.dumps(loader.state_dict()))
            os.write(1, f"{step}\n".encode())  # one call, since all ranks write into one pipe
    _save(folder / f"rank-{rank}.report", loader.report())


def _save(path: Path, text: str) -> None:
    """Nobody ever sees half a file."""
    temporary = path.with_suffix(".partial")
    temporary.write_text(text)
    os.replace(temporary, path)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    train(arguments[0], Path(arguments[1]), int(arguments[2]), Path(arguments[3]) if arguments[3:] else None)
