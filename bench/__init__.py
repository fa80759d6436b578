"""Benchmarks, run from the checkout as `python -m bench.NAME`: every figure is a ratio measured in one run."""
