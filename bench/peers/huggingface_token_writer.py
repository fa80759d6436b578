"""Hugging Face datasets: Arrow files of token documents."""

import datasets
import pyarrow as pa

from bench.peers.source import LENGTH, places, tokens

source, target, shard_bytes = places()
documents = pa.FixedSizeListArray.from_arrays(pa.array(tokens(source).ravel()), LENGTH)
datasets.disable_progress_bars()
datasets.Dataset(pa.table({"tokens": documents})).save_to_disk(target, max_shard_size=shard_bytes)
