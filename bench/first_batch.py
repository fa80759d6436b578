"""Process start to first batch: `python -m bench.first_batch FOLDER [STATE_FILE]`, prints seconds as JSON.

Imports nothing but what is measured.
"""

from __future__ import annotations

import json
import sys
from time import perf_counter


def main() -> None:
    folder, *state_file = sys.argv[1:]
    start = perf_counter()
    import dataflow
    from dataflow import DataLoader

    imported = perf_counter()
    loader = DataLoader(dataflow.open(folder), batch_size=64, shuffle=True)
    if state_file:
        with open(state_file[0]) as file:
            loader.load_state_dict(json.load(file))
    next(iter(loader))
    print(json.dumps({"imports": imported - start, "batch": perf_counter() - imported}), flush=True)


if __name__ == "__main__":
    main()
