"""How plain attention grows with the length, and how many matrices of its square it holds."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pandas as pd

from lmperf.names import DTYPES
from lmperf.reporting import published
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.findings import NotMeasured, measured, rows_of
from lmperf.reporting.numbers import MIB, Spread
from lmperf.reporting.sections.attention.tables import STEM, held

SOURCES = ["write-up 000", "write-up 001"]
UNITS = {"MB": 1e6, "GB": 1e9}


def doubling(evidence: MachineEvidence, **where) -> dict:
    """Factors of times and memory over the last doubling of the length, as Spreads over the cells.

    ``short`` and ``long`` are the lengths; the factors are the times ``forward`` and ``backward``,
    ``memory`` (kept for the backward) and ``peak`` (of the backward). Raises NotMeasured where one
    of them is not there.
    """
    rows = rows_of(evidence, STEM, implementation="eager", **where)
    lengths = set(rows["seq_len"])
    long = max((n for n in lengths if n / 2 in lengths), default=None)
    if long is None:
        raise NotMeasured
    rows = rows.assign(held=held(rows))
    quantities = {
        "forward": ("forward", "median_ms"),
        "backward": ("backward", "median_ms"),
        "memory": ("backward", "held"),
        "peak": ("backward", "peak_mib"),
    }
    factors = {name: _factors(rows, *what, long) for name, what in quantities.items()}
    return {"short": long / 2, "long": long, **factors}


def _factors(rows: pd.DataFrame, phase: str, column: str, long: float) -> Spread:
    cell = ["batch", "d_head", "causal"]
    wide = having(rows, phase=phase).pivot_table(index=cell, columns="seq_len", values=column)
    if not {long, long / 2} <= set(wide.columns):
        raise NotMeasured
    return Spread.of(measured((wide[long] / wide[long / 2]).dropna()))


def matrices(evidence: MachineEvidence) -> dict:
    """Matrices [batch, length, length] of float32 that eager attention holds at its longest length.

    ``kept`` for the backward, and at the peaks of ``forward`` and ``backward``, without the inputs.
    Raises NotMeasured where no memory was measured.
    """
    rows = rows_of(evidence, STEM, implementation="eager", dtype="float32")
    rows = measured(rows[rows["saved_mib"].notna()])
    rows = having(rows, seq_len=rows["seq_len"].max())
    one = rows["batch"] * rows["seq_len"] ** 2 * DTYPES["float32"].bytes / MIB
    held_then = {"saved": held(rows) / one, "peak": (rows["peak_mib"] - rows["resident_mib"]) / one}
    of = {phase: measured(having(rows, phase=phase)).index for phase in ("forward", "backward")}
    return {
        "length": rows["seq_len"].iloc[0],
        "kept": Spread.of(held_then["saved"][of["backward"]]),
        **{phase: Spread.of(held_then["peak"][index]) for phase, index in of.items()},
    }


@cache
def published_matrices() -> dict:
    """What two write-ups print for the same cells.

    ``apart`` is the Spread of their ratio over the cells that both have; ``counts`` has, by source,
    the Spread of the matrices [batch, length, length] that it comes to at ``at``, the longest.
    """
    figures = pd.read_csv(Path(published.__file__).parent / "attention.csv", dtype={"value": str})
    figures = having(figures, source=SOURCES, unit=[*UNITS], implementation="eager")
    figures = figures[figures["value"] != "OOM"]
    figures = figures.assign(size=figures["value"].astype(float) * figures["unit"].map(UNITS))
    cell = ["batch", "seq_len", "d_head"]
    wide = figures.pivot_table(index=cell, columns="source", values="size")[SOURCES].dropna()
    longest = having(wide.reset_index(), seq_len=wide.index.get_level_values("seq_len").max())
    one = longest["batch"] * longest["seq_len"] ** 2 * DTYPES["float32"].bytes
    return {
        "apart": Spread.of(wide[SOURCES[1]] / wide[SOURCES[0]]),
        "at": longest["seq_len"].iloc[0],
        "counts": [Spread.of(longest[source] / one) for source in SOURCES],
    }
