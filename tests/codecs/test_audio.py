"""Audio: exact counts of samples, whatever the file; mixing, cutting and padding; files that say the wrong thing."""

from __future__ import annotations

import io
import json
import math
import pickle
import struct
from typing import Any

import av
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dataflow
from dataflow.codecs.audio import read_audio
from dataflow.codecs.audio_samples import mix, resample, resampled_count
from dataflow.errors import CorruptDataError, OptionError
from tests.codecs.clips import clip, sound, tone

# Encoder, container, rate, and how far samples may be from those that were encoded, on average.
EXACT = [
    ("pcm_s16le", "wav", 16000, 1e-4),
    ("pcm_u8", "wav", 8000, 0.005),
    ("pcm_s24le", "wav", 44100, 1e-4),
    ("pcm_s32le", "wav", 16000, 1e-4),
    ("pcm_f32le", "wav", 16000, 1e-6),
    ("pcm_f64le", "wav", 16000, 1e-6),
    ("pcm_mulaw", "wav", 8000, 0.01),
    ("pcm_s16be", "aiff", 22050, 1e-4),
    ("flac", "flac", 16000, 1e-4),
    ("flac", "ogg", 44100, 1e-4),
    ("alac", "mov", 44100, 1e-4),
    ("wavpack", "wv", 44100, 0.005),
    ("libmp3lame", "mp3", 16000, 0.03),
    ("libmp3lame", "mp3", 44100, 0.03),
    ("libmp3lame", "matroska", 44100, 0.03),
    ("libopus", "ogg", 48000, 0.02),
    ("libopus", "webm", 48000, 0.02),
    ("aac", "mp4", 44100, 0.02),
]


@pytest.mark.parametrize(("codec", "container", "rate", "close"), EXACT)
def test_samples_are_those_that_were_encoded(codec: str, container: str, rate: int, close: float) -> None:
    """None too many: what encoders put before and after, as MP3 and AAC do, is no part of the sound."""
    wanted = tone(1.2345, rate)
    found = read_audio(sound(wanted, rate, codec=codec, container=container))
    assert found.rate == rate
    assert found.samples.shape == (1, len(wanted))
    assert found.samples.dtype == np.float32
    assert np.abs(found.samples[0] - wanted).mean() < close


def test_vorbis() -> None:
    wanted = np.stack([tone(1.2345, 44100), tone(1.2345, 44100, 300)])
    data = sound(wanted, 44100, codec="vorbis", container="ogg", options={"strict": "experimental"})
    found = read_audio(data)
    assert found.samples.shape[1] == pytest.approx(wanted.shape[1], abs=64)
    assert np.corrcoef(found.samples[0, :50000], wanted[0, :50000])[0, 1] > 0.9


