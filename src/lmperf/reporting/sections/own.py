"""The first page of a report about custom implementations, its subjects: train steps, memory and
strategies beside those of lmperf."""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property

import pandas as pd

from lmperf.names import SHORT, dtype_words, implementation_words, in_order, size_in_full
from lmperf.reporting.calculations.steps import (
    CELL,
    NARROW,
    STEM,
    Way,
    all_steps,
    fastest_steps,
    steps,
    usual_cells,
)
from lmperf.reporting.frames import are_within, having, required, sorted_for_reading
from lmperf.reporting.gains import rows_over
from lmperf.reporting.rows import Rows
from lmperf.reporting.sections import Section
from lmperf.reporting.sections.distributed import largest_cell
from lmperf.reporting.sections.what_to_run import effort, in_reading_order
from lmperf.reporting.words import NotMeasured, listed
from lmperf.statistics import UNRESOLVED

# What a report is about, those of a whole model first: the order of the names in its title.
STEMS = (
    STEM,
    "profiles",
    "warmup",
    "memory",
    "distributed",
    "distributed_overlap",
    "distributed_memory",
    "flash_attention",
)
STEMS += ("flash_attention_check", "attention", "lrpe", "lrpe_check")
MOST_NAMES = 5  # in the title
# Steps of SDPA in a compiled model, which anyone can write, the fastest to run first.
SDPA_COMPILED = ("sdpa_compiled_blocks", "sdpa_compiled")
STRATEGIES, ALONE = "distributed", "one_rank"
# Strategies of PyTorch, and of lmperf, that stand beside those of a user.
PYTORCH = ("ddp", "fsdp2", "zero_redundancy")
OF_LMPERF = ("one_by_one", "flat", "overlapped", "sharded_optimizer", "fully_sharded")


