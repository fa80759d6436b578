"""Who takes part, and where each finds its data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Contender:
    """A loader.

    Attributes:
        name: As it is printed.
        module: Of bench.peers.
        package: The distribution whose version counts.
        photos: Format of the photographs that it reads: the name of a writer in bench.peers, or "files".
        tokens: The same of tokens; "" if it loads none.
        remote: Whether it reads object stores.
        resumes: Whether it has a state.
        arguments: More of its command line.
    """

    name: str
    module: str
    package: str
    photos: str
    tokens: str = ""
    remote: bool = True
    resumes: bool = False
    arguments: tuple[str, ...] = ()

    @property
    def ours(self) -> bool:
        return self.module == "dataflow_loader"


OURS = Contender("dataflow", "dataflow_loader", "dataflow-loader", "dataflow", "dataflow", resumes=True)
PILLOW = Contender(
    "torch DataLoader, Pillow", "torch_loader", "torch", "files", remote=False, arguments=("with_pillow",)
)
CONTENDERS = (
    OURS,
    PILLOW,
    Contender(
        "torch DataLoader, simplejpeg", "torch_loader", "torch", "files", "files", arguments=("with_simplejpeg",)
    ),
    Contender("torchdata StatefulDataLoader", "torchdata_loader", "torchdata", "files", "files", resumes=True),
    Contender("torchdata nodes", "nodes_loader", "torchdata", "files", "files", resumes=True),
    Contender("WebDataset", "webdataset_loader", "webdataset", "webdataset"),
    Contender("MosaicML Streaming", "mosaicml_loader", "mosaicml-streaming", "mds", "mds", resumes=True),
    Contender("litData", "litdata_loader", "litdata", "litdata", "litdata", resumes=True),
    Contender("Grain", "grain_loader", "grain", "array_record", "array_record", remote=False, resumes=True),
    Contender("SPDL", "spdl_loader", "spdl", "files"),
    Contender("DALI on processors", "dali_loader", "nvidia-dali-cuda130", "files", remote=False),
    Contender("HF datasets", "huggingface_loader", "datasets", "huggingface", "huggingface", resumes=True),
    Contender("Megatron Energon", "energon_loader", "megatron-energon", "energon", remote=False, resumes=True),
    Contender("FFCV", "ffcv_loader", "ffcv", "ffcv", remote=False),
)
