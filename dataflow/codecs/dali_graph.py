"""The graph that DALI runs for a batch of JPEGs: decode around a window, resize it, mirror, normalise."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

from dataflow import _native
from dataflow.errors import OptionError

if TYPE_CHECKING:
    from dataflow.codecs.image import Image

# What a pipeline of `build_graph` is fed: JPEG files, the part that is decoded, the window within that part as floats,
# and whether it is mirrored. All coordinates are rows and columns.
INPUTS = ("encoded", "part_start", "part_end", "window_start", "window_end", "mirrored")


def load_dali() -> ModuleType:
    """The module `nvidia.dali`, which is an extra.

    Raises:
        OptionError: It is missing, or cannot be used with this build.
    """
    if not _native.decode_available():
        raise OptionError(
            "decoder='dali' looks for damaged images with libjpeg-turbo, which this build lacks: install libjpeg-dev "
            "and build dataflow again, or choose decoder='native'"
        )
    try:
        from nvidia import dali
    except ImportError as error:
        raise OptionError(
            f"decoder='dali' needs NVIDIA DALI, which cannot be imported ({error}): "
            "pip install 'dataflow-loader[dali]', or choose decoder='native'"
        ) from error
    return dali


def build_graph(image: Image, rows: int, device: int | None, mixed: bool) -> Any:
    """A pipeline whose output is [rows, *image.shape]; it is built when it first runs.

    Args:
        image: How images are decoded.
        rows: Most images of a batch.
        device: Number of the GPU; None for none.
        mixed: Whether it decodes. A graph that does can be made without a GPU, but not run.
    """
    dali = load_dali()
    fn, types = dali.fn, dali.types
    # Several workers run a pipeline each, so that one thread is enough. A single batch is in flight, and its memory is
    # handed over: the older ways to execute would use it again for the next.
    pipeline = dali.Pipeline(
        batch_size=rows, num_threads=1, device_id=device, prefetch_queue_depth=1, exec_dynamic=True
    )
    with pipeline:
        kinds = (types.UINT8, types.INT32, types.INT32, types.FLOAT, types.FLOAT, types.INT32)
        encoded, part_start, part_end, window_start, window_end, mirrored = (
            fn.external_source(name=name, dtype=kind, ndim=0 if name == "mirrored" else 1)
            for name, kind in zip(INPUTS, kinds, strict=True)
        )
        pixels = fn.decoders.image_slice(
            encoded,
            device="mixed" if mixed else "cpu",
            start=part_start,
            end=part_end,
            axes=[0, 1],
            output_type=types.RGB,
            adjust_orientation=False,
            jpeg_fancy_upsampling=True,
        )
        pixels = fn.resize(
            pixels,
            size=[image.height, image.width],
            roi_start=window_start,
            roi_end=window_end,
            interp_type=types.INTERP_LINEAR,
            antialias=True,
        )
        # DALI's are in levels, ours in units of 255 of them.
        mean, std, scale = ([0.0], [1.0], 1.0)
        if image.dtype != "uint8":
            mean = [255 * value for value in image.mean or (0.0,)]
            std = [*(image.std or (1.0,))]
            scale = 1 / 255
        pixels = fn.crop_mirror_normalize(
            pixels,
            mirror=mirrored,
            mean=mean,
            std=std,
            scale=scale,
            dtype={"uint8": types.UINT8, "float16": types.FLOAT16, "float32": types.FLOAT}[image.dtype],
            output_layout="HWC" if image.channels_last else "CHW",
        )
        pipeline.set_outputs(pixels)
    return pipeline
