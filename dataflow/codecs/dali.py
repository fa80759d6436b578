"""DALI as a decoder of plain JPEGs: without a state, fed with their bytes and the windows that `Image` cuts."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.utils.dlpack
from numpy.typing import NDArray

from dataflow import _native
from dataflow.codecs.crop import Window
from dataflow.codecs.dali_graph import INPUTS, build_graph, load_dali
from dataflow.codecs.dali_pool import PipelinePool
from dataflow.codecs.image import Image
from dataflow.codecs.pillow import check_pixels
from dataflow.dataset.codec import Encoded

logger = logging.getLogger(__name__)

_PLAIN_JPEG = 1
# The segment in which programs say how colours are stored: version, two flags of two bytes each, and the transform.
_ADOBE = b"\xff\xee\x00\x0eAdobe"
_MOST_HEADER = 1 << 20


class Plain(NamedTuple):
    """Images of a batch that DALI takes.

    Attributes:
        positions: Their numbers in the batch.
        pixels: [positions, *shape], where they were decoded; None where DALI failed.
    """

    positions: list[int]
    pixels: torch.Tensor | None


class _Request(NamedTuple):
    position: int
    file: bytes
    height: int
    width: int
    window: Window
    mirrored: bool


class DaliImages:
    """Decodes batches of images; used by many threads at once.

    DALI takes the upright JPEGs alone, and only whole ones: a single bad image would spoil a pipeline for good.

    Args:
        image: How images are decoded.
        rows: Most images of a batch.
        device: Number of the GPU that decodes; None decodes on the processor.
    """

    def __init__(self, image: Image, rows: int, device: int | None) -> None:
        version = load_dali().__version__
        self.name = f"DALI {version} on " + ("the processor" if device is None else f"GPU {device}")
        self._image = image
        self._device = device
        self._pipelines = PipelinePool(partial(build_graph, image, rows, device, mixed=device is not None))

    def decode(self, encoded: Encoded, keys: Sequence[int]) -> Plain:
        """Decode those that DALI takes, into memory of DALI's.

        Args:
            encoded: Where their bytes are.
            keys: For each image what its random numbers are keyed by.
        """
        requests = self._requests(encoded, keys)
        positions = [request.position for request in requests]
        if not requests:
            return Plain(positions, None)
        try:
            with self._pipelines.borrow() as pipeline:
                pixels = self._run(pipeline, requests)
        except RuntimeError as error:
            # The pipeline is spoilt and let go. What is wrong with the batch, if anything, the other decoder finds.
            if threading.main_thread().is_alive():  # else the interpreter exits
                logger.warning("DALI gave up on a batch, which is decoded without it: %s", _words_of(error))
            return Plain(positions, None)
        return Plain(positions, pixels)

    def _requests(self, encoded: Encoded, keys: Sequence[int]) -> list[_Request]:
        image = self._image
        headers = _native.jpeg_headers(*encoded).tolist()
        plain = [at for at, (_, _, kind, _) in enumerate(headers) if kind == _PLAIN_JPEG]
        files = _native.gather_bytes(encoded.values, encoded.offsets, encoded.block[plain], encoded.row[plain])
        requests = []
        for position, file in zip(plain, files, strict=True):
            height, width, _, orientation = headers[position]
            if not check_pixels(image, height, width) and not _stores_rgb(file):
                window, turn = image.cut(height, width, orientation, keys[position])
                if not (turn.swap or turn.flip):
                    requests.append(_Request(position, file, height, width, window, turn.mirror))
        if self._device is not None:
            return requests
        damaged = _damaged(encoded, requests)
        return [request for request in requests if request.position not in damaged]

    def _run(self, pipeline: Any, requests: Sequence[_Request]) -> torch.Tensor:
        sizes = np.array([(request.height, request.width) for request in requests])
        windows = np.array([request.window for request in requests])
        start, size = windows[:, :2], windows[:, 2:]
        margin = self._margin(size)
        part_start, part_end = np.maximum(start - margin, 0), np.minimum(start + size + margin, sizes)
        inputs = (
            [np.frombuffer(request.file, np.uint8) for request in requests],
            part_start.astype(np.int32),
            part_end.astype(np.int32),
            (start - part_start).astype(np.float32),
            (start - part_start + size).astype(np.float32),
            np.array([request.mirrored for request in requests], np.int32),
        )
        # Its memory is free again only after what that stream has been given until then.
        stream = None if self._device is None else torch.cuda.default_stream(self._device)
        (output,) = pipeline.run(stream, **dict(zip(INPUTS, inputs, strict=True)))
        return torch.utils.dlpack.from_dlpack(output.as_tensor())

    def _margin(self, size: NDArray[np.int64]) -> NDArray[np.int64]:
        """Pixels around windows [n, 2] that count too: the filter reaches so far, and 2 for the colours' upsampling."""
        scale = size / np.array([self._image.height, self._image.width])
        reach: NDArray[np.int64] = np.ceil(np.maximum(scale, 1)).astype(np.int64)
        return reach + 2


def _words_of(error: RuntimeError) -> str:
    """What DALI says without the places in the graph, and that the pipeline is spoilt."""
    said = str(error).rpartition("encountered:")[2].partition("Current pipeline")[0]
    return " ".join(said.split())


def _stores_rgb(file: bytes) -> bool:
    """Whether a JPEG says that its colours are RGB: few are, and not each of DALI's decoders looks at that."""
    at = file.find(_ADOBE, 0, _MOST_HEADER)
    return at >= 0 and file[at + len(_ADOBE) + 6 : at + len(_ADOBE) + 7] == b"\0"


def _damaged(encoded: Encoded, requests: Sequence[_Request]) -> set[int]:
    """Positions of the files with damage, for which DALI would deliver grey, without an error.

    A picture is decoded at an eighth of its size, which reads all of the file.
    """
    positions = np.array([request.position for request in requests], np.int64)
    windows = np.array([(0, 0, request.height, request.width) for request in requests], np.int32).reshape(-1, 4)
    pixels = np.empty((len(encoded.row), 3, 1, 1), np.uint8)
    mirrored = np.zeros(len(requests), np.bool_)
    found = _native.decode_jpegs(*encoded, positions, windows, mirrored, pixels, None, None, False, threads=1)
    return {position for position, _ in found}
