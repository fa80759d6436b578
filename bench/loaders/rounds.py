"""The contenders of a task, tried and then measured in turns."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from bench.loaders.contenders import CONTENDERS, Contender
from bench.loaders.data import Data, FormatFailed
from bench.loaders.results import Outcome
from bench.loaders.runs import ContenderFailed, run
from bench.loaders.tasks import Task
from bench.measure import Figures, interleave
from bench.peers.contest import Job
from tests.servers.haproxy import DelayProxy
from tests.servers.nginx import Nginx, environment_for

Runs = Callable[[], Figures]


@dataclass(frozen=True, slots=True)
class Bench:
    """How everything is measured.

    Attributes:
        peers: The Python of the others.
        data: By the names that tasks have.
        probes: Photographs and tokens that contenders are tried with, by those names.
        scratch: A folder for states.
        rounds: Repeats.
        seconds: That a rate is measured for; a cold epoch is cut after twice as many.
        versions: Of the contenders that are installed, by their distributions.
        say: Takes what is going on.
    """

    peers: Path
    data: Mapping[str, Data]
    probes: Mapping[str, Data]
    scratch: Path
    rounds: int
    seconds: float
    versions: Mapping[str, str]
    say: Callable[[str], None]
    passed: set[tuple[Contender, str, bool]] = field(default_factory=set)  # what need not be tried again

    def command(self, contender: Contender) -> list[str]:
        python = sys.executable if contender.ours else str(self.peers)
        return [python, "-m", f"bench.peers.{contender.module}", *contender.arguments]

    def outcome(self, task: Task) -> Outcome:
        """Try every contender, and measure those that pass."""
        outcome = Outcome(task)
        with ExitStack() as stack:
            environment: dict[str, str] = {}
            root = self.data[task.data].source.parent.parent
            if task.milliseconds is not None:
                endpoint = stack.enter_context(Nginx(root, workers=2)).endpoint
                if task.milliseconds:
                    endpoint = stack.enter_context(DelayProxy(endpoint, task.milliseconds)).endpoint
                environment = environment_for(endpoint) | {"S3_ENDPOINT_URL": endpoint}
            ready: dict[str, Runs] = {}
            for contender in filter(task.takes, CONTENDERS):
                name = name_of(contender, task)
                self.say(f"{task.title}: trying {name}")
                try:
                    self._try(task, contender, environment)
                    ready[name] = partial(self._measure, task, contender, environment)
                except (ContenderFailed, FormatFailed) as error:
                    outcome.left_out[name] = str(error)
            outcome.results = measured(task, ready, self.rounds, outcome.left_out, self.say)
        return outcome

    def _try(self, task: Task, contender: Contender, environment: Mapping[str, str]) -> None:
        """Look at everything that it makes of data that tell what was done to them."""
        if not contender.ours and contender.package not in self.versions:
            raise ContenderFailed(f"{contender.package} is not installed")
        data = self.probes["tokens" if task.kind == "tokens" else "photos"]
        self.data[task.data].written(_format(contender, task))
        work = (contender, task.kind, task.milliseconds is not None)
        if work not in self.passed:
            run(self.command(contender), replace(self._job(task, contender, data), check=True), environment)
            self.passed.add(work)
        if task.name == "start":
            job = replace(self._job(task, contender, self.data[task.data]), state=self._state(contender))
            run(self.command(contender), replace(job, stop_at=0.9), environment)

    def _measure(self, task: Task, contender: Contender, environment: Mapping[str, str]) -> Figures:
        data, command = self.data[task.data], self.command(contender)
        data.warm(_format(contender, task))
        job = self._job(task, contender, data)
        if task.name == "start":
            first = replace(job, only_first=True)
            resumed = run(command, replace(first, state=self._state(contender)), environment)
            return {"fresh": run(command, first, environment)["first"], "resumed": resumed["first"]}
        if task.milliseconds is not None:
            return run(command, replace(job, limit=2 * self.seconds), environment)
        return run(command, replace(job, seconds=self.seconds, nbytes=0), environment)

    def _job(self, task: Task, contender: Contender, data: Data) -> Job:
        format = _format(contender, task)
        place = data.written(format)
        source = str(place)
        files: tuple[str, ...] = ()
        if task.milliseconds is not None:
            source, files = f"s3://{place.parent.name}/{place.name}", data.files(format)
        nbytes = data.nbytes if task.kind == "raw" else 0
        return Job(task.kind, source, files, data.count, nbytes, batch=task.batch)

    def _state(self, contender: Contender) -> str:
        return str(self.scratch / f"{contender.module}.state")


def measured(
    task: Task, ready: Mapping[str, Runs], rounds: int, left_out: dict[str, str], say: Callable[[str], None]
) -> dict[str, list[Figures]]:
    """Figures of all rounds, of those that did not fail in one."""

    def attempt(name: str, once: Runs) -> Figures:
        if name in left_out:
            return {}
        say(f"{task.title}: {name}")
        try:
            return once()
        except ContenderFailed as error:
            left_out[name] = str(error)
            return {}

    results = interleave({name: partial(attempt, name, once) for name, once in ready.items()}, rounds) if ready else {}
    return {name: runs for name, runs in results.items() if name not in left_out}


def _format(contender: Contender, task: Task) -> str:
    return contender.tokens if task.kind == "tokens" else contender.photos


def name_of(contender: Contender, task: Task) -> str:
    """Without the decoder where none is used."""
    return contender.name if task.kind == "images" else contender.name.partition(",")[0]
