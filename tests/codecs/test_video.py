"""Video: its parameters, which frames and windows it takes, and files that it has to refuse within bounds."""

from __future__ import annotations

import json
import pickle
import struct
import sys
import zlib
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dataflow
from dataflow.codecs.audio import read_audio
from dataflow.codecs.frame_pixels import FrameScaler
from dataflow.codecs.video import read_frames
from dataflow.errors import CorruptDataError, OptionError
from tests.codecs.clips import clip, number_of, numbered, sound, tone


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ({"frames": 0}, "frames"),
        ({"frames": 2.0}, "frames"),
        ({"frames": 1 << 20}, "frames"),
        ({"every": 0, "at": "start"}, "every"),
        ({"every": 2}, "at='random'"),
        ({"at": "middle"}, "'uniform', 'random', 'start'"),
        ({"size": 0}, "size"),
        ({"crop": "centre"}, "random_resized"),
        ({"scale": 0.5}, "scale"),
        ({"flip": 2}, "flip"),
        ({"layout": "NCHW"}, "'TCHW', 'THWC'"),
        ({"dtype": "bfloat16"}, "float16"),
        ({"mean": (0.5, 0.5, 0.5)}, "float32"),
        ({"max_pixels": 0}, "max_pixels"),
    ],
)
def test_parameters_that_cannot_be_are_named(parameters: dict[str, Any], named: str) -> None:
    with pytest.raises(OptionError, match=rf"Video\(.*{named}"):
        dataflow.Video(**{"frames": 8, "size": 224, **parameters})


def test_equal_parameters_are_equal() -> None:
    video = dataflow.Video(8, [8, 9], flip=1, dtype="float16", mean=[0, 0, 0])  # type: ignore[arg-type]
    assert video == dataflow.Video(8, (8, 9), flip=1.0, dtype="float16", mean=(0.0, 0.0, 0.0))
    copy = pickle.loads(pickle.dumps(video))
    assert copy == video
    assert hash(copy) == hash(video)
    assert video.shape == (8, 3, 8, 9)
    assert dataflow.Video(8, (8, 9), layout="THWC").shape == (8, 8, 9, 3)


def test_every_parameter_that_changes_frames_is_described() -> None:
    base: dict[str, Any] = {"frames": 4, "size": 32, "at": "start", "dtype": "float32", "mean": (0.0,) * 3}
    changes: list[dict[str, Any]] = [
        {},
        {"frames": 5},
        {"size": 33},
        {"at": "random"},
        {"every": 2},
        {"crop": "none"},
        {"resize": 40},
        {"scale": (0.1, 1.0)},
        {"ratio": (0.5, 2.0)},
        {"flip": 0.5},
        {"layout": "THWC"},
        {"dtype": "float16"},
        {"mean": (0.1, 0.0, 0.0)},
        {"std": (1.0, 2.0, 1.0)},
    ]
    described = {json.dumps(dataflow.Video(**{**base, **change}).describe()) for change in changes}
    assert len(described) == len(changes)
    assert dataflow.Video(4, 32).describe() == dataflow.Video(4, 32, max_pixels=10).describe()


def numbers(video: dataflow.Video, data: bytes, key: int = 1) -> list[int]:
    return [number_of(frame) for frame in video.decode(data, key)]


def test_frames_are_chosen_by_rules() -> None:
    data, whole = clip(60, gop=7), {"size": (64, 96), "layout": "THWC"}
    assert numbers(dataflow.Video(4, **whole), data) == [7, 22, 37, 52]  # type: ignore[arg-type]
    assert numbers(dataflow.Video(4, at="start", every=5, **whole), data) == [0, 5, 10, 15]  # type: ignore[arg-type]
    random = dataflow.Video(16, at="random", every=3, **whole)  # type: ignore[arg-type]
    starts = set()
    for key in range(40):
        found = numbers(random, data, key)
        assert found == list(range(found[0], found[0] + 48, 3))[:16]
        assert found == numbers(random, data, key)
        starts.add(found[0])
    assert starts <= set(range(15))
    assert len(starts) > 8


def test_a_clip_that_is_too_short_repeats_its_last_frame() -> None:
    data, whole = clip(3), {"size": (64, 96), "layout": "THWC"}
    assert numbers(dataflow.Video(5, at="random", **whole), data) == [0, 1, 2, 2, 2]  # type: ignore[arg-type]
    assert numbers(dataflow.Video(5, **whole), data) == [0, 0, 1, 2, 2]  # type: ignore[arg-type]
    assert numbers(dataflow.Video(2, at="start", every=9, **whole), clip(1)) == [0, 0]  # type: ignore[arg-type]


