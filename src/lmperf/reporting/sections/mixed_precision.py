"""Mixed precision: accumulation (M1) and the dtypes that autocast makes (M2)."""

from __future__ import annotations

import pandas as pd

from lmperf.reporting.claims import Claim, NotMeasured, frame_of
from lmperf.reporting.coverage import Rests, having
from lmperf.reporting.evidence import MachineEvidence, in_order
from lmperf.reporting.numbers import (
    EMPTY,
    dtype_words,
    fixed,
    implementation_words,
    signed_percent,
)
from lmperf.reporting.tables import markdown, reasons, status_words

ACCUMULATED = {
    "single": "float32 + float32",
    "half": "float16 + float16",
    "mixed": "float32 + float16",
    "upcast": "float32 + float32(float16)",
}


def tables(evidence: MachineEvidence) -> dict[str, str]:
    """``m1``, ``m2`` (one table per subject) and ``reasons``."""
    frame = evidence.frame("mixed_precision")
    dtypes = frame[frame["experiment"] == "dtypes"]
    subjects = in_order("subject", dtypes["subject"])
    return {
        "m1": _accumulation(frame[frame["experiment"] == "accumulation"]),
        "m2": "\n\n".join(_dtypes(dtypes[dtypes["subject"] == name], name) for name in subjects),
        "reasons": reasons(frame),
    }


def _accumulation(frame: pd.DataFrame) -> str:
    if frame.empty:
        return ""
    table = pd.DataFrame(
        {
            "accumulator + addend": frame["subject"],
            "sum": [fixed(v) for v in frame["value"]],
            "exact": [fixed(v) for v in frame["exact"]],
            "error": [signed_percent(e, 3) for e in frame["value"] / frame["exact"] - 1],
            "status": status_words(frame),
        }
    )
    return markdown(
        table, "Table M1: the same small number added many times", left=["accumulator + addend"]
    )


def _dtypes(frame: pd.DataFrame, subject: str) -> str:
    observed = frame["observed_dtype"].where(frame["status"] == "ok", status_words(frame))
    labels = [
        f"{dtype_words(dtype)} autocast, {implementation_words(name)}"
        for dtype, name in zip(frame["dtype"], frame["implementation"], strict=True)
    ]
    table = frame[["tensor", "kind"]].assign(label=labels, observed=observed)
    table = table.dropna(subset=["tensor"]).drop_duplicates(["tensor", "kind", "label"])
    if table.empty:
        return ""
    wide = table.set_index(["kind", "tensor", "label"])["observed"].unstack("label", sort=False)
    wide = wide.astype(object).where(wide.notna(), EMPTY).reset_index()
    return markdown(
        wide,
        f"Table M2: dtypes under autocast, {subject.replace('_', ' ')}",
        left=list(wide.columns),
    )


def _sums(evidence: MachineEvidence) -> dict:
    frame = frame_of(evidence, "mixed_precision")
    frame = frame[(frame["experiment"] == "accumulation") & (frame["status"] == "ok")]
    by_subject = frame.drop_duplicates("subject", keep="last").set_index("subject")
    missing = [subject for subject in ACCUMULATED.values() if subject not in by_subject.index]
    if missing:
        raise NotMeasured(f"no sum of {missing[0]}")
    sums = {name: by_subject.loc[subject, "value"] for name, subject in ACCUMULATED.items()}
    exact = by_subject["exact"].iloc[0]
    errors = {f"{name}_error": abs(value - exact) for name, value in sums.items()}
    return {**sums, **errors, "exact": exact}


def _autocast(evidence: MachineEvidence, subject: str = "toy") -> pd.DataFrame:
    frame = frame_of(evidence, "mixed_precision")
    frame = frame[(frame["experiment"] == "dtypes") & (frame["subject"] == subject)]
    frame = frame[frame["status"] == "ok"]
    if frame.empty:
        raise NotMeasured(f"no dtypes of {subject} were observed")
    return frame


