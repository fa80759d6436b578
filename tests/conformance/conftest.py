from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest

from tests.conformance.adapter import Adapter, chosen_adapter
from tests.conformance.data import write_blocks, write_nothing, write_rows
from tests.conformance.watchdog import limited

#: Empty blocks, blocks of one row, a large one: 203 rows in all.
UNEVEN = [4, 0, 4, 1, 31, 4, 4, 0, 0, 7, *[4] * 20, 2, 40, *[3, 5] * 3, 1, 1]


@pytest.fixture(autouse=True)
def patience(request: pytest.FixtureRequest) -> Iterator[None]:
    """Nothing may hang."""
    with limited(1500 if request.node.get_closest_marker("soak") else 60):
        yield


@pytest.fixture(scope="session")
def adapter() -> Adapter:
    return chosen_adapter()


@pytest.fixture(scope="session")
def rows(tmp_path_factory: pytest.TempPathFactory, adapter: Adapter) -> Callable[[int], Any]:
    """A dataset of so many rows, in blocks of four."""
    folder = tmp_path_factory.mktemp("rows")

    @cache
    def make(count: int) -> str:
        return write_rows(folder / str(count), count) if count else write_nothing(folder / "0")

    return lambda count: adapter.open(make(count))


@pytest.fixture(scope="session")
def uneven(tmp_path_factory: pytest.TempPathFactory, adapter: Adapter) -> Any:
    """A dataset of blocks of very different sizes."""
    return adapter.open(write_blocks(tmp_path_factory.mktemp("uneven"), UNEVEN))
