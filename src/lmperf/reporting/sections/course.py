"""The problems of Stanford CS336, assignment 2: rows of the subject, and what their answers say.

The subject of a benchmark is lmperf's own implementation, or in a report on custom ones those that
the user brought. Tables show all of them, sentences are about the first that has a result.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from itertools import permutations

import numpy as np
import pandas as pd

from lmperf.benchmarks import load, stems
from lmperf.dtypes import DTYPES, dtype_of
from lmperf.names import in_order
from lmperf.reporting.calculations import kernels
from lmperf.reporting.calculations.accumulation import spacing
from lmperf.reporting.calculations.kernels import MATMUL
from lmperf.reporting.calculations.steps import AUTOCAST, CELL, EAGER, FLOAT32, STEM, STEP
from lmperf.reporting.frames import having, matching, required
from lmperf.reporting.gains import Gain
from lmperf.reporting.html import anchor
from lmperf.reporting.numbers import of_rows
from lmperf.reporting.rows import Rows
from lmperf.reporting.sections import Section, predicate
from lmperf.reporting.sections.attention import FURTHER, USUAL_WIDTH
from lmperf.reporting.sections.attention import PHASES as PASSES
from lmperf.reporting.sections.profiles import CASE, usual_size
from lmperf.reporting.sections.ranks_memory import matched
from lmperf.reporting.words import MIB, Count, NotMeasured, Range
from lmperf.statistics import SLOWER, UNRESOLVED
from lmperf.transformer.sizes import SHORT
from lmperf.workflow import TEMPLATES

PHASES = ["forward", "backward", STEP]
LINEAR_LAYERS = (4, 7)  # of a block: with q, k, v and gate, up in one each, or apart
HALF, PLAIN = "bfloat16", "eager"
# What a report is about that is not about custom implementations.
MODELS = ("end_to_end", "warmup", "profiles", "memory", "memory_timeline", "checkpointing")
LMPERF = dict.fromkeys((*MODELS, "attention"), (EAGER,)) | {"flash_attention": ("triton", "tiled")}
# Problem -> lmperf's strategies, and what the name or function of a custom one has.
# The first that fits counts; by default a custom one overlaps single gradients.
STRATEGIES = {
    "fsdp": (["fully_sharded"], "fsdp|fully"),
    "sharded_optimizer": (["sharded_optimizer"], "shard|optim|zero"),
    "bucketed": (["bucket_1", "bucket_10", "bucket_100", "bucket_1000"], "bucket"),
    "flat": (["flat"], "flat"),
    "naive": (["one_by_one"], "naive|one_by_one|minimal"),
    "overlapped": (["overlapped"], ""),
}
RANKS, LEDGER, RANKS_MEMORY = "distributed", "distributed_overlap", "distributed_memory"
RANKED = ["size", "context_length", "batch", "ranks", "dtype"]
OF_LEDGER = [
    "step_ms",
    "communication_ms",
    "exposed_ms",
    "late_ms",
    "hidden_share",
    "calls",
    "sent_bytes",
]
MOMENTS = ["init", "before_step", "after_step", "peak"]
ABOUT = (
    *("end_to_end", "warmup", "profiles", "mixed_precision", "memory", "memory_timeline"),
    *("checkpointing", "attention", "flash_attention", "collectives", RANKS, LEDGER, RANKS_MEMORY),
)


class Course(Section):
    """What the answers need beside the sections of their tables."""

    spacing = staticmethod(spacing)

    @cached_property
    def places(self) -> dict[str, str]:
        """Table -> its page with the anchor of its heading, which its template has."""
        places = {
            "Ceilings": "method.md#ceilings",
            "R1": "method.md#r1-rows-measured-a-second-time",
            "E5": "../machines.md#e5-the-same-train-steps-on-several-machines",
        }
        for stem in stems():
            path = TEMPLATES / f"{stem}.md.j2"
            text = path.read_text(encoding="utf-8") if path.exists() else ""
            for name, title in re.findall(r"^## ([A-Z]\d+)\. (.*)$", text, re.MULTILINE):
                places[name] = f"{stem}.md#{anchor(f'{name}. {title}')}"
        return places

    def linked(self, tables: str) -> list[tuple[str, str]]:
        """(table, its place) of some tables, of those whose page the report has."""
        there = {load(stem).section or stem for stem in self.evidence.stems} | {"method"}
        every = [(name, self.places[name]) for name in tables.split()]
        return [(name, place) for name, place in every if place.partition(".")[0] in there]

    # Which problems, and about whom.

    def shows(self, year: int | None) -> bool:
        """Whether the page has problems of one year only; None: of both."""
        return year is None or self.evidence.course in (None, year)

    @property
    def brought(self) -> list[str]:
        """The custom implementations that the page is about."""
        names = [name for stem in ABOUT for name in self.evidence.subjects(stem)]
        return [*dict.fromkeys(names)]

    def names(self, stem: str) -> list[str]:
        """The subjects of a benchmark that have rows; none in a report that does not bring one."""
        own = self.evidence.subjects(stem)
        if not own and self._is_left_out(stem):
            return []
        rows = self.evidence.rows(stem)["implementation"].values
        return [name for name in own or LMPERF.get(stem, ()) if name in rows]

    def _is_left_out(self, stem: str) -> bool:
        """Whether lmperf's rows of a benchmark are no subject of the report."""
        is_about_machine = stem in ("mixed_precision", "collectives", "ceilings")
        return self.evidence.is_own and not self.evidence.reference and not is_about_machine

    def every(self, stem: str) -> Rows:
        """The rows of all subjects of a benchmark; all rows of one without implementations."""
        rows = self.rows(stem)
        is_of_one = stem in LMPERF or self.evidence.subjects(stem)
        if is_of_one or self._is_left_out(stem):
            return rows.kept(having(rows.frame, implementation=self.names(stem)))
        return rows

    def subject(self, stem: str) -> str:
        """The subject that sentences are about."""
        there = self.every(stem).valid.frame["implementation"].values
        return required([name for name in self.names(stem) if name in there], f"no {stem}")[0]

    def one(self, stem: str) -> Rows:
        """Its rows, which sentences may rest on or not."""
        return self.rows(stem).where(implementation=self.subject(stem))

    def unmeasured(self, needs: str, is_answered: bool) -> list[tuple[str]]:
        """The benchmarks that a problem needs and that have no rows; all, if nothing is said."""
        needed = [stem for stem in needs.split() if not self.reasons(stem)]
        lack = [(stem,) for stem in needed if not self.every(stem)]
        return lack or ([] if is_answered else [(stem,) for stem in needed])

    def left_out(self, needs: str, reason: str) -> list[tuple[str]]:
        """The benchmarks of which a report on custom implementations says nothing, and why:
        `not brought`, or lmperf measures its `own only`."""
        return [(stem,) for stem in needs.split() if self.reasons(stem) == reason]

    def reasons(self, stem: str) -> str:
        if self.evidence.declared(stem) or not self._is_left_out(stem):
            return ""
        return "not brought" if load(stem).takes else "own only"

    # benchmarking_script.

    @cached_property
    def timed(self) -> pd.DataFrame:
        """The timed rows of the model in its first dtype."""
        rows = having(self.one(STEM).frame, phase=PHASES)
        rows = required(rows[rows["holds"]], "the model was not timed")
        return having(rows, dtype=in_order("dtype", rows["dtype"])[0])

    @cached_property
    def model(self) -> Rows:
        """Those of the context and batch at which most sizes have all phases."""
        complete = self.timed.groupby(CELL)["phase"].transform("nunique") == len(PHASES)
        rows = required(self.timed[complete], "no model has all phases")
        counts = rows.groupby(["context_length", "batch"])["size"].nunique()
        most = dict(zip(counts.index.names, counts.idxmax(), strict=True))
        rows = having(rows, **most)
        return self.rows(STEM, rows.assign(waited=rows["ms"].where(rows["waits"])))

    @property
    def models(self) -> Rows:
        """The rows of all subjects in the cells of `model`."""
        same = {name: self.model.only(name) for name in ("context_length", "batch", "dtype")}
        return self.every(STEM).where(phase=PHASES, **same)

    @property
    def backward_over_forward(self) -> Range:
        """The backward's time over the forward's, of models that do not wait."""
        rows = self.model.query("holds and not waits").frame
        wide = rows.pivot_table("ms", CELL, "phase").reindex(columns=["forward", "backward"])
        return of_rows(Range.of((wide["backward"] / wide["forward"]).dropna()), rows)

    @predicate
    def backward_has_twice_the_work(self) -> bool:
        """Whether the backward takes about twice as long as the forward."""
        return self.backward_over_forward.low > 1.5 and self.backward_over_forward.high < 2.5

    @cached_property
    def by_context(self) -> dict[str, object]:
        """The largest `size` with steps that do not wait of several `contexts`: least and greatest.

        tokens, time: how many times as many, and as long.
        """
        rows = self.timed[self.timed["holds"] & ~self.timed["waits"]]
        wide = having(rows, phase=STEP).pivot_table("ms", ["size", "batch"], "context_length")
        wide = required(wide[wide.count(axis=1) > 1], "no size has steps of two contexts")
        size = in_order("size", wide.index.get_level_values("size"))[-1]
        times = wide.loc[size].iloc[-1].dropna().iloc[[0, -1]]
        tokens, time = times.index[1] / times.index[0], times.iloc[1] / times.iloc[0]
        return {"size": size, "contexts": [*times.index], "tokens": tokens, "time": time}

    @cached_property
    def first_steps(self) -> Rows:
        """A row for each process of the warm-up with the subject, with columns over its steps."""
        processes = self.of("warmup").processes
        return processes.where(implementation=self.subject("warmup"))

    @predicate
    def first_is_longer(self) -> bool:
        """Whether each process's first step is longer than its second, beyond the noise floor."""
        least = 1 + self.evidence.floors[self.of("repeatability").steps]
        return self.first_steps.range("step_1 / step_2").low > least

    # nsys_profile.

    @cached_property
    def profiled(self) -> Rows:
        """The cases of the profiled subject in its first dtype."""
        cases = self.of("profiles").cases.where(implementation=self.subject("profiles"))
        return cases.kept(having(cases.sound, dtype=in_order("dtype", cases.sound["dtype"])[0]))

    @cached_property
    def confirmed(self) -> Rows:
        """The profiled phases that the timer has: `filled`, kernels over its time; `waits`."""
        cases = having(self.profiled.frame, is_compared=True).dropna(subset=["busy"])
        filled = cases["busy"] / cases["timer"]
        return self.profiled.kept(cases.assign(filled=filled, waits=cases["timer_waits"]))

    @cached_property
    def forward(self) -> pd.Series:
        """The profiled forward that answers are about: of the usual size, the longest context."""
        rows = self.profiled.where(phase="forward").frame
        rows = having(rows, size=usual_size(rows))
        rows = required(rows.sort_values(["context_length", "batch"]), "no forward was profiled")
        return rows.iloc[-1]

    @property
    def step(self) -> pd.Series:
        """The profiled train step of the same model."""
        return self.profiled.kept(having(self.profiled.frame, **self._case(STEP))).one

    @predicate
    def optimizer_adds_other_work(self) -> bool:
        """Whether matmuls take less of the step than of the forward, and AdamW has kernels."""
        step, forward = self.step, self.forward
        return step["matmul_share"] < forward["matmul_share"] and step["optimizer"] > 0

    def _case(self, phase: str) -> dict[str, object]:
        return self.forward[CASE].to_dict() | {"phase": phase}

    def kernels(self, phase: str) -> pd.DataFrame:
        """The kernels of a phase of that model, the longest first."""
        rows = having(self.of("profiles").kernels.frame, **self._case(phase))
        rows = required(rows[rows["holds"]], "the phase was not profiled")
        return rows.sort_values("total_ms", ascending=False, kind="stable")

    @property
    def layers(self) -> dict[str, int]:
        """Linear layers of a block, and blocks, of a model whose longest kernel runs once for each
        of them and the head."""
        kernel = self.kernels("forward").iloc[0]
        blocks = SHORT[kernel["size"]].num_layers if kernel["size"] in SHORT else 0
        for linear in LINEAR_LAYERS:
            if kernel["kernel_class"] == MATMUL and kernel["instances"] == linear * blocks + 1:
                return {"linear": linear, "blocks": blocks}
        raise NotMeasured("the longest kernel is not each linear layer")

    @cached_property
    def first_of_both(self) -> pd.Series:
        """The longest kernel of both together; `is_the_same` as of the forward, `as_often`."""
        longest, forward = self.kernels("forward_backward").iloc[0], self.kernels("forward").iloc[0]
        same = longest["name"] == forward["name"]
        as_often = same and longest["instances"] == forward["instances"]
        return pd.concat([longest, pd.Series({"is_the_same": same, "as_often": as_often})])

    @cached_property
    def further_kernels(self) -> pd.DataFrame:
        """The three longest kernels of the forward that multiply no matrices."""
        rows = self.kernels("forward")
        return rows[rows["kernel_class"] != MATMUL].head(3)

    def with_meaning(self, meanings: dict[str, str]) -> pd.DataFrame:
        """These with their `meaning`: that of the first part of a name that they have."""
        rows = self.further_kernels
        names = [
            [meaning for part, meaning in meanings.items() if part in name] for name in rows["name"]
        ]
        return rows.assign(meaning=[next(iter(matches), None) for matches in names])

    @predicate
    def further_kernels_move_data(self) -> bool:
        classes = required(self.further_kernels["kernel_class"], "there are no others")
        return classes.isin([kernels.ELEMENTWISE, kernels.REDUCTION, kernels.COPY]).all()

    @property
    def matmul_shares(self) -> pd.DataFrame:
        """Shares of matmuls in forwards and steps, of sizes at the longest length."""
        cases = self.profiled.frame
        longest = cases.groupby("size")["context_length"].transform("max")
        cases = cases[cases["context_length"] == longest]
        wide = cases.pivot_table("matmul_share", ["size", "context_length"], "phase", sort=False)
        return wide.reindex(columns=["forward", STEP]).dropna().reset_index()

    @property
    def softmax(self) -> Rows:
        """Softmax inside attention by dtype, of the usual size and its longest context."""
        rows = self.of("profiles").attention.where(implementation=self.subject("profiles")).sound
        rows = having(rows, name="softmax", size=usual_size(rows))
        longest = having(rows, context_length=rows["context_length"].max())
        return self.of("profiles").attention.kept(longest)

    # benchmarking_mixed_precision, torch_compile.

    def gain(self, dtype: str, base: str) -> Gain:
        """The speed-ups of a dtype in steps of the subject at the context that most sizes have."""
        steps = having(self.one(STEM).frame, phase=STEP)
        timed = required(steps[steps["state"].isna()], "no step")
        counts = timed.groupby("context_length")["size"].nunique()
        context = counts[counts == counts.max()].index[-1]
        steps = having(steps, dtype=dtype, context_length=context)
        return self.rows(STEM).kept(required(steps, f"no step in {dtype}")).over(dtype=base)

    @cached_property
    def slowed(self) -> pd.Series:
        """The smallest step that waits and that autocast makes longer than float32 (`ms_base`).

        By more than the noise floor of such steps. launches: kernels in float32 and in autocast.
        """
        steps = self.one(STEM).where(phase=STEP)
        pairs = steps.where(dtype=AUTOCAST).query("waits").pairs(dtype=FLOAT32)
        pairs = pairs[pairs["holds"] & (pairs["high"] * (1 + pairs["floor"]) < 1)]
        return required(pairs, "autocast makes no step longer that waits").iloc[0]

    @predicate
    def adds_launches(self) -> bool:
        return self.slowed["launches"] > self.slowed["launches_base"]

    @predicate
    def model_gains_less(self) -> bool:
        """Whether compiling gains less in the float32 model, mostly matmuls, than in attention."""
        steps, matmuls = self.of(STEM), self.of("profiles").matmul_shares(FLOAT32)
        model = steps.over(steps.compiling, EAGER).where(dtype=FLOAT32)
        return matmuls.low > 0.5 and self.of("attention").compiled.mean > model.mean

    def beside(self, stem: str) -> list[tuple[str, str, Gain]]:
        """(subject, the first one, its speed-up over that), of several subjects of a benchmark."""
        first, *others = self.names(stem) or [""]
        gains = []
        for name in others:
            with suppress(NotMeasured):
                gains.append((name, first, self.rows(stem).where(implementation=name).over(first)))
        return gains

    @property
    def compiled_models(self) -> list[tuple[str, str, Gain]]:
        """(model that is compiled, the same one as it is, its speed-up over that)."""
        declared, gains = self.evidence.declared(STEM), []
        for name, first in permutations(self.names(STEM), 2):
            model, other = declared[name], declared[first]
            same = (model.entry, model.options) == (other.entry, other.options)
            if same and model.compiles and not other.compiles:
                with suppress(NotMeasured):
                    gains.append(
                        (name, first, self.rows(STEM).where(implementation=name).over(first))
                    )
        return gains

    @property
    def is_lmperf(self) -> bool:
        """Whether the page is about lmperf's own implementations."""
        return not self.evidence.is_own or self.evidence.reference

    # memory_profiling.

    @cached_property
    def recorded(self) -> Rows:
        """The float32 peaks of the subject: of the size whose allocations were recorded, else of
        the largest one."""
        rows = self.of("memory").every.where(implementation=self.subject("memory"), dtype=FLOAT32)
        sizes = in_order("size", rows.sound["size"])
        with suppress(NotMeasured):
            sizes = [
                size for size in sizes if size == self.of("memory_timeline").peak.size
            ] or sizes
        peaks = having(rows.sound, size=sizes[-1])
        return rows.kept(having(peaks, batch=peaks["batch"].max()))

    @property
    def peaks(self) -> Rows:
        """GiB at the peak of a forward and a step, of contexts that have both."""
        rows = self.recorded.frame
        wide = rows.pivot_table("peak_gib", "context_length", "phase")
        wide = wide.reindex(columns=["forward", STEP]).dropna().reset_index()
        return self.table_rows(wide.to_dict("records"))

    @property
    def autocast_peaks(self) -> Rows:
        """The peaks of train steps under autocast, `change`: over those in float32."""
        rows = self.of("memory").every.where(implementation=self.subject("memory"))
        steps = having(rows.sound, phase=STEP)
        single = matching(steps, having(steps, dtype=FLOAT32), CELL)["peak_mib"]
        steps = steps.assign(change=steps["peak_mib"] / single - 1)
        return rows.kept(having(steps, dtype=AUTOCAST).dropna(subset=["change"]))

    @cached_property
    def blocks(self) -> pd.DataFrame:
        """The largest tensors at the peak of that size's float32 step; `is_older` than the step."""
        if not self.names("memory_timeline"):
            raise NotMeasured("the allocations of the subject were not recorded")
        peak = self.of("memory_timeline").peak
        rows = self.of("memory_timeline").blocks.frame
        rows = having(rows, size=peak.size, dtype=peak.dtype, phase=STEP)
        rows = rows[rows["size_mib"] == rows["size_mib"].max()].drop_duplicates("tensor")
        return required(rows, "no tensors").assign(is_older=rows["made_in"] == "before")

    @property
    def as_large(self) -> list[tuple[str]]:
        """The other tensors of that size."""
        return [(tensor,) for tensor in self.blocks["tensor"].iloc[1:]]

    @property
    def shape_explains(self) -> bool:
        """Whether the shape of the largest tensor gives all of its bytes."""
        first = self.blocks.iloc[0]
        shape = re.fullmatch(r"(\w+)\[([\d, ]+)\]", str(first["tensor"]))
        if shape is None or shape[1] not in DTYPES:
            return False
        elements = math.prod(map(int, shape[2].split(",")))
        return first["size_mib"] == elements * DTYPES[shape[1]].bytes / 2**20

    # pytorch_attention.

    @cached_property
    def attention(self) -> Rows:
        """The rows of the subject in one dtype, batch and mask, of its width nearest to 64."""
        rows = self.one("attention").frame
        rows = having(rows, dtype=in_order("dtype", rows["dtype"])[0])
        rows = having(rows, batch=rows["batch"].max())
        return self.one("attention").kept(having(rows, causal=rows["causal"].min()))

    @property
    def of_one_width(self) -> Rows:
        return of_usual_width(self.attention)

    @cached_property
    def growths(self) -> list[dict]:
        """`times` as long that phases of every width take at `end`, FURTHER times `start`."""
        rows = having(self.attention.sound, phase=[*PASSES])
        times = rows.pivot_table("ms", "seq_len", ["phase", "d_head"])
        pairs = [(n, FURTHER * n) for n in times.index if FURTHER * n in times.index]
        grown = [(a, b, (times.loc[b] / times.loc[a]).dropna()) for a, b in pairs]
        growths = [
            dict(start=a, end=b, times=of_rows(Range.of(times), rows))
            for a, b, times in grown
            if len(times)
        ]
        return required(growths, "no length that is four times another")

    @cached_property
    def kept(self) -> Rows:
        """Memory before the backward in MiB by length, with and without the inputs."""
        rows = self.of_one_width.where(phase="backward").frame
        rows = rows[rows["state"].isna()].dropna(subset=["saved_mib", "resident_mib"])
        return self.of_one_width.kept(rows.assign(kept=rows["saved_mib"] - rows["resident_mib"]))

    @property
    def kept_growth(self) -> float:
        """How many times as much the longest forward keeps as one of a quarter of its length."""
        kept = self.kept.frame.set_index("seq_len")["kept"]
        pairs = [n for n in kept.index if FURTHER * n in kept.index and kept[n] > 0]
        last = required(pairs, "no length that is four times another")[-1]
        return kept[FURTHER * last] / kept[last]

    # flash_forward, flash_backward, flash_benchmarking.

    def checks(self, *tensors: str) -> Rows:
        """For each attention and dtype: how many cells passed their check, the largest errors of
        some tensors in those, and the worst `failed` one with its `bound`."""
        columns = [f"error_{name}" for name in tensors]
        rows = self.every("flash_attention").frame
        rows = rows[rows["error_bound"].notna()].reindex(columns=[*rows, *{*columns} - {*rows}])
        lines = []
        for name in self.names("flash_attention"):
            for dtype in in_order("dtype", having(rows, implementation=name)["dtype"]):
                part = having(rows, implementation=name, dtype=dtype)
                passed = part["state"] != "failed_check"
                failed = part[~passed].sort_values("max_error").tail(1)
                line = {"implementation": name, "dtype": dtype}
                line["passed"] = Count(int(passed.sum()), len(part))
                line |= part.loc[passed, columns].max().astype(float).to_dict()
                line["failed"] = failed["max_error"].max()
                line["bound"] = failed["error_bound"].max()
                lines.append(line)
        return self.table_rows(required(lines, "no attention was checked"))

    @cached_property
    def one_head(self) -> Rows:
        """The rows of one head of the subjects and plain PyTorch, causal if there are such."""
        names = [*self.names("flash_attention"), PLAIN]
        rows = self.rows("flash_attention").where(implementation=names).frame
        rows = rows[rows["heads"].eq(1) & ~rows["cuda_graph"].eq(True)]
        own = having(rows, implementation=self.names("flash_attention"))
        rows = having(rows, causal=bool(required(own, "no attention of one head")["causal"].max()))
        return self.rows("flash_attention").kept(rows)

    @property
    def usual_head(self) -> Rows:
        return of_usual_width(self.one_head)

    def over_plain(self, name: str) -> Gain:
        """The speed-ups of one head, forward and backward, over plain PyTorch."""
        return self.one_head.where(implementation=name, phase=[*PASSES]).over(PLAIN)

    @property
    def gains_over_plain(self) -> list[tuple[str, str, Gain]]:
        """(attention, phase, speed-up over plain PyTorch), of those that are resolved."""
        gains = []
        for name in self.names("flash_attention"):
            with suppress(NotMeasured):
                gains += [(name, phase, gain) for phase, gain in self.over_plain(name)]
        return gains

    @cached_property
    def slower(self) -> Rows:
        """The comparisons of one head in which the subject is slower than plain PyTorch."""
        rows = self.over_plain(self.subject("flash_attention")).rows
        return self.rows("flash_attention", having(rows, verdict=SLOWER))

    @property
    def slower_scores_mib(self) -> float:
        """The largest matrix of scores of these."""
        rows = self.slower.frame
        bytes_ = rows["dtype"].map(lambda dtype: dtype_of(dtype).bytes)
        return (rows["batch"] * rows["seq_len"] ** 2 * bytes_).max() / MIB

    @property
    def leaderboard(self) -> Rows:
        """Both phases of the subjects in the cell of the leaderboard of 2025."""
        axes = ("batch", "heads", "seq_len", "d_head")
        shape = dict(zip(axes, load("flash_attention").stated["leaderboard"], strict=True))
        both = {"phase": "forward_backward", "dtype": HALF, "causal": True}
        rows = self.every("flash_attention")
        return rows.kept(having(rows.sound, **both, **shape))

    # Several ranks.

    @cached_property
    def strategies(self) -> dict[str, list[str]]:
        """Problem -> the strategies of the subject that it asks for."""
        own = self.evidence.subjects(RANKS)
        if not own:
            lmperf = {} if self._is_left_out(RANKS) else STRATEGIES
            return {kind: names for kind, (names, _) in lmperf.items()}
        declared = self.evidence.declared(RANKS)
        strategies = {kind: [] for kind in STRATEGIES}
        for name in own:
            strategies[kind_of(name, declared[name].function)].append(name)
        return strategies

    @cached_property
    def steps(self) -> Rows:
        """The steps of all strategies of the subject in one cell, with what the profiler saw.

        The cell is that of most strategies; of equals two ranks, the largest size, least batch.
        """
        names = [name for strategies in self.strategies.values() for name in strategies]
        rows = having(self.of(RANKS).steps.frame, implementation=names)
        ran = required(rows[rows["state"].isna()], "no strategy ran")
        counts = ran.groupby(RANKED, sort=False)["implementation"].nunique()
        cells = counts[counts == counts.max()].reset_index()
        sizes = in_order("size", cells["size"])
        cells = cells.assign(two=cells["ranks"] != 2, place=-cells["size"].map(sizes.index))
        cell = cells.sort_values(["two", "place", "batch"], kind="stable").iloc[0][RANKED]
        rows = having(rows, **cell)
        ledger = self.of(RANKS).ledger.frame
        ledger = matched(ledger[ledger["holds"]], rows)[OF_LEDGER].astype(float)
        waited = rows["ms"].where(rows["waits"])
        return self.rows(RANKS, rows.assign(waited=waited, **ledger))

    def runs(self, *problems: str) -> Rows:
        """The steps of the strategies of some problems, in their order."""
        names = [name for problem in problems for name in self.strategies.get(problem, ())]
        return self.steps.kept(having(self.steps.frame, implementation=names))

    def sound(self, *problems: str) -> Rows:
        """Those on which a sentence may rest."""
        rows = self.runs(*problems)
        return rows.kept(rows.sound)

    def right(self, *problems: str) -> Rows:
        """Those that passed their check in their code of today; load does not change a result."""
        rows = self.runs(*problems)
        is_right = rows.frame["state"].isna() & ~rows.frame["key"].isin(self.evidence.stale)
        return rows.kept(required(rows.frame[is_right], "no strategy passed its check"))

    def over(self, problem: str, base: str) -> list[tuple[str, str, Gain]]:
        """(strategy, base, its speed-up over the first strategy of a base), where resolved."""
        bases = [name for name in self.strategies.get(base, ()) if self.runs(base)]
        gains = []
        for name in self.strategies.get(problem, ()):
            with suppress(NotMeasured):
                gain = self.steps.where(implementation=name).over(required(bases, "no base")[0])
                if gain.verdict != UNRESOLVED:
                    gains.append((name, bases[0], gain))
        return gains

    @property
    def more_bytes(self) -> float:
        """Bytes that a rank sends with a sharded optimizer over those of overlapped gradients."""
        sharded, whole = map(self.sound, ("sharded_optimizer", "overlapped"))
        return sharded.range("sent_bytes").middle / whole.range("sent_bytes").middle

    def moments(self, *problems: str) -> Rows:
        """The memory of a rank of these strategies at each moment, in the cell of `steps`."""
        names = [name for problem in problems for name in self.strategies.get(problem, ())]
        cell = {name: self.steps.only(name) for name in RANKED}
        rows = self.rows(RANKS_MEMORY)
        rows = rows.kept(having(rows.frame, implementation=names, moment=MOMENTS, **cell))
        return rows.kept(rows.frame.assign(gib=rows.frame["total_mib"] / 1024))

    def moment(self, problem: str, moment: str) -> float:
        """GiB of a rank of the first strategy of a problem at a moment."""
        rows = self.moments(problem)
        return rows.kept(having(rows.frame, moment=moment)).range("gib").low

    # Arithmetic with the rates of this machine.

    @cached_property
    def flops(self) -> float:
        """TFLOP/s of bf16 matmuls back to back."""
        return self._known(self.evidence.peak(HALF, "sustained", True))

    @cached_property
    def link(self) -> float:
        """GB/s that a rank sends in the longest all-reduce."""
        return self._known(self.of("collectives").longest["bus"])

    @staticmethod
    def _known(rate: float) -> float:
        if not np.isfinite(rate):
            raise NotMeasured("the rate was not measured")
        return float(rate)

    @property
    def intensity(self) -> float:
        """FLOPs that a GPU computes while it sends a byte: C / W."""
        return 1e3 * self.flops / self.link

    @property
    def buckets(self) -> dict[str, float]:
        """Of overlapped steps: gradients in bytes, bytes/s of the longest all-reduce, seconds of
        the shortest one, and with these the best number and bytes of buckets."""
        parameters = self.sound("bucketed", "overlapped").only("parameters")
        long, short = self.of("collectives").longest, self.of("collectives").shortest
        if not short["message_bytes"] < long["message_bytes"]:
            raise NotMeasured("all-reduces of one length only")
        rate, call = long["message_bytes"] / long["ms"] * 1e3, short["ms"] / 1e3
        size = 4 * float(parameters)
        number = max(1.0, math.sqrt(size / (rate * call)))
        return {"bytes": size, "rate": rate, "call": call, "number": number, "each": size / number}


def of_usual_width(rows: Rows) -> Rows:
    """The rows of the width nearest to that of small and medium models."""
    widths = required(rows.frame["d_head"].unique(), "no attention")
    return rows.where(d_head=min(widths, key=lambda d: (abs(d - USUAL_WIDTH), d)))


def kind_of(*names: str) -> str:
    """Which strategy the first of some names means that says so; else that of single gradients."""
    for name in names:
        for kind, (_, words) in STRATEGIES.items():
            if words and re.search(words, name.lower()):
                return kind
    return "overlapped"


def is_measured(measured: Sequence[str]) -> bool:
    """Whether any of these benchmarks belongs to a problem of the course."""
    return not {*ABOUT}.isdisjoint(measured)
