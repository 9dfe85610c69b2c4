"""What only several benchmarks together can say."""

from __future__ import annotations

import itertools

import pandas as pd

from lmperf.reporting import gates
from lmperf.reporting.ceilings import ceilings, matmul_ceiling, matmul_share
from lmperf.reporting.claims import Claim, NotMeasured, frame_of, rows_of
from lmperf.reporting.evidence import MachineEvidence
from lmperf.reporting.numbers import dtype_words
from lmperf.reporting.speedup import compared_rows

RESTS_ON = ("ceilings", "end_to_end", "mixed_precision", "attention", "flash_attention")
HALF = ("bfloat16", "float16")
CELL = ["size", "context_length", "batch"]


def _compiled(evidence: MachineEvidence, stem: str, phase: str) -> pd.DataFrame:
    frame_of(evidence, stem)
    rows = compared_rows(evidence, stem, "implementation", "eager")
    rows = rows[rows["implementation"].isin(["compiled", "compiled_blocks"])]
    rows = rows[(rows["phase"] == phase) & (rows["dtype"] == "float32")]
    if rows.empty:
        raise NotMeasured(f"no compiled {phase} of `{stem}` that was timed in turn with eager")
    return rows


def _attention_first(evidence: MachineEvidence) -> dict:
    attention = _compiled(evidence, "attention", "forward")
    model = _compiled(evidence, "end_to_end", "forward")
    alone = attention.groupby("seq_len")["ratio"].median()
    within = model.groupby("context_length")["ratio"].median()
    shared = [n for n in alone.index if n in within.index]
    if not shared:
        raise NotMeasured("no length at which both were compiled")
    return {"gains": [(n, alone[n], within[n]) for n in shared]}


def _sums(evidence: MachineEvidence) -> dict:
    frame = frame_of(evidence, "mixed_precision")
    frame = frame[(frame["experiment"] == "accumulation") & gates.shown(frame)]
    off = (frame.groupby("subject")["value"].last() - frame["exact"].max()).abs()
    wanted = {f"{name}_sum": f"{name} + {name}" for name in HALF}
    wanted |= {f"{name}_addend": f"float32 + {name}" for name in HALF}
    missing = [subject for subject in wanted.values() if subject not in off.index]
    if missing:
        raise NotMeasured(f"no sum of {missing[0]}")
    return {name: off[subject] for name, subject in wanted.items()}


def _numerics(evidence: MachineEvidence) -> dict:
    found = ceilings(evidence)
    rates = {dtype: rate for (operation, dtype), rate in found.items() if operation == "matmul"}
    if not {"float32", "tf32", *HALF} <= set(rates):
        raise NotMeasured("a matmul ceiling in each of float32, TF32, float16 and bf16")
    return {
        "tf32": rates["tf32"] / rates["float32"],
        "half": rates["bfloat16"] / rates["tf32"],
        "apart": rates["float16"] / rates["bfloat16"] - 1,
        "words": dtype_words("tf32"),
        "single": dtype_words("float32"),
    }


def _model_share(evidence: MachineEvidence) -> dict:
    frame = rows_of(evidence, "end_to_end", phase="train_step", implementation="eager")
    frame = frame.assign(share=matmul_share(evidence, frame))
    wide = frame.pivot_table(index=CELL, columns="dtype", values="share", aggfunc="last")
    found = {dtype: matmul_ceiling(evidence, dtype) for dtype in wide.columns}
    slowest_first = sorted((d for d in wide.columns if found[d]), key=lambda dtype: found[dtype])
    wide = wide[slowest_first].dropna(axis=1, how="all").dropna()
    if wide.empty or len(wide.columns) < 2:
        raise NotMeasured("train steps of the same cells in several numerics, and their ceilings")
    best = wide.max()
    return {
        "shares": [(dtype_words(dtype), best[dtype]) for dtype in wide.columns],
        "cells": len(wide),
    }


CLAIMS = (
    Claim(
        name="attention_gains_most",
        text="Compiling helps plain attention alone more than the model around it, at the same"
        " length: the forward (float32 IEEE) gains {% for length, alone, within in gains %}"
        "{{ alone | ratio }} against {{ within | ratio }} at {{ length }}"
        "{{ ', ' if not loop.last }}{% endfor %}, in the middle of widths and of sizes.",
        values=_attention_first,
        holds=lambda v: all(alone > within for _, alone, within in v["gains"]),
        about="compiling attention against compiling the model",
        instead="Not at each of these lengths.",
        summary=True,
    ),
    Claim(
        name="range_or_precision",
        text="bf16 keeps the range of float32 and pays with precision: a sum kept in bf16 is off by"
        " {{ bfloat16_sum | sig }} and one kept in float16 by {{ float16_sum | sig }}; in a float32"
        " accumulator bf16 addends leave it off by {{ bfloat16_addend | sig }}, float16 ones by"
        " {{ float16_addend | sig }}.",
        values=_sums,
        holds=lambda v: (
            v["bfloat16_sum"] > v["float16_sum"] and v["bfloat16_addend"] > v["float16_addend"]
        ),
        about="the sums of bf16 beside those of float16",
        instead="bf16 is not the less precise one in both.",
    ),
    Claim(
        name="numerics_of_matmul",
        text="A large matrix product in {{ words }} vs {{ single }} has {{ tf32 | ratio }} of the"
        " rate, and bf16 vs {{ words }} another {{ half | ratio }}; float16 and bf16 differ by"
        " {{ apart | signed_percent }}.",
        values=_numerics,
        holds=lambda v: v["tf32"] > 1 and v["half"] > 1 and abs(v["apart"]) <= 0.1,
        about="the matmul rate by numerics",
        instead="Fewer bits are not always faster, or float16 and bf16 are further apart.",
    ),
    Claim(
        name="faster_units_are_harder_to_fill",
        text="The faster the arithmetic, the less of it a train step uses (eager, {{ cells }} cells"
        " measured in each): at best {% for words, share in shares %}{{ share | percent }} of the"
        " matmul ceiling in {{ words }}{{ ', ' if not loop.last }}{% endfor %}.",
        values=_model_share,
        holds=lambda v: all(a[1] > b[1] for a, b in itertools.pairwise(v["shares"])),
        about="the share of the ceiling by numerics",
        instead="It does not fall with each.",
        summary=True,
    ),
)
