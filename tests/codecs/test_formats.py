"""Files of all kinds come out as upright 8-bit RGB of one size; what is damaged is refused with its reason."""

from __future__ import annotations

import io
import struct
import sys
from typing import Any

import numpy as np
import PIL.Image
import PIL.ImageFile
import PIL.ImageOps
import pytest

import dataflow
from dataflow import _native
from dataflow.dataset.codec import Encoded
from dataflow.errors import CorruptDataError, OptionError
from tests.codecs.pictures import Pixels, jpeg, pixels, saved, smooth
from tests.operations.photographs import animation, black_png, encoded, photograph

SIZE = (64, 96)
WHOLE: dict[str, Any] = {"size": SIZE, "crop": "none", "layout": "NHWC"}
COLOURS = smooth()
# Levels by which the native decoder, which reduces large windows first, may differ from Pillow.
FEW = 10


def decoded(data: bytes, **parameters: Any) -> Pixels:
    return dataflow.Image(**{**WHOLE, **parameters}).decode(data, key=1)


def difference(one: Pixels, other: Pixels) -> float:
    return float(np.abs(one.astype(np.int16) - other.astype(np.int16)).mean())


def ramp() -> np.ndarray[Any, np.dtype[np.uint16]]:
    return np.tile(np.linspace(0, 65535, 256).astype(np.uint16), (4, 1))


def reason(data: bytes, **parameters: Any) -> str:
    with pytest.raises(CorruptDataError) as caught:
        decoded(data, **parameters)
    return str(caught.value)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("PNG", {}),
        ("WEBP", {"lossless": True}),
        ("BMP", {}),
        ("TIFF", {}),
        ("TIFF", {"compression": "tiff_lzw"}),
        ("JPEG2000", {"irreversible": False}),
    ],
)
def test_im08_the_kind_is_seen_in_the_content(kind: str, options: dict[str, Any]) -> None:
    assert (decoded(saved(COLOURS, kind, **options)) == np.asarray(COLOURS)).all()


@pytest.mark.parametrize("kind", ["WEBP", "AVIF", "JPEG"])
def test_im08_lossy_kinds(kind: str) -> None:
    data = saved(COLOURS, kind)
    assert difference(decoded(data), pixels(data)) < 1


@pytest.mark.parametrize("options", [{"subsampling": 0}, {"subsampling": 2}, {"progressive": True}, {"optimize": True}])
def test_jpegs_are_as_pillow_has_them(options: dict[str, Any]) -> None:
    data = saved(COLOURS, "JPEG", quality=90, **options)
    assert np.abs(decoded(data).astype(int) - pixels(data)).max() <= 2
    assert difference(decoded(data), pixels(data)) < 0.2


def test_jpeg_grey() -> None:
    data = saved(COLOURS.convert("L"), "JPEG", quality=95)
    assert difference(decoded(data), pixels(data)) < 0.2


@pytest.mark.parametrize("size", [(30, 20), (64, 96), (100, 333)])
def test_windows_are_resized_as_pillow_resizes_them(size: tuple[int, int]) -> None:
    data = photograph()
    image = dataflow.Image(size, crop="random_resized", flip=0.5, layout="NHWC")
    source = PIL.Image.open(io.BytesIO(data)).convert("RGB")
    flips = 0
    for key in range(8):
        (top, left, height, width), flip = image.window(source.height, source.width, key)
        box = (left, top, left + width, top + height)
        expected = source.resize(size[::-1], PIL.Image.Resampling.BILINEAR, box)
        expected = PIL.ImageOps.mirror(expected) if flip else expected
        assert np.abs(image.decode(data, key).astype(int) - np.asarray(expected)).max() <= FEW
        assert difference(image.decode(data, key), np.asarray(expected)) < 1
        flips += flip
    assert 0 < flips < 8


needs_native = pytest.mark.skipif(
    not _native.decode_available(),
    reason="built without libjpeg-turbo: apt-get install libjpeg-dev, then make clean setup",
)


