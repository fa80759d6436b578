"""FFCV: its own file, with JPEGs made smaller where their longer side has more than 256 pixels, at quality 90."""

from pathlib import Path

from ffcv.fields import IntField, RGBImageField
from ffcv.writer import DatasetWriter
from PIL import Image

from bench.peers.source import places


class Photographs:
    """Index to an image and its number."""

    def __init__(self, folder: str) -> None:
        self.paths = sorted(Path(folder).glob("*/*.jpg"), key=lambda path: path.stem)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        return Image.open(self.paths[index]).convert("RGB"), int(self.paths[index].stem)


if __name__ == "__main__":
    source, target, _shard_bytes = places()
    image = RGBImageField(write_mode="jpg", max_resolution=256, jpeg_quality=90)
    writer = DatasetWriter(target, {"image": image, "number": IntField()}, num_workers=2)
    writer.from_indexed_dataset(Photographs(source))
