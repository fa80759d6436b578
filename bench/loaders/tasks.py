"""What the contenders do."""

from __future__ import annotations

from dataclasses import dataclass

from bench.loaders.contenders import Contender

FIGURES = {
    "rate": "samples/s",
    "per_cpu": "samples/CPU s",
    "memory": "MB",
    "first": "first batch s",
    "fresh": "fresh s",
    "resumed": "resumed s",
    "seconds": "s",
    "mb": "MB/s",
    "cpu": "CPU s/GB",
}
QUICK = ("images", "tokens", "s3-raw-25ms", "order")  # what `--quick` runs
LESS_IS_BETTER = {"memory", "first", "fresh", "resumed", "seconds", "cpu"}


@dataclass(frozen=True, slots=True)
class Task:
    """A table of the results.

    Attributes:
        name: As options and reasons name it.
        title: Above the table.
        text: What is done, and how it is measured.
        kind: Of the contenders' work: "images", "raw" or "tokens"; "" where it is none of theirs.
        data: Which data: "photos", "small" or "tokens".
        milliseconds: That are added to every request of a store; None reads local files.
        figures: Columns.
        batch: Samples of a batch.
    """

    name: str
    title: str
    text: str
    kind: str
    data: str = "photos"
    milliseconds: int | None = None
    figures: tuple[str, ...] = ("rate", "per_cpu", "memory", "first")
    batch: int = 64

    @property
    def cold(self) -> bool:
        return self.milliseconds is not None or self.name == "start"

    def takes(self, contender: Contender) -> bool:
        if self.kind == "tokens":
            return bool(contender.tokens)
        if self.name == "start":
            return contender.resumes
        if contender.module == "ffcv_loader":  # it stores what it has transcoded itself
            return self.name == "small"
        return contender.remote or self.milliseconds is None


def _from_store(kind: str, milliseconds: int) -> Task:
    what = "Photographs as they are stored" if kind == "raw" else "Photographs decoded as above"
    far = f", which answers every request {milliseconds} ms later" if milliseconds else ""
    return Task(
        f"s3-{kind}{f'-{milliseconds}ms' if milliseconds else ''}",
        f"Object store{f', {milliseconds} ms away' if milliseconds else ''}: {'raw' if kind == 'raw' else 'decoded'}",
        f"{what}, from an S3 server on loopback{far}. A cold epoch from the making of the loader on, or as much of it "
        "as comes within twice the seconds given above.",
        kind,
        milliseconds=milliseconds,
    )


TASKS = (
    Task(
        "images",
        "Images",
        "Photographs from local files in the page cache, each a random window (RandomResizedCrop) resized to 224 x 224 "
        "with antialiasing and mirrored half the time: uint8 [64, 3, 224, 224]. Shuffled.",
        "images",
    ),
    Task(
        "small",
        "Images made smaller before",
        "The same from JPEGs with a longer side of 256, quality 90, 4:2:0 (`dataflow shard --transcode`).",
        "images",
        "small",
    ),
    Task(
        "tokens",
        "Tokens",
        "Documents of 2,048 uint16 tokens to int64 [32, 2048], shuffled, from the page cache.",
        "tokens",
        "tokens",
        batch=32,
    ),
    *(_from_store(kind, milliseconds) for kind in ("raw", "images") for milliseconds in (0, 25)),
    Task(
        "start",
        "Start and resume",
        "From the start of a process to its first batch of raw photographs, local: of a fresh epoch, and after a state "
        "of 90 % of an epoch was loaded. Those without a state are not here.",
        "raw",
        figures=("fresh", "resumed"),
    ),
    Task(
        "order",
        "The order of 10^8 samples",
        "From nothing to the first number of a shuffled epoch, and the memory that it takes, libraries included.",
        "",
        figures=("seconds", "memory"),
    ),
    Task(
        "writing",
        "Writing shards",
        "The photographs as shards, read from the page cache; ours sync every shard to the disk.",
        "",
        figures=("mb", "cpu"),
    ),
)
