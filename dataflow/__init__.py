"""dataflow: an exact, resumable, shard-aware data loader for training large multimodal models."""
