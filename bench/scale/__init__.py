"""A job of thousands of GPUs, simulated: see docs/scale.md."""
