"""MosaicML Streaming: MDS shards."""

import importlib.machinery
import sys
import types

from bench.peers.source import files

# Importing it imports its image datasets, and these torchvision, which the writer has no use for.
for name in ("torchvision", "torchvision.datasets", "torchvision.transforms", "torchvision.transforms.functional"):
    module = types.ModuleType(name)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None)
    module.__dict__.update(VisionDataset=object, CIFAR10=object, to_tensor=None)
    sys.modules.setdefault(name, module)

from streaming import MDSWriter  # noqa: E402

source, target = sys.argv[1:]
columns = {"key": "str", "image": "bytes", "label": "int"}
with MDSWriter(out=target, columns=columns, size_limit=256 << 20) as writer:
    for key, data, label in files(source):
        writer.write({"key": key, "image": data, "label": label})
