from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from dataflow import _native
from tests.native.jpegs import Window, column, decode, encoded, kinds, photographs, pixels, reference

pytestmark = pytest.mark.skipif(
    not _native.decode_available(),
    reason="built without libjpeg-turbo: apt-get install libjpeg-dev, then make clean setup",
)

ROOT = Path(__file__).parents[2]


def size_of(file: bytes) -> tuple[int, int]:
    width, height = Image.open(io.BytesIO(file)).size
    return height, width


def whole(file: bytes) -> Window:
    return (0, 0, *size_of(file))


@st.composite
def windows(draw: st.DrawFn, height: int, width: int) -> Window:
    top, left = draw(st.integers(0, height - 1)), draw(st.integers(0, width - 1))
    return top, left, draw(st.integers(1, height - top)), draw(st.integers(1, width - left))


@pytest.mark.parametrize("kind", list(kinds()))
def test_whole_pictures_have_the_pixels_that_pillow_decodes(kind: str) -> None:
    file = kinds()[kind]
    out, failed = decode([file], [whole(file)], size_of(file), channels_last=True)
    assert not failed
    np.testing.assert_array_equal(out[0], np.asarray(Image.open(io.BytesIO(file)).convert("RGB")))


@given(st.data())
@pytest.mark.parametrize("kind", list(kinds()))
def test_windows_have_the_pixels_of_the_whole_picture(kind: str, data: st.DataObject) -> None:
    file = kinds()[kind]
    top, left, height, width = window = data.draw(windows(*size_of(file)))
    out, failed = decode([file], [window], (height, width), channels_last=True)
    assert not failed
    pixels = np.asarray(Image.open(io.BytesIO(file)).convert("RGB"))
    np.testing.assert_array_equal(out[0], pixels[top : top + height, left : left + width])


@pytest.mark.parametrize("subsampling", ["4:4:4", "4:2:2", "4:2:0"])
def test_small_and_odd_sizes(subsampling: str) -> None:
    for height in (1, 2, 3, 7, 8, 9, 15, 16, 17, 33):
        for width in (1, 2, 3, 7, 8, 9, 15, 16, 17, 33):
            file = encoded(pixels().crop((200, 100, 200 + width, 100 + height)), subsampling=subsampling)
            out, failed = decode([file], [whole(file)], (height, width), channels_last=True)
            assert not failed
            np.testing.assert_array_equal(out[0], np.asarray(Image.open(io.BytesIO(file))))


def test_layouts_and_flips() -> None:
    file = photographs()["china"]
    arguments = ([file, file], [(30, 40, 200, 300)] * 2, (64, 80))
    last, _ = decode(*arguments, flip=[False, True], channels_last=True)
    first, _ = decode(*arguments, flip=[False, True])
    np.testing.assert_array_equal(last.transpose(0, 3, 1, 2), first)
    np.testing.assert_array_equal(first[1], first[0, :, :, ::-1])


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("channels_last", [False, True])
def test_normalised_values(dtype: str, channels_last: bool) -> None:
    file = photographs()["flower"]
    arguments = ([file], [whole(file)], (100, 90))
    levels, _ = decode(*arguments, channels_last=channels_last)
    shape = (1, 1, 1, 3) if channels_last else (1, 3, 1, 1)
    mean, std = np.array([0.485, 0.456, 0.406], np.float32), np.array([0.229, 0.224, 0.225], np.float32)
    for offset, scale in ((mean, std), (None, None), (mean, None)):
        values, _ = decode(*arguments, dtype=dtype, mean=offset, std=scale, channels_last=channels_last)
        minus = np.float64(0) if offset is None else offset.astype(np.float64).reshape(shape)
        over = np.float64(1) if scale is None else scale.astype(np.float64).reshape(shape)
        np.testing.assert_array_equal(values, ((levels / 255 - minus) / over).astype(dtype))


def test_float16_covers_all_magnitudes() -> None:
    levels = np.arange(256, dtype=np.uint8).reshape(16, 16)
    file = encoded(Image.fromarray(np.repeat(np.repeat(levels, 8, 0), 8, 1)), quality=100)
    wanted, _ = decode([file], [whole(file)], (128, 128))
    assert len(np.unique(wanted)) == 256
    for scale in (1e-6, 1e-3, 1.0, 1e3, 1e5, 1e8):
        mean, std = np.full(3, 0.5, np.float32), np.full(3, scale, np.float32)
        values, _ = decode([file], [whole(file)], (128, 128), dtype="float16", mean=mean, std=std)
        with np.errstate(over="ignore"):
            exact = ((wanted / 255 - 0.5) / np.float64(std[0])).astype(np.float16)
        np.testing.assert_array_equal(values, exact)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_any_number_of_threads_gives_the_same(threads: int) -> None:
    files = [*photographs().values(), *kinds().values()]
    cuts = [(3, 5, height - 9, width - 8) for height, width in map(size_of, files)]
    out, failed = decode(files, cuts, (48, 56), threads=threads)
    assert not failed
    for number, (file, cut) in enumerate(zip(files, cuts, strict=True)):
        alone, _ = decode([file], [cut], (48, 56))
        np.testing.assert_array_equal(out[number], alone[0])


