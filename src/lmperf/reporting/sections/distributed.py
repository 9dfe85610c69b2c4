"""Several GPUs: tables, and what the sentences of the first page rest on."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import pandas as pd

from lmperf.names import SHORT, implementation_words
from lmperf.reporting.columns import Quantity, across, memory, number
from lmperf.reporting.figures import stacked
from lmperf.reporting.frames import LAST, at, having, required
from lmperf.reporting.gains import Gain, rows_over
from lmperf.reporting.judging import WIDE
from lmperf.reporting.rows import Rows
from lmperf.reporting.sections import Section
from lmperf.reporting.sections.ranks_memory import matched, peaks_gib
from lmperf.reporting.words import NotMeasured, sig
from lmperf.statistics import FASTER

STEM, LEDGER = "distributed", "distributed_overlap"
ONE, COMPILED = "one_rank", "_compiled"
VARIANTS = (COMPILED, "_graph")  # suffixes of the strategies that one rank has as well
HOOKS, DDP, SHARDED, STATE = "overlapped", "ddp", "fully_sharded", "sharded_optimizer"
# The strategies of the first table.
HEAD = (ONE, HOOKS, DDP, SHARDED, "fsdp2")
FROM_LEDGER = ["communication_ms", "hidden_share", "hidden_share_low", "hidden_share_high"]
FROM_LEDGER += ["longer", "calls", "exposed_ms"]
PROFILED = ["step_ms", "compute_ms", "communication_ms"]
WAITS = "idle, or waiting for others"  # the part of a step that neither computes nor communicates
IDLE = 0.1  # a step whose GPUs are idle for a larger share waits
LONGER = 0.01  # profiled steps are longer by so much that a reader should know
GROWS = 1.1  # a larger batch pays from so many times as many tokens a second on


def variant(name: str) -> str:
    """The suffix of a strategy's variant, or none."""
    return next((suffix for suffix in VARIANTS if name.endswith(suffix)), "")


def plain(name: str) -> str:
    """The name of a strategy without the suffix of its variant."""
    return name.removesuffix(variant(name))


def one_rank(name: str) -> str:
    """The step of one rank, in the variant of a strategy."""
    return ONE + variant(name)


def _profiled(quantity: Quantity) -> Quantity:
    """A quantity of profiled steps, in italics where these wait."""

    def make(whole: Rows, rows: pd.DataFrame) -> pd.Series:
        return quantity.make(whole, rows.assign(waits=rows["late"]))

    return replace(quantity, make=make)


def largest_cell(rows: pd.DataFrame, *axes: str) -> dict:
    """Axis -> its last value in reading order, of the rows with the last values of those before."""
    return at(rows, **dict.fromkeys(axes, LAST)).iloc[0][[*axes]].to_dict()


