"""Course questions: selections and conditions of answers that no other section offers."""

from __future__ import annotations

import math
import re
from functools import cached_property

import pandas as pd

from lmperf.benchmarks import stems
from lmperf.dtypes import DTYPES, dtype_of
from lmperf.names import in_order
from lmperf.reporting.evidence import Evidence, having, matching, some
from lmperf.reporting.html import anchor
from lmperf.reporting.rows import Rows
from lmperf.reporting.sections import Section, kernels, predicate
from lmperf.reporting.sections.accumulation import spacing
from lmperf.reporting.sections.attention import PHASES as PASSES
from lmperf.reporting.sections.attention import STEP as FURTHER
from lmperf.reporting.sections.kernels import MATMUL
from lmperf.reporting.sections.lrpe import COPY
from lmperf.reporting.sections.profiles import CASE, usual_size
from lmperf.reporting.sections.steps import AUTOCAST, CELL, EAGER, FLOAT32, STEM, STEP
from lmperf.reporting.words import MIB, NotMeasured, Range, listed, percent, ratio
from lmperf.statistics import SLOWER
from lmperf.transformer.sizes import SHORT
from lmperf.workflow import TEMPLATES

PHASES = ["forward", "backward", STEP]
LINEAR_LAYERS = 4  # of a block: q, k and v in one, attention's output, gate and up in one, down
VARIES = 0.20  # what differs by less is not said
WAITS = 1.1  # the time of a phase over that of its kernels, from which on it waits for the CPU


