"""How a dataset is made of a source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dataflow.errors import OptionError
from dataflow.sampling.keys import key
from dataflow.sharding.split import Part
from dataflow.sharding.steps import Step

__all__ = ["ShardOptions"]


@dataclass(frozen=True, slots=True)
class ShardOptions:
    """How a dataset is made of a source. Shards follow from these and the source alone, to the byte.

    Attributes:
        seed: Names the order of rows; None keeps that of the source.
        block_bytes: Wanted size of a block. None: 1/4096 of the dataset, at least 64 KiB and at most 2 MiB.
        shard_bytes: Wanted size of a shard.
        labels: Whether folders of images are classes, where there is no metadata.
        classes: The list of classes of another dataset, to use instead of the folders' own.
        decode: Whether every image is decoded to see that it is whole.
        on_error: "raise", or "skip", which leaves out bad files and rows and reports them.
        append: Add to the dataset that is at the target, instead of making one.
        steps: Change rows after they are read and before they are cut into blocks.
        limit: Take only the first rows, as many as this, in the order in which they are read.
        part: Take only the rows of one split.
        compression: Of blocks: "none", "zstd", or "auto", which compresses what holds no bytes such as images.

    Raises:
        OptionError: A value makes no sense.
    """

    seed: int | None = 0
    block_bytes: int | None = None
    shard_bytes: int = 256 << 20
    labels: bool = True
    classes: tuple[str, ...] | None = None
    decode: bool = False
    on_error: Literal["raise", "skip"] = "raise"
    append: bool = False
    steps: tuple[Step, ...] = ()
    limit: int | None = None
    part: Part | None = None
    compression: Literal["auto", "none", "zstd"] = "auto"

    def __post_init__(self) -> None:
        for name, value in (
            ("block_bytes", self.block_bytes),
            ("shard_bytes", self.shard_bytes),
            ("limit", self.limit),
        ):
            if value is not None and value < 1:
                raise OptionError(f"{name} is {value}, it must be at least 1")
        if self.on_error not in ("raise", "skip"):
            raise OptionError(f"on_error is {self.on_error!r}, it must be 'raise' or 'skip'")
        if self.compression not in ("auto", "none", "zstd"):
            raise OptionError(f"compression is {self.compression!r}, it must be 'auto', 'none' or 'zstd'")
        if self.seed is not None:
            key(self.seed)
