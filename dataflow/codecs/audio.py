"""Audio: how encoded sounds become arrays of samples."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dataflow import _native
from dataflow.codecs.audio_samples import decode_samples, resample, resampled_count
from dataflow.codecs.media_file import decoder_name, reading
from dataflow.dataset.codec import Companion, Encoded, Failure
from dataflow.errors import CorruptDataError, OptionError
from dataflow.sampling.random import Draws

__all__ = ["Audio", "Sound", "read_audio"]

_MAX_SECONDS = 600.0
_MOST_RATE = 768_000
_MOST_CHANNELS = 64


@dataclass(frozen=True, slots=True)
class Audio:
    """How a column of encoded sounds is decoded: mixed, resampled, cut or padded, as float32.

    WAV, FLAC, MP3, Ogg, Opus, AAC, and the sound of videos. Paddings that encoders put before and after are left out.
    Whole numbers become numbers from -1 to 1.

    With `seconds`, all arrays have one shape, and beside the column comes `<column>_length`, int64: how many samples
    are of the sound, after which zeros follow. Without, each is as long as its sound: batches have a list of them, or
    with `pad=` of the loader and one channel, padded rows and their lengths.

    Attributes:
        rate: Samples a second.
        channels: 1 takes the mean of all channels and gives [samples], more give [channels, samples]: then a sound has
            to have as many, or one, which is repeated.
        seconds: Length of the result; None takes the whole sound.
        at: "start" takes the first so many seconds, "random" so many from anywhere, by the seed, the epoch and the row.
        max_seconds: Longer sounds are refused where they are decoded as a whole, which all but "start" need; the only
            parameter that is no part of a loader's state.

    Raises:
        OptionError: A parameter that cannot be; names it.
    """

    rate: int = 16000
    channels: int = 1
    seconds: float | None = None
    at: str = "start"
    max_seconds: float = _MAX_SECONDS

    def __post_init__(self) -> None:
        for name, most in {"rate": _MOST_RATE, "channels": _MOST_CHANNELS}.items():
            value = getattr(self, name)
            if type(value) is not int or not 1 <= value <= most:
                raise OptionError(f"Audio({name}={value!r}): give a number from 1 to {most}")
        for name in ("seconds", "max_seconds"):
            value = getattr(self, name)
            if name == "seconds" and value is None:
                continue
            if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value < math.inf:
                raise OptionError(f"Audio({name}={value!r}): give a number of seconds")
            object.__setattr__(self, name, float(value))
        if self.seconds is not None and not 1 <= round(self.seconds * self.rate) < 1 << 31:
            raise OptionError(f"Audio(seconds={self.seconds}): that is no sample, or too many, at rate={self.rate}")
        if self.at not in ("start", "random"):
            raise OptionError(f"Audio(at={self.at!r}): choose from 'start', 'random'")
        if self.at == "random" and self.seconds is None:
            raise OptionError("Audio(at='random') takes a part of a sound: give seconds=")

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a sample's array; -1 where sounds differ."""
        count = -1 if self.seconds is None else round(self.seconds * self.rate)
        return (count,) if self.channels == 1 else (self.channels, count)

    @property
    def dtype(self) -> str:
        """NumPy's name of its type."""
        return "float32"

    @property
    def companions(self) -> Mapping[str, Companion]:
        """What comes beside it: the number of samples that are no padding."""
        return MappingProxyType({} if self.seconds is None else {"length": Companion((), "int64")})

    def describe(self) -> tuple[Any, ...]:
        """The kind and all parameters that decide what comes out, JSON-able."""
        names = [field.name for field in fields(self) if field.name != "max_seconds"]
        return ("audio", *([name, getattr(self, name)] for name in names))

    def decode(self, value: bytes, key: int) -> NDArray[np.float32]:
        """Decode one sound; not padded.

        Raises:
            CorruptDataError: It cannot be decoded; says why.
        """
        with reading():
            samples = self._samples(value, key)
        return samples[0] if self.channels == 1 else samples

    def decode_batch(
        self, encoded: Encoded, keys: Sequence[int], out: NDArray[Any], length: NDArray[np.int64]
    ) -> list[Failure]:
        """Decode many sounds in place; only with `seconds`.

        Args:
            encoded: Where their bytes are.
            keys: For each sound what its random numbers are keyed by.
            out: float32 [sounds, *shape], written.
            length: int64 [sounds], written: how many samples are no padding.

        Returns:
            The sounds that cannot be decoded, and why, by position; their part of what is written is undefined.
        """
        failures = []
        for position, key in enumerate(keys):
            (data,) = _native.gather_bytes(
                encoded.values, encoded.offsets, encoded.block[[position]], encoded.row[[position]]
            )
            try:
                samples = self.decode(data, key)
            except CorruptDataError as error:
                failures.append(Failure(position, str(error)))
                continue
            length[position] = samples.shape[-1]
            out[position, ..., : samples.shape[-1]] = samples
            out[position, ..., samples.shape[-1] :] = 0
        return failures

    def decoder(self) -> str:
        """What decodes: a library and its version."""
        return decoder_name()

    def _samples(self, data: bytes, key: int) -> NDArray[np.float32]:
        if self.seconds is None:
            samples, rate = decode_samples(data, self.channels, math.inf, self.max_seconds)
            return resample(samples, rate, self.rate)
        count = round(self.seconds * self.rate)
        if self.at == "start":
            # The filter of the last samples looks at some after them.
            samples, rate = decode_samples(data, self.channels, self.seconds + 0.1, math.inf)
            return resample(samples, rate, self.rate, 0, count)
        samples, rate = decode_samples(data, self.channels, math.inf, self.max_seconds)
        # Only at these samples does a resampled part begin where one of the file does.
        step = self.rate // math.gcd(rate, self.rate)
        room = resampled_count(samples.shape[1], rate, self.rate) - count
        start = Draws(key).below(0, max(0, room) // step + 1) * step
        return resample(samples, rate, self.rate, start, count)


class Sound(NamedTuple):
    """A sound.

    Attributes:
        samples: float32 [channels, count].
        rate: Samples a second.
    """

    samples: NDArray[np.float32]
    rate: int


def read_audio(
    data: bytes, *, rate: int | None = None, channels: int | None = None, max_seconds: float = _MAX_SECONDS
) -> Sound:
    """Reads a whole sound.

    Args:
        data: The file.
        rate: Wanted samples a second; None for those of the file.
        channels: Wanted channels, as for `Audio`; None for those of the file.
        max_seconds: Longer sounds are refused.

    Raises:
        CorruptDataError: It cannot be decoded; says why.
        OptionError: PyAV is missing, or an argument cannot be.
    """
    wanted = Audio(rate or 1, channels or 1, max_seconds=max_seconds)
    with reading():
        samples, stored = decode_samples(data, channels and wanted.channels, math.inf, wanted.max_seconds)
        return Sound(resample(samples, stored, rate or stored), rate or stored)
