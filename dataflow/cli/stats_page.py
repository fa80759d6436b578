"""The statistics of a dataset as one HTML page that needs nothing else: no network, no script."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from dataflow.cli.text import bytes_text
from dataflow.operations.statistics import DatasetStatistics

__all__ = ["stats_page"]

_MOST_VALUES = 20
_HEIGHT = 64.0
_WIDTH = 320.0
_WIDEST = 40.0


def stats_page(found: DatasetStatistics) -> str:
    """The page of some statistics."""
    import jinja2

    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"bytes": bytes_text, "number": _number, "bars": _bars, "shares": _shares}
    template = environment.from_string(files("dataflow.cli").joinpath("stats.html.jinja").read_text("utf-8"))
    return template.render(facts=found.to_json(), width=_WIDTH, height=_HEIGHT)


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.1f}" if 100 <= abs(value) < 1e15 else f"{value:.4g}"


def _bars(histogram: list[list[float]]) -> list[dict[str, Any]]:
    """Place, size and tooltip of each bar, in the units of the drawing."""
    if not histogram:
        return []
    step = _WIDTH / len(histogram)
    width = min(0.88 * step, _WIDEST)
    most = max(count for _, _, count in histogram)
    bars = []
    for number, (low, high, count) in enumerate(histogram):
        # What is there is seen, however small its share.
        height = max(1.5, _HEIGHT * count / most) if count else 0.0
        between = _number(low) if low == high else f"{_number(low)} – {_number(high)}"
        bars.append(
            {
                "x": round(number * step + (step - width) / 2, 2),
                "y": round(_HEIGHT - height, 2),
                "width": round(width, 2),
                "height": round(height, 2),
                "title": f"{between}: {_number(count)}",
            }
        )
    return bars


def _shares(items: list[tuple[str, int]]) -> list[dict[str, Any]]:
    """The commonest values, each with its share of all and its width in per cent of the commonest one's."""
    whole = sum(count for _, count in items)
    most = max((count for _, count in items), default=1)
    shown = [
        {"name": name, "count": count, "share": f"{100 * count / whole:.1f} %", "width": round(100 * count / most, 2)}
        for name, count in items[:_MOST_VALUES]
    ]
    rest = items[_MOST_VALUES:]
    if rest:
        count = sum(count for _, count in rest)
        name = f"{len(rest):,} more values"
        shown.append({"name": name, "count": count, "share": f"{100 * count / whole:.1f} %", "width": 0.0})
    return shown
