"""Megatron Energon: WebDataset tars, and the index that it wants of them."""

from pathlib import Path

from megatron.energon.flavors.webdataset import BaseWebdatasetFactory

from bench.peers import webdataset_writer

target = Path(webdataset_writer.target)
tars = sorted(path.name for path in target.glob("*.tar"))
BaseWebdatasetFactory.prepare_dataset(target, tars, split_parts_ratio=[("train", 1.0)], workers=2)
(target / ".nv-meta/dataset.yaml").write_text("__module__: megatron.energon\n__class__: CrudeWebdataset\n")
