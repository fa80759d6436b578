"""The only door from the checks to a loader. To put another loader through them, write another one of these."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

import dataflow


class Loader(Protocol):
    """What the checks use of a loader."""

    def __iter__(self) -> Iterator[Mapping[str, Any]]: ...
    def __len__(self) -> int: ...
    def set_epoch(self, epoch: int) -> None: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state_dict: dict[str, Any]) -> None: ...


class Adapter(Protocol):
    """Opens datasets, makes loaders, merges their states."""

    def open(self, url: str) -> Any: ...
    def make_loader(self, dataset: Any, **options: Any) -> Loader: ...
    def merge_states(self, states: Iterable[Mapping[str, Any]]) -> dict[str, Any]: ...


class Dataflow:
    """The loader of this project."""

    def open(self, url: str) -> Any:
        return dataflow.open(url)

    def make_loader(self, dataset: Any, **options: Any) -> Loader:
        return dataflow.DataLoader(dataset, **options)

    def merge_states(self, states: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        return dataflow.merge_states(states)


def chosen_adapter() -> Adapter:
    """The adapter that the environment names as module:class, else that of this project."""
    name = os.environ.get("CONFORMANCE_ADAPTER")
    if name is None:
        return Dataflow()
    module, _, attribute = name.partition(":")
    adapter: Adapter = getattr(importlib.import_module(module), attribute)()
    return adapter
