"""Images of every kind become upright JPEGs of what `dataflow.Image` would decode, or are refused as it does it."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import PIL.Image
import PIL.ImageCms
import PIL.ImageOps
import pytest

import dataflow
from dataflow import _native
from dataflow.codecs.pillow import BadImageError
from dataflow.codecs.transcode import to_jpeg
from dataflow.errors import CorruptDataError
from tests.codecs.pictures import Pixels, jpeg, saved, smooth
from tests.operations.photographs import animation, black_png, photograph

COLOURS = smooth()


def transcoded(data: bytes, quality: int = 95, subsampling: str = "4:4:4", max_side: int | None = None) -> bytes:
    return to_jpeg(data, quality, subsampling, max_side)


def opened(data: bytes) -> PIL.Image.Image:
    image = PIL.Image.open(io.BytesIO(data))
    assert image.format == "JPEG"
    return image


def decoded(data: bytes, height: int, width: int) -> Pixels:
    return dataflow.Image((height, width), crop="none", layout="NHWC").decode(data, key=0)


def difference(one: Pixels, other: Pixels) -> float:
    return float(np.abs(one.astype(np.int16) - other.astype(np.int16)).mean())


def kinds() -> dict[str, bytes]:
    ramp = np.tile(np.linspace(0, 65535, 256).astype(np.uint16), (64, 1))
    transparent = COLOURS.copy()
    transparent.putalpha(128)
    palette = COLOURS.quantize(64)
    return {
        "JPEG": jpeg(),
        "CMYK": saved(COLOURS.convert("CMYK"), "JPEG", quality=95),  # IM-04
        "16 bits": saved(PIL.Image.fromarray(ramp)),  # IM-03
        "16 bits, TIFF": saved(PIL.Image.fromarray(ramp), "TIFF"),
        "palette": saved(palette),
        "transparent palette": saved(palette, transparency=bytes(64)),
        "transparency": saved(transparent),
        "grey": saved(COLOURS.convert("L")),
        "transparent grey": saved(COLOURS.convert("LA")),
        "WebP": saved(COLOURS, "WEBP"),
        "BMP": saved(COLOURS, "BMP"),
        "AVIF": saved(COLOURS, "AVIF"),
        "animated GIF": animation("GIF"),  # IM-11
        "animated WebP": animation("WEBP"),
    }


@pytest.mark.parametrize("kind", kinds())
def test_what_comes_out_is_what_the_loader_would_have_decoded(kind: str) -> None:
    data = kinds()[kind]
    made = opened(transcoded(data, 100))
    assert made.mode == ("L" if kind.startswith(("16", "grey", "transparent grey")) else "RGB")
    before = decoded(data, made.height, made.width)
    after = decoded(transcoded(data, 100), made.height, made.width)
    assert difference(before, after) < 1


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "CMYK"])
@pytest.mark.parametrize("max_side", [None, 60])
def test_im05_pixels_are_upright_and_the_tag_is_gone(orientation: int, kind: str, max_side: int | None) -> None:
    exif = PIL.Image.Exif()
    exif[0x0112] = orientation
    source = COLOURS.convert("CMYK") if kind == "CMYK" else COLOURS
    data = saved(source, "JPEG" if kind == "CMYK" else kind, exif=exif)
    made = opened(transcoded(data, max_side=max_side))
    assert made.getexif().get(0x0112, 1) == 1
    stored = PIL.Image.open(io.BytesIO(saved(source, "JPEG" if kind == "CMYK" else kind))).convert("RGB")
    stored.getexif()[0x0112] = orientation
    upright = PIL.ImageOps.exif_transpose(stored)
    assert max(made.size) == (max_side or 96)
    assert (made.width > made.height) == (upright.width > upright.height)
    expected = np.asarray(upright.resize(made.size, PIL.Image.Resampling.BICUBIC))
    assert difference(np.asarray(made.convert("RGB")), expected) < 3


@pytest.mark.parametrize(
    ("size", "max_side", "expected"),
    [
        ((96, 64), 96, (96, 64)),
        ((96, 64), 95, (95, 63)),
        ((64, 96), 48, (32, 48)),
        ((960, 640), 96, (96, 64)),  # reduced while it is decoded
        ((300, 1), 100, (100, 1)),
        ((300, 2), 1, (1, 1)),
    ],
)
@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_the_longer_side_is_bounded(size: tuple[int, int], max_side: int, expected: tuple[int, int], kind: str) -> None:
    assert opened(transcoded(saved(smooth(*size), kind), max_side=max_side)).size == expected


def test_large_photographs_are_as_resized_in_full() -> None:
    source = PIL.Image.open(io.BytesIO(photograph()))
    for max_side in (60, 100, 200, 400):
        made = opened(transcoded(photograph(), 98, max_side=max_side))
        expected = source.resize(made.size, PIL.Image.Resampling.BICUBIC)
        assert difference(np.asarray(made), np.asarray(expected)) < 2.5


@pytest.mark.parametrize("subsampling", ["4:2:0", "4:2:2", "4:4:4"])
def test_subsampling(subsampling: str) -> None:
    sampling = {"4:2:0": (2, 2), "4:2:2": (2, 1), "4:4:4": (1, 1)}[subsampling]
    assert opened(transcoded(saved(COLOURS), subsampling=subsampling)).layer[0][1:3] == sampling  # type: ignore[attr-defined]


def test_quality() -> None:
    sizes = [len(transcoded(saved(COLOURS), quality)) for quality in (1, 50, 90, 100)]
    assert sizes == sorted(set(sizes))


def test_noise_of_the_highest_quality() -> None:
    """Pillow's optimize=True runs out of memory here."""
    noise = np.random.default_rng(0).integers(0, 256, (300, 400, 3), np.uint8)
    for quality in (94, 100):
        made = transcoded(saved(PIL.Image.fromarray(noise)), quality)
        assert opened(made).size == (400, 300)


