"""Bytes that ranks fetch in an epoch over bytes of the dataset, counted at the store: `python -m bench.amplification`.

The ranks run one after another in this process: what a rank fetches does not depend on the others.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

import dataflow
from bench.measure import DATA, Row, Spread, provenance, show
from bench.raw_rows import write_rows
from tests.servers.nginx import Nginx, environment_for

TARGETS = {1: 1.1, 4: 1.1, 3: 1.15, 7: 1.15}


def main(
    gigabytes: Annotated[float, typer.Option(help="GiB of the dataset.")] = 2,
    batch_size: Annotated[int, typer.Option(help="Rows of a rank's batch.")] = 64,
    data: Annotated[Path, typer.Option(help="Where datasets are kept.")] = DATA,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures there.")] = None,
) -> None:
    name = f"rows-{gigabytes:g}"
    write_rows(data / name, int(gigabytes * (1 << 30)))
    rows = []
    with Nginx(data.parent) as server:
        os.environ.update(environment_for(server.endpoint), XDG_CACHE_HOME=str(data / "cache"))
        dataset = dataflow.open(f"s3://{data.name}/{name}")
        for ranks, target in TARGETS.items():
            before = server.bytes_sent(f"{name}/shard")
            samples, lanes = 0, 0
            for rank in range(ranks):
                loader = dataflow.DataLoader(dataset, batch_size, shuffle=True, rank=rank, world_size=ranks)
                lanes = loader.lanes
                for batch in loader:
                    samples += int(batch["valid"].sum()) if "valid" in batch else len(batch["sample_id"])
            assert samples == len(dataset), f"{samples} samples instead of {len(dataset)}"
            fetched = server.bytes_sent(f"{name}/shard") - before
            rows.append(Row.at_most(f"{ranks} ranks", Spread.of([fetched / dataset.manifest.num_bytes]), "x", target))
    options = {"gigabytes": gigabytes, "batch": batch_size, "lanes": lanes, "blocks": dataset.num_blocks}
    show("Bytes fetched in an epoch / bytes of the dataset", rows, provenance(options), json_file)


if __name__ == "__main__":
    typer.run(main)
