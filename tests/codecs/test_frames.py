"""Frames by index and by time: whatever is asked, they are those of decoding from front to back."""

from __future__ import annotations

import io
from functools import lru_cache
from typing import Any

import av
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataflow.codecs.audio import read_audio
from dataflow.codecs.frame_choice import at_random, at_start, at_times, uniform
from dataflow.codecs.frames import open_video
from dataflow.codecs.video import read_frames
from dataflow.errors import CorruptDataError, OptionError
from dataflow.sampling.random import Draws
from tests.codecs.clips import clip, number_of, numbered, remuxed, tone

COUNT = 60
OPEN_GOP = {"x264-params": "open-gop=1:bframes=3:b-pyramid=normal"}
KINDS: dict[str, dict[str, Any]] = {
    "h264 mp4": {},
    "h264 mp4 gop 2": {"gop": 2},
    "h264 mp4 gop 1": {"gop": 1},
    "h264 fragments": {"gop": 15, "container_options": {"movflags": "frag_keyframe+empty_moov"}},
    "h264 open gop": {"gop": 10, "options": OPEN_GOP},
    "h264 intra refresh": {"gop": 10, "options": {"x264-params": "intra-refresh=1:bframes=0"}},
    "h264 matroska": {"gop": 10, "container": "matroska"},
    "h264 matroska open gop": {"gop": 10, "container": "matroska", "options": OPEN_GOP},
    "h264 transport stream": {"gop": 10, "container": "mpegts"},
    "h264 avi": {"gop": 10, "container": "avi"},
    "h264 without container": {"gop": 10, "container": "h264"},
    "hevc mp4": {"gop": 10, "codec": "libx265"},
    "hevc matroska": {"codec": "libx265", "container": "matroska"},
    "hevc without container": {"codec": "libx265", "container": "hevc", "gop": 10},
    "av1 mp4": {"gop": 10, "codec": "libsvtav1"},
    "av1 webm": {"codec": "libsvtav1", "container": "webm"},
    "vp9 webm": {"gop": 10, "codec": "libvpx-vp9", "container": "webm"},
    "vp9 with hidden frames": {
        "codec": "libvpx-vp9",
        "container": "webm",
        "gop": 20,
        "options": {"deadline": "good", "lag-in-frames": "16", "auto-alt-ref": "1"},
    },
    "vp8 webm": {"codec": "libvpx", "container": "webm", "options": {"auto-alt-ref": "1", "lag-in-frames": "10"}},
    "mpeg4 avi": {"codec": "mpeg4", "container": "avi", "options": {"bf": "2"}},
    "mjpeg avi": {"codec": "mjpeg", "container": "avi", "pix_fmt": "yuvj420p"},
    "ffv1 matroska": {"codec": "ffv1", "container": "matroska"},
    "gif": {"codec": "gif", "container": "gif", "pix_fmt": "rgb8"},
}


@lru_cache(maxsize=64)
def made(kind: str) -> bytes:
    return clip(COUNT, **KINDS[kind])


@lru_cache(maxsize=64)
def straight(kind: str) -> list[bytes]:
    """All frames from front to back, without any of our code."""
    with av.open(io.BytesIO(made(kind))) as file:
        return [frame.to_ndarray().tobytes() for frame in file.decode(video=0)]


def picked(data: bytes, indices: list[int]) -> dict[int, bytes]:
    with open_video(data) as frames:
        return {index: frame.to_ndarray().tobytes() for index, frame in frames.pick(indices)}


@pytest.mark.parametrize("kind", KINDS)
def test_frames_are_numbered_as_they_are_shown(kind: str) -> None:
    frames = read_frames(made(kind))
    assert [number_of(pixels) for pixels in frames.pixels] == list(range(COUNT))
    assert frames.indices.tolist() == list(range(COUNT))
    # Containers that count in milliseconds round; some begin later.
    np.testing.assert_allclose(frames.seconds - frames.seconds[0], np.arange(COUNT) / 30, atol=0.006)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=12, deadline=None)
@given(indices=st.lists(st.integers(0, COUNT - 1), min_size=1, max_size=8))
def test_any_frames_are_those_of_decoding_from_front_to_back(kind: str, indices: list[int]) -> None:
    expected = straight(kind)
    assert picked(made(kind), indices) == {index: expected[index] for index in indices}


