"""Profiles: kernels and their classes, the parts of attention, and which steps wait for the CPU."""

from __future__ import annotations

from functools import cached_property

import pandas as pd

from lmperf.dtypes import dtype_of
from lmperf.names import dtype_words, implementation_words, in_order, phase_words
from lmperf.reporting.calculations.kernels import (
    CLASSES,
    COPY,
    ELEMENTWISE,
    MATMUL,
    OPTIMIZER,
    REDUCTION,
    class_of,
    shortened,
)
from lmperf.reporting.calculations.steps import AUTOCAST, FLOAT32, NARROW, STEP, TF32, named
from lmperf.reporting.columns import Quantity, number, of_others
from lmperf.reporting.figures import stacked
from lmperf.reporting.frames import LAST, at, having, matching, required, sorted_for_reading
from lmperf.reporting.judging import NEUTRAL
from lmperf.reporting.rows import Rows
from lmperf.reporting.sections import Section
from lmperf.reporting.untrusted import neutral, plain
from lmperf.reporting.words import NotMeasured, Range, count, percent, sig
from lmperf.transformer.sizes import SHORT

STEM, TIMED = "profiles", "end_to_end"
CELL = ["size", "context_length", "batch", "dtype", "implementation"]
CASE = [*CELL, "phase"]
KERNELS_SHOWN = 12  # of a phase in P1; one line has all others
# Of all other kernels of a phase, as one line.
SUMS = {name: (name, "sum") for name in ("share", "total_ms", "instances")}
SUMS |= {"min_us": ("min_us", "min"), "max_us": ("max_us", "max")}
LEAST_DRAWN = 0.002  # of the time of a bar: a shorter part is not drawn
USUAL_SIZE = "large"
# Steps of the ladder that the first page shows; a later one uses more techniques. The graph has no
# phases.
PHASED = ("eager", "compiled_blocks", "sdpa_compiled_blocks")
LADDER = (*PHASED, "graph")
# AdamW reads weight, gradient and both moments, and writes weight and both moments.
ADAMW_VALUES = 7