@pytest.mark.parametrize("rotation", [0, 90, 180, -90])
@pytest.mark.parametrize("crop", ["center", "random_resized", "none"])
def test_frames_are_cut_as_images_are(crop: str, rotation: int) -> None:
    """The same window as Image cuts from the upright picture, and the same values within what FFmpeg rounds."""
    # Without loss, and with a colour for each pixel: what differs is the resizing alone.
    data = clip(4, codec="png", container="mov", pix_fmt="rgb24", size=(192, 128), rotation=rotation)
    common: dict[str, Any] = {"crop": crop, "flip": 0.5, "scale": (0.3, 0.9)}
    image, video = dataflow.Image((48, 40), **common), dataflow.Video(2, (48, 40), **common)
    for key in range(8):
        for frame, number in zip(video.decode(data, key), (1, 3), strict=True):
            upright = np.ascontiguousarray(np.rot90(numbered(number, 192, 128), rotation // 90))
            expected = image.decode(png(upright), key)
            assert np.abs(frame.astype(int) - expected.astype(int)).mean() < 2.5


def png(pixels: np.ndarray[Any, Any]) -> bytes:
    from PIL import Image

    from tests.codecs.pictures import saved

    return saved(Image.fromarray(pixels))


def test_one_window_for_all_frames_of_a_clip() -> None:
    still = clip(6, codec="png", container="mov", pix_fmt="rgb24", size=(192, 128), moving=False)
    video = dataflow.Video(3, 64, crop="random_resized", scale=(0.2, 0.5), flip=0.5)
    windows = set()
    for key in range(6):
        first, *others = video.decode(still, key)
        assert all((frame == first).all() for frame in others)
        windows.add(first.tobytes())
    assert len(windows) == 6


def test_values_and_layouts() -> None:
    data = clip(6)
    plain = dataflow.Video(3, 32).decode(data, 1)
    assert (plain.shape, plain.dtype) == ((3, 3, 32, 32), np.uint8)
    mean, std = (0.4, 0.5, 0.6), (0.2, 0.3, 0.4)
    values = dataflow.Video(3, 32, layout="THWC", dtype="float32", mean=mean, std=std).decode(data, 1)
    expected = (plain.transpose(0, 2, 3, 1) / 255 - np.array(mean)) / np.array(std)
    np.testing.assert_allclose(values, expected, atol=1e-5)
    assert dataflow.Video(3, 32, dtype="float16").decode(data, 1).dtype == np.float16


def test_a_clip_that_changes_its_size_is_cut_to_one() -> None:
    both = clip(5, container="mpegts") + clip(5, container="mpegts", size=(192, 128), first=5)
    found = dataflow.Video(10, (64, 96), layout="THWC").decode(both, 1)
    assert [number_of(frame) for frame in found[:5]] == [0, 1, 2, 3, 4]
    assert len({frame.tobytes() for frame in found}) == 10


@lru_cache(maxsize=1)
def files() -> dict[str, bytes]:
    front = {"movflags": "faststart"}
    return {
        "mp4": clip(30, gop=10),
        "mp4 table first": clip(30, gop=10, container_options=front),
        "matroska": clip(30, gop=10, container="matroska"),
        "webm": clip(30, gop=10, codec="libvpx-vp9", container="webm"),
        "avi": clip(30, gop=10, container="avi"),
        "gif": clip(30, codec="gif", container="gif", pix_fmt="rgb8"),
    }


@pytest.mark.parametrize("kind", ["mp4", "mp4 table first", "matroska", "webm", "gif"])
@pytest.mark.parametrize("share", [0.02, 0.3, 0.5, 0.9, 0.999])
def test_files_that_are_cut_off(kind: str, share: float) -> None:
    data = files()[kind]
    with pytest.raises(CorruptDataError):
        read_frames(data[: int(len(data) * share)])


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_a_file_that_is_cut_off_says_how_much_is_there(share: float) -> None:
    data = files()["avi"]
    length = int(len(data) * share)
    with pytest.raises(CorruptDataError, match=f"is cut off: {length:,} of its "):
        read_frames(data[:length])


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is empty"),
        (b"\n <html>404</html>", "HTML or XML"),
        (bytes(5000), "no video or audio that can be read"),
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "no video or audio that can be read"),
        (b"#EXTM3U\n#EXTINF:10,\nfile:///etc/passwd\n#EXT-X-ENDLIST\n", "no video or audio that can be read"),
        (b"ffconcat version 1.0\nfile /etc/passwd\n", "no video or audio that can be read"),
        (b"v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=x\r\nt=0 0\r\nm=video 9 RTP/AVP 96\r\n", "no video or audio"),
    ],
    ids=["empty", "html", "zeros", "image", "playlist", "list of files", "session"],
)
def test_what_is_no_video(data: bytes, said: str) -> None:
    with pytest.raises(CorruptDataError, match=said):
        read_frames(data)
    with pytest.raises(CorruptDataError, match=said):
        read_audio(data)