@pytest.mark.parametrize(("codec", "container", "rate", "close"), EXACT)
@pytest.mark.parametrize("target", [16000, 48000, 11025])
def test_resampled_sounds_have_exact_counts(codec: str, container: str, rate: int, close: float, target: int) -> None:
    count = round(1.2345 * rate)
    found = dataflow.Audio(target).decode(sound(tone(1.2345, rate), rate, codec=codec, container=container), 1)
    assert found.shape == (math.ceil(count * target / rate),)
    wanted = tone(1.2345, target)[: len(found)]
    # Where a sound begins and ends, nothing is known of what was before and after.
    inner = slice(target // 50, len(wanted) - target // 50)
    assert np.abs(found[inner] - wanted[inner]).mean() < close + 0.002


def test_each_file_is_resampled_from_its_own_rate() -> None:  # AU-01
    files = {
        (codec, rate): sound(tone(0.5, rate), rate, codec=codec, container=container)
        for codec, container in (("pcm_s16le", "wav"), ("libmp3lame", "mp3"))
        for rate in (32000, 16000)
    }
    audio = dataflow.Audio(48000)
    for order in (list(files.values()), list(files.values())[::-1]):
        assert [len(audio.decode(data, 1)) for data in order] == [24000] * 4


def test_a_rate_that_changes_within_a_file() -> None:
    """Two MP3 streams one after the other, without a header that tells of the first one's end."""
    plain = {"write_xing": "0", "id3v2_version": "0"}
    parts = [sound(tone(0.5, rate), rate, codec="libmp3lame", container="mp3", muxing=plain) for rate in (32000, 48000)]
    found = read_audio(b"".join(parts), rate=16000)
    assert found.samples.shape[1] == pytest.approx(16000, abs=3000)
    assert np.abs(found.samples).max() < 1


def test_wrong_sizes_in_headers() -> None:  # AU-03
    data = sound(tone(1.0, 16000))
    at = data.index(b"data") + 4

    def claiming(size: int) -> bytes:
        return data[:at] + struct.pack("<I", size) + data[at + 4 :]

    # Writers that cannot go back leave these.
    for size in (0, 0xFFFFFFFF):
        assert read_audio(claiming(size)).samples.shape == (1, 16000)
        assert len(dataflow.Audio(8000).decode(claiming(size), 1)) == 8000
    with pytest.raises(CorruptDataError, match=r"is cut off: 16,039 of its 32,078 bytes are there"):
        read_audio(data[: len(data) // 2])
    with pytest.raises(CorruptDataError, match=r"is cut off: 32,078 of its 64,078 bytes are there"):
        read_audio(claiming(64000))
    with pytest.raises(CorruptDataError, match=r"ends at byte 16,078, but 16,000 bytes follow: its header is wrong"):
        read_audio(claiming(16000))
    # Notes and padding after the samples are no samples.
    notes = b"LIST" + struct.pack("<I", 4) + b"INFO"
    for after in (notes, bytes(100), b"TAG" + bytes(125)):
        assert read_audio(data + after).samples.shape == (1, 16000)


@pytest.mark.parametrize(
    ("codec", "container"),
    [("flac", "flac"), ("libmp3lame", "mp3"), ("libopus", "ogg"), ("aac", "mp4"), ("aac", "adts")],
)
@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_files_that_are_cut_off(codec: str, container: str, share: float) -> None:
    data = sound(tone(3.0, 48000), 48000, codec=codec, container=container)
    with pytest.raises(CorruptDataError):
        read_audio(data[: int(len(data) * share)])


def test_a_flac_file_that_ends_between_two_frames() -> None:
    data = sound(tone(3.0, 16000), codec="flac", container="flac")
    with av.open(io.BytesIO(data)) as file:
        places = [packet.pos for packet in file.demux(audio=0) if packet.size and packet.pos is not None]
    with pytest.raises(CorruptDataError, match=r"cut off: 46,080 of its 48,000 samples"):
        read_audio(data[: places[-2]])


def test_tags_of_mp3_files_are_no_sound() -> None:
    data = sound(tone(1.0, 16000), codec="libmp3lame", container="mp3")
    assert read_audio(data + b"TAG" + bytes(125)).samples.shape == (1, 16000)


def test_channels() -> None:  # AU-05
    left, right = tone(0.5, 16000), tone(0.5, 16000, 500)
    mono, stereo = sound(left), sound(np.stack([left, right]))
    surround = sound(np.stack([left] * 6))
    assert np.abs(dataflow.Audio().decode(stereo, 1) - (left + right) / 2).max() < 1e-3
    assert np.abs(dataflow.Audio().decode(surround, 1) - left).max() < 1e-3
    for each in (mono, stereo, surround):
        assert dataflow.Audio(seconds=0.25).decode(each, 1).shape == (4000,)
    two = dataflow.Audio(channels=2)
    assert np.abs(two.decode(stereo, 1) - np.stack([left, right])).max() < 1e-3
    assert np.abs(two.decode(mono, 1) - np.stack([left, left])).max() < 1e-3
    with pytest.raises(CorruptDataError, match="has 6 channels, of which none of 2 can be made: give channels=1"):
        two.decode(surround, 1)
    assert read_audio(surround).samples.shape == (6, 8000)


def test_channels_that_change_within_a_file() -> None:
    parts = [
        sound(tone(0.5, 48000)[None].repeat(count, axis=0), 48000, codec="aac", container="adts") for count in (1, 2)
    ]
    both = b"".join(parts)
    with pytest.raises(CorruptDataError, match="changes from 1 to 2 channels: give channels="):
        read_audio(both)
    assert read_audio(both, channels=1).samples.shape[0] == 1
    assert len(dataflow.Audio(48000).decode(both, 1)) == pytest.approx(48000, abs=4096)


def test_the_sound_of_a_video() -> None:
    found = read_audio(clip(30, sound=True))
    assert found.rate == 16000
    assert np.abs(found.samples[0, :16000] - tone(1.0, 16000)).mean() < 0.02
    with pytest.raises(CorruptDataError, match="has no audio stream"):
        read_audio(clip(3))


def decoded(audio: dataflow.Audio, data: bytes, key: int = 1) -> tuple[np.ndarray[Any, Any], int]:
    from dataflow.dataset.stages import Decode

    made = Decode("audio", audio).decode(data, key)
    return made["audio"], int(made["audio_length"])


def test_cut_and_padded() -> None:
    long, short = sound(tone(1.0, 16000)), sound(tone(0.1, 16000))
    audio = dataflow.Audio(16000, seconds=0.25)
    values, length = decoded(audio, long)
    assert (values.shape, length) == ((4000,), 4000)
    assert np.abs(values - tone(1.0, 16000)[:4000]).max() < 1e-3
    values, length = decoded(audio, short)
    assert (values.shape, length) == ((4000,), 1600)
    assert not values[1600:].any()
    values, length = decoded(dataflow.Audio(16000, channels=2, seconds=0.25), short)
    assert (values.shape, length) == ((2, 4000), 1600)


@pytest.mark.parametrize(("rate", "target"), [(16000, 16000), (44100, 16000), (16000, 44100), (48000, 8000)])
def test_random_parts_are_parts_of_the_whole(rate: int, target: int) -> None:
    data = sound(tone(2.0, rate), rate, codec="flac", container="flac")
    whole = dataflow.Audio(target).decode(data, 1)
    audio = dataflow.Audio(target, seconds=0.5, at="random")
    starts = set()
    for key in range(20):
        part, length = decoded(audio, data, key)
        assert length == len(part) == target // 2
        windows = np.lib.stride_tricks.sliding_window_view(whole, 200)
        start = int(np.abs(windows - part[:200]).sum(axis=1).argmin())
        assert np.abs(whole[start : start + length] - part).max() < 1e-5
        assert (decoded(audio, data, key)[0] == part).all()
        starts.add(start)
    assert len(starts) > 10
    assert max(starts) - min(starts) > target // 2


@settings(max_examples=60, deadline=None)
@given(
    rate=st.sampled_from([8000, 11025, 16000, 22050, 44100, 48000]),
    target=st.sampled_from([8000, 16000, 24000, 44100, 48000]),
    count=st.integers(1, 30_000) | st.integers(65_000, 140_000),
    data=st.data(),
)
def test_a_part_is_resampled_as_the_whole_is(rate: int, target: int, count: int, data: st.DataObject) -> None:
    samples = tone(count / rate, rate)[None, :count]
    whole = resample(samples, rate, target)
    assert whole.shape[1] == resampled_count(samples.shape[1], rate, target)
    step = target // math.gcd(rate, target)
    start = data.draw(st.integers(0, whole.shape[1] // step)) * step
    wanted = data.draw(st.integers(1, 5000))
    part = resample(samples, rate, target, start, wanted)
    np.testing.assert_allclose(part, whole[:, start : start + wanted], atol=2e-6)


def test_mixing() -> None:
    pair = np.array([[1.0, 0.0], [0.5, -1.0]], np.float32)
    assert mix(pair, 1).tolist() == [[0.75, -0.5]]
    assert mix(pair[:1], 3).tolist() == [[1.0, 0.0]] * 3
    assert mix(pair, 2) is pair
    assert mix(pair, None) is pair


def test_long_sounds_are_bounded() -> None:
    data = sound(np.zeros(16000 * 120, np.float32), codec="flac", container="flac")
    assert len(data) < 30_000
    for audio in (dataflow.Audio(max_seconds=60), dataflow.Audio(seconds=1, at="random", max_seconds=60)):
        with pytest.raises(CorruptDataError, match=r"lasts longer than max_seconds=60: raise max_seconds="):
            audio.decode(data, 1)
    assert dataflow.Audio(seconds=1, max_seconds=60).decode(data, 1).shape == (16000,)
    assert dataflow.Audio(8000, max_seconds=121).decode(data, 1).shape == (8000 * 120,)


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ({"rate": 0}, "rate"),
        ({"rate": 16000.0}, "rate"),
        ({"rate": 1 << 20}, "rate"),
        ({"channels": 0}, "channels"),
        ({"seconds": 0}, "seconds"),
        ({"seconds": float("inf")}, "seconds"),
        ({"seconds": 1e-9}, "seconds"),
        ({"seconds": 1e9}, "seconds"),
        ({"seconds": "1"}, "seconds"),
        ({"seconds": 1, "at": "middle"}, "'start', 'random'"),
        ({"at": "random"}, "seconds="),
        ({"max_seconds": None}, "max_seconds"),
    ],
)
def test_parameters_that_cannot_be_are_named(parameters: dict[str, Any], named: str) -> None:
    with pytest.raises(OptionError, match=rf"Audio\(.*{named}"):
        dataflow.Audio(**parameters)


def test_equal_parameters_are_equal_and_described() -> None:
    audio = dataflow.Audio(16000, seconds=2)
    assert audio == pickle.loads(pickle.dumps(audio)) == dataflow.Audio(16000, seconds=2.0, at="start")
    assert (audio.shape, dataflow.Audio(8000, 2, 0.5).shape) == ((32000,), (2, 4000))
    assert (dataflow.Audio().shape, dataflow.Audio(channels=2).shape) == ((-1,), (2, -1))
    changes: list[dict[str, Any]] = [
        {},
        {"rate": 8000},
        {"channels": 2},
        {"seconds": 1.0},
        {"seconds": 1.0, "at": "random"},
    ]
    assert len({json.dumps(dataflow.Audio(**change).describe()) for change in changes}) == len(changes)
    assert dataflow.Audio().describe() == dataflow.Audio(max_seconds=1).describe()


@pytest.mark.parametrize(
    ("codec", "container"), [("pcm_s16le", "wav"), ("libmp3lame", "mp3"), ("libopus", "ogg"), ("aac", "mp4")]
)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_damage_is_decoded_or_refused_and_nothing_else(codec: str, container: str, data: st.DataObject) -> None:
    file = bytearray(sound(tone(0.3, 48000), 48000, codec=codec, container=container))
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(0, len(file) - 1) | st.integers(0, 200))
        file[at] = data.draw(st.integers(0, 255))
    try:
        found = dataflow.Audio(16000, seconds=0.2, at="random").decode(bytes(file), 1)
    except CorruptDataError:
        return
    assert len(found) <= 3200