class Questions(Section):
    """What the answers need beside the sections of their tables."""

    @cached_property
    def places(self) -> dict[str, str]:
        """Table -> its page with the anchor of its heading, which its template has."""
        found = {
            "Ceilings": "method.md#ceilings",
            "R1": "method.md#r1-rows-measured-a-second-time",
            "E5": "../machines.md#e5-the-same-train-steps-on-several-machines",
        }
        for stem in stems():
            path = TEMPLATES / f"{stem}.md.j2"
            text = path.read_text(encoding="utf-8") if path.exists() else ""
            for name, title in re.findall(r'table\("([A-Z]\d+)\. ([^"]*)"', text):
                found[name] = f"{stem}.md#{anchor(f'{name}. {title}')}"
        return found

    # Timing a model.

    @cached_property
    def eager(self) -> pd.DataFrame:
        """The timed eager models in float32."""
        rows = having(self.of(STEM).ours, implementation=EAGER, dtype=FLOAT32, phase=PHASES)
        return rows[rows["holds"]]

    @cached_property
    def model(self) -> Rows:
        """Those of the context and batch at which most sizes have all phases."""
        complete = self.eager.groupby(CELL)["phase"].transform("nunique") == len(PHASES)
        rows = some(self.eager[complete], "no eager float32 model has all phases")
        counts = rows.groupby(["context_length", "batch"])["size"].nunique()
        most = dict(zip(counts.index.names, counts.idxmax(), strict=True))
        rows = having(rows, **most)
        return self.rows(STEM, rows.assign(waited=rows["ms"].where(rows["waits"])))

    @cached_property
    def by_context(self) -> dict[str, object]:
        """The largest `size` with steps that do not wait of several `contexts`: least and greatest.

        tokens, time: how many times as many, and as long.
        """
        rows = self.eager[self.eager["holds"] & ~self.eager["waits"]]
        wide = having(rows, phase=STEP).pivot_table("ms", ["size", "batch"], "context_length")
        wide = some(wide[wide.count(axis=1) > 1], "no size has steps of two contexts")
        size = in_order("size", wide.index.get_level_values("size"))[-1]
        times = wide.loc[size].iloc[-1].dropna().iloc[[0, -1]]
        tokens, time = times.index[1] / times.index[0], times.iloc[1] / times.iloc[0]
        return {"size": size, "contexts": [*times.index], "tokens": tokens, "time": time}

    @cached_property
    def slowed(self) -> pd.Series:
        """The smallest step that waits and that autocast makes longer than float32 (`ms_base`).

        By more than the noise floor of such steps.
        """
        waiting = self.of(STEM).steps.where(implementation=EAGER, dtype=AUTOCAST).query("waits")
        found = waiting.pairs(dtype=FLOAT32)
        found = found[found["holds"] & (found["high"] * (1 + found["floor"]) < 1)]
        return some(found, "autocast makes no step longer that waits").iloc[0]

    @property
    def added_launches(self) -> tuple[float, float]:
        """The kernels of the step `slowed` in float32 and under autocast."""
        rows = having(self.of(STEM).steps.frame, implementation=EAGER, **self.slowed[CELL])
        before, after = rows.set_index("dtype")["launches"].reindex([FLOAT32, AUTOCAST])
        if not after > before:
            raise NotMeasured("autocast adds no kernels")
        return before, after

    @predicate
    def model_gains_less(self) -> bool:
        """Whether compiling gains less in the float32 model, mostly matmuls, than in attention."""
        steps, matmuls = self.of(STEM), self.of("profiles").matmul_shares(FLOAT32)
        model = steps.over(steps.compiling, EAGER).where(dtype=FLOAT32)
        return matmuls.low > 0.5 and self.of("attention").compiled.mean > model.mean

    @property
    def others(self) -> list[tuple[Evidence]]:
        """The other machines with the same tables."""
        return [(one,) for one in self.evidence.others if STEM in one.stems]

    @property
    def kinds(self) -> set[str]:
        """What measured, here and on other machines: cuda, cpu, mps."""
        return {one.environment.get("kind") for one in (self.evidence, *self.evidence.others)}

    # Profiling.

    @cached_property
    def confirmed(self) -> Rows:
        """The profiled phases that the timer has: `filled`, kernels over its time; `waits`.

        A phase waits for the CPU if it did so when it was timed or if its kernels do not fill it.
        """
        cases = having(self.of("profiles").cases.sound, is_compared=True).dropna(subset=["busy"])
        timed = matching(cases, self.rows(STEM).valid.frame, CASE)["waits"].eq(True)
        late = timed | (cases["timer"] > WAITS * cases["busy"])
        filled = cases["busy"] / cases["timer"]
        waits = late & self.evidence.is_cuda
        return self.of("profiles").cases.kept(cases.assign(filled=filled, waits=waits))

    @property
    def confirmed_forward(self) -> pd.Series:
        """The forward whose longest kernel the write-up names."""
        return self.confirmed.kept(self.in_forward(self.confirmed.frame)).one

    def in_forward(self, rows: pd.DataFrame, **where) -> pd.DataFrame:
        """Of some rows those of that forward."""
        return having(rows, **(self.of("profiles").first_kernel[CASE].to_dict() | where))

    @property
    def layers(self) -> int:
        """Layers of the model whose longest kernel runs once for each linear layer and the head."""
        kernel = self.of("profiles").first_kernel
        layers = SHORT[kernel["size"]].num_layers if kernel["size"] in SHORT else 0
        is_each = kernel["instances"] == LINEAR_LAYERS * layers + 1
        if kernel["kernel_class"] != MATMUL or not is_each:
            raise NotMeasured("the longest kernel is not each linear layer")
        return layers

    @cached_property
    def first_of_both(self) -> pd.Series:
        """The longest kernel of both together; `is_the_same` as of the forward, `as_often`."""
        rows = self.in_forward(self.of("profiles").kernels.frame, phase="forward_backward")
        forward = self.of("profiles").first_kernel
        same = rows["name"] == forward["name"]
        as_often = rows["instances"] == forward["instances"]
        return longest(rows.assign(is_the_same=same, as_often=same & as_often))

    @property
    def first_of_last(self) -> pd.Series:
        """The longest kernel of the step with the most techniques, of several."""
        profiles = self.of("profiles")
        rows = having(profiles.kernels.frame, **profiles.last[CASE])
        rows = rows.assign(is_adamw=rows["kernel_class"] == kernels.OPTIMIZER)
        return longest(rows if profiles.has_several_ways else rows[:0])

    @cached_property
    def further_kernels(self) -> pd.DataFrame:
        """The three longest kernels of the forward that multiply no matrices."""
        rows = self.in_forward(self.of("profiles").kernels.frame)
        return rows[rows["kernel_class"] != MATMUL].nlargest(3, "total_ms")

    def with_meaning(self, meanings: dict[str, str]) -> pd.DataFrame:
        """These with their `meaning`: that of the first part of a name that they have."""
        rows = self.further_kernels
        found = [[said for part, said in meanings.items() if part in of] for of in rows["name"]]
        return rows.assign(meaning=[next(iter(said), None) for said in found])

    @predicate
    def further_kernels_move_data(self) -> bool:
        classes = some(self.further_kernels["kernel_class"], "there are no others")
        return classes.isin([kernels.ELEMENTWISE, kernels.REDUCTION, kernels.COPY]).all()

    @property
    def matmul_shares(self) -> pd.DataFrame:
        """Shares of matmuls in eager float32 forwards and steps, of sizes at the longest length."""
        cases = having(self.of("profiles").cases.sound, dtype=FLOAT32, implementation=EAGER)
        longest = cases.groupby("size")["context_length"].transform("max")
        cases = cases[cases["context_length"] == longest]
        wide = cases.pivot_table("matmul_share", ["size", "context_length"], "phase", sort=False)
        return wide.reindex(columns=["forward", STEP]).dropna().reset_index()

    @property
    def softmax(self) -> Rows:
        """Softmax inside attention by dtype, of the usual size and its longest context."""
        rows = self.of("profiles").attention.sound
        rows = having(rows, name="softmax", size=usual_size(rows))
        longest = having(rows, context_length=rows["context_length"].max())
        return self.of("profiles").attention.kept(longest)

    # Mixed precision.

    spacing = staticmethod(spacing)

    # Memory.

    @cached_property
    def recorded(self) -> Rows:
        """The float32 rows of the largest size whose allocations were recorded."""
        of_subject = self.of("memory").of_subject
        size = self.of("memory_timeline").peak.size
        rows = some(having(of_subject.sound, dtype=FLOAT32, size=size), "no peak of that size")
        return of_subject.kept(having(rows, batch=rows["batch"].max()))

    @property
    def peaks(self) -> pd.DataFrame:
        """GiB at the peak of a forward and a step, of contexts that have both."""
        wide = self.recorded.frame.pivot_table("peak_gib", "context_length", "phase")
        return wide.reindex(columns=["forward", STEP]).dropna().reset_index()

    @cached_property
    def blocks(self) -> pd.DataFrame:
        """The largest tensors at the peak of that size's float32 step; `is_older` than the step."""
        peak = self.of("memory_timeline").peak
        rows = self.of("memory_timeline").blocks.frame
        rows = having(rows, size=peak.size, dtype=peak.dtype, phase=STEP)
        rows = rows[rows["size_mib"] == rows["size_mib"].max()].drop_duplicates("tensor")
        return some(rows, "no tensors").assign(is_older=rows["made_in"] == "before")

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
    def growths(self) -> list[dict]:
        """`times` as long that phases of every width take at `end`, FURTHER times `start`."""
        plain = self.of("attention")
        same = {name: plain.cell[name] for name in ("dtype", "batch", "causal")}
        rows = having(plain.eager.sound, phase=[*PASSES], **same)
        times = rows.pivot_table("ms", "seq_len", ["phase", "d_head"])
        pairs = [(n, FURTHER * n) for n in times.index if FURTHER * n in times.index]
        grown = [(a, b, (times.loc[b] / times.loc[a]).dropna()) for a, b in pairs]
        found = [dict(start=a, end=b, times=Range.of(of)) for a, b, of in grown if len(of)]
        return some(found, "no length that is four times another")

    @cached_property
    def slower(self) -> Rows:
        """The comparisons of one head in which our kernel is slower than plain PyTorch."""
        rows = having(self.of("flash_attention").over_plain.rows, verdict=SLOWER)
        return self.rows("flash_attention", rows)

    @property
    def slower_scores_mib(self) -> float:
        """The largest matrix of scores of these."""
        of = self.slower.frame
        bytes_ = of["dtype"].map(lambda dtype: dtype_of(dtype).bytes)
        return (of["batch"] * of["seq_len"] ** 2 * bytes_).max() / MIB

    # md_lrpe_cosine.

    def along(self, axis: str) -> dict[str, object]:
        """Values of an axis with `shares`: (phase, speeds of the lead relative to a copy)."""
        rows = self.alike(axis).where(implementation=self.of("lrpe").lead)
        shares = self._by_phase(axis, rows.frame["copy_percent"] / 100, rows.frame)
        said = [(phase, listed(map(percent, of))) for phase, of in shares.items()]
        change = (shares.max() / shares.min()).max()
        return {"along": [*shares.index], "shares": said, "change": change}

    def varying(self, axis: str) -> list[tuple[str, str]]:
        """(phase, times of the next implementation over the lead's), where they vary."""
        lrpe = self.of("lrpe")
        rows = self.alike(axis)
        found = rows.where(implementation=lrpe.lead).over(lrpe.peer).rows["ratio"]
        found = self._by_phase(axis, found, rows.frame)
        varies = found.max() / found.min() > 1 + VARIES
        return [(n, listed(map(ratio, of))) for n, of in found.items() if varies[n]]

    def alike(self, axis: str) -> Rows:
        """The rows of the most positions that most values have; of axes and extra tokens the other
        one is least."""
        lrpe = self.of("lrpe")
        rows = lrpe.shown.sound
        for other in {"axes", "extra_tokens"} - {axis}:
            rows = rows[rows[other] == rows[other].min()]
        values = some(rows, "no shape was measured").groupby("positions")[axis].nunique()
        return lrpe.shown.kept(having(rows, positions=values[values == values.max()].index.max()))

    @staticmethod
    def _by_phase(axis: str, found: pd.Series, rows: pd.DataFrame) -> pd.DataFrame:
        found = rows.loc[found.index, [axis, "phase"]].assign(found=found)
        found = found.pivot_table("found", axis, "phase").reindex(columns=[*PASSES]).dropna()
        if len(found) < 2:
            raise NotMeasured(f"only one value of {axis}")
        return found

    @property
    def lrpe_peaks(self) -> pd.DataFrame:
        """MiB of each implementation by phase, in the first page's rows."""
        rows = self.of("lrpe").largest.sound
        rows = rows[rows["implementation"] != COPY]
        wide = rows.pivot_table("peak_mib", "implementation", "phase", sort=False)
        return wide.reindex(columns=[*PASSES]).dropna().reset_index()

    @property
    def larger_peaks(self) -> list[pd.Series]:
        """The rows of as many positions, but more axes, that need more memory."""
        rows = self.of("lrpe").shown.sound
        rows = having(rows, extra_tokens=rows["extra_tokens"].min())
        rows = having(rows, positions=rows["positions"].max()).sort_values("axes", kind="stable")
        first = rows.groupby(["implementation", "phase"])["peak_mib"].transform("first")
        return [row for _, row in rows[rows["peak_mib"] > (1 + VARIES) * first].iterrows()]


def longest(kernels: pd.DataFrame) -> pd.Series:
    kernels = some(kernels, "no kernels")
    return kernels.loc[kernels["total_ms"].idxmax()]