class Own(Section):
    """The subjects of a report. Their steps are those at one context and batch of each size."""

    # Whose report it is.

    @cached_property
    def names(self) -> list[str]:
        """What the subjects are called, each once."""
        names = [
            implementation_words(name) for stem in STEMS for name in self.evidence.subjects(stem)
        ]
        return [*dict.fromkeys(names)]

    @property
    def title(self) -> str:
        """Their names; of many the first ones."""
        if len(self.names) <= MOST_NAMES:
            return listed(self.names)
        first = self.names[: MOST_NAMES - 1]
        return f"{', '.join(first)} and {len(self.names) - len(first)} others"

    def is_about(self, *stems: str) -> bool:
        """Whether the author brought an implementation of one of some benchmarks."""
        return any(self.evidence.subjects(stem) for stem in stems)

    # Train steps.

    @cached_property
    def every(self) -> pd.DataFrame:
        """All train steps at the context and batch of each size that has most results.

        A cell that no subject ran in does not count.
        """
        rows = all_steps(self.evidence)
        mine = having(rows, implementation=self.evidence.subjects(STEM))
        mine = required(mine, "no train step of a subject was measured")
        cells = usual_cells(rows[are_within(rows, mine, CELL)])
        return sorted_for_reading(rows[are_within(rows, cells, CELL)], ["size"])

    @cached_property
    def steps(self) -> Rows:
        """The steps of the subjects, in their order and that of dtypes.

        `line`: how each of them ran, in words. `base`: the first of them, with which others are
        compared.
        """
        rows = having(self.every, implementation=self.evidence.subjects(STEM))
        rows = rows[rows["state"] != "unsupported"]
        rows = required(rows, "no train step of a subject was measured")
        words = {way: way_words(way) for way in self._in_order(rows["way"])}
        first = self._in_order(rows.loc[rows["state"].isna(), "way"])[:1]
        bases = [first[0]._asdict() if first and way != first[0] else None for way in rows["way"]]
        lines = pd.Categorical(rows["way"].map(words), [*words.values()])
        return self.rows(STEM, rows.assign(line=lines, base=bases))

    def _in_order(self, ways: pd.Series) -> list[Way]:
        names = self.evidence.subjects(STEM)
        dtypes = in_order("dtype", [way.dtype for way in ways])
        return sorted(
            {*ways}, key=lambda way: (names.index(way.implementation), dtypes.index(way.dtype))
        )

    @property
    def first(self) -> str:
        """The way, in words, that others are compared with."""
        return self.steps.frame["line"].cat.categories[0]

    @property
    def sizes(self) -> list[str]:
        return in_order("size", self.steps.frame["size"])

    @property
    def has_several_ways(self) -> bool:
        return self.steps.valid.frame["line"].nunique() > 1

    @property
    def size_names(self) -> dict[str, str]:
        """Size -> its name in the first column of a table, with context and batch."""
        cells = self.every.drop_duplicates("size")
        columns = (cells["size"], cells["context_length"], cells["batch"])
        return {
            size: f"{size_in_full(size)}, context {context:,}, batch {batch:,}"
            for size, context, batch in zip(*columns, strict=True)
        }

    @cached_property
    def fastest(self) -> pd.DataFrame:
        """The fastest step of the subjects of each size."""
        rows = required(self.steps.valid.frame, "no step of a subject has a result")
        return fastest_steps(rows)

    @property
    def sound(self) -> pd.DataFrame:
        """Those of `fastest` on which a sentence may rest."""
        return required(self.fastest[self.fastest["holds"]], "no fastest step holds")

    @cached_property
    def reference(self) -> pd.DataFrame:
        """lmperf's fastest step with float32 weights of each size, in the same cells."""
        return self._fastest_of(self._of_lmperf)

    @cached_property
    def sdpa(self) -> pd.DataFrame:
        """Of each size the fastest compiled step with SDPA."""
        return self._fastest_of(having(self._of_lmperf, implementation=SDPA_COMPILED))

    @property
    def _of_lmperf(self) -> pd.DataFrame:
        """lmperf's steps with float32 weights."""
        rows = self.every[self.every.index.isin(steps(self.evidence).index)]
        return rows[rows["dtype"] != NARROW]

    def _fastest_of(self, rows: pd.DataFrame) -> pd.DataFrame:
        """The fastest of some steps, of the sizes that a subject has."""
        return fastest_steps(rows[rows["state"].isna() & rows["size"].isin(self.fastest["size"])])

    @cached_property
    def lines(self) -> Rows:
        """A line for each size: `fastest`, `reference` and `sdpa` as implementations.

        shown, of_lmperf: how the first two ran, in words. of_peak: % of the data sheet in bf16.
        """
        kinds = {"fastest": self.fastest, "reference": self.reference, "sdpa": self.sdpa}
        ways = self.fastest.set_index("size")["line"].astype(str)
        of_lmperf = self.reference.set_index("size")["way"].map(lambda way: way.words)
        parts = [steps.assign(implementation=kind) for kind, steps in kinds.items()]
        rows = in_reading_order(parts)
        rows = rows.assign(
            shown=rows["size"].map(ways),
            of_lmperf=rows["size"].map(of_lmperf),
            of_peak=100 * rows["mfu"],
        )
        return self.rows("", rows)

    @property
    def gaps(self) -> pd.DataFrame:
        """lmperf's fastest steps beside the fastest one of the subjects at each size.

        With the columns of `gains.rows_over`, of those that hold and are resolved: `ratio` says how
        many times as fast the other step is.
        """
        ways, pairs = self.fastest.set_index("size")["way"], []
        for label, step in self.reference.iterrows():
            base = ways[step["size"]]
            both = rows_over(self.evidence, STEM, step["way"]._asdict(), base._asdict())
            pairs.append(both[both.index == label])
        both = pd.concat(required(pairs, "no step of lmperf was measured"))
        is_decided = both["verdict"].notna() & (both["verdict"] != UNRESOLVED)
        why = "no step was compared with the fastest one of the subjects"
        return required(both[both["holds"] & is_decided], why)

    # What lmperf's recipe would gain.

    @cached_property
    def recipe(self) -> Rows:
        """The steps of lmperf with float32 weights.

        `line`: a way in words, the simplest first. `base`: the fastest step of the subjects.
        """
        rows = self._of_lmperf[self._of_lmperf["state"] != "unsupported"]
        rows = required(rows, "no step of lmperf was measured beside those of the subjects")
        ways = sorted({*rows["way"]}, key=effort)
        words = {way: way.words for way in ways}
        fastest = self.fastest.set_index("size")["way"]
        bases = [fastest[size]._asdict() if size in fastest else None for size in rows["size"]]
        lines = pd.Categorical(rows["way"].map(words), [*words.values()])
        return self.rows(STEM, rows.assign(line=lines, base=bases))

    # Strategies.

    @cached_property
    def strategies(self) -> Rows:
        """The subjects on several ranks, one rank, and eager strategies of PyTorch and lmperf.

        They are of the largest cell of the subjects.
        """
        section = self.of("distributed")
        names = self.evidence.subjects(STRATEGIES)
        mine = having(section.steps.frame, implementation=names)
        mine = required(mine[mine["ranks"] > 1], "no strategy was brought")
        cell = largest_cell(mine, "size", "context_length", "dtype", "ranks", "batch")
        rows = having(section.steps.frame, **cell | {"ranks": [1, cell["ranks"]]})
        order = [ALONE, *names, *PYTORCH, *OF_LMPERF]
        rows = having(rows, implementation=order)
        words = SHORT | {ALONE: "one GPU" if self.evidence.is_cuda else "one process"}
        words |= {name: implementation_words(name) for name in names}
        shown = [*dict.fromkeys(words[name] for name in order)]
        lines = pd.Categorical(rows["implementation"].map(words), shown)
        return section.steps.kept(rows.assign(line=lines))

    @property
    def strategy_names(self) -> list[str]:
        """The subjects that ran on several ranks, in their order."""
        ran = {*self.strategies.valid.frame["implementation"]}
        return [name for name in self.evidence.subjects(STRATEGIES) if name in ran]

    def over_peers(self, name: str) -> list[tuple[str, str]]:
        """The speed-ups of a strategy over each of PyTorch's that was measured beside it."""
        rows = self.strategies.where(implementation=name)
        gains = []
        for peer in PYTORCH:
            with suppress(NotMeasured):
                gains.append((implementation_words(peer), str(rows.over(peer))))
        return gains


def way_words(way: Way) -> str:
    """A way of a subject in words, its name first: `my model, float32`."""
    return f"{implementation_words(way.implementation, CELL)}, {dtype_words(way.dtype, CELL)}"
