"""Mixed precision: accumulation (M1), and the dtypes that autocast gives each tensor (M2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pandas as pd

from lmperf.benchmark import load
from lmperf.names import dtype_words, implementation_words, in_order
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.findings import PAGE, SHORT, Finding, NotMeasured, measured, rows_of
from lmperf.reporting.numbers import EMPTY, fixed, listed, plural, signed_percent
from lmperf.reporting.sections import Section
from lmperf.reporting.side_by_side import each
from lmperf.reporting.tables import Lines, Owed, Table, status_words

STEM = "mixed_precision"
SUMS, DTYPES = "accumulation", "dtypes"
SINGLE, HALVES = "float32", ("float16", "bfloat16")
# Kinds of tensors that training wants in float32, and the kind of what a module returns.
KINDS, OUTPUT = ("parameter", "gradient", "loss"), "output"


def head(evidence: MachineEvidence) -> Lines | None:
    """One line a sum: accumulator and addend, sum, error."""
    columns = ["accumulator + addend", "sum", "error"]
    for table in sums_tables(evidence):
        return replace(table, frame=table.frame[columns])
    return None


def sums_tables(evidence: MachineEvidence) -> list[Lines]:
    """M1: every sum, beside the exact one."""
    frame = _rows(evidence, SUMS)
    if frame.empty:
        return []
    order = next(axis.choices for axis in load(STEM).axes if axis.name == "subject")
    frame = frame.sort_values("subject", key=lambda names: names.map(order.index), kind="stable")
    columns = {
        "accumulator + addend": frame["subject"],
        "sum": frame["value"].map(fixed),
        "exact": frame["exact"].map(fixed),
        "error": [signed_percent(e, 3) for e in frame["value"] / frame["exact"] - 1],
        "status": status_words(frame),
    }
    exact = listed(f"{value:g}" for value in frame["exact"].dropna().unique())
    caption = f"The same small number added again and again; exact is {exact}"
    return [Lines(caption, pd.DataFrame(columns), right=["sum", "exact", "error"])]


def _rows(evidence: MachineEvidence, experiment: str) -> pd.DataFrame:
    frame = evidence.frame(STEM)
    return pd.DataFrame() if frame is None else having(frame, experiment=experiment)


def _of(experiment: str) -> Callable[[pd.DataFrame], pd.Series]:
    return lambda frame: frame["experiment"] == experiment


def dtypes_tables(evidence: MachineEvidence) -> list[Lines]:
    """M2, a table a model: tensors down, dtypes of autocast across."""
    frame = _rows(evidence, DTYPES)
    subjects = [] if frame.empty else in_order("subject", frame["subject"])
    return each(*(_dtypes_table(having(frame, subject=name), name) for name in subjects))


def _dtypes_table(frame: pd.DataFrame, subject: str) -> Lines | None:
    words = frame["observed_dtype"].where(frame["status"] == "ok", status_words(frame))
    frame = frame.assign(words=words).dropna(subset=["tensor"])
    if frame.empty:
        return None
    cells = frame.drop_duplicates(["kind", "tensor", "dtype", "implementation"], keep="last")
    cells = cells.set_index(["kind", "tensor", "dtype", "implementation"])["words"]
    wide = cells.unstack(["dtype", "implementation"], sort=False).map(_dtype_words)
    columns = {
        f"{dtype_words(dtype)} autocast ({listed(map(implementation_words, names))})": values
        for dtype, names, values in _merged(wide)
    }
    table = pd.DataFrame(columns).reset_index()
    caption = f"Dtypes under autocast, {subject.replace('_', ' ')}"
    return Lines(caption, table, right=[])


def _dtype_words(value) -> str:
    return EMPTY if value != value else dtype_words(value)


def _merged(wide: pd.DataFrame) -> list[tuple[str, list[str], pd.Series]]:
    """Each dtype with the implementations that agree in every tensor, as one column."""
    merged: list[tuple[str, list[str], pd.Series]] = []
    for dtype in in_order("dtype", wide.columns.get_level_values("dtype")):
        for name in in_order("implementation", wide[dtype].columns):
            column = wide[dtype][name]
            same = [names for d, names, values in merged if d == dtype and values.equals(column)]
            if same:
                same[0].append(name)
            else:
                merged.append((dtype, [name], column))
    return merged


def _sum_of(sums: pd.DataFrame, accumulator: str, addend: str) -> float:
    """The sum of an accumulator and an addend; raises NotMeasured."""
    return measured(having(sums, subject=f"{accumulator} + {addend}"))["value"].iloc[-1]


def _accumulators(evidence: MachineEvidence) -> dict:
    """The sum of each dtype with itself, and its distance from the exact one."""
    sums = rows_of(evidence, STEM, experiment=SUMS)
    exact = sums["exact"].iloc[0]
    found = {dtype: _sum_of(sums, dtype, dtype) for dtype in (SINGLE, *HALVES)}
    errors = {dtype: abs(value - exact) for dtype, value in found.items()}
    times = errors["float16"] / errors[SINGLE] if errors[SINGLE] else None
    return {**found, "exact": exact, "errors": errors, "times": times}


def _accumulators_answer(values: dict) -> str:
    errors = values["errors"]
    if not 0 < errors[SINGLE] < errors["float16"]:
        return "other"
    return "bf16_worst" if errors["bfloat16"] > errors["float16"] else "float16_worst"


def _addends(evidence: MachineEvidence) -> dict:
    """Errors of a float32 accumulator whose addend was rounded, and of one cast up again."""
    sums = rows_of(evidence, STEM, experiment=SUMS)
    exact = sums["exact"].iloc[0]
    rounded = [_sum_of(sums, SINGLE, half) / exact - 1 for half in HALVES]
    upcast = [_sum_of(sums, SINGLE, f"{SINGLE}({half})") / exact - 1 for half in HALVES]
    words = [dtype_words(half) for half in HALVES]
    pairs = {"rounded": rounded, "upcast": upcast}
    return {name: list(zip(words, errors, strict=True)) for name, errors in pairs.items()}


def _kept(evidence: MachineEvidence) -> dict:
    """What is float32 in every run, and what comes in the dtype of the autocast in every run."""
    rows = rows_of(evidence, STEM, experiment=DTYPES)
    if not {*KINDS, OUTPUT} <= set(rows["kind"]):
        raise NotMeasured
    keys = [rows["kind"], rows["tensor"]]
    kept = (rows["observed_dtype"] == SINGLE).groupby(keys, sort=False).all()
    lowered = (rows["observed_dtype"] == rows["dtype"]).groupby(keys, sort=False).all()
    whole = {kind: bool(kept[kind].all()) for kind in KINDS}
    high, low = kept[OUTPUT], lowered[OUTPUT]
    return {
        "kept": [plural(kind) for kind in KINDS if whole[kind]],
        "lowered": [plural(kind) for kind in KINDS if not whole[kind]],
        "outputs": [f"`{name}`" for name in high.index[high]],
        "torn": [f"`{name}`" for name in high.index[~high & ~low]],
        "loss": whole["loss"],
    }


def _logits(evidence: MachineEvidence) -> dict:
    """The logits that do not come in the dtype of the autocast."""
    rows = rows_of(evidence, STEM, experiment=DTYPES, kind="logits")
    odd = rows[rows["observed_dtype"] != rows["dtype"]]
    seen = odd[["observed_dtype", "dtype", "implementation"]].itertuples(index=False)
    compiled = (odd["implementation"] == "compiled") & odd["observed_dtype"].isin(rows["dtype"])
    return {
        "seen": [
            f"{dtype_words(got)} under {dtype_words(dtype)} autocast, {implementation_words(name)}"
            for got, dtype, name in seen
        ],
        "of_another": bool(compiled.all()),
    }


def _logits_answer(values: dict) -> str:
    if not values["seen"]:
        return "alike"
    return "of_another" if values["of_another"] else "odd"


_ENDS = (
    "A float16 accumulator ends at {{ float16 | fixed }} where {{ exact | fixed }} is exact,"
    " {{ times | rounded }} times float32's error; "
)
_ERRORS = (
    "{% for words, error in ERRORS %}{{ error | signed_percent(3) }} ({{ words }})"
    "{{ ' and ' if not loop.last }}{% endfor %}"
)
_ROUNDED = "An addend that is rounded first leaves a float32 accumulator off by " + _ERRORS.replace(
    "ERRORS", "rounded"
)
_OUTPUTS = (
    "{% if outputs %}, as do the outputs of {{ outputs | listed }}{% endif %}; the other outputs of"
    " modules come in the dtype of the autocast"
    "{% if torn %}, but for {{ torn | listed }}, where the runs differ{% endif %}."
)
_LOGITS = "The logits of the toy model come in "

FINDINGS = (
    Finding(
        name="accumulator",
        question="What does a 16-bit accumulator lose?",
        values=_accumulators,
        answer=_accumulators_answer,
        answers={
            "bf16_worst": _ENDS + "bf16, of less precision, at {{ bfloat16 | fixed }}.",
            "float16_worst": _ENDS + "a bf16 one at {{ bfloat16 | fixed }}.",
            "other": "Where {{ exact | fixed }} is exact, accumulators end at"
            " {{ float32 | fixed }} (float32), {{ float16 | fixed }} (float16) and"
            " {{ bfloat16 | fixed }} (bf16).",
        },
        place=SHORT,
    ),
    Finding(
        name="addend",
        question="What does a 16-bit addend cost, and does casting it up mend it?",
        values=_addends,
        answer=lambda v: "lost" if v["rounded"] == v["upcast"] else "mended",
        answers={
            "lost": _ROUNDED + "; casting it up before the addition changes nothing, since what"
            " rounding took does not come back.",
            "mended": _ROUNDED
            + "; cast up before the addition, by "
            + _ERRORS.replace("ERRORS", "upcast")
            + ".",
        },
    ),
    Finding(
        name="autocast_keeps",
        question="Which tensors stay in float32 under autocast?",
        values=_kept,
        answer=lambda v: "loss" if not v["loss"] else ("some" if v["lowered"] else "all"),
        answers={
            "all": "Under autocast {{ kept | listed }} stay in float32 (a published write-up (003)"
            " has the loss in float16)" + _OUTPUTS,
            "some": "Under autocast {{ kept | listed }} stay in float32, {{ lowered | listed }} do"
            " not in every run" + _OUTPUTS,
            "loss": "Under autocast {{ lowered | listed }} do not stay in float32 in every run"
            "{% if kept %}, but {{ kept | listed }} do{% endif %}" + _OUTPUTS,
        },
    ),
    Finding(
        name="autocast_logits",
        question="In which dtype do logits come?",
        values=_logits,
        answer=_logits_answer,
        answers={
            "alike": _LOGITS + "the dtype of the autocast in every run.",
            "of_another": _LOGITS + "{{ seen | listed }}. A possible reason: torch keeps compiled"
            " graphs in a cache, and where its key lacks the dtype of the autocast, the graph of an"
            " earlier run is used again.",
            "odd": _LOGITS + "{{ seen | listed }}.",
        },
        place=PAGE,
    ),
)

SECTION = Section(
    findings=FINDINGS,
    head=head,
    tables=(
        Table("M1", "Accumulation", sums_tables, Owed(_of(SUMS))),
        Table("M2", "Dtypes under autocast", dtypes_tables, Owed(_of(DTYPES))),
    ),
)
