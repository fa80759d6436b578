"""What the clocks say, for people: a table of stages and one sentence."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dataflow.pipeline.deliver import Pipeline
from dataflow.pipeline.slabs import Slabs

_ADVICE = {
    "plan": "the order of the samples; this is a defect, please report it",
    "fetch": "the store: check its throughput, use more ranks, or larger blocks when sharding",
    "read": "decoding blocks: more num_workers, or shards without compression",
    "assemble": "your functions and the batch: more num_workers, map(processes=), or lighter map() and collate_fn",
    "transfer": "beginning the copies to the device: fewer or smaller tensors in a batch",
}


def stats(
    pipeline: Pipeline,
    hits: tuple[int, int],
    slabs: Iterable[Slabs],
    decoders: dict[str, str],
    replaced: int,
    copied_bytes: int,
    working_set: dict[str, int],
    packing: dict[str, int] | None,
) -> dict[str, Any]:
    """All figures as a JSON-able dict; seconds and bytes."""
    slabs = list(slabs)
    clocks = pipeline.clocks
    stages: dict[str, dict[str, float]] = {}
    for stage in clocks.stages:
        clock = clocks.total(stage)
        stages[stage] = {"busy": clock.busy, "starved": clock.starved, "blocked": clock.blocked}
    stages["fetch"] |= {"bytes": pipeline.fetcher.nbytes, "blocks": pipeline.fetcher.blocks}
    if "transfer" in stages:
        stages["transfer"]["bytes"] = copied_bytes
    return {
        "steps": clocks.steps,
        "wait_share": clocks.wait_share,
        "waited": clocks.waited,
        "between": clocks.between,
        "waited_for": dict(clocks.waited_for),
        "stages": stages,
        "cache": {"blocks": hits[0], "bytes": hits[1]},
        "block_bytes": {"now": pipeline.table.used_bytes, "peak": pipeline.table.peak_bytes},
        "slabs": {"count": sum(s.count for s in slabs), "peak_bytes": sum(s.peak_bytes for s in slabs)},
        "decoders": decoders,
        "replaced_rows": replaced,
        "working_set": working_set,
        **({} if packing is None else {"packing": packing}),
    }


def totals(before: dict[str, Any], figures: dict[str, Any]) -> dict[str, Any]:
    """Those of the figures that only grow, added to what was before; `before` may be empty."""
    growing = {name: figures[name] for name in ("steps", "waited", "between", "waited_for", "stages", "cache")}
    added: dict[str, Any] = _sum(before, growing)
    return added


def _sum(before: Any, now: Any) -> Any:
    if isinstance(now, dict):
        return {
            name: _sum(before.get(name, {} if isinstance(value, dict) else 0), value) for name, value in now.items()
        }
    return before + now


def report(figures: dict[str, Any]) -> str:
    """The figures of `stats` as a few lines of text."""
    lines = [f"{'stage':<10}{'busy s':>10}{'starved s':>11}{'blocked s':>11}{'held up s':>11}"]
    for stage, seconds in figures["stages"].items():
        held = figures["waited_for"][stage]
        lines.append(
            f"{stage:<10}{seconds['busy']:>10.2f}{seconds['starved']:>11.2f}{seconds['blocked']:>11.2f}{held:>11.2f}"
        )
    fetched = figures["stages"]["fetch"]
    peak = figures["block_bytes"]["peak"]
    cached = figures["cache"]
    from_cache = f", {cached['bytes'] / 1e6:.1f} MB of them from the cache" if cached["blocks"] else ""
    lines.append(
        f"{figures['steps']} batches; {fetched['blocks']} blocks, {fetched['bytes'] / 1e6:.1f} MB fetched{from_cache}; "
        f"at most {peak / 1e6:.1f} MB of blocks in memory"
    )
    lines += [f"column {column!r} is decoded by {decoder}" for column, decoder in figures["decoders"].items()]
    if figures["replaced_rows"]:
        lines.append(f"rows that do not decode and were replaced: {figures['replaced_rows']}, see loader.ledger()")
    if packing := figures.get("packing"):
        lines.append(
            f"packed {packing['documents']} documents into {packing['rows']} rows, with {packing['padding']} tokens of "
            f"padding; {packing['split']} were longer than a row and split, {packing['dropped']} dropped"
        )
    share = figures["wait_share"]
    worst = max(figures["waited_for"], key=figures["waited_for"].__getitem__)
    if figures["steps"] == 0:
        lines.append("no batch was delivered yet")
    elif share < 0.01:
        lines.append(f"the consumer waited {share:.1%} of the time: the loader keeps up")
    else:
        lines.append(f"the consumer waited {share:.1%} of the time, mostly for {worst}: {_ADVICE[worst]}")
    return "\n".join(lines)
