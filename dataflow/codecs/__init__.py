"""From encoded values to arrays."""

from __future__ import annotations

from dataflow.codecs.audio import Audio
from dataflow.codecs.image import Image
from dataflow.codecs.video import Video

__all__ = ["Audio", "Image", "Video"]