def test_jpegs_that_would_grow_stay_as_they_are() -> None:
    small = saved(COLOURS, "JPEG", quality=50)
    assert transcoded(small, 95) is small
    assert transcoded(small, 20) is not small
    assert transcoded(small, 95, max_side=96) is small
    # One that has to change anyway does.
    assert transcoded(small, 95, max_side=95) is not small
    exif = PIL.Image.Exif()
    exif[0x0112] = 6
    turned = saved(COLOURS, "JPEG", quality=50, exif=exif)
    assert len(transcoded(turned, 95)) > len(turned)
    cmyk = saved(COLOURS.convert("CMYK"), "JPEG", quality=5)
    assert opened(transcoded(cmyk)).mode == "RGB"
    # All else becomes a JPEG whatever it takes: one kind of image was asked for.
    plain = saved(PIL.Image.new("RGB", (96, 64)).quantize(2))
    assert len(transcoded(plain)) > len(plain)


def test_transcoding_again_changes_nothing() -> None:
    once = transcoded(photograph(), 80, "4:2:0", 200)
    again = transcoded(once, 80, "4:2:0", 200)
    assert difference(np.asarray(opened(once)), np.asarray(opened(again))) < 2
    assert transcoded(once, 95) is once


def test_profiles_of_the_colours_that_are_written_stay() -> None:
    profile = PIL.ImageCms.ImageCmsProfile(PIL.ImageCms.createProfile("sRGB")).tobytes()
    for kind in ("JPEG", "PNG", "WEBP"):
        made = opened(transcoded(saved(COLOURS, kind, icc_profile=profile), max_side=50))
        assert made.info["icc_profile"] == profile
    for source in (COLOURS.convert("CMYK"), COLOURS.convert("L")):
        assert (
            "icc_profile"
            not in opened(transcoded(saved(source, "JPEG", icc_profile=profile[:16] + b"CMYK" + profile[20:]), 20)).info
        )
    assert "icc_profile" not in opened(transcoded(saved(COLOURS, "PNG", icc_profile=b"broken"))).info


def test_other_metadata_goes() -> None:
    exif = PIL.Image.Exif()
    exif[0x010F] = "a maker"
    data = saved(COLOURS, "JPEG", quality=98, exif=exif, comment=b"a comment", dpi=(300, 300))
    assert b"a maker" in data
    made = transcoded(data, 80)
    assert b"a maker" not in made
    assert b"a comment" not in made
    assert not opened(made).getexif()


def test_the_same_bytes_every_time() -> None:
    assert len({transcoded(photograph(), 90, "4:2:0", 128) for _ in range(5)}) == 1


@pytest.mark.parametrize(
    "data",
    [b"", b"<html>", b"text", jpeg()[:-200], jpeg()[:300], saved(COLOURS)[:-200], saved(COLOURS.convert("F"), "TIFF")],
    ids=["empty", "HTML", "text", "cut off", "only a header", "PNG cut off", "floats"],
)
def test_what_the_loader_refuses_is_refused_for_the_same_reason(data: bytes) -> None:
    with pytest.raises(CorruptDataError) as refused:
        decoded(data, 8, 8)
    with pytest.raises(BadImageError) as caught:
        transcoded(data)
    assert str(caught.value) == str(refused.value)


@pytest.mark.skipif(not _native.decode_available(), reason="built without libjpeg-turbo: apt-get install libjpeg-dev")
def test_im02_damage_within_a_scan_is_never_hidden_in_a_sound_file() -> None:
    data = bytearray(photograph())
    middle = len(data) // 2
    data[middle : middle + 300] = b"\xff\xd5" * 150
    PIL.Image.open(io.BytesIO(data)).load()  # Pillow takes it for whole
    with pytest.raises(BadImageError, match="corrupt JPEG data"):
        transcoded(bytes(data))


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_im07_images_too_large() -> None:
    with pytest.raises(BadImageError, match="too large"):
        transcoded(black_png(14_000))
    wide = saved(PIL.Image.new("1", (70_000, 2)))
    with pytest.raises(BadImageError, match="70000 x 2 pixels, more than the 65500 a side of a JPEG: set max_side"):
        transcoded(wide)
    assert opened(transcoded(wide, max_side=65_500)).size == (65_500, 2)


def test_without_the_native_decoder_it_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    files: list[Any] = [photograph(), *(jpeg(orientation=number) for number in range(1, 9))]
    native = [transcoded(data, 90, "4:2:0", 80) for data in files]
    monkeypatch.setattr(_native, "decode_available", lambda: "")
    assert [transcoded(data, 90, "4:2:0", 80) for data in files] == native
