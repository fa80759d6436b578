"""The excluded rows of a manifest that is written anew: they stay excluded, or it is not written."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dataflow.dataset.manifest import Manifest
from dataflow.errors import DatasetError
from dataflow.formats import Block
from dataflow.storage import join_url

__all__ = ["KeptExclusions"]


class KeptExclusions:
    """What the old manifest excludes.

    Args:
        old: The manifest that is to be replaced; None if there is none.
    """

    def __init__(self, old: Manifest | None) -> None:
        self._old = old
        self._shards: dict[str, int] = {}
        if old is not None and old.num_excluded:
            with_some = (shard for shard in range(old.num_shards) if len(old.excluded_rows(shard)))
            self._shards = {old.shard_path(shard): shard for shard in with_some}

    def of(self, path: str, blocks: list[Block]) -> npt.NDArray[np.int32] | None:
        """int32 [rows, 2], the excluded rows of a shard as block and row; None if there are none.

        Args:
            path: The shard.
            blocks: Its blocks now.

        Raises:
            DatasetError: The shard has other blocks than it had.
        """
        shard = self._shards.get(path)
        if shard is None or self._old is None:
            return None
        old, excluded = self._old, self._old.excluded_rows(shard)
        numbers = range(int(old.first_blocks[shard]), int(old.first_blocks[shard + 1]))
        before = [(int(old.starts[number]), old.checksum(number)) for number in numbers]
        if [(block.start, block.checksum) for block in blocks] != before:
            raise DatasetError(
                f"{len(excluded)} rows of {join_url(old.base_url, path)} are excluded, and its blocks are others now: "
                "index with the block size that it had, or to another folder (--out), and exclude them there"
            )
        return excluded
