"""The house style of the figures: SVG that is the same byte for byte, in a light and a dark form.

A figure is WIDTH inches, which a reader sees at 700 px. Its title is the sentence that it shows.
What is drawn is told apart without colour: by marker, dash or hatch. Text has a contrast of 4.5:1
against the background of its form; text stays text.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from lmperf.names import IMPLEMENTATIONS, Look
from lmperf.reporting.foreign import in_figure

WIDTH, HEIGHT = 7.3, 3.4  # inches; at 96 dpi 700 px
TITLE_CHARACTERS = 76


@dataclass(frozen=True)
class Theme:
    """A form of every figure: the background it is for, and its colours by name."""

    name: str
    background: str
    ink: str
    colours: dict[str, str]


LIGHT = Theme(
    "light",
    "#ffffff",
    "#1f2328",
    {
        "blue": "#0b5cad",
        "orange": "#b34700",
        "green": "#0f7355",
        "pink": "#a8327f",
        "mustard": "#7a6400",
        "violet": "#5b46c2",
        "grey": "#59636e",
    },
)
DARK = Theme(
    "dark",
    "#0d1117",
    "#e6edf3",
    {
        "blue": "#6cb6ff",
        "orange": "#ff9d57",
        "green": "#57d3a4",
        "pink": "#f497d0",
        "mustard": "#d9bf4a",
        "violet": "#b3a4ff",
        "grey": "#9198a1",
    },
)
THEMES = (LIGHT, DARK)
SPARE_LOOKS = (
    Look("pink", "X", (0, (2, 1)), "oo"),
    Look("mustard", "<", (0, (5, 1, 1, 1)), "**"),
    Look("violet", ">", (0, (1, 2)), "||"),
)


def _style(theme: Theme) -> dict:
    ink = (
        *("text.color", "axes.labelcolor", "axes.edgecolor", "axes.titlecolor"),
        *("xtick.color", "ytick.color", "legend.labelcolor"),
    )
    return {
        **dict.fromkeys(ink, theme.ink),
        "svg.hashsalt": "lmperf",
        "svg.fonttype": "none",
        "figure.facecolor": "none",
        "savefig.facecolor": "none",
        "axes.facecolor": "none",
        "grid.color": theme.colours["grey"],
        "grid.alpha": 0.25,
        "grid.linewidth": 0.5,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.titlesize": 10,
        "figure.titlesize": 11,
        "font.size": 9.5,
        "legend.frameon": False,
        "legend.fontsize": 9,
        "lines.linewidth": 1.8,
        "lines.markersize": 5.5,
        "hatch.linewidth": 0.8,
    }


@dataclass(frozen=True)
class Pen:
    """What a figure's function draws with: the colours of a theme, and the looks of names."""

    theme: Theme

    def colour(self, name: str) -> str:
        """A colour of the theme: blue, orange, green, pink, mustard, violet, grey."""
        return self.theme.colours[name]

    def line(self, implementation: str, among: Sequence[str] = ()) -> dict:
        """Arguments of ``plot`` for an implementation; ``among`` are all names of the figure."""
        look = look_of(implementation, among)
        colour = self.colour(look.colour)
        return {"color": colour, "marker": look.marker, "linestyle": look.dash}

    def bar(self, implementation: str, among: Sequence[str] = ()) -> dict:
        """Arguments of ``bar`` for an implementation."""
        look = look_of(implementation, among)
        return self.filled(look.colour, look.hatch)

    def filled(self, colour: str, hatch: str = "") -> dict:
        """Arguments of ``bar`` or ``fill_between`` for a colour told apart by its hatch."""
        return {
            "facecolor": self.colour(colour),
            "edgecolor": self.theme.background,
            "hatch": hatch,
            "linewidth": 0.5,
        }


def look_of(implementation: str, among: Sequence[str] = ()) -> Look:
    """The look of an implementation; those of a user come from the spare ones in turn."""
    if implementation in IMPLEMENTATIONS:
        return IMPLEMENTATIONS[implementation].look
    unknown = sorted(name for name in among if name not in IMPLEMENTATIONS)
    place = unknown.index(implementation) if implementation in unknown else 0
    return SPARE_LOOKS[place % len(SPARE_LOOKS)]


def themed(build: Callable[[Pen], Figure | None], theme: Theme) -> Figure | None:
    """The figure in a theme, laid out; None when there is nothing to draw."""
    with matplotlib.rc_context({**matplotlib.rcParamsDefault, **_style(theme)}):
        figure = build(Pen(theme))
        if figure is not None:
            figure.draw_without_rendering()
        return figure


def draw(build: Callable[[Pen], Figure | None]) -> dict[str, str]:
    """Theme -> SVG text of the figure that ``build`` makes; empty when there is none."""
    made = {}
    for theme in THEMES:
        with matplotlib.rc_context({**matplotlib.rcParamsDefault, **_style(theme)}):
            figure = build(Pen(theme))
            if figure is None:
                return {}
            svg = _svg(figure)
        lines = in_figure(svg).splitlines()
        made[theme.name] = "\n".join(line.rstrip() for line in lines) + "\n"
    return made


def _svg(figure: Figure) -> str:
    """The figure as SVG, whatever its font lacks and however long its words are."""
    buffer = io.StringIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph|constrained_layout", UserWarning)
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return buffer.getvalue()


def panels(title: str, count: int = 1, height: float = HEIGHT, **shared) -> tuple[Figure, list]:
    """A figure with ``count`` panels side by side under its title, at most two lines long."""
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    axes = figure.subplots(1, count, squeeze=False, **shared)
    figure.suptitle(wrapped(title), x=0.01, ha="left", fontweight="bold")
    return figure, list(axes[0])


def wrapped(title: str, width: int = TITLE_CHARACTERS) -> str:
    """A title broken between words into lines of ``width`` characters; ``93 %`` stays whole."""
    lines = [""]
    for word in title.replace(" %", "\u00a0%").split(" "):
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return "\n".join(lines)


def powers_of_two(axis: Axes, values) -> None:
    """A logarithmic axis of lengths with every other value named when there are many."""
    values = sorted(set(values))
    axis.set_xscale("log", base=2)
    shown = values if len(values) <= 6 else values[:: -(-len(values) // 6)]
    axis.set_xticks(shown, [length(v) for v in shown])
    axis.xaxis.set_minor_locator(NullLocator())


def length(value: float) -> str:
    """A length as a label: ``16k`` for 16,384."""
    return f"{int(value) // 1024}k" if value >= 1024 and value % 1024 == 0 else f"{value:g}"


def logarithmic(axis: Axes) -> None:
    """A logarithmic y axis with plain numbers at its ticks."""
    axis.set_yscale("log")
    low, high = axis.get_ylim()
    subs = (1.0,) if high / low > 50 else (1.0, 2.0, 5.0)
    axis.yaxis.set_major_locator(LogLocator(base=10, subs=subs))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    axis.yaxis.set_minor_formatter(NullFormatter())


def legend_below(figure: Figure, axes: Sequence[Axes]) -> None:
    """One legend for all panels, each name once, below them."""
    entries = {}
    for axis in axes:
        handles, labels = axis.get_legend_handles_labels()
        for handle, label in zip(handles, labels, strict=True):
            entries.setdefault(label, handle)
    if not entries:
        return
    # A column is as wide as its widest name: one row needs less than several.
    beside = sum(len(name) + 7 for name in entries) <= 100
    columns = len(entries) if beside else max(1, 100 // (max(map(len, entries)) + 7))
    figure.legend(
        entries.values(),
        entries.keys(),
        loc="outside lower center",
        ncols=columns,
        handlelength=3.2,
    )
