"""The rank processes of one run of the demo."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from dataflow.errors import DataflowError

__all__ = ["Ranks"]


class Ranks:
    """Runs from `with` to the end of the block.

    Args:
        url: The dataset.
        folder: Where the ranks write what they have seen; made here.
        count: How many ranks.
        batch_size: Rows of a batch on each.
        environment: Variables that the ranks need to reach the store.
        state: File with the state to resume from.
    """

    def __init__(
        self,
        url: str,
        folder: Path,
        count: int,
        batch_size: int,
        environment: Mapping[str, str],
        state: Path | None = None,
    ) -> None:
        self.count = count
        self._folder = folder
        self._command = [sys.executable, "-m", "dataflow.cli.demo.rank", url, str(folder), str(batch_size)]
        self._command += [] if state is None else [str(state)]
        # All ranks are on this host: they share its processors, and talk over its loopback.
        self._environment = {
            **os.environ,
            **environment,
            "WORLD_SIZE": str(count),
            "LOCAL_WORLD_SIZE": str(count),
            "GLOO_SOCKET_IFNAME": "lo",
        }
        self._processes: list[subprocess.Popen[bytes]] = []
        self._lines = -1

    def __enter__(self) -> Self:
        self._folder.mkdir()
        # All ranks write their lines into one pipe; it ends when the last one is gone.
        self._lines, sink = os.pipe()
        try:
            for rank in range(self.count):
                with open(self._folder / f"rank-{rank}.log", "wb") as log:
                    self._processes.append(
                        subprocess.Popen(
                            self._command,
                            env=self._environment | {"RANK": str(rank)},
                            stdin=subprocess.DEVNULL,
                            stdout=sink,
                            stderr=log,
                        )
                    )
        except BaseException:
            self.kill()
            raise
        finally:
            os.close(sink)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        os.close(self._lines)

    def steps(self) -> Iterator[int]:
        """Numbers of steps as soon as all ranks have done them, until no rank runs any more."""
        done: Counter[int] = Counter()
        with open(self._lines, closefd=False) as lines:
            for line in lines:
                step = int(line)
                done[step] += 1
                if done[step] == self.count:
                    yield step

    def kill(self) -> int:
        """Kills all ranks with SIGKILL, which no process can catch; returns how many were alive."""
        for process in self._processes:
            process.kill()
        return sum(process.wait() == -signal.SIGKILL for process in self._processes)

    def check_finished(self) -> None:
        """Waits for the end of all ranks.

        Raises:
            DataflowError: One has failed; says what it said last.
        """
        for rank, process in enumerate(self._processes):
            code = process.wait()
            if code:
                said = (self._folder / f"rank-{rank}.log").read_text(errors="replace").strip().splitlines()
                raise DataflowError(f"rank {rank} of {self.count} ended with {code}: {said[-1] if said else ''}")