class Distributed(Section):
    """Steps by strategy. The first table has one cell: see `cell`."""

    one, hooks, ddp, sharded, state = ONE, HOOKS, DDP, SHARDED, STATE
    # Parts of a profiled step in the figure, and their colours.
    parts = {"computation alone": "blue", "both": "green", "communication alone": "orange"}
    parts |= {WAITS: "grey"}

    @property
    def subjects(self) -> list[str]:
        """The custom strategies that sentences are about; none: those of the first table."""
        return self.evidence.subjects(STEM)

    @cached_property
    def steps(self) -> Rows:
        """All steps, with the peak of a rank and what the ledger says of each (D2).

        base: the step of one rank, which others are compared with. late: whether a rank waits in
        the timed step or in the profiled one.
        """
        steps = self.rows(STEM)
        profiled = matched(self.ledger.frame, steps.frame)
        beside = profiled[FROM_LEDGER].astype(float)
        late = profiled["waits"].eq(True)
        peak = peaks_gib(self.evidence, steps.frame)
        at = steps.frame["batch"].map("batch {:g}".format)
        base = [
            None if plain(name) == ONE else {"implementation": one_rank(name), "ranks": 1}
            for name in steps.frame["implementation"]
        ]
        return steps.kept(steps.frame.assign(peak=peak, at=at, base=base, late=late, **beside))

    @property
    def parameter(self) -> str:
        """The numeric parameter of which a custom strategy was measured with several values."""
        return required(list(self._parameters), "no strategy has several values of a parameter")[0]

    @property
    def by_parameter(self) -> Rows:
        """The steps of such strategies on several ranks in the cell of the first table.

        A column has the parameter's value, `implementation` the strategy's function without it.
        """
        values = self._parameters[self.parameter]
        rows = self.within(self.steps, implementation=[*values], batch=self.few)
        names = {name: strategy.function for name, strategy in self.evidence.declared(STEM).items()}
        given = rows.frame["implementation"]
        return rows.kept(
            rows.frame.assign(
                **{self.parameter: given.map(values), "implementation": given.map(names)},
                hidden=100 * rows.frame["hidden_share"],
                hidden_low=100 * rows.frame["hidden_share_low"],
                hidden_high=100 * rows.frame["hidden_share_high"],
            ).sort_values(self.parameter)
        )

    @property
    def _parameters(self) -> dict[str, dict[str, float]]:
        """Parameter -> strategy -> value, of numeric ones that differ between strategies."""
        parameters: dict[str, dict[str, float]] = {}
        for name in self.subjects:
            for key, value in self.evidence.declared(STEM)[name].options.items():
                if isinstance(value, int | float) and not isinstance(value, bool):
                    parameters.setdefault(key, {})[name] = value
        return {key: values for key, values in parameters.items() if len({*values.values()}) > 1}

    @cached_property
    def ledger(self) -> Rows:
        """The overlap ledger (D3), and how far its profiled steps are from the timed ones.

        Nothing is said of stale timed ones.

        idle: share of the profiled step in which a rank neither computes nor communicates.
        longer: by which fraction it is longer than the timed step.
        waits: whether a rank waits in the timed step, or in the profiled one, by its length or its
        interval.
        """
        rows = self.rows(LEDGER).frame
        timed = matched(self.rows(STEM).frame, rows)
        timed_ms = timed["ms"].astype(float).mask(timed["key"].isin(self.evidence.stale))
        longer = rows["step_ms"] / timed_ms - 1
        above = rows["step_high_ms"] / rows["step_ms"] - 1
        below = 1 - rows["step_low_ms"] / rows["step_ms"]
        waits = timed["waits"].eq(True) | (longer > WIDE) | (above > WIDE) | (below > WIDE)
        idle = 1 - (rows["compute_ms"] + rows["exposed_ms"]) / rows["step_ms"]
        return self.rows(LEDGER, rows.assign(idle=idle, longer=longer, waits=waits))

    def hidden(self, form: str = "fixed", note: str = "", interval: bool = True) -> Quantity:
        """The hidden share of the ledger in %, in italics as in the ledger."""
        ends = ("low", "high") if interval else ()
        ends = {end: f"100 * hidden_share_{end}" for end in ends}
        return _profiled(number("100 * hidden_share", "hidden", form, unit="%", note=note, **ends))

    @property
    def communication(self) -> Quantity:
        """The communication of the ledger in ms, in italics as in the ledger."""
        return _profiled(number("communication_ms", "communication", unit="ms"))

    def columns_at_many(self, gpu: str) -> list[Quantity]:
        """What the first table shows of its largest batch. gpu: the noun of a rank."""
        note = "*Hidden* is the share of communication that runs beside computation."
        shown = (
            number("tokens_s", "tokens/s", "rounded"),
            self.hidden("whole", note),
            memory("peak", f"peak of a {gpu}", "GiB"),
        )
        return across("at", [f"batch {self.many}"], *shown)

    @cached_property
    def _several(self) -> pd.DataFrame:
        """The valid steps on several ranks: of subjects, or compiled ones, if there are any.

        Those of `sections.scaling` have a table of their own.
        """
        rows = self.steps.valid.frame
        if self.subjects:
            rows = having(rows, implementation=self.subjects)
        else:
            rows = rows[~self._scaled(rows)]
        rows = required(rows[rows["ranks"] > 1], "no step on several ranks")
        compiled = rows["implementation"].str.endswith(COMPILED)
        return rows[compiled] if compiled.any() else rows

    def _scaled(self, rows: pd.DataFrame) -> pd.Series:
        """Whether rows are in the cells of `sections.scaling`."""
        return pd.Series(rows.index.isin(self.of("scaling").steps.frame.index), rows.index)

    @property
    def suffix(self) -> str:
        """Of the names of the strategies in the first table."""
        return COMPILED if self._several["implementation"].str.endswith(COMPILED).all() else ""

    @cached_property
    def cell(self) -> dict:
        """The cell of the first table: the largest size, on most ranks."""
        return largest_cell(self._several, "size", "context_length", "dtype", "ranks")

    @property
    def ranks(self) -> int:
        return int(self.cell["ranks"])

    @property
    def has_head(self) -> bool:
        """Whether the first table has steps on several ranks."""
        return bool(self._batches)

    @cached_property
    def _batches(self) -> list[int]:
        rows = having(self._several, implementation=[*self.words], **self.cell)
        rows = required(rows, "no strategy of the first table ran")
        return sorted(int(batch) for batch in rows["batch"].unique())

    @property
    def few(self) -> int:
        """The smallest batch of the first table."""
        return self._batches[0]

    @property
    def many(self) -> int:
        """The largest batch of the first table."""
        return self._batches[-1]

    @property
    def words(self) -> dict[str, str]:
        """Names of the strategies of the first table: subjects, then those of HEAD."""
        words = SHORT | {ONE: "one GPU" if self.evidence.is_cuda else "one process"}
        own = {name: implementation_words(name) for name in self.subjects}
        return own | {family + self.suffix: words[family] for family in HEAD}

    def within(self, rows: Rows, **where) -> Rows:
        """The rows in the cell of the first table, with these further values."""
        return rows.kept(having(rows.frame, **{**self.cell, **where}))

    def strategies(self, *names: str) -> Rows:
        """The steps of implementations in the cell of the first table, also those of one rank."""
        where = {"ranks": [1, self.ranks], "batch": [self.few, self.many]}
        return self.within(self.steps, implementation=names, **where)

    @cached_property
    def head(self) -> Rows:
        """The rows of the first table, at its smallest and its largest batch."""
        return self.strategies(*self.words)

    @property
    def width(self) -> float:
        """How far intervals of the first table reach from their times, where no GPU waits."""
        rows = self.head.query("not waits")
        return max(rows.range("high_ms / ms").high, rows.range("ms / low_ms").high) - 1

    @property
    def longer(self) -> list[tuple[int, float]]:
        """(batch, by which fraction profiled steps of the first table are longer than timed)."""
        far = self.head.query("holds").frame.groupby("batch")["longer"].max()
        return [(int(batch), share) for batch, share in far[far > LONGER].items()]

    @property
    def elsewhere(self) -> Rows:
        """The steps of the sizes that the first table leaves out, the fastest first."""
        rows = self.steps.valid.frame
        rows = rows[~self._scaled(rows)]
        rows = rows[(rows["size"] != self.cell["size"]) & rows["ranks"].isin([1, self.ranks])]
        rows = rows.sort_values("ms", kind="stable")
        stars = rows["waits"].map({True: "*", False: ""}).astype(object)
        return self.steps.kept(rows.assign(time=stars + rows["ms"].map(sig).astype(object) + stars))

    @cached_property
    def drawn(self) -> Rows:
        """The ledger of the strategies of the first table, of steps that hold, at the largest
        batch: the smaller it is, the more a profiler makes the GPUs wait."""
        rows = self.within(self.ledger, implementation=[*self.words], holds=True).frame
        return self.ledger.kept(rows[rows["batch"] == rows["batch"].max()])

    @property
    def bars(self) -> list[dict]:
        """The bars of the figure: the parts of each profiled step."""
        bars = []
        for row in required(self.drawn.frame, "no profiled step holds").to_dict("records"):
            parts = {
                "computation alone": row["compute_ms"] - row["hidden_ms"],
                "both": row["hidden_ms"],
                "communication alone": row["exposed_ms"],
                WAITS: row["idle"] * row["step_ms"],
            }
            lengths = {name: max(0.0, ms) for name, ms in parts.items()}
            panel, line = f"batch {row['batch']:g}", self.words[row["implementation"]]
            bars += stacked(panel, line, lengths, "ms", f"{sig(row['step_ms'])} ms")
        return bars

    # What is fastest.

    def _at(self, batch: int) -> pd.DataFrame:
        """The steps of the first table at a batch on several ranks, the fastest first.

        Of the subjects alone, if there are any.
        """
        rows = having(self._ranked, batch=batch)
        rows = required(rows[rows["ranks"] > 1], f"no step at batch {batch} holds")
        return rows.sort_values("ms", kind="stable")

    @property
    def _ranked(self) -> pd.DataFrame:
        """The steps of the first table that sentences rank."""
        rows = self.head.sound
        return having(rows, implementation=self.subjects) if self.subjects else rows

    def fastest(self, batch: int) -> pd.Series:
        return self._at(batch).iloc[0]

    @cached_property
    def fastest_ways(self) -> dict[str, str]:
        """The fastest strategy at the largest batch, and those that are as fast within noise.

        Each with its words in the first table. Steps that wait for the CPU are left out unless the
        fastest waits. NotMeasured: no other strategy is left, or one rank is as fast.
        """
        if len(self.over_one_rank) and self.one_is_enough:
            raise NotMeasured("one rank is enough")
        steps = self._at(self.many)
        steps = steps[~steps["waits"].eq(True) | bool(steps.iloc[0]["waits"])]
        if len(steps) == 1:
            raise NotMeasured("one strategy alone is not ranked")
        names = steps["implementation"].tolist()
        best, *others = [{"implementation": name, "ranks": self.ranks} for name in names]
        pairs = pd.concat([rows_over(self.evidence, STEM, best, other) for other in others])
        pairs = pairs[pairs.index.isin(steps.index)]
        slower = {*pairs.loc[pairs["verdict"] == FASTER, "implementation_base"]}
        return {plain(name): self.words[name] for name in names if name not in slower}

    @cached_property
    def over_one_rank(self) -> pd.DataFrame:
        """The steps of the first table that can be compared with that of one rank, with ratios."""
        rows = self.head.frame
        names = rows.loc[rows["ranks"] > 1, "implementation"].unique()
        base = {"implementation": one_rank(self.suffix), "ranks": 1}
        ours = [{"implementation": name, "ranks": self.ranks} for name in names]
        pairs = pd.concat([rows_over(self.evidence, STEM, side, base) for side in ours])
        return pairs[pairs.index.isin(rows.index) & pairs["ratio"].notna()]

    @property
    def one_is_enough(self) -> bool:
        """Whether no strategy is faster than one rank."""
        pairs = required(self.over_one_rank, "no step was compared with that of one rank")
        faster = pairs["verdict"] == FASTER
        if not faster.any() and (pairs["waits"] & (pairs["ratio"] > 1)).any():
            raise NotMeasured("a step that waits may be faster elsewhere")
        return not faster.any()

    def step(self, family: str, batch: int) -> pd.Series:
        """The step of a strategy in the cell of the first table."""
        name = family + self.suffix
        return self.head.where(implementation=name, batch=batch).one

    def gain(self, batch: int) -> Gain:
        """The speed-up of the fastest strategy over one rank."""
        name = self.fastest(batch)["implementation"]
        rows = self.within(self.steps, implementation=name, batch=batch)
        return rows.over(one_rank(name), ranks=1)

    @property
    def larger_pays(self) -> bool:
        """Whether the fastest step makes more tokens a second at the largest batch."""
        few, many = (self.fastest(batch)["tokens_s"] for batch in (self.few, self.many))
        return bool(many > GROWS * few)

    # What the profiler says.

    def ledger_of(self, name: str, batch: int) -> pd.Series:
        """The row of the ledger of an implementation."""
        return self.within(self.ledger, implementation=name, batch=batch).one

    @property
    def hiding(self) -> list[pd.Series]:
        """The rows of the ledger, at the largest batch, of the subjects, or else of hooks."""
        names = self.subjects or [HOOKS + self.suffix]
        rows = self.within(self.ledger, implementation=names, batch=self.many).sound
        return [row for _, row in rows.iterrows()]

    @property
    def idlest(self) -> pd.Series:
        """The step of the first table that waits for the largest share of its time.

        step_ms, compute_ms, communication_ms: of the profiled step. idle: the share of the timed
        step that is left even if communication never runs beside computation, more than IDLE.
        """
        rows = self._ranked
        rows = rows[rows["waits"]]
        profiled = matched(self.ledger.sound, rows)[PROFILED]
        rows = rows.assign(**profiled.astype(float))
        idle = 1 - (rows["compute_ms"] + rows["communication_ms"]) / rows["ms"]
        rows = required(rows.assign(idle=idle)[idle > IDLE], "no profiled step waits for long")
        return rows.loc[rows["idle"].idxmax()]

    @property
    def throttled(self) -> pd.Series:
        """The fastest step at the largest batch, if it draws the power limit."""
        rows = self._at(self.many).iloc[:1]
        return required(rows[self.evidence.at_limit(rows)], "it draws less").iloc[0]
