"""MosaicML Streaming, without torchvision: its image datasets import that, and what is used of it here does not."""

from __future__ import annotations

import importlib.machinery
import sys
import types

for _name in ("torchvision", "torchvision.datasets", "torchvision.transforms", "torchvision.transforms.functional"):
    _module = types.ModuleType(_name)
    _module.__spec__ = importlib.machinery.ModuleSpec(_name, None)
    _module.__dict__.update(VisionDataset=object, CIFAR10=object, to_tensor=None)
    sys.modules.setdefault(_name, _module)

from streaming import MDSWriter, StreamingDataLoader, StreamingDataset  # noqa: E402
from streaming.base.partition import get_partitions  # noqa: E402
from streaming.base.shuffle import get_shuffle  # noqa: E402

__all__ = ["MDSWriter", "StreamingDataLoader", "StreamingDataset", "get_partitions", "get_shuffle"]