@needs_native
@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32"])
def test_both_decoders_cut_the_same_windows(orientation: int, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [jpeg(300 + 10 * n, 220, orientation) for n in range(6)]
    parameters: dict[str, Any] = {"dtype": dtype} if dtype == "uint8" else {"dtype": dtype, "std": (1 / 255,) * 3}
    image = dataflow.Image((30, 44), crop="random_resized", flip=0.5, layout="NHWC", **parameters)
    native, pillow = (np.empty((6, 30, 44, 3), dtype) for _ in range(2))
    assert image.decode_batch(Encoded.of_values(files), range(6), native) == []
    assert "libjpeg-turbo" in image.decoder()
    # As where dataflow was built without libjpeg.
    monkeypatch.setattr(_native, "decode_available", lambda: "")
    assert image.decode_batch(Encoded.of_values(files), range(6), pillow) == []
    assert "install libjpeg-dev" in image.decoder()
    assert np.abs(native.astype(float) - pillow.astype(float)).max() <= FEW
    assert np.abs(native.astype(float) - pillow.astype(float)).mean() < 1


@needs_native
def test_a_batch_of_all_kinds_fails_where_it_is_bad() -> None:
    files = [
        jpeg(),
        saved(COLOURS),
        b"",
        jpeg(orientation=6),
        jpeg()[:-99],
        jpeg(),
        saved(COLOURS.convert("CMYK"), "JPEG"),
    ]
    out = np.empty((len(files), *SIZE, 3), np.uint8)
    image = dataflow.Image(**WHOLE)
    failures = image.decode_batch(Encoded.of_values(files), range(len(files)), out)
    assert [failure.position for failure in failures] == [2, 4]
    for position, data in enumerate(files):
        if position not in (2, 4):
            assert (out[position] == image.decode(data, position)).all()


@needs_native
def test_im01_damage_within_a_scan_is_seen() -> None:
    data = bytearray(photograph())
    data[len(data) // 2 : len(data) // 2 + 2] = b"\xff\xd9"  # as if it ended here
    assert "JPEG" in reason(bytes(data))


@pytest.mark.parametrize("data", [jpeg(), saved(COLOURS)], ids=["JPEG", "PNG"])
def test_layouts_and_types(data: bytes) -> None:
    base = decoded(data)
    assert (decoded(data, layout="NCHW") == base.transpose(2, 0, 1)).all()
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    for dtype, tolerance in (("float32", 1e-5), ("float16", 2e-3)):
        plain = decoded(data, dtype=dtype)
        assert plain.dtype == dtype
        assert np.abs(plain - base / 255).max() <= tolerance + 0.51 / 255
        normal = decoded(data, dtype=dtype, mean=mean, std=std)
        assert np.allclose(normal, (plain.astype(np.float64) - mean) / std, atol=5 * tolerance)
        assert (decoded(data, dtype=dtype, layout="NCHW") == plain.transpose(2, 0, 1)).all()


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_im03_sixteen_bits_of_grey_keep_their_upper_eight(kind: str) -> None:
    out = decoded(saved(PIL.Image.fromarray(ramp()), kind), size=(4, 256))
    assert (out == (ramp() >> 8)[..., None]).all()
    assert (out[0, :, 0] == 255).sum() == 1


def test_im03_big_endian_tiff() -> None:
    values = ramp().astype(">u2")
    fields = [(256, 4, 256), (257, 4, 4), (258, 3, 16), (259, 3, 1), (262, 3, 1), (273, 4, 8), (277, 3, 1), (278, 4, 4)]
    fields.append((279, 4, values.nbytes))
    entries = b"".join(
        struct.pack(">HHI", tag, kind, 1) + (struct.pack(">HH", value, 0) if kind == 3 else struct.pack(">I", value))
        for tag, kind, value in fields
    )
    directory = struct.pack(">H", len(fields)) + entries + bytes(4)
    data = b"MM\0*" + struct.pack(">I", 8 + values.nbytes) + values.tobytes() + directory
    assert PIL.Image.open(io.BytesIO(data)).mode == "I;16B"
    assert (decoded(data, size=(4, 256)) == (ramp() >> 8)[..., None]).all()


def test_pixels_of_32_bits_have_no_range() -> None:
    data = saved(PIL.Image.fromarray(np.zeros((4, 4), np.float32)), "TIFF")
    assert "32-bit pixels" in reason(data)


def test_im04_cmyk_is_not_inverted() -> None:
    light = PIL.Image.new("RGB", (96, 64), (250, 220, 200))
    light.paste((20, 60, 90), (0, 0, 30, 64))
    out = decoded(saved(light.convert("CMYK"), "JPEG", quality=95))
    assert out.shape == (*SIZE, 3)
    assert difference(out, np.asarray(light)) < 8


def test_im04_ycck_is_not_inverted() -> None:
    """Luminance and chrominance of inverted CMY, as Adobe writes them: built from a CMYK file by its APP14 marker."""
    light = PIL.Image.new("RGB", (96, 64), (250, 220, 200))
    cmyk = light.convert("CMYK")
    # The marker says YCCK (2), so the components are converted on the way in.
    inverted = PIL.ImageOps.invert(PIL.Image.merge("RGB", cmyk.split()[:3]))
    black = cmyk.split()[3]
    channels = [*PIL.ImageOps.invert(inverted).convert("YCbCr").split(), black]
    data = saved(PIL.Image.merge("CMYK", channels), "JPEG", quality=95)
    at = data.index(b"Adobe")
    assert data[at + 11] == 0
    ycck = data[: at + 11] + b"\x02" + data[at + 12 :]
    assert difference(decoded(ycck), pixels(ycck)) < 1


def test_palettes_and_transparency_give_the_stored_colours() -> None:
    palette = COLOURS.quantize(32)
    assert (decoded(saved(palette)) == np.asarray(palette.convert("RGB"))).all()
    assert (decoded(saved(palette, transparency=3)) == np.asarray(palette.convert("RGB"))).all()
    assert (decoded(saved(palette, transparency=bytes(range(32)))) == np.asarray(palette.convert("RGB"))).all()
    for alpha in (0, 128):
        transparent = COLOURS.copy()
        transparent.putalpha(alpha)
        assert (decoded(saved(transparent)) == np.asarray(COLOURS)).all()
    grey = COLOURS.convert("LA")
    assert (decoded(saved(grey)) == np.asarray(COLOURS.convert("L").convert("RGB"))).all()
    one_bit = COLOURS.convert("1")
    assert (decoded(saved(one_bit)) == np.asarray(one_bit.convert("RGB"))).all()


@pytest.mark.filterwarnings("error")
def test_palettes_do_not_warn() -> None:
    decoded(saved(COLOURS.quantize(8), transparency=bytes(8)))


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG"])
def test_im11_the_first_frame_of_an_animation(kind: str) -> None:
    data = animation(kind)
    first = PIL.Image.open(io.BytesIO(data))
    first.seek(0)
    out = decoded(data, size=(first.height, first.width))
    assert out.shape == (first.height, first.width, 3)
    assert (out == np.asarray(first.convert("RGB"))).all()


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF", "CMYK"])
@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("crop", ["none", "random_resized"])
def test_im05_orientation(kind: str, orientation: int, crop: str) -> None:
    exif = PIL.Image.Exif()
    exif[0x0112] = orientation
    options: dict[str, Any] = {"lossless": True} if kind == "WEBP" else {"quality": 95} if kind != "PNG" else {}
    source = COLOURS.convert("CMYK") if kind == "CMYK" else COLOURS
    data = saved(source, "JPEG" if kind == "CMYK" else kind, exif=exif, **options)
    plain = saved(source, "JPEG" if kind == "CMYK" else kind, **options)
    stored = PIL.Image.open(io.BytesIO(plain)).convert("RGB")
    stored.getexif()[0x0112] = orientation
    upright = PIL.ImageOps.exif_transpose(stored)
    # Not square, so that exchanged sides would be seen.
    for image, shown in (
        (dataflow.Image((40, 52), crop=crop, flip=0.5, layout="NHWC"), upright),
        (dataflow.Image((40, 52), crop=crop, flip=0.5, layout="NHWC", orientation=False), stored),
    ):
        for key in (1, 2, 3):
            (top, left, height, width), flip = image.window(shown.height, shown.width, key)
            box = (left, top, left + width, top + height)
            expected = shown.resize((52, 40), PIL.Image.Resampling.BILINEAR, box)
            expected = PIL.ImageOps.mirror(expected) if flip else expected
            assert np.abs(image.decode(data, key).astype(int) - np.asarray(expected)).max() <= FEW
            first = dataflow.Image((40, 52), crop=crop, flip=0.5, orientation=image.orientation)
            assert (first.decode(data, key).transpose(1, 2, 0) == image.decode(data, key)).all()


@pytest.mark.parametrize("value", [0, 9, 65535])
def test_im05_orientations_that_do_not_exist(value: int) -> None:
    data = jpeg(orientation=value)
    assert difference(decoded(data), pixels(jpeg())) < 1


@pytest.mark.parametrize("cut", [1, 2, 54, 4339, len(photograph()) // 2, len(photograph()) - 10])
def test_im01_truncated_jpegs_are_refused(cut: int) -> None:
    assert decoded(photograph()).shape == (*SIZE, 3)
    assert reason(photograph()[:-cut])


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "GIF", "BMP", "TIFF"])
def test_im01_other_truncated_files_are_refused(kind: str) -> None:
    data = encoded(kind)
    assert "cannot be decoded" in reason(data[: len(data) // 2])


def test_bytes_after_the_end_do_not_matter() -> None:
    assert difference(decoded(jpeg() + bytes(5000)), decoded(jpeg())) < 0.2


def test_im02_the_flag_that_hides_damage_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PIL.ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    with pytest.raises(OptionError, match="LOAD_TRUNCATED_IMAGES"):
        decoded(encoded("PNG"))
    with pytest.raises((OptionError, CorruptDataError)):
        decoded(photograph()[:-4339])


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_im07_large_images_are_refused_with_the_limit() -> None:
    assert reason(black_png(14000)).endswith("PIL.Image.MAX_IMAGE_PIXELS is the limit")
    message = reason(black_png(2000), max_pixels=3_999_999)
    assert message == (
        "has 4,000,000 pixels (2000 x 2000), more than max_pixels=3,999,999: raise max_pixels= of dataflow.Image"
    )
    assert "more than max_pixels=6,143" in reason(jpeg(), max_pixels=64 * 96 - 1)
    assert decoded(black_png(2000), max_pixels=4_000_000).max() == 0
    assert decoded(black_png(9500), size=(8, 8)).max() == 0


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is empty"),  # IM-09
        (b"\n<!DOCTYPE html><p>404", "HTML"),
        (b"not an image at all", "begins with b'not an i'"),
        (b"\xff\xd8\xff", "cannot be decoded|no image"),
        (b"\x89PNG\r\n\x1a\n", "cannot be decoded|no image"),
    ],
)
def test_im08_im09_what_is_no_image(data: bytes, said: str) -> None:
    with pytest.raises(CorruptDataError, match=said):
        decoded(data)


def test_programs_are_never_started_for_an_image() -> None:
    """PostScript would be given to Ghostscript."""
    assert "no image" in reason(saved(COLOURS, "EPS"))


def test_messages_name_no_addresses() -> None:
    assert " at 0x" not in reason(b"GIF89a" + bytes(20))


def test_pillow_may_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(OptionError, match=r"pip install 'dataflow-loader\[images\]'"):
        decoded(encoded("PNG"))