class Profiles(Section):
    """Time of a phase by class of kernels. `busy` is the time in which kernels run, `wall` all."""

    colours = {kernel_class.words: kernel_class.colour for kernel_class in CLASSES.values()}

    @property
    def kind(self) -> str:
        """What the profiler timed: kernels on a GPU, operators on a CPU."""
        return "kernel" if self.evidence.is_cuda else "operator"

    @cached_property
    def subjects(self) -> tuple[str, ...]:
        """The custom implementations that the write-up is about; none: lmperf's own."""
        return tuple(self.evidence.subjects(STEM))

    @property
    def plain(self) -> str:
        """The way that float32 and bf16 autocast are compared in: the first subject, or eager."""
        return (self.subjects or PHASED)[0]

    @cached_property
    def kernels(self) -> Rows:
        """A row for each kernel of a case, with its class, short name and share of the case."""
        rows = having(self.rows(STEM).valid.frame, table="kernel")
        full = {name: plain(name) for name in rows["name"].dropna().unique()}
        short = shortened(full.values())
        classes = rows["name"].map({name: class_of(text) for name, text in full.items()})
        rows = rows.assign(
            kernel=rows["name"].map({name: neutral(short[text]) for name, text in full.items()}),
            kernel_class=classes,
            class_words=classes.map(lambda name: CLASSES[name].words, na_action="ignore"),
            share=rows["total_ms"] / rows.groupby(CASE)["total_ms"].transform("sum"),
        )
        return self.rows(STEM, rows)

    def named(self, rows: Rows) -> Rows:
        """The rows as `steps.named` has them, for a table."""
        return rows.kept(named(rows.frame))

    @cached_property
    def longest(self) -> Rows:
        """The longest kernels of each phase by rank, and one line without rank for all others."""
        rows = self.kernels.frame.sort_values("total_ms", ascending=False, kind="stable")
        of_case = rows.groupby(CASE, sort=False)["total_ms"]
        rank, number = of_case.cumcount() + 1, of_case.transform("size")
        is_rest = (rank > KERNELS_SHOWN) & (number > KERNELS_SHOWN + 1)
        rest = rows[is_rest].groupby(CASE, sort=False, as_index=False)
        rest = rest.agg(**SUMS, number=("total_ms", "size"))
        kernels = [count(number, "other") for number in rest["number"]]
        rest = rest.assign(**NEUTRAL, kernel=kernels)
        lines = pd.concat([rows[~is_rest].assign(rank=rank), rest], ignore_index=True)
        lines = lines.assign(mean_us=1e3 * lines["total_ms"] / lines["instances"])
        return self.kernels.kept(sorted_for_reading(lines, CASE))

    @cached_property
    def cases(self) -> Rows:
        """A row for each profiled phase of a step: `by_class`, and `timer`: its ms in E1.

        is_compared: whether a sentence may rest on that time. timer_waits: whether it waited.
        """
        cases = by_class(self.rows(STEM).frame, self.kernels.frame)
        timed = matching(cases, self.rows(TIMED).valid.frame, CASE)
        ways = cases["dtype"].map(dtype_words) + ", " + cases["implementation"].map(short_words)
        flags = {"is_compared": timed["holds"].eq(True), "timer_waits": timed["waits"].eq(True)}
        return self.rows(STEM, cases.assign(timer=timed["ms"], way=ways, **flags))

    @property
    def in_e1(self) -> Quantity:
        """The time of the same case in E1, with its signs, for a table of `named` rows."""
        return of_others(number("ms", "E1", unit="ms"), named(self.rows(TIMED).valid.frame), CASE)

    @property
    def class_columns(self) -> list[Quantity]:
        return [
            number(name, kernel_class.words, unit="ms") for name, kernel_class in CLASSES.items()
        ]

    @cached_property
    def usual(self) -> Rows:
        """The cases of one size, context and batch that the write-up shows."""
        cases = having(self.cases.valid.frame, implementation=self.subjects or LADDER)
        return self.cases.kept(of_usual_cell(cases[cases["dtype"] != NARROW]))

    @cached_property
    def has_several_ways(self) -> bool:
        """Whether train steps of several techniques were profiled."""
        return len(having(self.usual.frame, phase=STEP)) > 1

    @cached_property
    def lines(self) -> Rows:
        """The lines of the first page: a step of each technique, or phases if there is only one."""
        shown = having(self.usual.frame, phase=STEP)
        words = shown["way"]
        if not self.has_several_ways:
            way = self.last[["dtype", "implementation"]]
            shown = having(self.usual.frame, phase=["forward", "backward", STEP], **way)
            words = shown["phase"].map(phase_words)
        steps = pd.Categorical(words, [*dict.fromkeys(words)])
        return self.usual.kept(shown.assign(step=steps, waits=shown["timer_waits"]))

    def step(self, **where) -> pd.Series:
        """The only case of the usual size with these values."""
        return self.usual.where(**where).one

    @property
    def single(self) -> pd.Series:
        """The train step of `plain` in float32."""
        return self.step(dtype=FLOAT32, implementation=self.plain, phase=STEP)

    @property
    def eager(self) -> pd.Series:
        """The train step of `plain` in bf16 autocast."""
        return self.step(dtype=AUTOCAST, implementation=self.plain, phase=STEP)

    @property
    def last(self) -> pd.Series:
        """The train step with the most techniques, if possible one whose phases were profiled."""
        steps = self.usual.where(phase=STEP)
        steps = (steps.where(implementation=self.subjects or PHASED) or steps).valid.frame
        return required(steps, "no train step was profiled").iloc[-1]

    @property
    def last_forward(self) -> pd.Series:
        way = self.last[["dtype", "implementation"]]
        return self.step(**way, phase="forward")

    @property
    def moving_decides(self) -> bool:
        """Whether matmuls take most of a float32 step, but not of one in bf16 autocast."""
        return self.eager["matmul_share"] < 0.5 < self.single["matmul_share"]

    @property
    def adamw_bytes(self) -> int:
        """Bytes that AdamW moves for each weight."""
        return ADAMW_VALUES * dtype_of(self.last["dtype"]).bytes

    @property
    def adamw_over_copy(self) -> float:
        """The speed of AdamW as a fraction of a copy's; above 1 where weights fit into a cache."""
        last = required(self.usual.kept(self.last.to_frame().T).sound, "it is stale").iloc[0]
        kernels = having(self.kernels.frame, kernel_class=OPTIMIZER, **last[CASE])
        if not kernels["total_ms"].max() >= 0.99 * last[OPTIMIZER]:
            raise NotMeasured("AdamW is not one fused kernel")
        gbps = SHORT[last["size"]].parameters() * self.adamw_bytes / last[OPTIMIZER] / 1e6
        return gbps / self.evidence.copy_gbps()

    @cached_property
    def attention(self) -> Rows:
        """A row for each part of plain attention's forward, with its share of the time."""
        rows = having(self.rows(STEM).valid.frame, table="attention")
        whole = rows.groupby(CELL)["total_ms"].transform("sum")
        return self.rows(STEM, rows.assign(share=rows["total_ms"] / whole))

    @property
    def saved_by_copies(self) -> pd.Series:
        """`size`, and the ms of each class that bf16 copies save in a graph; NaN where none."""
        graphs = ["fused_graph", "graph"]
        cases = having(self.cases.sound, dtype=AUTOCAST, phase=STEP, implementation=graphs)
        cases = of_usual_cell(cases)
        if len(cases) < len(graphs):
            raise NotMeasured("the graphs with and without bf16 copies were not profiled")
        base, ours = (having(cases, implementation=name).iloc[0] for name in graphs)
        saved = base[[*CLASSES]] - ours[[*CLASSES]]
        keys = {"key": ours["key"], "key_base": base["key"]}
        return pd.Series({**saved.where(saved > 0), "size": ours["size"], **keys})

    @property
    def waiting(self) -> pd.Series:
        """The step that waits longest for the CPU, in the process that profiled it."""
        steps = having(self.cases.sound, phase=STEP).dropna(subset=["idle"])
        steps = required(steps, "the wall time of no profiled step is known")
        return steps.loc[steps["idle"].idxmax()]

    @property
    def compiled(self) -> pd.Series:
        """The train step that is compiled by block, in bf16 autocast."""
        return self.step(dtype=AUTOCAST, implementation="compiled_blocks", phase=STEP)

    def matmul_shares(self, dtype: str) -> Range:
        """The shares of matmuls in the train steps of `plain` in a dtype."""
        steps = self.cases.where(dtype=dtype, implementation=self.plain, phase=STEP)
        return steps.range("matmul_share")

    @property
    def drawn(self) -> pd.DataFrame:
        """The lines that the figure shows; beside TF32 not float32, which makes others short."""
        lines = self.lines.frame
        return lines[lines["dtype"] != FLOAT32] if TF32 in lines["dtype"].values else lines

    @property
    def bars(self) -> list[dict]:
        """The parts of the bars of the figure."""
        return [part for _, line in self.drawn.iterrows() for part in bar(line)]


