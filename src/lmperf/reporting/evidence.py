"""Evidence of one machine: its facts, its rows, judged once (`judging`), and its noise floors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, wraps
from pathlib import Path

import numpy as np
import pandas as pd

from lmperf.benchmark import Benchmark, Implementation, Timed
from lmperf.benchmarks import load
from lmperf.dtypes import DTYPES, dtype_of
from lmperf.evidence import plausible
from lmperf.evidence.review import Review
from lmperf.evidence.store import Row
from lmperf.machine.data_sheets import DataSheet, sheet_of
from lmperf.names import implementation_words, phase_words
from lmperf.own.recorded import declared
from lmperf.reporting import untrusted
from lmperf.reporting.frames import having, sorted_for_reading
from lmperf.reporting.judging import KERNEL, PASS, STEP, WAITING, judged, masked, of_one_call, typed
from lmperf.reporting.numbers import of_rows
from lmperf.reporting.pairs import pairs
from lmperf.reporting.words import cell_words
from lmperf.statistics import LEAST_PAIRS, noise_floor

ASSUMED_FLOORS = {KERNEL: 0.03, PASS: 0.03, STEP: 0.05, WAITING: 0.30}
FEW = 3  # speed-ups of two processes; of fewer, all may be of one bad time
COMPARED = ("implementation", "dtype", "phase")  # axes of which a speed-up has two values
AGAIN = ("", "_again")  # suffixes of the first and the second time
AT_LIMIT, SLOW_CLOCK = 0.95, 0.95  # of the power limit, and of the usual clock
# Traces are large: these few are published, all others stay on the machine that measured.
PUBLISHED_TRACES = (
    "small-512-4-autocast_bfloat16-eager-forward.json.gz",
    "large-1024-4-autocast_bfloat16-graph-train_step.json.gz",
    "3.4B-512-4-2-autocast_bfloat16-flat.json.gz",
    "3.4B-512-4-2-autocast_bfloat16-overlapped.json.gz",
    "3.4B-512-4-2-autocast_bfloat16-fully_sharded.json.gz",
)


def cached_by_evidence(function: Callable) -> Callable:
    """A function of evidence whose results are kept; the rows must not change afterwards.

    Its further arguments are hashable, or dicts with hashable values.
    """

    @wraps(function)
    def cached(evidence: Evidence, *arguments):
        values = [tuple(sorted(a.items())) if isinstance(a, Mapping) else a for a in arguments]
        key = (function.__module__, function.__qualname__, *values)
        if key not in evidence.cached:
            evidence.cached[key] = function(evidence, *arguments)
        return evidence.cached[key]

    return cached


@dataclass
class Evidence:
    """Rows and facts of one machine.

    All text that it is made of is neutralised (`untrusted.neutral`), except for `raw`, `again` and
    `cost_rows`, of which `rows` and `cost` are.

    Attributes:
        machine: the name of its folder below `report/`.
        facts: the content of machine.json.
        raw: stem -> rows of text, as they were read.
        stale: keys of the rows whose code or environment has changed since.
        damaged: stem, `machine` or `cost` -> why the report does not use that file.
        again: stem -> rows that were measured a second time (R1).
        cost_rows: one row for each job that measured.
        faults: what `lmperf verify` finds wrong with the rows, a line for each kind of fault.
        anyway: why they are published all the same, if somebody gave a reason.
        selftest: a row for each case of the self-test; None if it was not run.
        others: the evidence of the other machines in `report/`, the one with most rows first.
        traces: names of the published traces of the profiler, which pages link to.
        cached: results of functions with the decorator `cached_by_evidence`.
        chosen: stem -> the custom implementations that its page is about, as configured; of a stem
            that it lacks, all that were recorded.
        reference: whether parts about lmperf's own code stay in a report about custom ones.
        course: the year of the course's hand-out that the report follows; None: all of them.
        report: the folder of the reports, whose newest commits the page of the history shows; None
            for no such page.
    """

    machine: str
    facts: Mapping
    raw: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    stale: frozenset[str] = frozenset()
    damaged: Mapping[str, str] = field(default_factory=dict)
    again: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    cost_rows: Sequence[Row] = ()
    faults: Sequence[str] = ()
    anyway: str = ""
    selftest: pd.DataFrame | None = None
    others: Sequence[Evidence] = field(default=(), repr=False)
    traces: frozenset[str] = frozenset()
    chosen: Mapping[str, Sequence[str]] = field(default_factory=dict)
    reference: bool = False
    course: int | None = None
    report: Path | None = None
    cached: dict = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self):
        for name in ("machine", "facts", "damaged", "faults", "anyway", "chosen"):
            setattr(self, name, untrusted.deep(untrusted.neutral, getattr(self, name)))
        if self.selftest is not None:
            self.selftest = untrusted.neutral_frame(self.selftest)

    @classmethod
    def reviewed(cls, review: Review, **more) -> Evidence:
        """The evidence that was compared with today's code and configuration; `more`: fields."""
        return cls(
            review.machine,
            review.facts,
            review.rows,
            frozenset(review.stale),
            review.damaged,
            review.repeats,
            review.cost,
            review.tally,
            review.reason,
            **more,
        )

    @cached_by_evidence
    def declared(self, stem: str) -> dict[str, Implementation]:
        """Name -> the custom implementation of a benchmark that the machine's file records."""
        return declared(self.environments.values(), stem)

    @cached_by_evidence
    def subjects(self, stem: str) -> list[str]:
        """The custom implementations that the page of a benchmark is about; none: lmperf's own."""
        recorded = self.declared(stem)
        names = self.chosen.get(stem, recorded)
        measured = {untrusted.neutral(row["implementation"]) for row in self.raw.get(stem, ())}
        return [name for name in names if name in measured and name in recorded]

    @cached_property
    def is_own(self) -> bool:
        """Whether the report is about custom implementations."""
        return any(self.subjects(stem) for stem in self.stems)

    @property
    def folder(self) -> str:
        """The name of the machine's folder as a file system and a terminal may have it."""
        return untrusted.plain(self.machine)

    @property
    def link(self) -> str:
        """The name of the machine's folder, quoted for use in a link."""
        return untrusted.link(self.machine)

    @property
    def stems(self) -> list[str]:
        """The benchmarks that have rows."""
        return [stem for stem, rows in self.raw.items() if rows]

    @property
    def row_count(self) -> int:
        return sum(map(len, self.raw.values()))

    @cached_property
    def environments(self) -> dict[str, dict]:
        """Name -> facts of the hardware and software that measured, the newest last."""
        return self.facts.get("environments") or {}

    @property
    def environment(self) -> dict:
        """Facts of the newest environment; empty if none is recorded."""
        return next(reversed(self.environments.values()), {})

    @property
    def device(self) -> str:
        """What measured: a GPU, a processor or, if neither is recorded, the machine's name."""
        facts = self.environment
        return facts.get("device") or facts.get("cpu_model") or self.machine

    @property
    def is_cuda(self) -> bool:
        return self.environment.get("kind") == "cuda"

    @property
    def sheet(self) -> DataSheet | None:
        return sheet_of(untrusted.plain(str(self.environment.get("device"))))

    @cached_by_evidence
    def rows(self, stem: str) -> pd.DataFrame:
        """All rows of a benchmark in reading order; none if it was not measured."""
        return self._judged(stem, self.raw.get(stem, ()))

    @cached_by_evidence
    def comparable(self, stem: str) -> pd.DataFrame:
        """`rows` with their noise floors, and whether that of times is assumed."""
        rows = self.rows(stem)
        kinds = rows["noise_kind"]
        floors = {
            "floor": kinds.map(self.floors).astype(float),
            "speedup_floor": kinds.map(self.speedup_floors),
        }
        return rows.assign(**floors, is_assumed=kinds.isin(self.assumed))

    @cached_property
    def twice(self) -> pd.DataFrame:
        """The rows with results of two processes (R1): those of `rows`, `stem`, and the columns of
        the second time with the suffix `_again`.

        cell: the row in words. apart: how far the greater time is from the other, a fraction.
        point: the axes but those of COMPARED, as text.
        The first time decides of which kind a pair is: one that waited by chance the second time
        shows how far such rows are apart. A second time that is older than its first is none.
        """
        columns = ["stem", "cell", "point", "phase", "noise_kind", "apart"]
        twice = ("ms", "gpus", "together", "waits")
        columns += [f"{name}{again}" for name in twice for again in AGAIN]
        frames = [pd.DataFrame(columns=columns)]
        for stem in self.again:
            first, second = self.rows(stem).drop_duplicates("key"), self.rows_again(stem)
            both = pairs(first, second, ["key"], "_again")
            both = both[both["state"].isna() & both["state_again"].isna()]
            both = both[both["measured_at_again"] >= both["measured_at"]]
            if both.empty:
                continue
            # Before the rows of all benchmarks are joined, which makes whole numbers floats.
            words = [_in_words(load(stem), row) for row in both.to_dict("records")]
            ratio = both["ms_again"] / both["ms"]
            apart = np.fmax(ratio, 1 / ratio) - 1
            signs = [tuple(dict.fromkeys(a + b)) for a, b in both[["signs", "signs_again"]].values]
            axes = [axis for axis in load(stem).identity if axis not in COMPARED]
            point = both[axes].astype(str).agg(" ".join, axis=1)
            frames.append(both.assign(stem=stem, cell=words, apart=apart, point=point, signs=signs))
        return pd.concat(frames[1:] or frames, ignore_index=True).copy()  # faster, as in `_judged`

    @cached_property
    def speedups_twice(self) -> pd.DataFrame:
        """Pairs of rows of `twice` whose speed-up is known both times: each pair of a group once.

        `again`: the second speed-up over the first one. `holds`: whether both rows do. `follows`:
        whether it follows from others of its group, so that it does not count as a further one. A
        group has the rows of a point that were compared each time, as by `pairs.decided`: train
        steps of one GPU, others timed in turn.
        """
        rows = self.twice
        if rows.empty:
            return rows.assign(again=np.nan, key_base=None, follows=False)
        is_step = rows["phase"] == "train_step"
        shared = [
            rows[f"gpus{again}"].fillna("").where(is_step, rows[f"together{again}"])
            for again in AGAIN
        ]
        by = [rows["stem"], rows["point"], rows["phase"], rows["noise_kind"], *shared]
        group, place = rows.groupby(by).ngroup(), rows.groupby(by).cumcount()
        rows = rows.assign(group=group, place=place, again=rows["ms_again"] / rows["ms"])
        rows = rows[group >= 0]  # one that lacks a value is of no group
        bases = rows[["group", "place", "again", "key", "holds"]]
        both = rows.merge(bases, on="group", suffixes=("", "_base"))
        both = both[both["place_base"] < both["place"]]
        holds = both["holds"].eq(True) & both["holds_base"].eq(True)
        again, follows = both["again_base"] / both["again"], both["place_base"] > 0
        return both.assign(again=again, holds=holds, follows=follows)

    @cached_property
    def floors(self) -> dict[str, float]:
        """Kind of row -> its noise floor: how far apart two processes time such a row, a fraction.

        Not below the assumed one until R1 has LEAST_PAIRS pairs of a kind.
        """
        again, of_kind = self.twice["ms_again"] / self.twice["ms"], self.twice["noise_kind"]
        return {
            kind: _floor(again[of_kind == kind], kind, (of_kind == kind).sum())
            for kind in ASSUMED_FLOORS
        }

    @cached_property
    def speedup_floors(self) -> dict[str, float]:
        """Kind of row -> how far apart two processes find a speed-up between two such rows.

        Not below the assumed one until R1 has LEAST_PAIRS speed-ups of a kind. Fewer than FEW may
        all be of one bad time: the median difference of times stands for them.
        """
        floors = {}
        for kind in ASSUMED_FLOORS:
            twice = having(self.speedups_twice, noise_kind=kind)
            again, number = twice["again"], len(having(twice, follows=False))
            if number < FEW:
                again = 1 + pd.Series(having(self.twice, noise_kind=kind)["apart"].median())
            floors[kind] = _floor(again, kind, number)
        return floors

    @cached_property
    def assumed(self) -> frozenset[str]:
        """The kinds of rows whose noise floor is assumed."""
        pairs = self.twice["noise_kind"].value_counts()
        few = [kind for kind in ASSUMED_FLOORS if pairs.get(kind, 0) < LEAST_PAIRS]
        return frozenset(kind for kind in few if self.floors[kind] == ASSUMED_FLOORS[kind])

    def at_limit(self, rows: pd.DataFrame, below_clock: float = SLOW_CLOCK) -> pd.Series:
        """Which rows drew the power limit of their device, below this fraction of its clock."""
        facts = pd.DataFrame.from_dict(self.environments, "index")
        facts = facts.reindex(columns=["power_limit_w", "clock_sm_mhz"]).apply(
            pd.to_numeric, errors="coerce"
        )
        limit, clock = (rows["environment"].map(facts[name]) for name in facts)
        return (rows["power_w"] > AT_LIMIT * limit) & (rows["clock_mhz"] < below_clock * clock)

    @cached_property
    def cost(self) -> pd.DataFrame:
        """A row for each job that measured: its stem and its seconds by activity."""
        frame = pd.DataFrame(self.cost_rows, dtype=object)
        seconds = [name for name in frame if name.endswith("_s")]
        numbers = {name: pd.to_numeric(frame[name]) for name in seconds}
        return untrusted.neutral_frame(frame.assign(**numbers))

    def rows_again(self, stem: str) -> pd.DataFrame:
        """The rows of a benchmark that were measured a second time (R1), judged."""
        return self._judged(stem, self.again.get(stem, ()))

    def _judged(self, stem: str, rows: Sequence[Row]) -> pd.DataFrame:
        return self._judge(stem, rows) if rows else no_rows(stem)

    def _judge(self, stem: str, rows: Sequence[Row]) -> pd.DataFrame:
        benchmark = load(stem)
        frame = typed(rows, benchmark)
        floors = [plausible.floor_ms(self._limits, row) for row in rows]
        is_step = isinstance(benchmark, Timed) and benchmark.clock == "step"
        frame = judged(frame, floors, self.stale, is_step, self.at_limit(frame))
        frame = of_one_call(frame) if stem == "ceilings" else frame
        dtypes = frame.get("dtype", pd.Series(dtype=object)).dropna()
        rates = {dtype: self.peak(dtype) for dtype in dtypes.unique()}
        gpus = frame.get("ranks", pd.Series(1.0, frame.index)).fillna(1)
        frame["share"] = frame["tflops"] / dtypes.map(rates).astype(float) / gpus
        frame["mfu"] = frame["tflops"] / self.sheet_tflops("bfloat16") / gpus
        frame = masked(frame)
        # The copy joins columns of one dtype, which makes every later selection of rows faster.
        return sorted_for_reading(frame, benchmark.identity).reset_index(drop=True).copy()

    @cached_property
    def _limits(self) -> dict[str, plausible.Limits]:
        return plausible.limits_of(self.raw.get("ceilings", ()), self.environments)

    @cached_property
    def ceilings(self) -> dict[tuple[str, str, str], float]:
        """(operation, dtype, load) -> best rate: TFLOP/s of a matmul, GB/s of a copy."""
        if not self.raw.get("ceilings"):
            return {}
        rows = typed(self.raw["ceilings"], load("ceilings"))
        return self._best_rates(rows[rows["status"] == "ok"])

    @staticmethod
    def _best_rates(rows: pd.DataFrame) -> dict[tuple[str, str, str], float]:
        rate = rows["tflops"].where(rows["operation"] == "matmul", rows["bandwidth_gbps"])
        rows, by = rows.assign(rate=rate).dropna(subset=["rate"]), ["operation", "dtype", "load"]
        best = rows.loc[rows.groupby(by)["rate"].idxmax()]
        return {axes: of_rows(part["rate"].iloc[0], part) for axes, part in best.groupby(by)}

    def peak(self, dtype: str, load: str = "burst", sound: bool = False) -> float:
        """TFLOP/s of the best matmul in the numerics of a dtype; NaN if not measured.

        load: `burst` (single calls) or `sustained` (back to back).
        sound: whether only rows count on which a sentence may rest.
        """
        numerics = DTYPES[dtype].matmul if dtype in DTYPES else dtype
        rates = self.ceilings
        if sound:
            rows = self.rows("ceilings")
            rates = self._best_rates(rows[rows["holds"]])
        return rates.get(("matmul", numerics, load), np.nan)

    def copy_gbps(self) -> float:
        """GB/s, reads and writes, of the best copy in single calls; NaN if not measured."""
        every = self.ceilings.items()
        rates = [rate for (what, _, load), rate in every if what == "copy" and load == "burst"]
        return max(rates, default=np.nan)

    def sheet_tflops(self, dtype: str) -> float:
        """TFLOP/s in the data sheet; NaN if unknown."""
        if self.sheet is None or dtype not in DTYPES:
            return np.nan
        return self.sheet.tflops.get(dtype_of(dtype).matmul, np.nan)


def _in_words(benchmark: Benchmark, row: Mapping[str, object]) -> str:
    """A row in words: its cell, its implementation and its phase."""
    axes = [axis.name for axis in benchmark.axes]
    words = implementation_words(row["implementation"], axes)
    return f"{cell_words(row, axes)}: {words}, {phase_words(row['phase'])}"


def _floor(again: pd.Series, kind: str, number: int) -> float:
    """The noise floor that ratios of two processes, if these are few with the assumed one, tell.

    number: of those that do not follow from others.
    """
    least = ASSUMED_FLOORS[kind] if number < LEAST_PAIRS else 0.0
    return float(np.fmax(noise_floor(again.to_numpy(float)), least))


@cache
def no_rows(stem: str) -> pd.DataFrame:
    """The judged rows of a benchmark that was not measured: judging none takes as long as some."""
    return Evidence("", {})._judge(stem, ())


def traces_in(folder: Path) -> frozenset[str]:
    """The names of the published traces in the folder of a machine."""
    return frozenset(name for name in PUBLISHED_TRACES if (folder / "traces" / name).exists())
