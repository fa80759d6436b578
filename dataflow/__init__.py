"""dataflow: an exact, resumable, shard-aware data loader for training large multimodal models."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from dataflow import errors

if TYPE_CHECKING:
    from dataflow.codecs.audio import Audio
    from dataflow.codecs.image import Image
    from dataflow.codecs.video import Video
    from dataflow.dataset import Dataset, ShardWriter, open
    from dataflow.dataset.index import index
    from dataflow.dataset.mixture import mix
    from dataflow.loader import DataLoader
    from dataflow.pipeline.padding import Pad
    from dataflow.sampling.state import merge_states

__all__ = [
    "Audio",
    "DataLoader",
    "Dataset",
    "Image",
    "Pad",
    "ShardWriter",
    "Video",
    "errors",
    "index",
    "merge_states",
    "mix",
    "open",
]

# Imported when first used: the command line should not wait for torch, which only the loader needs.
_HOMES = {
    "Audio": "dataflow.codecs.audio",
    "DataLoader": "dataflow.loader",
    "Dataset": "dataflow.dataset",
    "Image": "dataflow.codecs.image",
    "Pad": "dataflow.pipeline.padding",
    "ShardWriter": "dataflow.dataset",
    "Video": "dataflow.codecs.video",
    "index": "dataflow.dataset",
    "merge_states": "dataflow.sampling.state",
    "mix": "dataflow.dataset.mixture",
    "open": "dataflow.dataset",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'dataflow' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(home), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
