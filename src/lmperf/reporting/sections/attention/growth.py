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

CELL = ["batch", "d_head", "causal"]
SOURCES = ("write-up 000", "write-up 001")
UNITS = {"MB": 1e6, "GB": 1e9}


def doubling(evidence: MachineEvidence, **where) -> dict:
    """Factors of times and memory over the last doubling of the length.

    ``lengths`` are the two. The times ``forward`` and ``backward``, ``memory`` (kept for the
    backward) and ``peak`` (of the backward) are Spreads over the cells, or None where one was not
    measured. Raises NotMeasured where no length is twice another.
    """
    rows = rows_of(evidence, STEM, implementation="eager", **where)
    lengths = set(rows["seq_len"])
    long = max((n for n in lengths if n / 2 in lengths), default=None)
    if long is None:
        raise NotMeasured
    rows = rows.assign(held=held(rows))
    forward, backward = (having(rows, phase=phase) for phase in ("forward", "backward"))
    return {
        "lengths": (long / 2, long),
        "forward": _factors(forward, "median_ms", long),
        "backward": _factors(backward, "median_ms", long),
        "memory": _factors(backward, "held", long),
        "peak": _factors(backward, "peak_mib", long),
    }


def _factors(rows: pd.DataFrame, column: str, long: float) -> Spread | None:
    wide = rows.pivot_table(index=CELL, columns="seq_len", values=column)
    if not {long, long / 2} <= set(wide.columns):
        return None
    factors = (wide[long] / wide[long / 2]).dropna()
    return Spread.of(factors) if len(factors) else None


def matrices(evidence: MachineEvidence, dtype: str = "float32") -> dict:
    """What eager attention holds at its longest length, in matrices [batch, length, length].

    ``kept`` for the backward and, where measured, at the peak of ``forward`` and of ``backward``;
    the inputs are not counted. Raises NotMeasured where no memory was measured.
    """
    rows = rows_of(evidence, STEM, implementation="eager", dtype=dtype)
    rows = measured(rows[rows["saved_mib"].notna()])
    rows = having(rows, seq_len=rows["seq_len"].max())
    one = rows["batch"] * rows["seq_len"] ** 2 * DTYPES[dtype].bytes / MIB
    peak = (rows["peak_mib"] - rows["resident_mib"].fillna(0.0)) / one
    backward = measured(having(rows, phase="backward"))
    peaks = {p: peak[rows["phase"] == p].dropna() for p in ("forward", "backward")}
    return {
        "length": f"{rows['seq_len'].iloc[0]:,.0f}",
        "kept": Spread.of(held(backward) / one[backward.index]),
        **{phase: Spread.of(own) if len(own) else None for phase, own in peaks.items()},
    }


@cache
def published_matrices() -> dict:
    """What two write-ups print for the same cells: how far apart they are, and their matrices.

    ``apart`` is the Spread of their ratio over the cells that both have; ``counts`` is, by source,
    the Spread of the matrices [batch, length, length] that it comes to at the longest of these.
    """
    figures = pd.read_csv(Path(published.__file__).parent / "attention.csv", dtype={"value": str})
    figures = having(figures, source=list(SOURCES), unit=list(UNITS), implementation="eager")
    figures = figures[figures["value"] != "OOM"]
    figures = figures.assign(size=figures["value"].astype(float) * figures["unit"].map(UNITS))
    wide = figures.pivot_table(
        index=["batch", "seq_len", "d_head"], columns="source", values="size"
    )
    wide = wide[list(SOURCES)].dropna().reset_index()
    longest = having(wide, seq_len=wide["seq_len"].max())
    one = longest["batch"] * longest["seq_len"] ** 2 * DTYPES["float32"].bytes
    first, second = SOURCES
    return {
        "apart": Spread.of(wide[second] / wide[first]),
        "at": f"{longest['seq_len'].iloc[0]:,.0f}",
        "counts": [Spread.of(longest[source] / one) for source in SOURCES],
    }
