"""The log that counts the bytes of a cache for all processes."""

from __future__ import annotations

import os
from multiprocessing import get_context
from pathlib import Path

import pytest

from dataflow.storage import cache_usage
from dataflow.storage.cache_usage import UsageLog, UsageUnknown


def new_log(folder: Path) -> UsageLog:
    return UsageLog(str(folder / "usage"), str(folder))


def test_every_log_object_sees_what_all_append(tmp_path: Path) -> None:
    one, other = new_log(tmp_path), new_log(tmp_path)
    with pytest.raises(UsageUnknown):
        one.add(5)
    assert one.restart(100, one.begin()) == 100
    assert [one.add(5), other.add(7), one.add(-2), other.add(0)] == [105, 112, 110, 110]
    assert other.restart(50, other.begin()) == 50
    assert one.add(1) == 51


def test_what_others_append_while_files_are_counted_is_not_lost(tmp_path: Path) -> None:
    one, other = new_log(tmp_path), new_log(tmp_path)
    one.restart(100, None)
    before = one.begin()
    other.add(30)
    assert one.restart(100, before) == 130
    assert other.add(0) == 130
    assert os.listdir(tmp_path) == ["usage"]


def test_a_log_from_before_the_machine_started_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new_log(tmp_path).restart(100, None)
    monkeypatch.setattr(cache_usage, "_boot", lambda: b"another!")
    with pytest.raises(UsageUnknown):
        new_log(tmp_path).add(1)


@pytest.mark.parametrize("content", [b"", b"short", bytes(24), bytes(29)])
def test_a_damaged_log_is_not_trusted(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "usage").write_bytes(content)
    log = new_log(tmp_path)
    with pytest.raises(UsageUnknown):
        log.add(1)
    assert log.restart(7, log.begin()) == 7


def test_nothing_gets_lost_between_processes(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    log.restart(0, None)
    with get_context("fork").Pool(4) as pool:
        pool.map(log.add, range(2000))
    assert log.add(0) == sum(range(2000))
