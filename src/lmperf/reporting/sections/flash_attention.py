"""FlashAttention-2: rows and calculations of its page and of its part of the first page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from itertools import product

import numpy as np
import pandas as pd

from lmperf.benchmarks import load
from lmperf.names import dtype_words, phase_words
from lmperf.reporting.calculations.bounds import LAUNCH_BOUND
from lmperf.reporting.columns import Quantity, across, mean, over, rate, time
from lmperf.reporting.evidence import Evidence
from lmperf.reporting.frames import having, parts, required, sorted_for_reading
from lmperf.reporting.gains import Gain, Tally
from lmperf.reporting.numbers import of_rows
from lmperf.reporting.pairs import pairs
from lmperf.reporting.rows import Rows
from lmperf.reporting.sections import Section
from lmperf.reporting.words import NotMeasured, Range, listed, whole
from lmperf.statistics import FASTER, SLOWER
from lmperf.transformer.sizes import SIZES

STEM, PROFILES = "flash_attention", "profiles"
PLAIN, HALF, AUTOCAST = "eager", "bfloat16", "autocast_bfloat16"
DETERMINISTIC = "flash_attention_4_deterministic"
SAME_BITS = "triton_deterministic"
# In the order of columns; SDPA without a backend is what a machine without a GPU has.
PEERS = (
    *("sdpa_cudnn", "flash_attention_4", DETERMINISTIC),
    *("sdpa_flash", "sdpa_efficient", "flex", "sdpa"),
)
RIVALS = ("sdpa_cudnn", "flash_attention_4", "sdpa_flash")
BACKENDS = ("sdpa_cudnn", "sdpa_flash", "sdpa_efficient")
FASTEST = "the fastest SDPA backend"
BOTH = ("forward", "backward")
PHASES = (*BOTH, "forward_backward")
SHAPE = ["batch", "heads", "seq_len", "d_head"]
LONG = 2048  # one head of a shorter sequence is launch-bound or leaves most SMs idle
NARROW = 64  # d_head of the small and medium models


class FlashAttention(Section):
    """An attention, the subject, beside its peers: on one head, on a filled grid, in other shapes.

    The write-up shows the filled grid, or one head where no grid was measured, in one dtype:
    `shown`. Of these rows it shows some causal ones first: those of the models' heads at their
    length (`of_models`), and the longest ones of the widest head (`longest`).
    """

    def __init__(self, evidence: Evidence, subject: str = ""):
        """subject: by default the first custom implementation, else lmperf's kernel."""
        super().__init__(evidence)
        self._subject = subject

    @cached_property
    def every(self) -> Rows:
        """All rows, with ``kind``: head (one head), graph (one head as a CUDA graph), grid, other.

        A row of kind other has one of the shapes that the benchmark declares as such.
        """
        rows = self.evidence.rows(STEM)
        is_other = pd.MultiIndex.from_frame(rows[SHAPE]).isin(load(STEM).stated["other_shapes"])
        kinds = {"graph": rows["cuda_graph"].eq(True), "other": is_other, "grid": rows["heads"] > 1}
        kind = np.select([*kinds.values()], [*kinds], "head")
        return self.rows(STEM, rows.assign(kind=kind))

    @cached_property
    def kernel(self) -> str:
        """lmperf's attention: Triton, or without a GPU the tiled PyTorch version."""
        return "triton" if "triton" in self.every.frame["implementation"].values else "tiled"

    @cached_property
    def subject(self) -> str:
        return self._subject or next(iter(self.evidence.subjects(STEM)), self.kernel)

    @property
    def is_own(self) -> bool:
        """Whether this is about a custom implementation."""
        return self.subject != self.kernel

    @cached_property
    def each(self) -> list[FlashAttention]:
        """This section about each of several custom implementations."""
        names = self.evidence.subjects(STEM)
        return [type(self)(self.evidence, name) for name in names] or [self]

    @property
    def deterministic(self) -> FlashAttention:
        """This section about lmperf's deterministic kernel."""
        required(having(self.every.frame, implementation=SAME_BITS), "it was not timed")
        return type(self)(self.evidence, SAME_BITS)

    @property
    def peers(self) -> tuple[str, ...]:
        """What the subject is compared with; a custom one also with lmperf's."""
        return (*PEERS, self.kernel) if self.is_own else PEERS

    @property
    def rates(self) -> list[Quantity]:
        """The rates of the subjects, lmperf's deterministic kernel, the peers and plain PyTorch."""
        subjects = [section.subject for section in self.each]
        return [rate(name) for name in (*subjects, SAME_BITS, *self.peers, PLAIN)]

    @property
    def rates_over_peer(self) -> list[Quantity]:
        """The rates of the subject in both phases, and its speed-ups over the peer."""
        return across("phase", BOTH, rate(self.subject), over(self.subject, self.peer))

    @property
    def times_over_plain(self) -> list[Quantity]:
        """Of each phase the times of the subject and of plain PyTorch, and the speed-up."""
        shown = time(self.subject), time(PLAIN), over(self.subject, PLAIN)
        return across("phase", PHASES, *shown)

    @property
    def times_over_peers(self) -> list[Quantity]:
        """The time of the subject, then that of each peer with the speed-up over it."""
        others = [
            column for peer in self._equals for column in (time(peer), over(self.subject, peer))
        ]
        return [time(self.subject), *others]

    @property
    def mean_speedups(self) -> list[Quantity]:
        """The mean speed-up over each peer, and over the fastest one."""
        return [mean(peer) for peer in (*self._equals, FASTEST)]

    @property
    def over_peers(self) -> list[Quantity]:
        """The speed-ups of the subject over its peers."""
        return [over(self.subject, peer) for peer in self._equals]

    @property
    def _equals(self) -> list[str]:
        """The peers that need not be deterministic either."""
        return [peer for peer in self.peers if peer != DETERMINISTIC]

    @cached_property
    def kind(self) -> str:
        """The kind of rows that the write-up shows: grid, or head where no grid has a result."""
        return "grid" if "grid" in self._results["kind"].values else "head"

    @cached_property
    def dtype(self) -> str:
        """The dtype that the write-up shows: bf16, or the first with a result."""
        dtypes = self._results["dtype"]
        return HALF if HALF in dtypes.values else dtypes.iloc[0]

    @cached_property
    def _results(self) -> pd.DataFrame:
        rows = self.every.valid.frame
        rows = having(rows, implementation=self.subject) if self.is_own else rows
        return required(rows, "FlashAttention was not measured")

    @cached_property
    def dtype_names(self) -> dict[str, str]:
        """lmperf's kernel computes a float32 product as three of float16, not in IEEE float32."""
        return {"float32": "float32*"} if self.subject == "triton" else {}

    @cached_property
    def dtype_name(self) -> str:
        return self.dtype_names.get(self.dtype, dtype_words(self.dtype))

    @cached_property
    def shown(self) -> Rows:
        """The rows of the write-up, of all implementations."""
        return self.every.where(kind=self.kind, dtype=self.dtype)

    @cached_property
    def of_subject(self) -> Rows:
        return self.shown.where(implementation=self.subject)

    @cached_property
    def longest(self) -> Rows:
        """Of the rows of the write-up the longest ones of the widest head, with `mask`."""
        masked = self.shown.where(mask=self.mask)
        ran = masked.where(implementation=self.subject).valid.frame
        widest = having(ran, d_head=ran["d_head"].max())
        return masked.where(d_head=widest["d_head"].iloc[0], seq_len=widest["seq_len"].max())

    @cached_property
    def mask(self) -> str:
        """The mask of the first rows: causal, or full where no causal row has a result."""
        ran = required(self.of_subject.valid.frame, f"{self.subject} has no result")
        return "causal" if "causal" in ran["mask"].values else "full"

    @cached_property
    def of_models(self) -> Rows:
        """The rows of the filled grid with the models' heads at their length, with `mask`."""
        shapes = {axis: [*values] for axis, values in load(STEM).stated["of_models"].items()}
        return self.every.where(kind="grid", dtype=self.dtype, mask=self.mask, **shapes)

    @property
    def by_length(self) -> Rows:
        """The subject's rows of the filled grid, of all phases, with `mask`; `length` in words.

        Of the widths at which a comparison with the peer holds.
        """
        where = {"implementation": self.subject, "dtype": self.dtype, "mask": self.mask}
        where |= {"kind": "grid", "phase": PHASES}
        widths = [width for width, _ in self.tallies(self.peer, BOTH, kind="grid")]
        rows = self.every.where(d_head=widths, **where).frame
        words = {length: f"length {whole(length)}" for length in sorted(rows["seq_len"].unique())}
        lengths = pd.Categorical(rows["seq_len"].map(words), [*words.values()])
        rows = sorted_for_reading(rows.assign(length=lengths), ["d_head", "length"])
        return self.every.kept(rows)

    @cached_property
    def peer(self) -> str:
        """The best peer that ran: of PEERS the fastest in both passes of the longest, widest cell.

        Without such a row the first one of `peers`.
        """
        rows = self.shown.valid.frame
        both = having(rows, implementation=[*PEERS], phase="forward_backward")
        both = both.sort_values(["seq_len", "d_head", "ms"], ascending=[False, False, True])
        ran = rows["implementation"].values
        names = [*both["implementation"], *(name for name in self.peers if name in ran)]
        return required(names, f"no peer of {self.subject} ran")[0]

    def gain(self, phase: str) -> Gain:
        """The speed-up of the subject over the best peer in the write-up's widest head."""
        widest = self.longest.only("d_head")
        return self.of_subject.where(phase=phase, d_head=widest).over(self.peer)

    @property
    def rivals(self) -> list[str]:
        """The peers of which sentences speak, the best one first; of a custom one also lmperf's."""
        ran = {*self.every.frame["implementation"]}
        names = [self.peer, *RIVALS, *([self.kernel] if self.is_own else [])]
        return [name for name in dict.fromkeys(names) if name in ran]

    def tally(self, peer: str, phase: str, **where) -> Tally:
        """How the subject stands beside a peer in one phase, by default in the write-up's rows."""
        where = {"kind": self.kind} | where
        rows = self.every.where(implementation=self.subject, dtype=self.dtype, phase=phase, **where)
        return Tally(rows.pairs(peer))

    def tallies(self, peer: str, phase: str, **where) -> list[tuple[int, Tally]]:
        """`tally` by d_head, of those of which a comparison holds."""
        tallies = []
        for width in self.every.values("d_head"):
            with suppress(NotMeasured):
                tallies.append((width, self.tally(peer, phase, d_head=width, **where)))
        return tallies

    @cached_property
    def fastest(self) -> tuple[str, str]:
        """What is fastest in the longest cell shown: in the forward, and in both passes in turn."""
        rows = having(self.longest.frame, phase=BOTH, holds=True)
        ms = rows.pivot_table("ms", "implementation", "phase").reindex(columns=[*BOTH]).dropna()
        ms = required(ms, "no implementation has both passes")
        return ms[BOTH[0]].idxmin(), ms.sum(axis=1).idxmin()

    @property
    def behind(self) -> list[tuple[str, str, str, str, Range]]:
        """(peer, phase, widths, work, speed-ups) where the subject is slower in most cells of a
        width and faster in none; the speed-ups are those of the slower cells.
        """
        mine = self.every.where(dtype=self.dtype, implementation=self.subject).frame
        found = []
        of_work = [*kinds_of_work(mine), ("other shapes (F5)", having(mine, kind="other"))]
        for (work, cells), peer, phase in product(of_work, (*self._equals, PLAIN), BOTH):
            cells = having(cells, phase=phase)
            slow = _slower(self.every.kept(cells).pairs(peer)) if len(cells) else cells
            if len(slow):
                widths = listed(int(width) for width in sorted(slow["d_head"].unique()))
                ratios = of_rows(Range.of(slow["ratio"]), slow)
                found.append((peer, phase, widths, work, ratios))
        return required(found, "no peer is faster in most cells")

    def lengths(self, short: bool) -> list[int]:
        """The lengths of one head below LONG, or those from it on."""
        lengths = self.every.where(kind="head").values("seq_len")
        lengths = [int(length) for length in lengths if (length < LONG) == short]
        return required(lengths, "no such head was timed")

    @property
    def fills_gpu(self) -> bool:
        return self.evidence.is_cuda and self.kind == "grid"

    def rate(self, phase: str, implementation: str) -> float:
        """The rate of the longest row of a phase, in `unit`."""
        longest = self.longest.where(implementation=implementation, phase=phase).one
        return longest["tflops"] * self.scale

    @cached_property
    def scale(self) -> int:
        """Of `unit` in a TFLOP/s: 1,000 where no curve of the first page reaches 1 TFLOP/s."""
        return 1 if self._first_curves["tflops"].max() >= 1 else 1000

    @property
    def unit(self) -> str:
        return {1: "TFLOP/s", 1000: "GFLOP/s"}[self.scale]

    @cached_property
    def contestants(self) -> Rows:
        """The rows of the first page's table: subjects first, plain PyTorch last.

        The others are between them, the fastest at the longest rows first. `shape`: width and
        length in words, the shortest first: those of the models. Where they fill the GPU, there is
        no room for both phases together.
        """
        longest = self.longest.frame
        rows = pd.concat([self.of_models.frame, longest])
        rows = rows[~rows.index.duplicated()]
        rows = rows[rows["implementation"] != "sdpa_efficient"]  # the slowest of three backends
        rows = sorted_for_reading(rows, ["seq_len", "d_head"])
        both = having(longest, phase="forward_backward").set_index("implementation")["ms"]
        place = rows["implementation"].map(both).mask(rows["implementation"] == PLAIN, np.inf)
        subjects = {self.subject, *self.evidence.subjects(STEM)}
        place = place.mask(rows["implementation"].isin(subjects), 0)
        words = "d_head " + rows["d_head"].astype(str) + ", length " + rows["seq_len"].map(whole)
        rows = rows.assign(shape=words).iloc[place.argsort(kind="stable")]
        return self.rows("", having(rows, phase=BOTH) if self.fills_gpu else rows)

    @cached_property
    def uses_gluon(self) -> bool:
        """Whether lmperf's kernels ran in Gluon in the longest cells shown, in both phases."""
        ran = self.longest.where(implementation=self.subject).frame["gluon"]
        return not ran.empty and ran.eq("forward, backward").all()

    @cached_property
    def adds_atomically(self) -> bool:
        """Whether the backward in Gluon adds dQ atomically in the longest cells shown.

        Up to d_head 64 it adds in a fixed order where tiles are many, as in these cells.
        """
        widths = self.longest.frame["d_head"].astype(int)
        return self.uses_gluon and bool(widths.gt(64).all())

    @cached_property
    def gluon_fault(self) -> str:
        """Why lmperf's kernels in Gluon were tried but did not run; empty if they need not."""
        faults = self.every.where(implementation=self.kernel).frame["gluon_fault"].dropna()
        return next(filter(None, faults), "")

    @property
    def widths_with_cudnn(self) -> list[int]:
        """The d_head of profiled steps with SDPA that ran a kernel of cuDNN."""
        kernels = self.rows(PROFILES).frame
        kernels = kernels[kernels["implementation"].str.startswith("sdpa")]
        sizes = {*kernels.loc[kernels["name"].str.contains("cudnn.*sdpa", na=False), "size"]}
        widths = {size.d_head for size in SIZES.values() if size.short in sizes}
        return required(sorted(widths), "SDPA chose cuDNN in no profile")

    @property
    def profiled(self) -> pd.DataFrame:
        """Profiled train steps with lmperf's attention, and as `_base` those with SDPA."""
        steps = having(self.of(PROFILES).cases.sound, phase="train_step", dtype=AUTOCAST)
        sides = (having(steps, implementation=f"{n}_compiled_blocks") for n in ("triton", "sdpa"))
        return pairs(*sides, on=["size", "context_length", "batch"])

    @cached_property
    def backward_over_forward(self) -> dict[str, float]:
        """Medians over cells of the backward's time, FLOPs and rate over the forward's."""
        columns = {"time": "median_ms", "flops": "flops", "rate": "tflops"}
        cell = [*SHAPE, "causal"]
        rows = self.of_subject.sound
        wide = rows.pivot_table([*columns.values()], cell, "phase").dropna()
        if not {*BOTH} <= {*wide.columns.get_level_values("phase")}:
            raise NotMeasured(f"{self.subject} has a forward or a backward only")
        forward, backward = (wide.xs(phase, axis=1, level="phase") for phase in BOTH)
        middle = (backward / forward).median()
        medians = {name: middle.get(column, np.nan) for name, column in columns.items()}
        return {name: of_rows(value, rows) for name, value in medians.items()}

    @cached_property
    def host_rows(self) -> Rows:
        """One head in bf16, d_head 64, with its host times, also as a CUDA graph."""
        kinds = ["head", "graph"]
        return self.every.where(kind=kinds, dtype=HALF, d_head=NARROW, phase=BOTH)

    @cached_property
    def launch_bound(self) -> list[tuple[str, str, float | None]]:
        """Implementation, phase and the length up to which launching takes longer than running.

        Of the subject and the best peer.
        """
        rows = self.host_rows.where(kind="head", implementation=[self.subject, self.peer])
        return [
            (name, phase, part.until(LAUNCH_BOUND, "seq_len"))
            for name, phase, part in rows.by("implementation", "phase")
        ]

    @cached_property
    def host_medians(self) -> Rows:
        """Median host time over the cells of the filled grid in bf16, by implementation, phase."""
        grid = self.every.where(kind="grid", dtype=HALF).frame
        medians = grid.groupby(["implementation", "phase"], sort=False)["host_ms"].median()
        return self.rows(STEM, medians.reset_index())

    @cached_property
    def leaderboard_ms(self) -> float:
        """Both phases in the cell of a public leaderboard."""
        shape = dict(zip(SHAPE, load(STEM).stated["leaderboard"], strict=True))
        rows = self.every.where(implementation=self.subject, phase="forward_backward", kind="other")
        return rows.kept(having(rows.frame, **shape)).range("median_ms").middle

    @cached_property
    def means(self) -> Rows:
        """For each dtype, work, phase and peer: the speed-ups of all cells as ``gain`` (F2).

        Over the fastest of several SDPA backends, too.
        """
        lines = []
        for dtype, rows in self.every.where(implementation=self.subject).by("dtype"):
            by_peer = {peer: rows.pairs(peer) for peer in self.peers}
            backends = [by_peer[name] for name in BACKENDS if by_peer[name]["is_known"].any()]
            if len(backends) > 1:
                by_peer[FASTEST] = over_the_fastest(backends)
            for (work, part), phase in product(works(rows.frame), PHASES):
                cells = having(part, phase=phase).index
                line = {"dtype": dtype, "work": work, "phase": phase}
                for peer, speedups in by_peer.items():
                    with suppress(NotMeasured):
                        gain = Gain(speedups[speedups.index.isin(cells)])
                        lines.append({**line, "implementation": peer, "gain": gain})
        return self.table_rows(lines)

    @cached_property
    def curves(self) -> pd.DataFrame:
        """Forward and backward rates of the write-up's rows, with their intervals."""
        rows = self.shown.where(phase=BOTH).valid.frame
        low, high = (rows["flops"] / rows[f"{end}_ms"] / 1e9 for end in ("high", "low"))
        rows = rows.assign(tflops_low=low, tflops_high=high)
        several = rows.groupby(["phase", "d_head", "mask"])["seq_len"].transform("nunique") > 1
        rows = rows[several]  # a single length makes no curve
        # Their forward is that of the default.
        again = rows["implementation"].isin([DETERMINISTIC, SAME_BITS]) & (rows["phase"] == BOTH[0])
        rows = rows[~again]
        return sorted_for_reading(rows, ("phase", "d_head", "mask", "implementation", "seq_len"))

    @cached_property
    def _first_curves(self) -> pd.DataFrame:
        return having(self.curves, mask=self.mask, d_head=self.longest.only("d_head"))

    @cached_property
    def first_curves(self) -> pd.DataFrame:
        """Those of the first page, of the widest head, with their `rate` in `unit`."""
        rows, scale = self._first_curves, self.scale
        ends = {f"rate_{end}": rows[f"tflops_{end}"] * scale for end in ("low", "high")}
        return rows.assign(rate=rows["tflops"] * scale, **ends)

    @cached_property
    def further_curves(self) -> pd.DataFrame:
        """All others."""
        return required(
            self.curves.drop(self.first_curves.index), "the first page shows all curves"
        )

    def panel(self, row) -> str:
        return f"{phase_words(row['phase'])}, d_head {row['d_head']}, {row['mask']}"