def _kept(evidence: MachineEvidence) -> dict:
    frame = _autocast(evidence)
    kept = frame[frame["kind"].isin(["parameter", "gradient"])]
    linear = frame[(frame["kind"] == "output") & frame["tensor"].str.startswith("fc")]
    if kept.empty or linear.empty:
        raise NotMeasured("parameters, gradients and outputs are not all there")
    return {
        "kept": in_order("observed_dtype", kept["observed_dtype"]),
        "linear": in_order("observed_dtype", linear["observed_dtype"]),
        "lowered": bool((linear["observed_dtype"] == linear["dtype"]).all()),
    }


def _norm(evidence: MachineEvidence) -> dict:
    frame = _autocast(evidence)
    frame = frame[(frame["kind"] == "output") & (frame["tensor"] == "ln")]
    if not {"eager", "compiled"} <= set(frame["implementation"]):
        raise NotMeasured("not both of eager and compiled")
    if frame.empty:
        raise NotMeasured("no output of a layer norm was observed")
    seen = frame.groupby("dtype")["observed_dtype"].unique()
    return {
        "seen": [
            (dtype_words(dtype), sorted(seen[dtype])) for dtype in in_order("dtype", seen.index)
        ],
        "agreed": all(len(values) == 1 for values in seen),
    }


def _logits(evidence: MachineEvidence) -> dict:
    frame = _autocast(evidence)
    frame = frame[frame["kind"] == "logits"]
    if frame.empty:
        raise NotMeasured("no logits were observed")
    odd = frame[frame["observed_dtype"] != frame["dtype"]]
    return {
        "seen": in_order("observed_dtype", frame["observed_dtype"]),
        "cells": len(frame),
        "odd": [
            f"{dtype_words(dtype)} autocast, {implementation_words(name)} ({seen})"
            for dtype, name, seen in zip(
                odd["dtype"], odd["implementation"], odd["observed_dtype"], strict=True
            )
        ],
    }


def _loss(evidence: MachineEvidence) -> dict:
    frame = frame_of(evidence, "mixed_precision")
    frame = frame[(frame["kind"] == "loss") & (frame["status"] == "ok")]
    if frame.empty:
        raise NotMeasured("no loss was observed")
    return {
        "seen": in_order("observed_dtype", frame["observed_dtype"]),
        "subjects": [name.replace("_", " ") for name in in_order("subject", frame["subject"])],
        "cells": len(frame),
    }


def _block(evidence: MachineEvidence) -> dict:
    frame = _autocast(evidence, "transformer_block")
    frame = frame[frame["kind"] == "output"]
    single = frame["observed_dtype"] == "float32"
    low = frame["observed_dtype"] == frame["dtype"]
    kept = single.groupby(frame["tensor"]).all()
    lowered = low.groupby(frame["tensor"]).all()
    if kept.empty:
        raise NotMeasured("no output of a Transformer block was observed")
    names = in_order("tensor", frame["tensor"])
    norms = {name for name in names if name.endswith("norm")}
    return {
        "kept": [f"`{name}`" for name in names if kept[name]],
        "lowered": [f"`{name}`" for name in names if lowered[name]],
        "torn": [f"`{name}`" for name in names if not kept[name] and not lowered[name]],
        "as_expected": set(kept.index[kept]) == norms | {"block"},
    }


def _in_kind(evidence: MachineEvidence) -> dict:
    frame = frame_of(evidence, "mixed_precision")
    frame = frame[(frame["experiment"] == "dtypes") & (frame["status"] == "ok")]
    single = (frame["observed_dtype"] == "float32").astype(float)
    keys = [frame[name] for name in ("subject", "tensor", "kind", "implementation", "dtype")]
    wide = single.groupby(keys).last().unstack("dtype")
    wide = wide.reindex(columns=["float16", "bfloat16"]).dropna()
    if wide.empty:
        raise NotMeasured("no tensor was observed under both float16 and bf16 autocast")
    same = wide["float16"] == wide["bfloat16"]
    return {
        "same": int(same.sum()),
        "tensors": len(same),
        "kept": int((wide["float16"][same] > 0).sum()),
        "differ": sorted({f"`{tensor}`" for _, tensor, *_ in same.index[~same]}),
    }