def by_class(rows: pd.DataFrame, kernels: pd.DataFrame) -> pd.DataFrame:
    """A row for each case: ms of each class (NaN: none), busy, wall_ms, launches, idle.

    Also `rest`, ms of all but matmuls; `moving`, ms of what only moves data; `around`, ms of norms,
    softmax and elementwise; and `matmul_share`. A case without a result keeps its state.
    """
    cases = rows.drop_duplicates(CASE).set_index(CASE)
    kept = ["state", "words", "signs", "holds", "key", "wall_ms"]
    of_case = kernels.groupby([*CASE, "kernel_class"])["total_ms"].sum().unstack()
    times = of_case.reindex(columns=list(CLASSES)).reindex(cases.index)
    busy = times.sum(axis=1, min_count=1)
    launches = kernels.groupby(CASE)["instances"].sum().reindex(cases.index)
    return (
        cases[kept]
        .assign(
            **times,
            busy=busy,
            launches=launches,
            idle=(1 - busy / cases["wall_ms"]).clip(lower=0),
            rest=busy - times[MATMUL],
            moving=times[[ELEMENTWISE, REDUCTION, COPY]].sum(axis=1),
            around=times[[ELEMENTWISE, REDUCTION]].sum(axis=1),
            matmul_share=times[MATMUL] / busy,
        )
        .reset_index()
    )


def usual_size(rows: pd.DataFrame) -> str | None:
    """The model size that the write-up shows: large if measured, else the middle one."""
    sizes = in_order("size", rows["size"])
    return USUAL_SIZE if USUAL_SIZE in sizes or not sizes else sizes[len(sizes) // 2]


def of_usual_cell(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of the usual size, at its longest context and largest batch."""
    return at(having(rows, size=usual_size(rows)), context_length=LAST, batch=LAST)


def short_words(implementation: str) -> str:
    return implementation_words(implementation, CELL).replace("compiled by block", "compiled")


def bar(line: pd.Series) -> list[dict]:
    """The parts of the bar of a step; behind the last one their sum, of the time of the step."""
    least = LEAST_DRAWN * line["busy"]
    lengths = {CLASSES[name].words: line[name] for name in CLASSES if line[name] > least}
    end = f"{sig(line['busy'])} ms"
    end += f" of {sig(line['timer'])}" if line["timer"] > line["busy"] else ""
    parts = stacked("", line["step"], lengths, "ms", end, line["signs"])
    return [
        part | {"value": f"{part['value']}, {percent(part['y'] / line['busy'])}"} for part in parts
    ]
