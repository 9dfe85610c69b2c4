"""The house style of the figures: SVG that is the same byte for byte and reads on dark and light.

Text stays text, the background is transparent, greys and colours have a middle lightness. A colour
belongs to an implementation or a component in every figure, and a marker repeats it for readers who
do not tell the colours apart.
"""

from __future__ import annotations

import io
from collections.abc import Callable

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

GREY = "#7f7f7f"
BLUE, ORANGE, GREEN = "#3f8fd2", "#dd7d1a", "#2ca27b"
PINK, MUSTARD, VIOLET = "#c86aa6", "#a89316", "#8174d6"
WIDTH, HEIGHT = 7.6, 3.2

STYLE = {
    "svg.hashsalt": "lmperf",
    "svg.fonttype": "none",
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "axes.facecolor": "none",
    "text.color": GREY,
    "axes.labelcolor": GREY,
    "axes.edgecolor": GREY,
    "axes.titlecolor": GREY,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "grid.color": GREY,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.5,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "font.size": 9,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
}
LOOKS = {
    "eager": (BLUE, "o"),
    "compiled": (ORANGE, "s"),
    "compiled_blocks": (GREEN, "^"),
    "triton": (ORANGE, "s"),
    "triton_cached": (VIOLET, "P"),
    "tiled": (ORANGE, "s"),
    "sdpa": (GREEN, "^"),
    "sdpa_cudnn": (GREEN, "^"),
    "sdpa_flash": (PINK, "D"),
    "sdpa_efficient": (MUSTARD, "v"),
    "flex": (VIOLET, "P"),
}
SPARE_LOOKS = ((PINK, "X"), (MUSTARD, "<"), (VIOLET, ">"))


def look(name: str, unknown: list[str]) -> dict:
    """Colour and marker of an implementation; those of a user come from the spare ones in turn."""
    if name in LOOKS:
        colour, marker = LOOKS[name]
    else:
        colour, marker = SPARE_LOOKS[unknown.index(name) % len(SPARE_LOOKS)]
    return {"color": colour, "marker": marker, "markeredgewidth": 0}


def unknown_names(names: list[str]) -> list[str]:
    """Implementations without a look of their own, sorted."""
    return sorted(name for name in names if name not in LOOKS)


def draw(build: Callable[[], Figure | None]) -> str | None:
    """The SVG text of the figure that ``build`` makes; None when there is nothing to draw."""
    with matplotlib.rc_context({**matplotlib.rcParamsDefault, **STYLE}):
        figure = build()
        if figure is None:
            return None
        buffer = io.StringIO()
        metadata = {"Date": None, "Creator": None}
        figure.savefig(buffer, format="svg", bbox_inches="tight", metadata=metadata)
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n"


def panels(count: int, height: float = HEIGHT, **shared) -> tuple[Figure, list[Axes]]:
    """A figure with ``count`` panels side by side."""
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    axes = figure.subplots(1, count, squeeze=False, **shared)
    return figure, list(axes[0])


def powers_of_two(axis, values) -> None:
    """A logarithmic axis of lengths with every other value named when there are many."""
    values = sorted(set(values))
    axis.set_xscale("log", base=2)
    shown = values if len(values) <= 6 else values[:: -(-len(values) // 6)]
    axis.set_xticks(shown, [_length(v) for v in shown])
    axis.xaxis.set_minor_locator(NullLocator())


def _length(value: float) -> str:
    return f"{int(value) // 1024}k" if value >= 1024 and value % 1024 == 0 else f"{value:g}"


def logarithmic(axis) -> None:
    """A logarithmic y axis with plain numbers at its ticks."""
    axis.set_yscale("log")
    low, high = axis.get_ylim()
    subs = (1.0,) if high / low > 50 else (1.0, 2.0, 5.0)
    axis.yaxis.set_major_locator(LogLocator(base=10, subs=subs))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    axis.yaxis.set_minor_formatter(NullFormatter())


def legend_above(figure: Figure, axes: list[Axes]) -> None:
    """One legend for all panels, each name once, above them."""
    entries = {}
    for axis in axes:
        handles, labels = axis.get_legend_handles_labels()
        for handle, label in zip(handles, labels, strict=True):
            entries.setdefault(label, handle)
    columns = min(len(entries), 6)
    if entries:
        figure.legend(entries.values(), entries.keys(), loc="outside upper center", ncols=columns)
