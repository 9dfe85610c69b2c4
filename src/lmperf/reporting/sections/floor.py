"""The parts of a train step at the rates measured here (P5), beside its profile."""

from __future__ import annotations

from functools import cached_property

import pandas as pd

from lmperf.reporting.calculations.kernels import ATTENTION, MATMUL, OPTIMIZER
from lmperf.reporting.calculations.steps import AUTOCAST, GRAPH, NARROW, STEM, STEP, usual
from lmperf.reporting.frames import having, required, sorted_for_reading
from lmperf.reporting.numbers import with_keys
from lmperf.reporting.rows import Rows
from lmperf.reporting.sections import Section
from lmperf.reporting.words import absent
from lmperf.transformer.floor import step_work
from lmperf.transformer.sizes import SHORT

# Parts of a step -> its words in a sentence.
PARTS = {
    "matmul": "matmuls",
    "attention": "attention",
    "optimizer": "AdamW",
    "rest": "norms and elementwise operations",
}
DTYPES = (AUTOCAST, NARROW)


class Floor(Section):
    """The step that the report recommends, at the context and batch of each size."""

    @cached_property
    def lines(self) -> Rows:
        """A row for each size and dtype with the rates of all parts.

        matmul, attention, optimizer, rest: their ms at these rates; sum_ms: the sum. ms: the
        measured step. of_step: sum_ms / ms. NAME_profiled: ms of a part in the profile of the step,
        and sum_profiled of all, else NaN. beyond_ms: ms less that sum.
        """
        rows = usual(self.evidence)
        rows = having(rows, implementation=GRAPH.implementation, dtype=DTYPES)
        rows = required(rows[rows["state"].isna()], "no step of the graph was timed")
        parts = pd.DataFrame([self._parts(row) for _, row in rows.iterrows()], rows.index)
        rows = rows.join(parts).dropna(subset=["sum_ms"])
        rows = required(rows, "the rates of a part of the step were not measured")
        rows = rows.assign(of_step=rows["sum_ms"] / rows["ms"])
        rows = rows.join(self._profiled(rows))
        rows = rows.assign(beyond_ms=rows["ms"] - rows["sum_profiled"])
        return self.rows(STEM).kept(sorted_for_reading(rows, ["size", "dtype"]))

    @property
    def profiled(self) -> pd.Series:
        """The profiled step of the largest size, in bf16 autocast."""
        rows = having(self.lines.sound.dropna(subset=["sum_profiled"]), dtype=AUTOCAST)
        return required(rows, "no step of `lines` was profiled").iloc[-1]

    @property
    def differences(self) -> list[tuple[str, float, str]]:
        """(part in words, ms, `more` or `less`) of `profiled` beside its rates, the most first."""
        row = self.profiled
        more = {words: row[f"{part}_profiled"] - row[part] for part, words in PARTS.items()}
        return [
            (words, with_keys(abs(ms), [row["key"]]), "more" if ms > 0 else "less")
            for words, ms in sorted(more.items(), key=lambda part: -part[1])
        ]

    @property
    def throttled(self) -> pd.Series:
        """`profiled`, if it is longer back to back at the power limit, with its `usual_mhz`."""
        rows = self.profiled.to_frame().T
        rows = rows[self.evidence.at_limit(rows) & (rows["beyond_ms"] > 0)]
        row = required(rows, "it draws less, or is no longer").iloc[0]
        usual = self.evidence.environments[row["environment"]]["clock_sm_mhz"]
        return pd.concat([row, pd.Series({"usual_mhz": usual})])

    def _parts(self, row: pd.Series) -> dict[str, float]:
        """The ms of each part of a step at its rate, and their sum; NaN without a rate."""
        size = SHORT[row["size"]]
        work = step_work(size, int(row["context_length"]), int(row["batch"]), row["dtype"])
        rates = self._attention_rates(size.d_head, int(row["context_length"]))
        matmul = self.evidence.peak("bfloat16", "sustained", sound=True)
        gbps = self.evidence.copy_gbps()
        if rates is None or absent(matmul) or absent(gbps):
            return {"sum_ms": float("nan")}
        parts = {
            "matmul": work.matmul / matmul / 1e9,
            "attention": work.attention_forward / rates["forward"] / 1e9
            + work.attention_backward / rates["backward"] / 1e9,
            "optimizer": work.optimizer / gbps / 1e6,
            "rest": work.rest / gbps / 1e6,
        }
        return {**parts, "sum_ms": sum(parts.values())}

    def _attention_rates(self, d_head: int, seq_len: int) -> pd.Series | None:
        """TFLOP/s of lmperf's attention by phase, at a width and length, in the largest batch."""
        where = {"implementation": "triton", "dtype": "bfloat16", "causal": True}
        rows = having(self.rows("flash_attention").valid.frame, **where)
        rows = having(rows, d_head=d_head, seq_len=seq_len, cuda_graph=False)
        rows = rows.assign(sequences=rows["batch"] * rows["heads"]).sort_values("sequences")
        rates = rows.groupby("phase")["tflops"].last()
        return rates if {"forward", "backward"}.issubset(rates.index) else None

    def _profiled(self, rows: pd.DataFrame) -> pd.DataFrame:
        """The time of each part in the profile of the same step; NaN without one that holds."""
        axes = ["size", "context_length", "batch", "dtype", "implementation"]
        cases = having(self.of("profiles").cases.valid.frame, phase=STEP, holds=True)
        cases = cases.set_index(axes)
        cases = cases.assign(rest=cases["busy"] - cases[[MATMUL, ATTENTION, OPTIMIZER]].sum(axis=1))
        places = pd.MultiIndex.from_frame(rows[axes])
        times = cases.reindex(places)[[*PARTS, "busy"]].set_axis(rows.index)
        return times.rename(columns={"busy": "sum"}).add_suffix("_profiled")