@settings(max_examples=15, deadline=None)
@given(
    gop=st.integers(1, 40),
    bframes=st.integers(0, 4),
    count=st.integers(1, 50),
    open_gop=st.booleans(),
    container=st.sampled_from(["mp4", "matroska"]),
    data=st.data(),
)
def test_any_group_of_pictures(
    gop: int, bframes: int, count: int, open_gop: bool, container: str, data: st.DataObject
) -> None:
    options = {"x264-params": f"open-gop={int(open_gop)}:bframes={bframes}:scenecut=0:min-keyint=1"}
    file = clip(count, gop=gop, container=container, options=options)
    indices = data.draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=6))
    frames = read_frames(file, indices=indices)
    assert [number_of(pixels) for pixels in frames.pixels] == indices


def test_only_what_is_needed_is_decoded() -> None:
    with open_video(made("h264 mp4 gop 2")) as frames:
        decoded = []
        decode = frames._next
        frames._next = lambda *args: decoded.append(frames._at) or decode(*args)  # type: ignore[method-assign, func-returns-value]
        assert [index for index, _ in frames.pick([51])] == [51]
    assert len(decoded) < 6
    assert min(at for at in decoded if at is not None) == 50


def test_indices_in_any_order_and_from_the_end() -> None:
    frames = read_frames(made("h264 mp4"), indices=[7, -1, 0, 7])
    assert [number_of(pixels) for pixels in frames.pixels] == [7, 59, 0, 7]
    assert frames.indices.tolist() == [7, 59, 0, 7]
    assert frames.seconds.tolist() == [7 / 30, 59 / 30, 0.0, 7 / 30]
    assert read_frames(made("h264 mp4"), indices=[]).pixels.shape[0] == 0


@pytest.mark.parametrize("index", [COUNT, -COUNT - 1])
def test_no_frame_beyond_the_end(index: int) -> None:
    with pytest.raises(CorruptDataError, match=f"has 60 frames, no frame {index}"):
        read_frames(made("h264 mp4"), indices=[0, index])


def test_the_frame_that_is_shown_at_a_time() -> None:
    asked = [0.0, 0.02, 1 / 30, 0.0999, 0.1, 1.9999]
    frames = read_frames(made("h264 mp4"), timestamps=asked)
    assert frames.indices.tolist() == [0, 0, 1, 2, 3, 59]
    assert [number_of(pixels) for pixels in frames.pixels] == [0, 0, 1, 2, 3, 59]


@pytest.mark.parametrize("asked", [-0.01, 2.0, 1058.9])
def test_a_time_beyond_the_video_says_what_there_is(asked: float) -> None:  # VD-04
    with pytest.raises(CorruptDataError, match=rf"has frames from 0\.000000 to 2\.000000 s.* {asked:.6f} s"):
        read_frames(made("h264 mp4"), timestamps=[0.5, asked])
    with pytest.raises(CorruptDataError, match=rf"no frame begins within 0\.001 s of {asked:.6f} s"):
        read_frames(made("h264 mp4"), timestamps=[asked], tolerance=0.001)


@pytest.mark.parametrize("asked", [float("nan"), float("inf")])
def test_what_is_no_time_has_no_frame(asked: float) -> None:
    with pytest.raises(CorruptDataError, match="has no frame at"):
        read_frames(made("h264 mp4"), timestamps=[asked], tolerance=1.0)


def test_a_distance_of_just_the_tolerance_is_within() -> None:  # VD-05
    file = clip(20, rate=10)
    frames = read_frames(file, timestamps=[0.05, 0.55, 1.95], tolerance=0.05)
    assert frames.indices.tolist() == [0, 5, 19]
    with pytest.raises(CorruptDataError, match=r"nearest, frame 19, begins at 1\.9"):
        read_frames(file, timestamps=[1.951], tolerance=0.05)


def test_the_last_frame_is_near_a_time_after_the_end() -> None:  # VD-06
    jitter = [n * 33 + n % 3 for n in range(30)]
    file = clip(30, times=jitter, container="matroska")
    end = read_frames(file, indices=[-1]).seconds[0] + 1 / 30 + 0.003
    assert read_frames(file, timestamps=[end], tolerance=0.04).indices.tolist() == [29]
    with pytest.raises(CorruptDataError, match=f"no frame begins within 0.02 s of {end:.6f} s"):
        read_frames(file, timestamps=[end], tolerance=0.02)


def test_a_clip_within_a_longer_file() -> None:  # VD-09
    """Three clips in one file, the middle one beginning where no keyframe is: exactly its frames."""
    file = clip(90, gop=25)
    times = [(37 + n) / 30 for n in range(30)]
    for frames in (read_frames(file, timestamps=times, tolerance=1e-4), read_frames(file, indices=range(37, 67))):
        assert [number_of(pixels) for pixels in frames.pixels] == list(range(37, 67))


