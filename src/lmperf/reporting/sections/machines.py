"""Several machines side by side: what they are, and times of the cells that they share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import combinations, product

import numpy as np
import pandas as pd

from lmperf.benchmark import Timed
from lmperf.benchmarks import load, stems
from lmperf.reporting.calculations.bounds import MEMORY, NEITHER, bounds
from lmperf.reporting.evidence import Evidence
from lmperf.reporting.frames import having
from lmperf.reporting.pairs import pairs
from lmperf.reporting.rows import Rows
from lmperf.reporting.sections import Section
from lmperf.reporting.words import EMPTY

STEPS, CEILINGS = "end_to_end", "ceilings"


class Machines(Section):
    """All machines, side by side."""

    @cached_property
    def every(self) -> list[Evidence]:
        """By numbers of rows: the page is committed, and the same wherever it is written."""
        every = [self.evidence, *self.evidence.others]
        return sorted(every, key=lambda one: (-one.row_count, one.machine))

    @cached_property
    def facts(self) -> Rows:
        """A line for each machine."""
        return self.table_rows(map(facts_of, self.every))

    @cached_property
    def ceilings(self) -> Rows:
        """A line for each operation, numerics, kind of load and machine."""
        return self.table_rows(line for machine in self.every for line in ceilings(machine))

    @property
    def emulated(self) -> list[str]:
        """The CPUs that emulate bf16: a matmul takes more than twice as long as in float32."""
        return [machine.machine for machine in self.every if _emulates(machine)]

    @cached_property
    def steps(self) -> Rows:
        """The train steps whose cells at least two machines have, of no single benchmark."""
        rows = pd.concat([e.rows(STEPS).assign(machine=e.machine) for e in self.every])
        cells = rows.groupby([*load(STEPS).identity], dropna=False)
        rows = rows[cells["machine"].transform("nunique") > 1].reset_index(drop=True)
        return self.rows("", having(rows, phase="train_step"))

    @cached_property
    def ratios(self) -> Rows:
        """A line for each two machines, benchmark with common cells, and what bounds these."""
        return self.table_rows(ratios(self.every))


def facts_of(evidence: Evidence) -> dict[str, object]:
    """What a machine is, and how much was measured on it."""
    facts = evidence.environment
    gpus = facts.get("devices") or 1
    return {
        "machine": f"[{evidence.machine}]({evidence.link}/report.md)",
        "device": f"{gpus} x {evidence.device}" if gpus > 1 else evidence.device,
        "torch": facts.get("torch") or EMPTY,
        "triton": facts.get("triton") or EMPTY,
        "measured": str(facts.get("measured_at") or EMPTY)[:10],
        "rows": evidence.row_count,
    }


def ceilings(evidence: Evidence) -> Iterator[dict]:
    """The best rates of a machine beside those of its data sheet."""
    for (operation, dtype, load_), rate in evidence.ceilings.items():
        is_matmul = operation == "matmul"
        bandwidth = evidence.sheet.bandwidth_gbps if evidence.sheet else np.nan
        yield {
            "operation": operation,
            "dtype": dtype,
            "load": load_,
            "unit": "TFLOP/s" if is_matmul else "GB/s",
            "machine": evidence.machine,
            "rate": rate,
            "sheet": evidence.sheet_tflops(dtype) if is_matmul else bandwidth,
        }


def ratios(machines: Sequence[Evidence]) -> Iterator[dict]:
    """How many times as fast the first of two machines is, by benchmark and what bounds its rows.

    The faster machine of a benchmark is first. A GPU is not compared with a CPU.
    """
    timed = [stem for stem in stems() if stem != CEILINGS and isinstance(load(stem), Timed)]
    for sides, stem in product(combinations(machines, 2), timed):
        if not all(stem in evidence.stems for evidence in sides):
            continue
        if sides[0].is_cuda != sides[1].is_cuda:
            continue
        rows = compared(*sides, stem)
        if mean(rows["ratio"]) < 1:
            sides = sides[::-1]
            rows = compared(*sides, stem)
        for bound, part in rows.groupby("bound"):
            yield {
                "machines": " over ".join(evidence.machine for evidence in sides),
                "benchmark": load(stem).title,
                "bound": bound,
                "cells": len(part),
                "mean": mean(part["ratio"]),
                "mean_low": part["ratio"].min(),
                "mean_high": part["ratio"].max(),
                "sheets": mean(part["sheets"]),
            }


def _emulates(machine: Evidence) -> bool:
    rates = [machine.ceilings.get(("matmul", dtype, "burst")) for dtype in ("bfloat16", "float32")]
    return not machine.is_cuda and None not in rates and 2 * rates[0] < rates[1]


def mean(ratios: pd.Series) -> float:
    """The geometric mean; NaN for no ratio."""
    return float(np.exp(np.log(ratios.astype(float)).mean()))


def compared(first: Evidence, second: Evidence, stem: str) -> pd.DataFrame:
    """The cells that both machines measured.

    Rows that waited for the CPU or were measured under load are left out. Columns: `ratio`, the
    time of the second machine over that of the first; `bound`, what bounds the row on the first;
    and `sheets`, the ratio of the data sheets in that.
    """
    sides = [side.rows(stem).query("holds and not waits") for side in (first, second)]
    rows = pairs(*(side.dropna(subset="ms") for side in sides), load(stem).identity)
    bound = bounds(first, rows, rows["bytes"])["bound"]
    dtypes = rows.get("dtype", pd.Series("", rows.index))
    return rows.assign(
        ratio=rows["ms_base"] / rows["ms"],
        bound=bound,
        sheets=[sheets(first, second, *row) for row in zip(bound, dtypes, strict=True)],
    )


def sheets(first: Evidence, second: Evidence, bound: str, dtype: str) -> float:
    """The ratio of the data sheets in what bounds a row; NaN if a sheet is not known."""
    if None in (first.sheet, second.sheet) or bound == NEITHER:
        return np.nan
    if bound == MEMORY:
        return first.sheet.bandwidth_gbps / second.sheet.bandwidth_gbps
    return first.sheet_tflops(dtype) / second.sheet_tflops(dtype)
