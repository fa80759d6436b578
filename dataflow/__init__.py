"""dataflow: an exact, resumable, shard-aware data loader for training large multimodal models."""

from dataflow.dataset import Dataset, ShardWriter, index, open
from dataflow.loader import DataLoader
from dataflow.sampling.state import merge_states

__all__ = ["DataLoader", "Dataset", "ShardWriter", "index", "merge_states", "open"]
