"""One photograph of litData's shards; its writer's processes import this."""

from pathlib import Path


def photograph(path: str) -> tuple[str, bytes, int]:
    """Key, bytes and number of the class."""
    file = Path(path)
    return f"{file.parent.name}/{file.stem}", file.read_bytes(), int(file.parent.name.removeprefix("class-"))
