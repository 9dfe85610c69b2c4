"""Figures: one Vega-Lite specification each, interactive on the site and as SVG in Markdown.

A colour is a name, ``colour:blue``, that becomes the colour of a light or a dark theme. The font is
one that vl-convert brings along, so that a figure has the same bytes on every machine. A title says
what the reader should see.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import pandas as pd
import vl_convert

from lmperf.names import implementation_words, in_order, looks_of
from lmperf.reporting.cells import SIGNS
from lmperf.reporting.untrusted import deep, plain
from lmperf.reporting.words import NotMeasured, absent, sig

Spec = dict[str, Any]
# vl-convert brings the first font along and lays out by it; the others are as wide.
FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
TITLE_LENGTH = 80  # characters of a line
# Pixels beside the panels, and of a letter of a title in the widest font that may be installed.
MARGINS, WIDEST_LETTER = 84, 8.3
NAMES = ("blue", "orange", "green", "pink", "mustard", "violet", "grey", "ink", "paper")
_LIGHT = "#0b5cad #b34700 #0f7355 #a8327f #7a6400 #5b46c2 #59636e #1f2328 #ffffff"
_DARK = "#6cb6ff #ff9d57 #57d3a4 #f497d0 #d9bf4a #b3a4ff #9198a1 #e6edf3 #0d1117"
THEMES = {
    theme: dict(zip(NAMES, colours.split(), strict=True))
    for theme, colours in (("light", _LIGHT), ("dark", _DARK))
}
LABEL = 0.065  # height of a label, of that of a panel
# Not clipped: the text behind the last point of a line is to the right of its panel.
TEXT = {"type": "text", "align": "left", "dx": 5, "fontSize": 10, "clip": False}
LEGEND = {
    **{"title": None, "orient": "bottom", "columns": 4, "columnPadding": 24},
    **{"labelLimit": 260, "symbolLimit": 0},
}
# A click on a name in the legend fades the others.
CHOICE = {"name": "chosen", "select": {"type": "point", "fields": ["name"]}, "bind": "legend"}
CHOSEN = {"condition": {"param": "chosen", "value": 1}, "value": 0.12}
DASHED = {"type": "line", "strokeWidth": 1.2, "strokeDash": [5, 3]}


def line_chart(
    title: str,
    rows: pd.DataFrame,
    x: str,
    y: str,
    axes: tuple[str, str],
    panel: Callable[[Mapping], str] = lambda row: "",
    levels: Mapping[str, float] | None = None,
) -> Spec:
    """Lines over a logarithmic axis of lengths, in panels, and horizontal levels.

    Args:
        rows: with implementation, the columns x and y and, if known, signs, `y_low` and `y_high`.
        axes: titles of the two axes.
        panel: the name of the panel of a row.
        levels: name -> value of a dashed line in every panel.

    Raises:
        NotMeasured: there is a single length, which is no line.
    """
    names = in_order("implementation", rows["implementation"])
    looks = {implementation_words(name): look for name, look in looks_of(names).items()}
    last = rows[x].max()
    records = [
        {
            "panel": panel(row),
            "name": implementation_words(row["implementation"]),
            "x": row[x],
            "y": row[y],
            "low": _value_or(row.get(f"{y}_low"), row[y]),
            "high": _value_or(row.get(f"{y}_high"), row[y]),
            "value": f"{sig(row[y])} {axes[1]}",
            "signs": ", ".join(row.get("signs") or ()) or "none",
            "end": sig(row[y]) + _signs(row) if row[x] == last else "",
        }
        for row in rows.to_dict("records")
    ]
    ticks = sorted({record["x"] for record in records})
    if len(ticks) < 2:
        raise NotMeasured(f"a line needs two values of {axes[0]}")
    lines = {f"{name}: {sig(y)}": y for name, y in (levels or {}).items() if not absent(y)}
    records += [
        {"panel": panel_name, "name": name, "x": tick, "level": y}
        for panel_name in dict.fromkeys(record["panel"] for record in records)
        for name, y in lines.items()
        for tick in (ticks[0], ticks[-1])
    ]
    _space_labels(records)
    colours = {name: look.colour for name, look in looks.items()} | dict.fromkeys(lines, "grey")
    shapes = [look.shape for look in looks.values()]
    lengths = [[*look.dash] for look in looks.values()] + [DASHED["strokeDash"]] * len(lines)
    dashes = {"domain": [*colours], "range": lengths}
    # A dashed outline would fray the marks of dashed lines.
    outline = {"signal": f"indexof({json.dumps([*lines])}, datum.label) < 0 ? 0 : 1.5"}
    legend = {**LEGEND, "encode": {"symbols": {"update": {"strokeWidth": outline}}}}
    dash = {"strokeDash": {"field": "name", "scale": dashes, "legend": legend}}
    ranges = [*shapes, *["stroke"] * len(lines)]
    shape = {"field": "name", "scale": {"domain": [*colours], "range": ranges}, "legend": legend}
    colour = {**_colour(colours), "legend": legend}
    base = {"x": _lengths(ticks, axes[0]), "color": colour, "opacity": CHOSEN}
    axis = {"type": "quantitative", "title": axes[1], "scale": {"zero": True}}
    axis |= {"axis": {"tickCount": 5}}

    def layer(mark: Spec, field: str, **more) -> Spec:
        return {"mark": mark, "encoding": {**base, "y": {**axis, "field": field}, **more}}

    zoom = {"name": "zoom", "select": "interval", "bind": "scales"}
    layers = [
        {"params": [CHOICE, zoom], **layer({"type": "line", "strokeWidth": 1.8}, "y", **dash)},
        layer({"type": "rule", "strokeWidth": 1.4}, "low", y2={"field": "high"}),
        *([layer(DASHED, "level")] if lines else []),
        layer(
            {"type": "point", "filled": True, "size": 45},
            "y",
            shape=shape,
            tooltip=_tips("x", "value", "low", "high", "signs"),
        ),
        layer(TEXT, "label", text={"field": "end"}),
    ]
    return _in_panels(title, records, {"layer": layers}, 2, (270, 190))


def bar_chart(
    title: str,
    records: Sequence[Mapping[str, Any]],
    colours: Mapping[str, str],
    unit: str,
    faint: Sequence[str] = (),
    columns: int = 1,
    width: int = 420,
    step: int = 22,
    shared: bool = False,
) -> Spec:
    """Horizontal stacked bars, in panels.

    Args:
        records: `panel`, `line` (the name of a bar), `name` (of a part), `y` (its length), `value`
            (in words) and, at the last part of a bar, `end`: the text behind the bar.
        colours: name of a part -> name of its colour, in the order of the stack.
        unit: title of the axis.
        faint: names of parts that are drawn as an outline: time in which nothing runs.
        shared: whether all panels share the axis.
    """
    colours = _drawn(colours, records)
    totals: dict[tuple, float] = {}
    parts = []
    for record in records:
        key = record["panel"], record["line"]
        totals[key] = totals.get(key, 0.0) + record["y"]
        order = [*colours].index(record["name"])
        parts.append({"end": "", **record, "place": order, "total": totals[key]})
    lines = list(dict.fromkeys(record["line"] for record in records))
    line = {"field": "line", "type": "nominal", "sort": lines, "title": None}
    line["axis"] = {"labelLimit": 260}
    colour = _colour(colours)
    is_plain = len({*colours.values()}) == 1  # one colour needs no legend
    # An outline in the colour of another part is explained below the figure.
    others = {colour for name, colour in colours.items() if name not in faint}
    named = [name for name in colours if name not in faint or colours[name] not in others]
    legend = None if is_plain else {**LEGEND, "values": named}
    colour = {**colour, "legend": legend}
    is_faint = {"test": {"field": "name", "oneOf": list(faint)}, "value": 0.15}
    bars = {
        "params": [] if is_plain else [CHOICE],
        "mark": {"type": "bar", "strokeWidth": 1},
        "encoding": {
            "y": line,
            "x": {"field": "y", "type": "quantitative", "title": unit, "stack": "zero"}
            | {"axis": {"tickCount": 5}},
            "color": colour,
            "stroke": {**colour, "legend": None},  # vl-convert draws a second one if stacked
            "order": {"field": "place", "type": "quantitative"},
            "opacity": {"value": 1} if is_plain else CHOSEN,
            "fillOpacity": {"condition": is_faint, "value": 1},
            "tooltip": _tips("line", "value"),
        },
    }
    ends = {
        "mark": {**TEXT, "color": "colour:ink"},
        "encoding": {
            "y": line,
            "x": {"field": "total", "type": "quantitative"},
            "text": {"field": "end"},
        },
    }
    size = (width, {"step": step})
    layers = {"layer": [bars, ends]}
    panels = {panel: [line for at, line in totals if at == panel] for panel, _ in totals}
    independent = ["x"] if all(of_panel == lines for of_panel in panels.values()) else ["x", "y"]
    return _in_panels(title, parts, layers, columns, size, [] if shared else independent)


def stacked(
    panel: str,
    line: str,
    lengths: Mapping[str, float],
    unit: str,
    end: str,
    signs: Sequence[str] = (),
) -> list[dict]:
    """The parts of a bar of `bar_chart`, name -> length, with a text behind the last one.

    signs: names of SIGNS that follow this text.
    """
    end += "".join(SIGNS[sign][0] for sign in signs)
    parts = [
        {"panel": panel, "line": line, "name": name, "y": y, "value": f"{sig(y)} {unit}"}
        for name, y in lengths.items()
    ]
    return [*parts[:-1], parts[-1] | {"end": end}] if parts else []


def time_line(
    title: str,
    records: Sequence[Mapping[str, Any]],
    colours: Mapping[str, str],
    unit: str,
    columns: int = 1,
    width: int = 420,
) -> Spec:
    """Intervals over a linear axis, in lines below each other, in panels of axes of their own.

    Args:
        records: `panel`, `line` (its name), `name` (of the kind of interval), `x` and `until` (its
            ends) and `value` (in words).
        colours: kind of interval -> name of its colour.
        unit: title of the axis.
    """
    colours = _drawn(colours, records)
    lines = list(dict.fromkeys(record["line"] for record in records))
    x = {"type": "quantitative", "title": unit, "axis": {"tickCount": 5, "grid": False}}
    bars = {
        "params": [CHOICE],
        "mark": {"type": "bar", "height": {"band": 0.7}},
        "encoding": {
            "y": {"field": "line", "type": "nominal", "sort": lines, "title": None},
            "x": {**x, "field": "x"},
            "x2": {"field": "until"},
            "color": _colour(colours),
            "opacity": CHOSEN,
            "tooltip": _tips("value"),
        },
    }
    return _in_panels(title, records, bars, columns, (width, {"step": 26}), ["x", "y"])


def area_chart(
    title: str,
    records: Sequence[Mapping[str, Any]],
    colours: Mapping[str, str],
    axes: tuple[str, str],
    rules: Sequence[Mapping[str, Any]] = (),
    columns: int = 1,
    size: tuple[int, int] = (560, 200),
    shared: bool = False,
) -> Spec:
    """Stacked areas over a linear axis, in panels.

    Args:
        records: `panel`, `name` (of an area), `x`, `y` (its height).
        colours: name of an area -> name of its colour, from bottom to top.
        axes: titles of the two axes.
        rules: `panel`, `x` and `end` of vertical lines: where a phase begins, and its name.
    """
    colours = _drawn(colours, records)
    heights = [{**record, "place": [*colours].index(record["name"])} for record in records]
    x = {"type": "quantitative", "title": axes[0], "axis": {"grid": False, "tickCount": 5}}
    areas = {
        "params": [CHOICE],
        "mark": {"type": "area", "interpolate": "step-after"},
        "encoding": {
            "x": {**x, "field": "x"},
            "y": {"field": "y", "type": "quantitative", "title": axes[1], "stack": "zero"},
            "color": _colour(colours),
            "order": {"field": "place", "type": "quantitative"},
            "opacity": CHOSEN,
            "tooltip": _tips("x", "y"),
        },
    }
    at = {"x": {**x, "field": "at"}}
    names = {**TEXT, "baseline": "top", "dx": 4, "dy": 2, "color": "colour:ink"}
    marks = [
        {"mark": {"type": "rule", "strokeDash": [3, 3], "color": "colour:grey"}, "encoding": at},
        {"mark": names, "encoding": {**at, "y": {"value": 0}, "text": {"field": "end"}}},
    ]
    ends = [{"panel": rule["panel"], "at": rule["x"], "end": rule["end"]} for rule in rules]
    layers = [areas, *(marks if rules else [])]
    independent = [] if shared else ["y"]
    return _in_panels(title, [*heights, *ends], {"layer": layers}, columns, size, independent)


def svgs(spec: Spec) -> dict[str, str]:
    """Theme -> the figure as SVG.

    It is drawn once: the themes differ in their colours only.
    """
    light = THEMES["light"]
    text = json.dumps(spec, default=float)
    for name, colour in light.items():
        text = text.replace(f'"colour:{name}"', f'"{colour}"')
    svg = _numbered(vl_convert.vegalite_to_svg(text, config=config(light)))
    return {theme: _recoloured(svg, colours) for theme, colours in THEMES.items()}


def _recoloured(svg: str, new: Mapping[str, str]) -> str:
    """The SVG in light colours with those of another theme."""
    colours = {THEMES["light"][name]: colour for name, colour in new.items()}
    return re.sub("|".join(colours), lambda match: colours[match[0]], svg)


def _numbered(svg: str) -> str:
    """The SVG with clip paths numbered from 0: vl-convert counts on from figure to figure."""
    numbers: dict[str, str] = {}
    return re.sub(
        r'(?<=[#"])clip\d+(?=[)"])',
        lambda match: numbers.setdefault(match[0], f"clip{len(numbers)}"),
        svg,
    )


def config(colours: Mapping[str, str]) -> Spec:
    """The style of all figures in the colours of a theme."""
    ink = {"labelColor": colours["ink"], "titleColor": colours["ink"]}
    grid = {"gridColor": colours["grey"], "gridOpacity": 0.25, "titleFontWeight": "normal"}
    return {
        "background": None,
        # Where none of FONT is installed, text is a seventh longer than laid out.
        "padding": {"left": 28, "right": 56, "top": 5, "bottom": 5},
        "font": FONT,
        "axis": {**ink, **grid, "domainColor": colours["grey"], "tickColor": colours["grey"]}
        | {"labelFlush": False},
        "legend": ink,
        "header": {**ink, "labelFontSize": 11},
        "title": {"color": colours["ink"], "fontSize": 13, "offset": 12},
        "view": {"stroke": None},
        "text": {"color": colours["ink"]},
    }


def _in_panels(
    title: str,
    records: Sequence[Mapping],
    spec: Spec,
    columns: int,
    size: tuple,
    independent: Sequence[str] = (),
) -> Spec:
    """The specification with a panel for each `panel` of the records.

    independent: the axes that each panel has for itself.
    """
    title, records, spec = deep(plain, [title, [*map(dict, records)], spec])
    width, height = size
    panels = list(dict.fromkeys(record["panel"] for record in records))
    across = width * max(1, min(columns, len(panels)))
    whole = {"title": _title(title, across), "data": {"values": records}}
    spec = {"width": width, "height": height, **spec}
    if len(panels) < 2:
        return {**whole, **spec}
    facet = {"field": "panel", "type": "nominal", "sort": panels, "title": None}
    resolve = {"resolve": {"scale": dict.fromkeys(independent, "independent")}}
    resolve = resolve if independent else {}
    return {**whole, "facet": facet, "columns": columns, "spec": spec, **resolve}


def _space_labels(records: Sequence[dict]) -> None:
    """Set `label`, the height of the text behind the last point of a line, so that none overlap.

    Texts that would overlap are spread around the mean of their points.
    """
    least = LABEL * max((record.get("level", record.get("y", 0)) for record in records), default=0)
    last = sorted((record for record in records if record.get("end")), key=itemgetter("y"))
    for panel in {record["panel"] for record in last}:
        groups: list[list[dict]] = []
        for record in (record for record in last if record["panel"] == panel):
            groups.append([record])
            while len(groups) > 1 and _lowest(groups[-1], least) < _highest(groups[-2], least):
                groups[-2:] = [groups[-2] + groups[-1]]
        for group in groups:
            for place, record in enumerate(group):
                record["label"] = _lowest(group, least) + place * least


def _lowest(group: Sequence[Mapping], least: float) -> float:
    """The height of the lowest text of a group: not below the axis."""
    mean = sum(record["y"] for record in group) / len(group)
    return max(mean - least * (len(group) - 1) / 2, 0.0)


def _highest(group: Sequence[Mapping], least: float) -> float:
    """The height at which the lowest text above a group may stand."""
    return _lowest(group, least) + least * len(group)


def _title(title: str, width: int) -> Spec:
    """A title that is no longer than its panels, of `width` pixels in all, with their margins."""
    whole = title.replace(" %", "\N{NO-BREAK SPACE}%")
    length = min(TITLE_LENGTH, int((width + MARGINS) / WIDEST_LETTER))
    return {"text": textwrap.wrap(whole, length), "anchor": "start"}


def _signs(row: Mapping) -> str:
    """The signs that a table has behind the number of a row."""
    return "".join(SIGNS[name][0] for name in row.get("signs") or () if name in SIGNS)


def _value_or(value, other) -> float:
    return other if absent(value) else value


def _lengths(ticks: Sequence[float], title: str) -> Spec:
    label = "datum.value >= 1024 ? datum.value / 1024 + 'k' : datum.value"
    return {
        "field": "x",
        "type": "quantitative",
        "title": title,
        "scale": {"type": "log", "base": 2, "nice": False, "padding": 38},
        "axis": {"values": list(ticks), "labelExpr": label, "labelOverlap": True},
    }


def _colour(colours: Mapping[str, str]) -> Spec:
    ranges = [f"colour:{colour}" for colour in colours.values()]
    scale = {"domain": list(colours), "range": ranges}
    return {"field": "name", "type": "nominal", "scale": scale, "legend": LEGEND}


def _drawn(colours: Mapping[str, str], records: Sequence[Mapping]) -> dict[str, str]:
    """The colours of the names that records have."""
    names = {record["name"] for record in records}
    return {name: colour for name, colour in colours.items() if name in names}


def _tips(*fields: str) -> list[Spec]:
    return [{"field": field, "type": "nominal"} for field in ("name", *fields)]