def test_many_callers_at_once() -> None:
    files = list(kinds().values())
    expected, _ = decode(files, [whole(file) for file in files], (40, 40))
    results: list[bool] = []

    def call() -> None:
        for _ in range(10):
            out, failed = decode(files, [whole(file) for file in files], (40, 40), threads=3)
            results.append(not failed and np.array_equal(out, expected))

    callers = [threading.Thread(target=call) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert results == [True] * 40


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_threads_work_again_after_a_fork() -> None:
    files = list(kinds().values())
    arguments = (files, [whole(file) for file in files], (40, 40))
    expected, _ = decode(*arguments, threads=3)
    child = os.fork()
    if child == 0:
        out, failed = decode(*arguments, threads=3)
        os._exit(0 if not failed and np.array_equal(out, expected) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert np.array_equal(decode(*arguments, threads=3)[0], expected)


def test_a_process_ends_while_threads_decode() -> None:
    program = """
import threading, time
from tests.native.jpegs import decode, kinds
files = list(kinds().values())
def work():
    while True:
        decode(files, [(0, 0, 50, 50)] * len(files), (40, 40), threads=3)
for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.3)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif("ASAN_OPTIONS" in os.environ, reason="a sanitizer keeps memory that is freed")
def test_memory_does_not_grow() -> None:
    def rounds(count: int) -> None:
        for _ in range(count):
            decode(files, [(0, 0, 50, 50)] * len(files), (60, 60), threads=2)

    files = [*kinds().values(), photographs()["china"][:50_000], b"no picture"]
    process = psutil.Process()
    rounds(40)
    before = process.memory_info().rss
    rounds(200)
    assert process.memory_info().rss - before < 4 << 20


def test_only_the_named_positions_are_written() -> None:
    files = [kinds()["4:4:4"]] * 4
    out = np.full((4, 3, 20, 30), 77, np.uint8)
    places = np.array([3, 1], np.int64)
    cuts = np.array([(0, 0, 100, 100), (10, 20, 100, 100)], np.int32)
    failed = _native.decode_jpegs(*column(files), places, cuts, np.zeros(2, bool), out, None, None, False, 2)
    assert failed == []
    assert (out[[0, 2]] == 77).all()
    for place, cut in zip(places, cuts.tolist(), strict=True):
        difference = out[place].transpose(1, 2, 0).astype(int) - reference(files[0], tuple(cut), (20, 30))
        assert abs(difference).max() <= 1


def test_what_is_wrong_with_the_arguments_is_named() -> None:
    rows = column([kinds()["4:4:4"]] * 2)
    places, cuts, flip = np.arange(2, dtype=np.int64), np.array([[0, 0, 9, 9]] * 2, np.int32), np.zeros(2, bool)
    out = np.zeros((2, 3, 8, 8), np.uint8)
    three = np.ones(3, np.float32)

    def call(**changed: object) -> None:
        arguments = {"positions": places, "windows": cuts, "flip": flip, "out": out, "mean": None, "std": None}
        options = {"channels_last": False, "threads": 1}
        _native.decode_jpegs(*rows, **(arguments | options | changed))  # type: ignore[arg-type]

    call()
    with pytest.raises(ValueError, match=r"positions\[1\] is 2, but there are 2 positions"):
        call(positions=np.array([0, 2]))
    with pytest.raises(ValueError, match=r"positions\[0\] is -1"):
        call(positions=np.array([-1, 0]))
    with pytest.raises(ValueError, match="position 1 is given twice"):
        call(positions=np.array([1, 1]))
    with pytest.raises(ValueError, match="windows must be int32 of 2 x 4"):
        call(windows=cuts[:1])
    with pytest.raises(ValueError, match="windows must be int32 of 2 x 4"):
        call(windows=cuts.astype(np.int64))
    with pytest.raises(ValueError, match="flip must have one item"):
        call(flip=flip[:1])
    with pytest.raises(ValueError, match="out must be 2 x 3 x height x width"):
        call(out=out[:1])
    with pytest.raises(ValueError, match="out must be 2 x height x width x 3"):
        call(channels_last=True)
    with pytest.raises(ValueError, match="height and width of out must be 1 to 65535"):
        call(out=np.zeros((2, 3, 0, 8), np.uint8))
    with pytest.raises(TypeError, match="out must be uint8, float32 or float16, not int32"):
        call(out=out.astype(np.int32))
    with pytest.raises(ValueError, match="mean must have 3 items"):
        call(mean=three[:2])
    with pytest.raises(ValueError, match="std must be above 0"):
        call(std=three * 0)
    with pytest.raises(ValueError, match="threads must be at least 1"):
        call(threads=0)
