"""The ladder (E6): train steps, each of which adds one technique to one below it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import pandas as pd

from lmperf.names import SHORT, TECHNIQUES, in_order
from lmperf.reporting.calculations.kernels import COPY, class_of
from lmperf.reporting.calculations.steps import (
    AUTOCAST,
    CELL,
    NAMES,
    SDPA,
    SDPA_COPIES,
    SDPA_GRAPH,
    SDPA_NARROW,
    STEM,
    STEP,
    WAYS,
    Way,
    all_steps,
    beside,
    steps,
    usual,
)
from lmperf.reporting.cells import EMPTY
from lmperf.reporting.figures import stacked
from lmperf.reporting.frames import having, parts, required, sorted_for_reading
from lmperf.reporting.gains import MIXED, Gain, rows_over
from lmperf.reporting.numbers import of_rows
from lmperf.reporting.rows import Rows
from lmperf.reporting.sections import Section
from lmperf.reporting.sentences import paragraph
from lmperf.reporting.words import NotMeasured, Range, sig
from lmperf.statistics import FASTER, SAME, SLOWER
from lmperf.transformer.rungs import IN_FLOAT8, NEEDED, RUNGS, STEPS_ALONE, Rung, rung_below

# The GPU's time of a step has changed or is the same, beyond or within these fractions.
CHANGED, UNCHANGED = 0.005, 0.02
# Parts of a bar: time in which the device works, and in which it waits for the CPU.
WORKING, WAITING = "steps of the ladder", "waiting for the CPU"
OF_SDPA = "SDPA, compiled, in a graph"  # in place of WORKING
# Rungs whose times stand in the tables of what to run.
IN_FIRST_TABLES = {"fused_graph", "graph", "bf16_graph"}
# Steps with SDPA -> what they build on.
BELOW_SDPA = {SDPA: WAYS["compiled_blocks"], SDPA_GRAPH: SDPA, SDPA_COPIES: SDPA_GRAPH}
BELOW_SDPA |= {SDPA_NARROW: SDPA_COPIES}
ALONE = [rung.name for rung in RUNGS if rung.implementation in STEPS_ALONE]


class Ladder(Section):
    """The rungs at the context and batch of each size, and what each of them gains."""

    highest = RUNGS[-1].name

    # Table E6: the rungs of all cells, with steps in float8 over the highest one, beside SDPA.

    @cached_property
    def every(self) -> Rows:
        """The rungs, under their names as `implementation`, of cells with a step of the ladder.

        SDPA's steps there are among them. Adds `base`: the way that a step builds on, and
        `builds_on`, its name.
        """
        rows = all_steps(self.evidence)
        rows = rows.assign(implementation=rows["way"].map(NAMES.get))
        rows = rows[rows["implementation"].notna()]
        is_alone = rows["implementation"].isin(ALONE).groupby([rows[axis] for axis in CELL])
        rows = rows[is_alone.transform("any")]
        bases = pd.concat([pd.Series(dtype=object), *map(_bases, parts(rows, *CELL))])
        names = bases.map(lambda base: NAMES[Way(**base)], na_action="ignore")
        return self.rows(STEM).kept(rows.assign(base=bases, builds_on=names))

    def over(self, rung: str, base: str) -> Gain:
        """The speed-ups of a rung over another one, of these cells."""
        pairs = rows_over(self.evidence, STEM, WAYS[rung]._asdict(), WAYS[base]._asdict())
        return Gain(pairs[pairs.index.isin(self.every.frame.index)])

    def float8_gains(self, rung: str) -> pd.DataFrame:
        """The steps of a rung in float8 that are faster than those of the highest one without.

        Columns as of `gains.rows_over`.
        """
        rows = self.over(rung, self.highest).rows
        return required(rows[rows["verdict"] == FASTER], "float8 gains nothing")

    def float8_advised(self, rung: str) -> pd.DataFrame:
        """Those of `float8_gains` whose loss holds."""
        harmless = self.of("losses").float8(rung).harmless
        return required(having(self.float8_gains(rung), size=harmless), "no loss of it holds")

    # The first page: one cell of each size.

    @cached_property
    def frame(self) -> pd.DataFrame:
        """The rungs, under their names as `implementation`.

        Raises NotMeasured if there is one, or only those of the tables above.
        """
        rows = usual(self.evidence)
        rows = rows[rows["rung"].notna()]
        names = {*rows.loc[rows["state"].isna(), "rung"]}
        if len(names) < 2 or names <= IN_FIRST_TABLES:
            raise NotMeasured("the ladder was not measured")
        return sorted_for_reading(rows.assign(implementation=rows["rung"]), ["implementation"])

    @property
    def sizes(self) -> list[str]:
        return in_order("size", self.frame["size"])

    @cached_property
    def rungs(self) -> list[Rung]:
        """The rungs with a result, the lowest first."""
        names = {*self.frame.loc[self.frame["state"].isna(), "rung"]}
        return [rung for rung in RUNGS if rung.name in names]

    @property
    def words(self) -> dict[str, str]:
        """Rungs, and SDPA in a graph, in the words of a step of this ladder."""
        words = dict(SHORT)
        if "fused_graph" not in {*self.frame["rung"]}:
            words["graph"] = f"{SHORT['fused_graph']}, {SHORT['graph'].removeprefix('+ ')}"
        if not self.evidence.is_cuda:
            words["bf16_weights"] = TECHNIQUES["bf16_weights"]
        return words

    def lines(self, because: Callable[[Rung], str]) -> Rows:
        """A row for each rung and size, with the reason for the gain of its rung in words.

        busy_ms: the GPU's time of a step that waits for the CPU.
        """
        rows = self.frame[self.frame["rung"].isin([rung.name for rung in self.rungs])]
        words = {rung.name: paragraph(because(rung)) or EMPTY for rung in self.rungs}
        busy = rows["device_ms"].where(rows["waits"].astype(bool))
        return self.rows("", rows.assign(because=rows["rung"].map(words), busy_ms=busy))

    # What the whole ladder gains.

    @property
    def gain(self) -> Range:
        """How many times as fast as the lowest rung the fastest one is, over `gained`."""
        rows = having(self.frame[self.frame["state"].isna()], size=self.gained)
        lowest = having(rows, rung=RUNGS[0].name).groupby("size")["ms"].min()
        return of_rows(Range.of(lowest / rows.groupby("size")["ms"].min()), rows)

    @cached_property
    def gained(self) -> list[str]:
        """The sizes that have both ends of the ladder."""
        lowest, *_, highest = (WAYS[rung.name] for rung in self.rungs)
        whole = beside(self.evidence, highest, lowest)
        if whole.empty or self.rungs[0] != RUNGS[0]:
            raise NotMeasured("no size has both ends of the ladder")
        return in_order("size", whole["size"])

    # What a rung gains over the one below it.

    def over_below(self, rung: Rung) -> pd.DataFrame:
        """The steps of a rung beside those of the measured rung below it, in the table's cells."""
        below = rung_below(rung, [other.name for other in self.rungs])
        if below is None:
            raise NotMeasured(f"no rung below {rung.name}")
        return beside(self.evidence, WAYS[rung.name], WAYS[below.name])

    def verdict(self, rung: Rung) -> str:
        """faster, slower, same or MIXED: of the GPU's time, which no host changes, at all sizes.

        Without a GPU that of the step's time. Raises NotMeasured without a comparison.
        """
        pairs = self.over_below(rung)
        pairs = required(pairs, f"{rung.name} was not measured beside the rung below it")
        if self.evidence.is_cuda and pairs["device_ms"].notna().any():
            low, _, high = self.busy_over_below(rung)
            if low > CHANGED or high < -CHANGED:
                return SLOWER if low > 0 else FASTER
            return SAME if max(-low, high) < UNCHANGED else MIXED
        return Gain(pairs).verdict

    def busy_over_below(self, rung: Rung) -> Range:
        """The change of the GPU's busy time from the rung below, as a fraction."""
        return _change(self.over_below(rung))

    @property
    def with_sdpa(self) -> Range:
        """The change of the GPU's busy time by PyTorch's attention in place of plain attention."""
        pairs = beside(self.evidence, SDPA, BELOW_SDPA[SDPA])
        return _change(pairs)

    def is_lost_in_waiting(self, rung: Rung) -> bool:
        """Whether steps of the rung wait for the CPU, none of which is faster than the rung below.

        Faster is beyond the noise floor.
        """
        pairs = self.over_below(rung)
        pairs = pairs[steps(self.evidence)["waits"][pairs.index].astype(bool)]
        return len(pairs) > 0 and bool((pairs["ratio"] <= 1 + pairs["floor"]).all())

    def ends_waiting(self, rung: Rung) -> list[str]:
        """The sizes at which the rung below a graph waits; none if the graph waits somewhere."""
        pairs = self.over_below(rung)
        if steps(self.evidence)["waits"][pairs.index].any():
            return []
        return in_order("size", pairs.loc[pairs["waits"], "size"])

    def is_one_launch(self, rung: Rung) -> bool:
        """Whether a rung gains by being a graph: the first one, and those that end waiting."""
        ends_waiting = bool(self.ends_waiting(rung))
        return rung.name == "fused_graph" or ("graph" in rung.name and ends_waiting)

    @property
    def casts_cost(self) -> bool:
        """Whether profiled steps copy for longer under bf16 autocast than in float32."""
        kernels = having(self.evidence.rows("profiles"), table="kernel", phase=STEP)
        kernels = having(kernels, implementation="eager")
        kernels = kernels[kernels["name"].map(class_of) == COPY]
        spent = kernels.groupby([*CELL, "dtype"])["total_ms"].sum().unstack("dtype")
        if not {"float32", AUTOCAST}.issubset(spent):
            return False
        spent = spent[["float32", AUTOCAST]].dropna()
        return len(spent) and (spent[AUTOCAST] > spent["float32"]).all()

    # The figure.

    @property
    def bars(self) -> list[dict]:
        """Bars in ms, in panels of a size; on a GPU without float32, and SDPA's graphs behind them.

        A size of a single rung has no panel.
        """
        rows = self.frame[self.frame["state"].isna()]
        if self.evidence.is_cuda:
            rows = rows[rows["rung"] != RUNGS[0].name]
        rows = rows[rows.groupby("size")["rung"].transform("nunique") > 1]
        graphs = [SDPA_GRAPH, SDPA_COPIES, SDPA_NARROW]
        peers = having(usual(self.evidence), way=graphs, size=[*rows["size"].unique()])
        peers = peers[peers["state"].isna()]
        peers = peers.assign(implementation=peers["way"].map(NAMES.get))
        peers = sorted_for_reading(peers, ["implementation"])
        peers = peers.assign(rung=peers["implementation"], part=OF_SDPA)
        rows = pd.concat([rows.assign(part=WORKING), peers])
        rows, words = sorted_for_reading(rows, ["size"]), self.words
        return [bar for row in rows.to_dict("records") for bar in _bar(row, words[row["rung"]])]