TABLES = {
    "M1": Rests(where=having(experiment=("accumulation",))),
    "M2": Rests(where=having(experiment=("dtypes",))),
}
CLAIMS = (
    Claim(
        name="accumulator",
        text="A float16 accumulator loses what it is given: it ends at {{ half | fixed }} where"
        " {{ exact | fixed }} is exact, {{ (half_error / single_error) | sig }} times the error of"
        " a float32 accumulator with float32 addends ({{ single | fixed }}).",
        values=_sums,
        holds=lambda v: v["half_error"] > v["mixed_error"] > v["single_error"] > 0,
        about="the sums of table M1",
        instead="The errors are {{ half_error | error }} with float16 accumulation,"
        " {{ mixed_error | error }} with float16 addends and {{ single_error | error }} in"
        " float32.",
        summary=True,
    ),
    Claim(
        name="upcast",
        text="Casting a float16 addend up before adding it changes nothing: both sums end at"
        " {{ mixed | fixed }}, off by {{ mixed_error | sig }}, since what the addend lost when it"
        " was rounded does not come back.",
        values=_sums,
        holds=lambda v: v["mixed"] == v["upcast"],
        about="the sums of table M1",
        instead="The cast one ends at {{ upcast | fixed }}.",
    ),
    Claim(
        name="kept",
        text="Under autocast the parameters and their gradients stay in {{ kept | listed }}, and"
        " the outputs of the linear layers come in the dtype of the autocast ("
        "{{ linear | listed }}).",
        values=_kept,
        holds=lambda v: v["kept"] == ["float32"] and v["lowered"],
        about="the dtypes of table M2",
        instead="The table shows which tensor differs.",
    ),
    Claim(
        name="norm",
        text="The output of the layer norm comes in {% for dtype, found in seen %}"
        "{{ found | listed }} under {{ dtype }} autocast{{ ' and in ' if not loop.last }}"
        "{% endfor %}, eager and compiled alike.",
        values=_norm,
        holds=lambda v: v["agreed"],
        about="the output dtype of the layer norm",
        instead="Eager and compiled differ.",
    ),
    Claim(
        name="logits",
        text="The logits of the toy model come in the dtype of the autocast ({{ seen | listed }}).",
        values=_logits,
        holds=lambda v: not v["odd"],
        about="the dtype of the logits",
        instead="That is not so under {{ odd | listed }}: in some versions of torch the cache of"
        " compiled graphs does not tell dtypes of autocast apart, and hands out that of another.",
    ),
    Claim(
        name="loss",
        text="The loss comes in {{ seen | listed }} under every autocast ({{ subjects | listed }},"
        " {{ cells }} runs), whatever the dtype of what it is computed from.",
        values=_loss,
        holds=lambda v: v["seen"] == ["float32"],
        about="the dtype of the loss",
        instead="Not all of it is float32.",
    ),
    Claim(
        name="block_outputs",
        text="Under autocast a Transformer block keeps its norms and its output, the residual"
        " stream, in float32 ({{ kept | listed }}); what its other modules return comes in the"
        " dtype of the autocast ({{ lowered | listed }}).",
        values=_block,
        holds=lambda v: v["as_expected"] and not v["torn"],
        about="the dtypes inside a Transformer block",
        instead="Expected in float32 are the norms and `block` alone{% if torn %}; the runs differ"
        " at {{ torn | listed }}{% endif %}.",
    ),
    Claim(
        name="same_in_kind",
        text="float16 and bf16 autocast agree in kind: the same {{ kept }} of {{ tensors }} tensors"
        " stay in float32 under both.",
        values=_in_kind,
        holds=lambda v: v["same"] == v["tensors"],
        about="float16 beside bf16 autocast",
        instead="They differ at {{ differ | listed }}.",
    ),
)
