"""Mixed precision: long sums, and the dtypes of tensors under autocast."""

from __future__ import annotations

from functools import cached_property

import pandas as pd

from lmperf.benchmarks import load
from lmperf.reporting.calculations.accumulation import Accumulation
from lmperf.reporting.frames import having, required
from lmperf.reporting.rows import Rows
from lmperf.reporting.sections import Section

STEM = "mixed_precision"
FLOAT32, HALF = "float32", "bfloat16"
UPCAST = "("  # in the name of a sum whose addends are cast by hand, as float32(float16)
KINDS = ("parameter", "output", "logits", "loss", "gradient")
TRAINED = ("parameter", "gradient", "loss")
LINEAR = ("attention.qkv", "attention.output", "feed_forward.gate_up", "feed_forward.down")


class MixedPrecision(Section):
    """Sums with their simulation, and dtypes by tensor."""

    @property
    def stated(self) -> dict:
        """How many additions of which addend."""
        return load(STEM).stated

    @cached_property
    def all_sums(self) -> Rows:
        """The sums with their relative `error` and whether their `simulation` explains them."""
        rows = having(self.rows(STEM).frame, experiment="accumulation")
        order = next(axis for axis in load(STEM).axes if axis.name == "subject").choices
        rows = rows[rows["subject"].isin(order)]
        words = rows["subject"].str.replace(HALF, "bf16")
        categories = [name.replace(HALF, "bf16") for name in order]
        simulations = [self._simulation(subject) for subject in rows["subject"]]
        return self.rows(
            STEM,
            rows.assign(
                sum=pd.Categorical(words, categories),
                error=rows["value"] / rows["exact"] - 1,
                simulation=simulations,
                explained=rows["value"] == [simulation.result for simulation in simulations],
            ),
        )

    def _simulation(self, subject: str) -> Accumulation:
        accumulator, _, addend = subject.partition(" + ")
        stored = addend.partition(UPCAST)[2].rstrip(")") or addend
        return Accumulation.simulated(accumulator, stored, **self.stated)

    @property
    def sums(self) -> Rows:
        """The sums without those whose addends are cast by hand, which equal others."""
        rows = self.all_sums.frame
        return self.all_sums.kept(rows[~rows["subject"].str.contains(UPCAST, regex=False)])

    @cached_property
    def dtypes(self) -> Rows:
        """The dtype of each tensor under autocast, in the order in which they were recorded."""
        rows = having(self.rows(STEM).valid.frame, experiment="dtypes")
        recorded = [row.get("tensor") for row in self.evidence.raw.get(STEM, ())]
        order = [*dict.fromkeys(filter(None, (*recorded, *rows["tensor"])))]
        return self.rows(
            STEM,
            rows.assign(
                kind=pd.Categorical(rows["kind"], [*dict.fromkeys((*KINDS, *rows["kind"]))]),
                tensor=pd.Categorical(rows["tensor"], order),
            ),
        )

    @cached_property
    def block(self) -> dict[str, set[str]]:
        """Words for tensors of a Transformer block -> their dtypes under bf16 autocast."""
        rows = self.dtypes.where(subject="transformer_block", dtype=HALF).sound
        kind, tensor = rows["kind"].astype(str), rows["tensor"].astype(str)
        groups = {
            "weights": kind == "parameter",
            "gradients": kind == "gradient",
            "norms": (kind == "output") & tensor.str.endswith("norm"),
            "residual stream": tensor == "block",
            "loss": kind == "loss",
            "linear layers": tensor.isin(LINEAR),
        }
        return {words: {*rows.loc[chosen, "observed_dtype"]} for words, chosen in groups.items()}

    @property
    def training_is_float32(self) -> bool:
        """Whether parameters, gradients and losses are float32 in every run."""
        rows = self.dtypes.sound
        return bool((having(rows, kind=TRAINED)["observed_dtype"] == FLOAT32).all())

    def outputs(self, in_float32: bool, **where) -> list[str]:
        """The outputs that every run has in float32, or the others."""
        rows = self.dtypes.where(kind=["output", "logits"], **where).sound
        kept = (rows["observed_dtype"] == FLOAT32).groupby(rows["tensor"], observed=True).all()
        return [*kept.index[kept == in_float32]]

    def kept_in(self, dtype: str) -> list[str]:
        """The tensors of a block that have a dtype in every run."""
        parts = [words for words, seen in self.block.items() if seen == {dtype}]
        return required(parts, f"no tensors of a block are {dtype} in every run")