def test_a_file_without_a_video_stream() -> None:
    with pytest.raises(CorruptDataError, match="has no video stream"):
        read_frames(sound(tone(0.5, 16000)))


@pytest.mark.parametrize("kind", ["mp4", "matroska", "webm", "avi", "gif"])
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_damage_is_decoded_or_refused_and_nothing_else(kind: str, data: st.DataObject) -> None:
    file = bytearray(files()[kind])
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(0, len(file) - 1) | st.integers(0, 700))
        file[at] = data.draw(st.integers(0, 255))
    # Any other error is a failure of the test.
    with suppress(CorruptDataError):
        assert dataflow.Video(4, 16, at="random").decode(bytes(file), 1).shape == (4, 3, 16, 16)


def test_damaged_h264_is_seen() -> None:
    file, start = bytearray(files()["mp4 table first"]), 0
    start = file.index(b"mdat") + 3000
    file[start : start + 64] = bytes(byte ^ 0x5A for byte in file[start : start + 64])
    with pytest.raises(CorruptDataError, match=r"cannot be decoded|is damaged"):
        read_frames(bytes(file))


def bomb_gif() -> bytes:
    file = bytearray(files()["gif"])
    file[6:10] = b"\xff\xff\xff\xff"
    return bytes(file)


def bomb_png() -> bytes:
    file = bytearray(clip(3, codec="png", container="mov", pix_fmt="rgb24"))
    at = file.index(b"IHDR")
    file[at + 4 : at + 12] = struct.pack(">II", 60_000, 60_000)
    file[at + 17 : at + 21] = struct.pack(">I", zlib.crc32(bytes(file[at : at + 17])))
    return bytes(file)


def bomb_matroska() -> bytes:
    file = bytearray(clip(3, codec="ffv1", container="matroska", size=(320, 240)))
    at = file.index(b"\xb0\x82\x01\x40\xba\x81\xf0")
    file[at + 2 : at + 4] = b"\xff\xff"
    return bytes(file)


@pytest.mark.parametrize("bomb", [bomb_gif, bomb_png, bomb_matroska], ids=lambda bomb: bomb.__name__)
def test_sizes_are_bounded_before_memory_is_taken(bomb: Any) -> None:
    data = bomb()
    process = psutil.Process()
    before = process.memory_info().rss
    with pytest.raises(CorruptDataError):
        dataflow.Video(2, 16, max_pixels=1 << 20).decode(data, 1)
    assert process.memory_info().rss - before < 64 << 20


def test_large_frames_are_refused_with_the_remedy() -> None:
    with pytest.raises(CorruptDataError, match="raise max_pixels="):
        dataflow.Video(2, 16, max_pixels=96 * 64 - 1).decode(files()["mp4"], 1)
    assert dataflow.Video(2, 16, max_pixels=96 * 64).decode(files()["mp4"], 1).shape == (2, 3, 16, 16)
    with pytest.raises(CorruptDataError, match="max_bytes=1,000"):
        read_frames(files()["mp4"], max_bytes=1000)


def test_a_decoder_has_no_threads_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = Path("/proc/self/task")
    seen = []

    class Counting(FrameScaler):
        def __call__(self, *arguments: Any) -> Any:
            seen.append(len(list(tasks.iterdir())))
            return super().__call__(*arguments)

    monkeypatch.setattr("dataflow.codecs.video.FrameScaler", Counting)
    data = clip(60, size=(640, 480), codec="libx265")
    before = len(list(tasks.iterdir()))
    dataflow.Video(4, 64).decode(data, 1)
    assert len(seen) == 4
    assert max(seen) <= before


def test_a_library_that_is_missing_is_no_bad_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    for decode in (dataflow.Video(2, 16).decode, dataflow.Audio().decode):
        with pytest.raises(OptionError, match=r"pip install 'dataflow-loader\[media\]'"):
            decode(files()["mp4"], 1)
