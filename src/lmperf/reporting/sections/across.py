"""What only several benchmarks together can say."""

from __future__ import annotations

import pandas as pd

from lmperf.reporting import gates
from lmperf.reporting.ceilings import ceilings, matmul_share
from lmperf.reporting.claims import Claim, NotMeasured, frame_of, rows_of
from lmperf.reporting.evidence import MachineEvidence
from lmperf.reporting.numbers import dtype_words
from lmperf.reporting.speedup import compared_rows

RESTS_ON = ("ceilings", "end_to_end", "mixed_precision", "attention", "flash_attention")
HALF = ("bfloat16", "float16")


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
    longest = attention["seq_len"].max()
    alone = attention[attention["seq_len"] == longest]["ratio"]
    return {
        "attention": alone.median(),
        "length": longest,
        "model": model["ratio"].median(),
        "model_lowest": model["ratio"].min(),
        "model_highest": model["ratio"].max(),
    }


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
    frame = rows_of(evidence, "end_to_end", phase="train_step")
    share = matmul_share(evidence, frame)
    best = share.groupby(frame["dtype"]).max().dropna()
    if not {"float32", "autocast_bfloat16"} <= set(best.index):
        raise NotMeasured("train steps and ceilings of both float32 and bf16 autocast")
    return {"single": best["float32"], "half": best["autocast_bfloat16"]}


CLAIMS = (
    Claim(
        name="attention_gains_most",
        text="Compiling helps plain attention alone more than the model around it: the forward"
        " (float32 IEEE) gains {{ attention | ratio }} at length {{ length }} in the middle of the"
        " widths, that of the model {{ model | ratio }} in the middle of its cells"
        " ({{ model_lowest | ratio }} to {{ model_highest | ratio }}).",
        values=_attention_first,
        holds=lambda v: v["attention"] > v["model"],
        about="compiling attention against compiling the model",
        instead="The model gains at least as much.",
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
        text="The faster the arithmetic, the less of it a train step uses: at best {{ single |"
        " percent }} of the matmul ceiling in float32 IEEE, {{ half | percent }} under bf16"
        " autocast.",
        values=_model_share,
        holds=lambda v: v["half"] < v["single"],
        about="the share of the ceiling by numerics",
        instead="Under autocast it uses as much.",
        summary=True,
    ),
)