def _slower(pairs: pd.DataFrame) -> pd.DataFrame:
    """The slower pairs of the widths at which most are slower, and none is faster."""
    pairs = pairs[pairs["is_timed"] & pairs["holds"]]
    is_slower = pairs["verdict"] == SLOWER
    by_width = pairs.assign(slow=is_slower, fast=pairs["verdict"] == FASTER).groupby("d_head")
    are_most = by_width["slow"].transform("mean") > 0.5
    return pairs[is_slower & are_most & ~by_width["fast"].transform("any")]


def kinds_of_work(rows: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """The name of each kind of work with its rows: a filled grid, and one head by its length."""
    head = having(rows, kind="head")
    return [
        ("filled grid", having(rows, kind="grid")),
        (f"one head, from length {LONG:,} on", head[head["seq_len"] >= LONG]),
        (f"one head, below length {LONG:,}", head[head["seq_len"] < LONG]),
    ]


def works(rows: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """The lines of F2: the name of some work with its rows."""
    (name, grid), *of_head = kinds_of_work(rows)
    yield name, grid
    yield from ((f"{name}, d_head {d}", part) for (d,), part in parts(grid, "d_head"))
    yield from of_head
    yield "one head, as a CUDA graph", having(rows, kind="graph")


def over_the_fastest(backends: list[pd.DataFrame]) -> pd.DataFrame:
    """Of each cell the speed-up over the fastest backend; none unless all of them are known."""
    every = pd.concat(backends).query("is_timed").sort_values("ratio", kind="stable")
    every = every[every["is_known"].groupby(every.index).transform("all")]
    return every[~every.index.duplicated()]
