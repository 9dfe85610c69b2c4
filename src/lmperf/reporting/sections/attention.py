"""Plain PyTorch attention: selections of rows and calculations of the template of this name."""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property
from itertools import product

import pandas as pd

from lmperf.dtypes import dtype_of
from lmperf.names import dtype_words, implementation_words, in_order
from lmperf.reporting.evidence import having, some
from lmperf.reporting.gains import Gain
from lmperf.reporting.rows import Rows
from lmperf.reporting.sections import Section, predicate
from lmperf.reporting.sections.bounds import COMPUTE, MEMORY, NEITHER, bounds
from lmperf.reporting.tables import Quantity, across, over, time
from lmperf.reporting.words import MIB, NotMeasured

STEM, LIMIT = "attention", "attention_limit"
PLAIN, COMPILED, SINGLE = "eager", "compiled", "float32"
PHASES = ("forward", "backward")
USUAL_WIDTH = 64
STEP, MOST_LENGTHS = 4, 3  # the first page shows lengths that are STEP times as long as one another
# Passes over matrices of the size of the scores. Forward: q k^T writes it, scaling and softmax read
# and write it, the product with v reads it. A mask reads and writes it once more.
PASSES, PASSES_OF_MASK = 6, 2
MOST = 0.9  # of the cells: nearly all of them


class Attention(Section):
    """Times of plain attention, compiled and in other numerics, and what bounds its forward."""

    phases, plain = PHASES, PLAIN

    @cached_property
    def every(self) -> Rows:
        return self.rows(STEM)

    @cached_property
    def eager(self) -> Rows:
        return self.every.where(implementation=PLAIN)

    @property
    def others(self) -> list[str]:
        """Compiled attention, and custom implementations and peers."""
        return [name for name in self.every.values("implementation") if name != PLAIN]

    @cached_property
    def usual(self) -> Rows:
        """The rows of one dtype, width, batch and mask: of each length."""
        rows = some(self.every.frame, "attention was not measured")
        rows = having(rows, dtype=in_order("dtype", rows["dtype"])[0])
        width = min(rows["d_head"].unique(), key=lambda d: (abs(d - USUAL_WIDTH), d))
        rows = having(rows, d_head=width, batch=rows["batch"].max())
        return self.every.kept(having(rows, causal=rows["causal"].min()))

    @property
    def cell(self) -> dict[str, object]:
        """dtype, d_head, batch and causal of the usual rows."""
        return self.usual.frame.iloc[0][["dtype", "d_head", "batch", "causal"]].to_dict()

    @cached_property
    def lengths(self) -> list[int]:
        """The longest lengths that ran, each STEP times as long as the one before."""
        rows = self.usual.where(implementation=PLAIN, phase="backward").valid
        ran = some(set(rows.frame["seq_len"]), "no backward of plain attention ran")
        chain = [int(max(ran))]
        while chain[0] / STEP in ran and len(chain) < MOST_LENGTHS:
            chain.insert(0, chain[0] // STEP)
        return chain

    @property
    def beside_others(self) -> list[Quantity]:
        """Of each phase: the time of plain attention, that of the others and their speed-ups."""
        columns = [time(PLAIN), *map(time, self.others)]
        return across("phase", PHASES, *columns, *(over(one, PLAIN) for one in self.others))

    @property
    def over_float32(self) -> list[Quantity]:
        """Of each phase: the speed-ups of each implementation in other numerics over float32."""
        dtypes = [dtype for dtype in self.every.values("dtype") if dtype != SINGLE]
        columns = [
            over(
                name,
                header=f"{implementation_words(name)}, {dtype_words(dtype)}",
                dtype=(dtype, SINGLE),
            )
            for name, dtype in product(self.every.values("implementation"), dtypes)
        ]
        return across("phase", PHASES, *columns)

    @cached_property
    def compiled(self) -> Gain:
        """The speed-ups of compiled over plain attention in float32."""
        return self.every.where(implementation=COMPILED, dtype=SINGLE).over(PLAIN)

    @predicate
    def compiling_pays(self) -> bool:
        """Whether compiled attention is faster in nearly all cells."""
        return self.compiled.faster.k > MOST * len(self.compiled.timed)

    def numerics(self, phase: str) -> list[tuple[str, Gain]]:
        """(dtype, speed-ups over float32) of plain attention at the longest length."""
        rows = self.eager.where(phase=phase)
        longest = rows.valid.sound["seq_len"].max()
        found = []
        for dtype in rows.values("dtype"):
            with suppress(NotMeasured):
                if dtype != SINGLE:
                    part = rows.where(dtype=dtype, seq_len=longest)
                    found.append((dtype, part.over(dtype=SINGLE)))
        return some(found, "no other numerics")

    @property
    def longest(self) -> int:
        return int(self.eager.valid.sound["seq_len"].max())

    @property
    def lower_precision_pays(self) -> bool:
        """Whether plain attention is faster in all other numerics, in both phases."""
        return all(gain.is_faster for phase in PHASES for _, gain in self.numerics(phase))

    @property
    def widest_gains_most(self) -> bool:
        """Whether in both phases and all numerics the widest heads gain more than the narrowest."""
        gains = [gain for phase in PHASES for _, gain in self.numerics(phase)]
        by_width = [gain.rows.set_index("d_head")["ratio"].sort_index() for gain in gains]
        return all(len(of) > 1 and of.iloc[-1] > of.iloc[0] for of in by_width)

    @cached_property
    def bounds(self) -> Rows:
        """The forwards of plain attention with moved (bytes), compute_ms, memory_ms and bound."""
        rows = self.eager.where(phase="forward").valid.frame
        found = bounds(self.evidence, rows, moved_bytes(rows))
        rows = rows.assign(moved_mib=moved_bytes(rows) / MIB, **found)
        return self.every.kept(rows.dropna(subset=["compute_ms", "memory_ms"]))

    @property
    def longest_bounds(self) -> pd.DataFrame:
        """What bounds the longest forward, by width: the usual one first.

        compute, memory: the shares of its time that its FLOPs and bytes need at the least.
        """
        same = {name: value for name, value in self.cell.items() if name != "d_head"}
        rows = having(self.bounds.sound, **same)
        rows = some(having(rows, seq_len=rows["seq_len"].max()), "no forward has a bound")
        shares = {name: rows[f"{name}_ms"] / rows["ms"] for name in (COMPUTE, MEMORY)}
        rows = rows.assign(**shares, is_other=rows["d_head"] != self.cell["d_head"])
        return rows.sort_values("is_other", kind="stable")

    @property
    def other_bounds(self) -> list[tuple[str, list[int]]]:
        """(bound, widths) of the longest forwards that something else bounds than the usual one."""
        rows = self.longest_bounds
        found = [(kind, having(rows, bound=kind)["d_head"]) for kind in (COMPUTE, MEMORY, NEITHER)]
        usual = rows["bound"].iloc[0]
        return [(kind, [*widths]) for kind, widths in found if kind != usual and len(widths)]


def moved_bytes(rows: pd.DataFrame) -> pd.Series:
    """The bytes that a plain forward reads and writes: inputs, output, passes over the scores.

    The column `bytes` has a logsumexp in float32 as well, which plain attention does not write.
    """
    scores = rows["batch"] * rows["seq_len"] ** 2 * rows["dtype"].map(lambda d: dtype_of(d).bytes)
    logsumexp = rows["batch"] * rows["seq_len"] * dtype_of(SINGLE).bytes
    passes = PASSES + rows["causal"].astype(int) * PASSES_OF_MASK
    return rows["bytes"] - logsumexp + passes * scores
