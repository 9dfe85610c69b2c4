"""Plain PyTorch attention: its times, its memory, and where that ends."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import pandas as pd

from lmperf.dtypes import STORED_DTYPES, dtype_of
from lmperf.names import STATUSES
from lmperf.reporting.calculations.bounds import bounds
from lmperf.reporting.columns import Quantity, across, known_size, memory, number, over, time
from lmperf.reporting.evidence import Evidence
from lmperf.reporting.frames import FIRST, LAST, at, having, matching, parts, required
from lmperf.reporting.gains import Gain, Tally
from lmperf.reporting.numbers import of_rows
from lmperf.reporting.rows import Rows
from lmperf.reporting.sections import Section
from lmperf.reporting.words import MIB, MIB_IN_GIB, NotMeasured, Range

STEM, LIMIT = "attention", "attention_limit"
PLAIN, COMPILED, FLOAT32 = "eager", "compiled", "float32"
PHASES = ("forward", "backward")
USUAL_WIDTH = 64
FURTHER, MOST_LENGTHS = 4, 3  # the first page shows lengths FURTHER times as long as another
# Passes over matrices of the size of the scores. Forward: q k^T writes it, scaling and softmax read
# and write it, the product with v reads it. A mask reads and writes it once more.
PASSES, PASSES_OF_MASK = 6, 2
CELL = ["batch", "seq_len", "d_head", "dtype", "causal"]
OUT_OF_MEMORY = STATUSES["oom"]
# dQ, dK and dV: three gradients for four inputs (the fourth is the gradient of the output).
GRADIENTS_PER_INPUT = 3 / 4
# Tensors of the size of the output at the peak: the output; in the backward also dV.
OUTPUTS = {"forward": 1, "backward": 2}


class Attention(Section):
    """Times of plain attention, compiled and in other numerics, and what bounds its forward.

    Its peaks beside matrices of scores, and the first length without room.
    """

    def __init__(self, evidence: Evidence, subject: str = PLAIN):
        """subject: the implementation whose times and memory it has, by default plain attention."""
        super().__init__(evidence)
        self.subject = subject

    @cached_property
    def of_subjects(self) -> list[Attention]:
        """The same of what the page is about: the custom implementations with a result, in their
        order, or this one."""
        timed = self.every.valid.values("implementation")
        names = [name for name in self.evidence.subjects(STEM) if name in timed]
        return [Attention(self.evidence, name) for name in names] or [self]

    @property
    def is_plain(self) -> bool:
        return self.subject == PLAIN

    @property
    def beside_plain(self) -> str:
        """What is compared with plain attention: the subject, or plain attention compiled."""
        return COMPILED if self.is_plain else self.subject

    @cached_property
    def every(self) -> Rows:
        return self.rows(STEM)

    @cached_property
    def eager(self) -> Rows:
        return self.every.where(implementation=self.subject)

    @property
    def others(self) -> list[str]:
        """Compiled attention, and custom implementations and peers."""
        return [name for name in self.every.values("implementation") if name != PLAIN]

    @cached_property
    def usual(self) -> Rows:
        """The rows of one dtype, width, batch and mask: of each length."""
        rows = required(self.every.frame, "attention was not measured")
        rows = of_usual_width(at(rows, dtype=FIRST))
        return self.every.kept(at(rows, batch=LAST, causal=FIRST))

    @property
    def cell(self) -> dict[str, object]:
        """dtype, d_head, batch and causal of the usual rows."""
        return self.usual.frame.iloc[0][["dtype", "d_head", "batch", "causal"]].to_dict()

    @cached_property
    def lengths(self) -> list[int]:
        """The longest lengths that ran, each FURTHER times as long as the one before."""
        rows = self.usual.where(implementation=self.subject, phase="backward").valid
        ran = required(set(rows.frame["seq_len"]), f"no backward of {self.subject} ran")
        chain = [int(max(ran))]
        while chain[0] / FURTHER in ran and len(chain) < MOST_LENGTHS:
            chain.insert(0, chain[0] // FURTHER)
        return chain

    @property
    def beside_others(self) -> list[Quantity]:
        """Of each phase: the time of plain attention, that of the others and their speed-ups."""
        columns = [time(PLAIN), *map(time, self.others)]
        return across("phase", PHASES, *columns, *(over(name, PLAIN) for name in self.others))

    @cached_property
    def compiled(self) -> Gain:
        """The speed-ups of `beside_plain` over plain attention in float32."""
        return self.every.where(implementation=self.beside_plain, dtype=FLOAT32).over(PLAIN)

    @property
    def tallies(self) -> list[tuple[str, Tally]]:
        """The phases with how `compiled` stands in each."""
        return [(phase, Tally(part)) for (phase,), part in parts(self.compiled.timed, "phase")]

    @property
    def longest(self) -> int:
        """The longest length that ran."""
        return int(self.eager.valid.sound["seq_len"].max())

    @cached_property
    def bounds(self) -> Rows:
        """The forwards of plain attention with moved (bytes), compute_ms, memory_ms and bound."""
        rows = self.eager.where(phase="forward").valid.frame
        limits = bounds(self.evidence, rows, moved_bytes(rows))
        rows = rows.assign(moved_mib=moved_bytes(rows) / MIB, **limits)
        return self.every.kept(rows.dropna(subset=["compute_ms", "memory_ms"]))

    @property
    def longest_bounds(self) -> Rows:
        """The longest forward of the usual cell by width, with memory_share and compute_share."""
        same = {name: value for name, value in self.cell.items() if name != "d_head"}
        rows = having(self.bounds.sound, **same)
        rows = having(rows, seq_len=rows["seq_len"].max())
        shares = {
            f"{what}_share": rows[f"{what}_ms"] / rows["ms"] for what in ("memory", "compute")
        }
        return self.every.kept(rows.assign(**shares))

    def over_float32(self, phase: str) -> list[tuple[str, Gain]]:
        """The speed-ups of the other dtypes at the longest length."""
        rows = self.eager.where(seq_len=self.longest, phase=phase)
        return [
            (dtype, group.over(dtype=FLOAT32))
            for dtype, group in rows.by("dtype")
            if dtype != FLOAT32
        ]

    # Memory, and the first length without room.

    @cached_property
    def limits(self) -> Rows:
        """The first length that cannot fit, by dtype, with `said`: what came of it (A3)."""
        rows = self.evidence.rows(LIMIT)
        return self.rows(LIMIT, rows.assign(said=rows["outcome"].fillna(rows["words"])))

    @cached_property
    def ended(self) -> pd.Series:
        """Where the usual dtype runs out of memory; asked, free: GiB in the allocator's message."""
        rows = having(self.limits.valid.frame, dtype=self.cell["dtype"])
        asked, free = (rows[f"{name}_mib"] / MIB_IN_GIB for name in ("requested", "free"))
        rows = rows.assign(asked=asked, free=free).dropna(subset=["asked"])
        return required(rows, "no length was run that does not fit").iloc[0]

    def held(self, phase: str) -> float:
        """Matrices of scores at the peak of a phase, without inputs and outputs."""
        rows = self._longest(phase)
        held = rows["peak_mib"] - rows["resident_mib"] - OUTPUTS[phase] * _output_mib(rows)
        return of_rows(_number(held / _matrix_mib(rows)), rows)

    @property
    def kept(self) -> float:
        """Matrices of scores that the forward keeps for the backward."""
        rows = self._longest("backward")
        kept = rows["saved_mib"] - rows["resident_mib"] - _output_mib(rows)
        return of_rows(_number(kept / _matrix_mib(rows)), rows)

    def _longest(self, phase: str) -> pd.DataFrame:
        """The float32 rows of the two longest lengths."""
        rows = self.eager.where(dtype=FLOAT32, phase=phase).valid.frame
        rows = rows.dropna(subset=["peak_mib", "resident_mib"])
        return having(rows, seq_len=sorted(rows["seq_len"].unique())[-2:])

    @property
    def grows(self) -> float:
        """By what factor the backward's peak grows for FURTHER times the length, at the longest."""
        if len(self.lengths) < 2:
            raise NotMeasured("no length that is four times another")
        rows = self.usual.where(implementation=self.subject, phase="backward")
        longest = self.lengths[-1]
        both = having(rows.valid.frame, seq_len=[longest, longest // FURTHER])
        peaks = both.set_index("seq_len")["peak_mib"]
        return of_rows(peaks[longest] / peaks[longest // FURTHER], both)

    @property
    def compiled_peak(self) -> Range:
        """The backward's peak, `beside_plain` over plain, in float32 at the longest length."""
        rows = self.every_backward(FLOAT32)
        rows = having(rows, seq_len=rows["seq_len"].max())
        return of_rows(Range.of(rows["compiled_peak_mib"] / rows["peak_mib"]), rows)

    def every_backward(self, *dtypes: str) -> pd.DataFrame:
        """The backward rows of plain attention with the peaks of the forward and compiled.

        compiled: of `beside_plain`.
        """
        rows = self.every.valid.frame
        rows = having(rows[rows["peak_mib"].notna()], dtype=list(dtypes))
        base = having(rows, implementation=PLAIN, phase="backward")
        forward = having(rows, implementation=PLAIN, phase="forward")
        compiled = having(rows, implementation=self.beside_plain, phase="backward")
        return base.assign(
            forward_peak_mib=matching(base, forward, CELL)["peak_mib"],
            compiled_peak_mib=matching(base, compiled, CELL)["peak_mib"],
        )

    @cached_property
    def steps(self) -> Rows:
        """Inputs, peaks, what is kept, and what is left after the backward in closed form (A4).

        TF32 rows store float32, so they are left out.
        """
        rows = self.every_backward(*STORED_DTYPES)
        after = rows["resident_mib"] * (1 + GRADIENTS_PER_INPUT)
        kept = rows["saved_mib"] - rows["resident_mib"]
        rows = rows.assign(kept_mib=kept, after_mib=after, change_mib=after - rows["saved_mib"])
        return self.rows(STEM, rows)

    @cached_property
    def short(self) -> Rows:
        """The usual rows of a few lengths, and the first that does not fit.

        matrices_mib: the size of the matrices of the backward.
        """
        rows = having(self.usual.frame, seq_len=self.lengths)
        rows = pd.concat([rows, self._beyond])
        matrices = self.held("backward") * _matrix_mib(rows)
        return self.rows(STEM, rows.assign(matrices_mib=matrices))

    def short_columns(self, matrices: str) -> list[Quantity]:
        """Times of both phases, plain and compiled, the backward's peak and its matrices.

        matrices: header of the last column.
        """
        times = [
            number("ms", header, unit="ms", owner=name)
            for name, header in ((PLAIN, ""), (COMPILED, COMPILED))
        ]
        unit, mib = ("GiB", MIB_IN_GIB) if self.short.frame["peak_gib"].max() >= 1 else ("MiB", 1)
        peak = memory(f"peak_mib / {mib}", "peak, eager", unit)
        size = known_size(f"matrices_mib / {mib}", matrices, unit)
        return [
            *across("phase", PHASES, *times),
            replace(peak, where={"implementation": PLAIN, "phase": "backward"}),
            replace(size, where={"implementation": PLAIN, "phase": "forward"}),
        ]

    @property
    def _beyond(self) -> pd.DataFrame:
        """The limit as a forward that has no result."""
        cell = self.cell
        rows = having(self.limits.valid.frame, **{n: cell[n] for n in ("batch", "d_head", "dtype")})
        rows = rows[rows["seq_len"] > self.lengths[-1]].dropna(subset=["outcome"])
        outcomes = rows["outcome"]
        words = outcomes.where(outcomes == OUT_OF_MEMORY, outcomes.str.split(":").str[0])
        rows = rows.assign(state="oom", words=words, causal=cell["causal"])
        return rows.rename(index=lambda label: -1 - label)


def of_usual_width(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of the width nearest to that of small and medium models.

    Raises NotMeasured: there are none.
    """
    widths = required(rows["d_head"].unique(), "no attention")
    return having(rows, d_head=min(widths, key=lambda d: (abs(d - USUAL_WIDTH), d)))


def moved_bytes(rows: pd.DataFrame) -> pd.Series:
    """The bytes that a plain forward reads and writes: inputs, output, passes over the scores.

    The column `bytes` has a logsumexp in float32 as well, which plain attention does not write.
    """
    scores = rows["batch"] * rows["seq_len"] ** 2 * rows["dtype"].map(lambda d: dtype_of(d).bytes)
    logsumexp = rows["batch"] * rows["seq_len"] * dtype_of(FLOAT32).bytes
    passes = PASSES + rows["causal"].astype(int) * PASSES_OF_MASK
    return rows["bytes"] - logsumexp + passes * scores


def _number(matrices: pd.Series) -> float:
    """The median number of matrices, with one decimal."""
    return round(Range.of(matrices).middle, 1)


def _matrix_mib(rows: pd.DataFrame) -> pd.Series:
    """MiB of one float32 matrix of batch x length x length."""
    return rows["batch"] * rows["seq_len"] ** 2 * dtype_of(FLOAT32).bytes / MIB


def _output_mib(rows: pd.DataFrame) -> pd.Series:
    """MiB of the output in float32, which is as large as each input."""
    return rows["batch"] * rows["seq_len"] * rows["d_head"] * dtype_of(FLOAT32).bytes / MIB
