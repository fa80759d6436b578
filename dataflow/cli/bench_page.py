"""A measurement as one HTML page that needs nothing else: no network, no script."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Any

from dataflow.storage.sizes import bytes_text

__all__ = ["bench_page"]

_WIDTH = 320.0
_HEIGHT = 64.0
_LEAST = 1.5
_KINDS = ("busy", "starved", "blocked")


def bench_page(facts: dict[str, Any]) -> str:
    """The page of what `Measurement.to_json` gives."""
    import jinja2

    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        "bytes": bytes_text,
        "number": _number,
        "seconds": _seconds,
        "json": json.dumps,
        "words": _words,
    }
    template = environment.from_string(files("dataflow.cli").joinpath("bench.html.jinja").read_text("utf-8"))
    levels = {level["name"]: level for level in facts["levels"]}
    whole = levels["transfer"] if "transfer" in levels else levels["batch"]
    return template.render(
        facts=facts,
        levels=levels,
        whole=whole,
        width=_WIDTH,
        height=_HEIGHT,
        waterfall=_waterfall(facts),
        connections=_connections(facts["connections"]),
        over_time=[_area(level["name"], level["throughput"]) for level in facts["levels"]],
        histograms=[_histogram(level) for level in (levels["storage"], whole) if level["latency"]["count"]],
        timeline=_timelines(whole["stages"]),
        timeline_seconds=max((looks[-1][0] for looks in whole["stages"].values()), default=0.0),
    )


def _waterfall(facts: dict[str, Any]) -> list[dict[str, Any]]:
    """Each level with the widths, in per cent, of what it gives and of what it loses."""
    parts = facts["waterfall"]
    ceiling = parts[0]["bytes_per_second"]
    most = max(part["bytes_per_second"] for part in parts)
    rows = []
    for part in parts:
        here, lost = part["bytes_per_second"], part["lost_bytes_per_second"]
        rows.append(
            part
            | {
                "width": round(100 * here / most, 2),
                "lost_width": round(100 * max(0.0, lost) / most, 2),
                "share": f"{here / ceiling:.0%}" if here / ceiling >= 0.1 else f"{here / ceiling:.1%}",
                "change": "" if part is parts[0] else f"{'−' if lost > 0 else '+'}{bytes_text(abs(lost))}/s",
                "holds": part["level"] == facts["verdict"]["stage"],
            }
        )
    return rows


def _connections(curve: Sequence[Sequence[float]]) -> list[dict[str, Any]]:
    """A bar for each number of connections."""
    most = max(rate for _, rate in curve)
    step = _WIDTH / len(curve)
    return [
        {"name": f"{number:.0f}", "rate": rate, **_bar(at, step, rate / most)}
        for at, (number, rate) in enumerate(curve)
    ]


def _histogram(level: dict[str, Any]) -> dict[str, Any]:
    latency = level["latency"]
    bars = latency["histogram"]
    most, step = max(count for _, _, count in bars), _WIDTH / len(bars)
    drawn = [
        _bar(at, step, count / most) | {"title": f"{_seconds(low)} – {_seconds(high)}: {_number(count)}"}
        for at, (low, high, count) in enumerate(bars)
    ]
    return {"level": level["name"], "latency": latency, "bars": drawn, "low": bars[0][0], "high": bars[-1][1]}


def _bar(at: int, step: float, share: float) -> dict[str, float]:
    height = max(_LEAST, _HEIGHT * share) if share else 0.0
    return {
        "x": round(at * step + 0.08 * step, 2),
        "y": round(_HEIGHT - height, 2),
        "width": round(0.84 * step, 2),
        "height": round(height, 2),
    }


def _area(name: str, throughput: Sequence[Sequence[float]]) -> dict[str, Any]:
    """A level's throughput as the outline of an area, from 0 to the most that it had."""
    most = max((value for _, value in throughput), default=0.0) or 1.0
    step = _WIDTH / max(1, len(throughput))
    corners: list[tuple[float, float]] = []
    for at, (_, value) in enumerate(throughput):
        y = _HEIGHT * (1 - value / most)
        corners += [(at * step, y), ((at + 1) * step, y)]
    outline = _path([(0.0, _HEIGHT), *corners, (_WIDTH, _HEIGHT)]) + "Z"
    last = throughput[-1][0] + throughput[0][0] if throughput else 0.0
    return {"level": name, "most": most, "outline": outline, "seconds": last}


def _timelines(stages: dict[str, list[list[float]]]) -> list[dict[str, Any]]:
    """Each stage's; of "read", which the threads of "assemble" do between waits of their own, as a share of theirs."""
    timelines = []
    for stage, looks in stages.items():
        noted = [sum(look[1:]) for look in looks]
        if stage == "read":
            noted = [own + sum(look[1:]) for own, look in zip(noted, stages["assemble"], strict=True)]
        timelines.append(_timeline(stage, looks, noted))
    return timelines


def _timeline(stage: str, looks: Sequence[Sequence[float]], noted: Sequence[float]) -> dict[str, Any]:
    """How a stage's threads shared out their time, as three areas on top of each other."""
    sums = [sum(look[1 + kind] for look in looks) for kind in range(len(_KINDS))]
    whole = sum(noted) or 1.0
    end = looks[-1][0] or 1.0
    areas = []
    below = [0.0] * len(looks)
    for kind, name in enumerate(_KINDS):
        above = []
        for look, base, seconds in zip(looks, below, noted, strict=True):
            # What a thread is in the middle of is noted when it ends: until then it goes on as all of it did.
            above.append(base + (look[1 + kind] / seconds if seconds > 0 else sums[kind] / whole))
        corners = [*_steps(looks, above, end), *reversed(_steps(looks, below, end))]
        areas.append({"kind": name, "outline": _path(corners) + "Z"})
        below = above
    shares = {name: f"{part / whole:.0%}" for name, part in zip(_KINDS, sums, strict=True)}
    return {"stage": stage, "areas": areas, "shares": shares}


def _steps(looks: Sequence[Sequence[float]], values: Sequence[float], end: float) -> list[tuple[float, float]]:
    points: list[tuple[float, float]] = []
    before = 0.0
    for look, value in zip(looks, values, strict=True):
        y = _HEIGHT * (1 - min(1.0, value))
        points += [(_WIDTH * before / end, y), (_WIDTH * look[0] / end, y)]
        before = look[0]
    return points


def _path(points: Iterable[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.2f} {y:.2f}" for x, y in points)


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 or float(value).is_integer() else f"{value:,.3g}"


def _seconds(value: float | None) -> str:
    """A time in the unit that suits it."""
    if value is None:
        return "–"
    for factor, unit in ((1.0, "s"), (1e3, "ms")):
        if value * factor >= 1:
            return f"{value * factor:.3g} {unit}"
    return f"{value * 1e6:.3g} µs"


def _words(text: str) -> list[tuple[bool, str]]:
    """A text in pieces, each with whether it is code: what stands between backticks."""
    return [(at % 2 == 1, piece) for at, piece in enumerate(text.split("`")) if piece]