@pytest.mark.parametrize("start", [3, 10, 17])
def test_frames_that_an_edit_list_hides_do_not_count(start: int) -> None:  # VD-11
    file = remuxed(clip(40, gop=10), seconds=start / 30)
    with av.open(io.BytesIO(file)) as container:
        shown = len(list(container.decode(video=0)))
    frames = read_frames(file)
    assert [number_of(pixels) for pixels in frames.pixels] == list(range(start, 40))
    assert shown == len(frames.seconds)
    assert frames.seconds[0] == 0
    assert number_of(read_frames(file, timestamps=[0.0]).pixels[0]) == start
    assert number_of(read_frames(file, indices=[5]).pixels[0]) == start + 5


@pytest.mark.parametrize("container", ["mp4", "matroska", "mpegts"])
@pytest.mark.parametrize("codec", ["libx264", "libx265"])
def test_without_a_keyframe_at_the_start_the_first_one_is_the_start(codec: str, container: str) -> None:
    file = remuxed(clip(COUNT, codec=codec, gop=10), container, skip=3)
    frames = read_frames(file)
    first = number_of(frames.pixels[0])
    assert 0 < first <= 20
    assert [number_of(pixels) for pixels in frames.pixels] == list(range(first, COUNT))
    assert [number_of(pixels) for pixels in read_frames(file, indices=[-1, 4]).pixels] == [59, first + 4]
    np.testing.assert_allclose(np.diff(frames.seconds), 1 / 30, atol=0.002)


@pytest.mark.parametrize("container", ["mp4", "matroska"])
@pytest.mark.parametrize("codec", ["libx264", "libx265"])
def test_a_rate_that_varies(codec: str, container: str) -> None:
    times = [0, 10, 50, 51, 300, 1000, 1033, 2500, 2501, 2600, 2650, 4000]
    file = clip(len(times), codec=codec, times=times, container=container, gop=4)
    frames = read_frames(file)
    assert (frames.seconds * 1000).round(3).tolist() == times
    asked = [0.0501, 0.29, 0.9999, 2.4999, 3.9]
    assert read_frames(file, timestamps=asked).indices.tolist() == [2, 3, 4, 6, 10]
    assert read_frames(file, timestamps=[0.9, 0.2, 2.56], tolerance=0.15).indices.tolist() == [5, 4, 9]


def test_metadata_that_lie_are_not_believed() -> None:
    file = bytearray(clip(30, container="matroska"))
    at = file.index(b"\x44\x89\x88") + 3  # the duration, a double
    file[at : at + 8] = np.array([3.6e9], ">f8").tobytes()
    frames = read_frames(bytes(file))
    assert len(frames.seconds) == 30
    file = bytearray(clip(30, container="avi", gop=5))
    at = file.index(b"avih") + 8 + 16  # the number of frames
    file[at : at + 4] = (5000).to_bytes(4, "little")
    assert [number_of(pixels) for pixels in read_frames(bytes(file)).pixels] == list(range(30))


