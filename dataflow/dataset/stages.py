"""What is done to each row on its way: the stages of a dataset's pipeline, as plain values."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dataflow.dataset.codec import Codec, Companion, Encoded
from dataflow.dataset.expanding import FlatMap, Pack, Window
from dataflow.errors import CorruptDataError, OptionError

__all__ = ["Decode", "Filter", "Map", "Select", "Stage", "function_name", "takes_generator"]


@dataclass(frozen=True, slots=True)
class Select:
    """Keeps some columns, in the order given."""

    columns: tuple[str, ...]

    def describe(self) -> tuple[str, str, tuple[Any, ...]]:
        """Kind, name and parameters: what the fingerprint of a pipeline is made of."""
        return ("select", "", self.columns)


@dataclass(frozen=True, slots=True)
class Decode:
    """Replaces the encoded values of one column by arrays, and adds columns of what comes beside them."""

    column: str
    codec: Codec

    @property
    def companions(self) -> Mapping[str, Companion]:
        """Columns that are added, by their names."""
        beside: Mapping[str, Companion] = getattr(self.codec, "companions", {})
        return {f"{self.column}_{name}": companion for name, companion in beside.items()}

    @property
    def ragged(self) -> bool:
        """Whether decoded values differ in their shape."""
        return -1 in self.codec.shape

    @property
    def nbytes(self) -> int:
        """Bytes of a decoded value and what comes beside it; 0 where values differ."""
        if self.ragged:
            return 0
        arrays = [Companion(self.codec.shape, self.codec.dtype), *self.companions.values()]
        return sum(math.prod(array.shape) * np.dtype(array.dtype).itemsize for array in arrays)

    def describe(self) -> tuple[str, str, tuple[Any, ...]]:
        """Kind, name and parameters: what the fingerprint of a pipeline is made of."""
        return ("decode", self.column, self.codec.describe())

    def check_value(self, value: Any) -> str:
        """What keeps a value from being decoded at all, "" if nothing."""
        if value is None:
            return "is null"
        return "" if isinstance(value, bytes) else f"holds {type(value).__name__}, not bytes: it cannot be decoded"

    def decode(self, value: Any, key: int) -> dict[str, NDArray[Any]]:
        """The columns that one value becomes, with random numbers keyed by 64 bits.

        Raises:
            CorruptDataError: It cannot be decoded; says why, not where.
        """
        if problem := self.check_value(value):
            raise CorruptDataError(problem)
        codec: Any = self.codec
        if not self.companions:
            return {self.column: codec.decode(value, key)}
        arrays = {self.column: Companion(codec.shape, codec.dtype), **self.companions}
        out = {name: np.empty((1, *array.shape), array.dtype) for name, array in arrays.items()}
        for _, reason in codec.decode_batch(Encoded.of_values([value]), [key], *out.values()):
            raise CorruptDataError(reason)
        return {name: array[0] for name, array in out.items()}


@dataclass(frozen=True, slots=True)
class Map:
    """Replaces each row by what a function makes of it.

    Attributes:
        fn: Called with the row (a dict), and where `takes_rng` with the row's own random generator.
        name: What the stage is known as in a loader's state: a name, never the code.
        takes_rng: Whether the function has a second parameter.
        processes: In how many processes of its own a loader runs it; None runs it in the loader's threads.
    """

    fn: Callable[..., Any]
    name: str
    takes_rng: bool
    processes: int | None = None

    def describe(self) -> tuple[str, str, tuple[Any, ...]]:
        """Kind, name and parameters: what the fingerprint of a pipeline is made of. Processes change no sample."""
        return ("map", self.name, ())


@dataclass(frozen=True, slots=True)
class Filter:
    """Keeps the rows for which a function is true; attributes as those of `Map`."""

    fn: Callable[..., Any]
    name: str
    takes_rng: bool

    def describe(self) -> tuple[str, str, tuple[Any, ...]]:
        """Kind, name and parameters: what the fingerprint of a pipeline is made of."""
        return ("filter", self.name, ())


Stage: TypeAlias = Select | Decode | Map | Filter | FlatMap | Window | Pack


def function_name(function: Callable[..., Any]) -> str:
    """The qualified name of a function, without its module; of an object that is called, the name of its class."""
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    return str(name)


def takes_generator(function: Callable[..., Any]) -> bool:
    """Whether a function wants a random generator besides the row.

    It does if it has a second positional parameter that must be given, or one that is called `rng`.

    Raises:
        OptionError: It cannot be called with a row, or with a row and a generator.
    """
    if not callable(function):
        raise OptionError(f"{function!r} is not callable: give a function of a row, or of a row and a random generator")
    try:
        signature = inspect.signature(function)
    except ValueError:
        return False  # some built-in functions tell nothing about themselves
    second = list(signature.parameters.values())[1:2]
    if _accepts(signature, 1) and not any(parameter.name == "rng" for parameter in second):
        return False
    if _accepts(signature, 2):
        return True
    raise OptionError(
        f"{function_name(function)}{signature} cannot be called with a row, nor with a row and a random generator"
    )


def _accepts(signature: inspect.Signature, count: int) -> bool:
    try:
        signature.bind(*[None] * count)
    except TypeError:
        return False
    return True
