"""From encoded values to arrays."""

from __future__ import annotations

from dataflow.codecs.image import Image

__all__ = ["Image"]