@pytest.mark.parametrize("rotation", [90, -90, 180])
def test_frames_are_upright(rotation: int) -> None:
    file = clip(3, rotation=rotation)
    stored = numbered(2)
    expected = np.rot90(stored, rotation // 90)
    (pixels,) = read_frames(file, indices=[2]).pixels
    assert pixels.shape == expected.shape
    assert np.abs(pixels.astype(int) - expected).mean() < 3


@pytest.mark.parametrize(
    "kind",
    [
        {"pix_fmt": "yuv420p10le"},
        {"pix_fmt": "yuv444p", "size": (97, 65)},
        {"codec": "prores_ks", "container": "mov", "pix_fmt": "yuva444p10le"},
        {"codec": "libvpx-vp9", "container": "webm", "pix_fmt": "yuva420p"},
        {"codec": "libvpx-vp9", "container": "webm", "size": (97, 65)},
        {"codec": "png", "container": "mov", "pix_fmt": "rgba"},
        {"codec": "ffv1", "container": "matroska", "pix_fmt": "gbrp10le"},
    ],
    ids=lambda kind: " ".join(map(str, kind.values())),
)
def test_pixels_of_every_kind_become_rgb(kind: dict[str, Any]) -> None:
    file = clip(4, **kind)
    (pixels,) = read_frames(file, indices=[2]).pixels
    expected = numbered(2, *kind.get("size", (96, 64)))
    assert pixels.shape == expected.shape
    assert np.abs(pixels.astype(int) - expected).mean() < 3


def test_a_video_that_changes_its_size() -> None:
    both = clip(5, container="mpegts") + clip(5, container="mpegts", size=(128, 96), first=5)
    assert number_of(read_frames(both, indices=[1]).pixels[0]) == 1
    with pytest.raises(CorruptDataError, match="changes its size"):
        read_frames(both)


def test_two_frames_with_one_time() -> None:
    sink = io.BytesIO()
    file = clip(20, codec="mjpeg", container="mov", pix_fmt="yuvj420p")
    with av.open(io.BytesIO(file)) as source, av.open(sink, "w", format="matroska") as target:
        stream = target.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(video=0):
            if packet.size:
                assert packet.pts is not None
                packet.pts = packet.dts = packet.pts // 1024 * 1024
                packet.stream = stream
                target.mux(packet)
    frames = read_frames(sink.getvalue())
    assert [number_of(pixels) for pixels in frames.pixels] == list(range(20))
    assert [number_of(pixels) for pixels in read_frames(sink.getvalue(), indices=[13, 4]).pixels] == [13, 4]
    assert 1 < len(set(frames.seconds.tolist())) <= 10


def test_the_picture_on_a_cover_is_no_video() -> None:
    file = covered()
    assert read_audio(file).samples.shape == (1, 16000)
    with pytest.raises(CorruptDataError, match="has no video stream"):
        read_frames(file)


def covered() -> bytes:
    """A sound with the picture of a cover."""
    sink = io.BytesIO()
    with av.open(sink, "w", format="mp3") as file:
        stream: Any = file.add_stream("libmp3lame", rate=16000, layout="mono")
        cover: Any = file.add_stream("png", rate=1)
        cover.width, cover.height, cover.pix_fmt = 96, 64, "rgb24"
        cover.disposition = av.stream.Disposition.attached_pic
        frame = av.AudioFrame.from_ndarray(tone(1.0, 16000)[None], format="fltp", layout="mono")
        frame.sample_rate, frame.pts = 16000, 0
        file.mux(stream.encode(frame))
        file.mux(cover.encode(av.VideoFrame.from_ndarray(numbered(1), format="rgb24")))
        file.mux(cover.encode())
        file.mux(stream.encode())
    return sink.getvalue()


def test_the_video_stream_is_found_among_others() -> None:
    frames = read_frames(clip(20, sound=True))
    assert [number_of(pixels) for pixels in frames.pixels] == list(range(20))


def test_arguments_that_contradict_each_other() -> None:
    for arguments in ({"indices": [0], "timestamps": [0.0]}, {"indices": [0], "tolerance": 0.1}):
        with pytest.raises(OptionError, match="indices=, or timestamps="):
            read_frames(made("gif"), **arguments)


def test_rules_of_choice() -> None:
    assert uniform(60, 4).tolist() == [7, 22, 37, 52]
    assert uniform(3, 6).tolist() == [0, 0, 1, 1, 2, 2]
    assert uniform(1, 2).tolist() == [0, 0]
    assert at_start(10, 4, 3).tolist() == [0, 3, 6, 9]
    assert at_start(5, 4, 3).tolist() == [0, 3, 4, 4]
    starts = {at_random(20, 4, 5, Draws(key), 0)[0] for key in range(200)}
    assert starts == {0, 1, 2, 3, 4}
    assert at_random(3, 4, 5, Draws(1), 0).tolist() == [0, 2, 2, 2]


@settings(max_examples=200)
@given(
    gaps=st.lists(st.integers(1, 500), min_size=1, max_size=20),
    asked=st.lists(st.integers(0, 10_000), max_size=10),
)
def test_times_are_looked_up_as_one_by_one(gaps: list[int], asked: list[int]) -> None:
    starts = [sum(gaps[:n]) for n in range(len(gaps))]
    end = sum(gaps)
    found, problem = at_times(np.array(starts) / 1000, end / 1000, [time / 1000 for time in asked], None)
    if all(time < end for time in asked):
        assert not problem
        assert found.tolist() == [max(n for n, start in enumerate(starts) if start <= time) for time in asked]
    else:
        assert problem
    found, problem = at_times(np.array(starts) / 1000, end / 1000, [time / 1000 for time in asked], 0.1)
    nearest = [min(range(len(starts)), key=lambda n: (abs(starts[n] - time), n)) for time in asked]
    assert bool(problem) == any(abs(starts[n] - time) > 100 for n, time in zip(nearest, asked, strict=True))
    if not problem:
        assert found.tolist() == nearest
