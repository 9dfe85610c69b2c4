"""Course questions on memory, attention and md_lrpe_cosine: what no other section offers."""

from __future__ import annotations

import math
import re
from functools import cached_property

import pandas as pd

from lmperf.dtypes import DTYPES, dtype_of
from lmperf.names import in_order
from lmperf.reporting.evidence import having, some
from lmperf.reporting.gains import Gain
from lmperf.reporting.sections import Section
from lmperf.reporting.sections.attention import PHASES, PLAIN, SINGLE
from lmperf.reporting.sections.attention import STEP as FURTHER
from lmperf.reporting.sections.attention_memory import SQUARE
from lmperf.reporting.sections.flash_attention import NARROW
from lmperf.reporting.sections.lrpe import COPY
from lmperf.reporting.sections.memory import STEP
from lmperf.reporting.words import NotMeasured, Range
from lmperf.statistics import SLOWER

VARIES = 0.20  # what differs by less is not said


class QuestionsMemory(Section):
    """What the answers need beside the sections of their tables."""

    # Memory.

    @cached_property
    def by_context(self) -> pd.DataFrame:
        """The float32 rows of the largest size whose allocations were recorded."""
        rows = having(self.of("memory").ours.valid.frame, dtype=SINGLE)
        rows = having(rows, size=self.of("memory_timeline").peak.size)
        return having(rows, batch=rows["batch"].max())

    def peaks(self, phase: str) -> pd.Series:
        """Context -> GiB at the peak."""
        return some(
            having(self.by_context, phase=phase).set_index("context_length")["peak_gib"],
            f"no peak of a {phase}",
        )

    @property
    def ends(self) -> list[tuple[bool, list[int]]]:
        """(whether a step peaks with all gradients, not all activations; contexts), predicted."""
        rows = having(self.by_context, phase=STEP).set_index("context_length")
        rows = rows.dropna(subset=["gradients_mib", "activations_mib"])
        late = rows["gradients_mib"] > rows["activations_mib"]
        return [(of, [*part.index]) for of, part in late.groupby(late, sort=False)]

    @property
    def forward_over_weights(self) -> float:
        """The most times the weights that the peak of a forward takes."""
        forward = having(self.by_context, phase="forward")
        return Range.of(forward["peak_mib"] / forward["parameters_mib"]).high

    @cached_property
    def blocks(self) -> pd.DataFrame:
        """The largest tensors at the peak of that size's float32 step, one for each shape."""
        peak = self.of("memory_timeline").peak
        rows = self.of("memory_timeline").blocks.frame
        rows = having(rows, size=peak.size, dtype=peak.dtype, phase=STEP)
        return rows[rows["size_mib"] == rows["size_mib"].max()].drop_duplicates("tensor")

    @property
    def shape_explains(self) -> bool:
        """Whether the shape of the largest tensor gives all of its bytes."""
        first = self.blocks.iloc[0]
        found = re.fullmatch(r"(\w+)\[([\d, ]+)\]", str(first["tensor"]))
        if found is None or found[1] not in DTYPES:
            return False
        elements = math.prod(map(int, found[2].split(",")))
        return first["size_mib"] == elements * DTYPES[found[1]].bytes / 2**20

    # Attention.

    @cached_property
    def plain(self) -> pd.DataFrame:
        """Length -> ms of plain attention's forward and backward, of the usual rows."""
        rows = self.of("attention").usual.where(implementation=PLAIN).valid.frame
        return rows.pivot_table("ms", "seq_len", "phase").reindex(columns=[*PHASES])

    @property
    def forward_ms(self) -> pd.Series:
        """Length -> ms."""
        return some(self.plain["forward"].dropna(), "no forward of plain attention")

    def peak_gib(self, phase: str) -> float:
        rows = self.of("attention").usual.where(implementation=PLAIN, phase=phase)
        return rows.where(seq_len=self.of("attention").lengths[-1]).one["peak_gib"]

    @cached_property
    def growths(self) -> list[tuple[int, int, Range]]:
        """(length, FURTHER times as long, how many times as long both phases take), by length."""
        times = self.plain.dropna()
        pairs = [(n, FURTHER * n) for n in times.index if FURTHER * n in times.index]
        pairs = some(pairs, "no length that is four times another")
        return [(a, b, Range.of(times.loc[b] / times.loc[a])) for a, b in pairs]

    @property
    def time_is_square(self) -> bool:
        low, _, high = self.growths[-1][2]
        return SQUARE[0] <= low and high <= SQUARE[1]

    @cached_property
    def one_head(self) -> Gain:
        """The speed-ups of our kernel over plain PyTorch, one narrow causal head."""
        flash = self.of("flash_attention")
        rows = flash.every.where(kind="head", implementation=flash.ours, dtype=flash.dtype)
        return rows.where(d_head=NARROW, mask="causal").over(PLAIN)

    @property
    def lengths(self) -> list[int]:
        """The shortest length, that of the filled grid's longest rows, and the longest one."""
        rows = self.one_head.rows["seq_len"]
        return sorted({rows.min(), self.of("flash_attention").longest.only("seq_len"), rows.max()})

    @cached_property
    def slower(self) -> pd.DataFrame:
        """The comparisons of one head in which our kernel is slower than plain PyTorch."""
        rows = self.of("flash_attention").over_plain.rows
        return rows[rows["verdict"] == SLOWER].sort_values("ratio")

    @property
    def slower_scores_mib(self) -> float:
        """The largest matrix of scores of these."""
        of = self.slower
        bytes_ = of["dtype"].map(lambda dtype: dtype_of(dtype).bytes)
        return (of["batch"] * of["seq_len"] ** 2 * bytes_).max() / 2**20

    def values(self, axis: str) -> list:
        """The values of an axis in these comparisons."""
        return in_order(axis, self.slower[axis])

    # md_lrpe_cosine.

    def along(self, axis: str, base: str) -> pd.DataFrame:
        """Value of an axis -> speed-ups of the lead over another, a column for each phase.

        Of the largest shape for each value; of axes and extra tokens the other one is least.
        """
        lrpe = self.of("lrpe")
        rows = lrpe.shown.valid.frame
        for other in {"axes", "extra_tokens"} - {axis}:
            rows = rows[rows[other] == rows[other].min()]
        rows = rows[rows["positions"] == rows.groupby(axis)["positions"].transform("max")]
        found = lrpe.over(lrpe.shown.kept(rows), lrpe.lead, base).rows
        found = found[["ratio", "phase"]].assign(value=rows[axis])
        found = found.pivot_table("ratio", "value", "phase").reindex(columns=[*PHASES]).dropna()
        if len(found) < 2:
            raise NotMeasured(f"only one value of {axis}")
        return found

    def varying(self, axis: str) -> list[tuple[str, pd.Series]]:
        """(phase, value -> time of the next implementation over the lead's), where it varies."""
        found = self.along(axis, self.of("lrpe").peer)
        return [(n, of) for n, of in found.items() if of.max() / of.min() > 1 + VARIES]

    @property
    def lrpe_peaks(self) -> pd.DataFrame:
        """Implementation -> MiB by phase, in the first page's rows."""
        rows = self.of("lrpe").largest.valid.frame
        rows = rows[rows["implementation"] != COPY]
        wide = rows.pivot_table("peak_mib", "implementation", "phase", sort=False)
        return wide.reindex(columns=[*PHASES]).dropna()

    @property
    def larger_peaks(self) -> list[pd.Series]:
        """The rows of as many positions, but more axes, that need more memory."""
        rows = self.of("lrpe").shown.valid.frame
        rows = having(rows, extra_tokens=rows["extra_tokens"].min())
        rows = having(rows, positions=rows["positions"].max()).sort_values("axes", kind="stable")
        first = rows.groupby(["implementation", "phase"])["peak_mib"].transform("first")
        return [row for _, row in rows[rows["peak_mib"] > (1 + VARIES) * first].iterrows()]
