"""Vega-Lite specifications of the interactive figures: the data of the static ones, with details.

Colours are names, ``colour:blue``, which the page replaces by those of its colour scheme. All
charts have a legend that selects, axes that zoom, and values with their details under the pointer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from lmperf.names import implementation_words, mark_words
from lmperf.reporting import marks
from lmperf.reporting.figures import look_of
from lmperf.reporting.foreign import deep, plain
from lmperf.reporting.numbers import finite, significant, whole

Spec = dict[str, Any]
# Matplotlib's name of a marker -> Vega's.
SHAPES = {
    **{"o": "circle", "s": "square", "^": "triangle-up", "v": "triangle-down", "D": "diamond"},
    **{"P": "cross", "X": "cross", "<": "triangle-left", ">": "triangle-right"},
}
PANEL_WIDTH, PANEL_HEIGHT = 250, 190
FAINT = 0.12
RULE = {"type": "rule", "strokeWidth": 1.4}
DASHED = {"type": "line", "strokeWidth": 1.2, "strokeDash": [5, 3]}


def points(
    rows: pd.DataFrame, x: str, y: str, ends: tuple, panel: Callable | str, unit: str
) -> list[dict[str, Any]]:
    """The points of a line chart: a record for each row of evidence.

    Args:
        rows: with `implementation`, `repetitions` and the columns `x` and `y`.
        ends: the low and high ends of the intervals of `y`; NaN where unknown.
        panel: the name of the panel of all rows, or a function that makes it from a row.
        unit: of `y`.
    """
    lows, highs = ends
    parts = zip(rows.to_dict("records"), lows, highs, marks.names_of(rows), strict=True)
    return [
        {
            "panel": panel if isinstance(panel, str) else panel(row),
            "name": implementation_words(row["implementation"], rows.columns),
            "x": finite(row[x]),
            "y": finite(row[y]),
            # A point without an interval has an empty one: an axis of unknown ends is an error.
            "low": finite(row[y]) if finite(low) is None else finite(low),
            "high": finite(row[y]) if finite(high) is None else finite(high),
            "value": f"{significant(row[y])} {unit}",
            "interval": _interval(low, high),
            "n": whole(row["repetitions"]),
            "marks": ", ".join(map(mark_words, names)) or "none",
        }
        for row, low, high, names in parts
    ]


def _interval(low: float, high: float) -> str:
    known = finite(low) is not None and finite(high) is not None
    return f"{significant(low)} to {significant(high)}" if known else "unknown"


def line_chart(
    title: str,
    records: Sequence[Mapping[str, Any]],
    names: Sequence[str],
    axes: tuple[str, str],
    ceilings: Mapping[str, float] | None = None,
    log: bool = False,
    shared: bool = True,
) -> Spec:
    """A chart of lines over a logarithmic axis of lengths, in panels.

    Args:
        records: from ``points``.
        names: implementations in order.
        axes: titles of the two axes.
        ceilings: name -> value of dashed horizontal lines in every panel.
        log: whether the y axis is logarithmic. shared: whether all panels share it.
    """
    at = sorted({record["x"] for record in records})
    # At one length a ceiling would be a line without extent.
    records, ceilings = list(records), ceilings or {} if len(at) > 1 else {}
    panels = list(dict.fromkeys(record["panel"] for record in records))
    looks = {implementation_words(name): look_of(name, names) for name in names}
    limits = [
        {"panel": panel, "name": f"{name}: {significant(value)}", "x": x, "limit": value}
        for panel in panels
        for name, value in ceilings.items()
        for x in (at[0], at[-1])
    ]
    grey = [f"{name}: {significant(value)}" for name, value in ceilings.items()]
    greys = ["grey"] * len(grey)
    colour = _colour([*looks, *grey], [*(of.colour for of in looks.values()), *greys])
    x = {"field": "x", "type": "quantitative", "title": axes[0]}
    x |= {"scale": {"type": "log", "base": 2, "nice": False, "padding": 12}, "axis": _lengths(at)}
    scale = {"type": "log"} if log else {"zero": True}
    y = {"type": "quantitative", "title": axes[1], "scale": scale}
    shapes = [*(SHAPES.get(of.marker, "circle") for of in looks.values()), *["stroke"] * len(grey)]
    shape = {"field": "name", "scale": {"domain": [*looks, *grey], "range": shapes}}
    base = {"x": x, "color": colour, "opacity": _chosen()}

    def layer(mark: Spec, field: str, **more) -> Spec:
        return {"mark": mark, "encoding": {**base, "y": {**y, "field": field}, **more}}

    zoom = {"name": "zoom", "select": "interval", "bind": "scales"}
    layers = [
        {"params": [_legend(), zoom], **layer({"type": "line", "strokeWidth": 1.8}, "y")},
        layer(RULE, "low", y2={"field": "high"}),
        *([layer(DASHED, "limit")] if limits else []),
        layer(
            {"type": "point", "filled": True, "size": 55}, "y", shape=shape, tooltip=_tips(axes[0])
        ),
    ]
    return _in_panels(title, [*records, *limits], {"layer": layers}, panels, shared)


def bar_chart(
    title: str,
    records: Sequence[Mapping[str, Any]],
    colours: Mapping[str, str],
    unit: str,
    faint: Sequence[str] = (),
    lines: Sequence[str] = (),
) -> Spec:
    """A chart of horizontal stacked bars, in panels.

    Args:
        records: `panel`, `line` (the name of a bar), `name` (of a part), `y` (its length), `value`,
            and what else the pointer shows: `interval`, `n`, `marks`.
        colours: name of a part -> name of its colour, in the order of the stack.
        unit: title of the axis, which each panel has for itself.
        faint: names of parts that are drawn lighter: what was saved, or no work.
        lines: the names of the bars from top to bottom; by default in order of the records.
    """
    drawn = {record["name"] for record in records}
    colours = {name: colour for name, colour in colours.items() if name in drawn}
    records = [{**record, "place": [*colours].index(record["name"])} for record in records]
    lines = list(dict.fromkeys([*lines, *(record["line"] for record in records)]))
    panels = list(dict.fromkeys(record["panel"] for record in records))
    zoom = {"name": "zoom", "select": {"type": "interval", "encodings": ["x"]}, "bind": "scales"}
    bars = {
        "params": [_legend(), zoom],
        "mark": {"type": "bar", "clip": True},
        "encoding": {
            "y": {"field": "line", "type": "nominal", "sort": lines, "title": None},
            "x": {"field": "y", "type": "quantitative", "title": unit, "stack": "zero"},
            "color": _colour(list(colours), list(colours.values())),
            "order": {"field": "place", "type": "quantitative"},
            "opacity": _chosen(),
            "fillOpacity": {
                "condition": {"test": {"field": "name", "oneOf": list(faint)}, "value": 0.4},
                "value": 1,
            },
            "tooltip": _tips("line"),
        },
    }
    return _in_panels(title, records, bars, panels, False, height={"step": 24}, side="x")


def area_chart(
    title: str,
    records: Sequence[Mapping[str, Any]],
    colours: Mapping[str, str],
    axes: tuple[str, str],
) -> Spec:
    """A chart of stacked areas, in panels.

    Args:
        records: `panel`, `name` (of an area), `x`, `below` and `above` (its ends), and `value`,
            which the pointer shows.
        colours: name of an area -> name of its colour.
        axes: titles of the two axes.
    """
    panels = list(dict.fromkeys(record["panel"] for record in records))
    zoom = {"name": "zoom", "select": {"type": "interval", "encodings": ["x"]}, "bind": "scales"}
    tips = [("name", "what"), ("x", axes[0]), ("value", "value")]
    apart = {"labelOverlap": "greedy", "labelSeparation": 8}
    areas = {
        "params": [_legend(), zoom],
        "mark": {"type": "area", "clip": True},
        "encoding": {
            "x": {"field": "x", "type": "quantitative", "title": axes[0], "axis": apart},
            "y": {"field": "below", "type": "quantitative", "title": axes[1], "stack": None},
            "y2": {"field": "above"},
            "color": _colour(list(colours), list(colours.values())),
            "opacity": _chosen(),
            "tooltip": [{"field": name, "title": words, "type": "nominal"} for name, words in tips],
        },
    }
    return _in_panels(title, records, areas, panels, True)


def span_chart(
    title: str, records: Sequence[Mapping[str, Any]], colours: Mapping[str, str], unit: str
) -> Spec:
    """A chart of intervals, a lane for each name, in panels that share the axis.

    Args:
        records: `panel`, `name` (of a lane), `starts` and `ends`, and `value`, the length in words.
        colours: name of a lane -> name of its colour, from top to bottom.
        unit: title of the axis.
    """
    panels = list(dict.fromkeys(record["panel"] for record in records))
    zoom = {"name": "zoom", "select": {"type": "interval", "encodings": ["x"]}, "bind": "scales"}
    tips = [("name", "what"), ("starts", "from"), ("ends", "to"), ("value", "length")]
    spans = {
        "params": [_legend(), zoom],
        "mark": {"type": "bar", "clip": True},
        "encoding": {
            "y": {"field": "name", "type": "nominal", "sort": list(colours), "title": None},
            "x": {"field": "starts", "type": "quantitative", "title": unit},
            "x2": {"field": "ends"},
            "color": _colour(list(colours), list(colours.values())),
            "opacity": _chosen(),
            "tooltip": [{"field": name, "title": words, "type": "nominal"} for name, words in tips],
        },
    }
    return _in_panels(title, records, spans, panels, True, height={"step": 24}, side="x")


def _in_panels(
    title: str,
    records: Sequence[Mapping[str, Any]],
    unit: Spec,
    panels: Sequence[str],
    shared: bool,
    height: Any = PANEL_HEIGHT,
    side: str = "y",
) -> Spec:
    header = {"title": None, "labelFontSize": 12, "labelFontWeight": 600, "labelAnchor": "start"}
    return deep(
        plain,
        {
            "title": {"text": title, "anchor": "start", "fontSize": 13, "offset": 14},
            "data": {"values": list(records)},
            "facet": {"field": "panel", "type": "nominal", "sort": panels, "header": header},
            "columns": 4,
            "spec": {"width": PANEL_WIDTH, "height": height, **unit},
            "resolve": {"scale": {side: "shared" if shared else "independent"}},
        },
    )


def _colour(names: list[str], colours: list[str]) -> Spec:
    scale = {"domain": names, "range": [f"colour:{name}" for name in colours]}
    legend = {"title": None, "orient": "bottom", "columns": 3, "symbolLimit": 0, "labelLimit": 320}
    return {"field": "name", "type": "nominal", "scale": scale, "legend": legend}


def _legend() -> Spec:
    return {"name": "chosen", "select": {"type": "point", "fields": ["name"]}, "bind": "legend"}


def _chosen() -> Spec:
    return {"condition": {"param": "chosen", "value": 1}, "value": FAINT}


def _tips(x: str) -> list[Spec]:
    at = {"field": "line", "title": "bar"} if x == "line" else {"field": "x", "title": x}
    fields = ("value", "interval", "n", "marks")
    first = [{"field": "name", "title": "what"}, {**at, "type": "nominal"}]
    return [*first, *({"field": name, "title": name, "type": "nominal"} for name in fields)]


def _lengths(values: Sequence[float]) -> Spec:
    shown = list(values) if len(values) <= 6 else list(values)[:: -(-len(values) // 6)]
    words = (
        "datum.value >= 1024 && datum.value % 1024 == 0 ? datum.value / 1024 + 'k' : datum.value"
    )
    return {"values": shown, "labelExpr": words, "grid": True}