def _change(pairs: pd.DataFrame) -> Range:
    """The change of the GPU's busy time in pairs of steps, as a fraction."""
    return of_rows(Range.of(pairs["device_ms"] / pairs["device_ms_base"] - 1), pairs)


def _bases(cell: tuple[tuple, pd.DataFrame]) -> pd.Series:
    """Of each step of a cell the axes of the step that it is compared with, or None."""
    _, rows = cell
    names = {*rows["implementation"]}
    below = {rung.name: rung_below(rung, names) for rung in (*RUNGS, *IN_FLOAT8, *NEEDED)}
    bases = {name: WAYS[rung.name]._asdict() for name, rung in below.items() if rung}
    ran = {*rows["way"]}
    bases |= {NAMES[way]: base._asdict() for way, base in BELOW_SDPA.items() if base in ran}
    return rows["implementation"].map(bases.get)


def _bar(row: dict, line: str) -> list[dict]:
    """The parts of a bar.

    A step that does not wait is longer than its busy time only because its clock is lower, at the
    power limit, than while it is profiled.
    """
    share = row["device_ms"] / row["ms"] if row["waits"] else 1.0
    shares = {row["part"]: min(share, 1.0), WAITING: max(1 - share, 0.0)}
    lengths = {name: part * row["ms"] for name, part in shares.items() if part > 0}
    return stacked(row["size"], line, lengths, "ms", f"{sig(row['ms'])} ms", row["signs"])
