"""The report section on mixed precision: errors of long sums (M1), dtypes under autocast (M2)."""

from __future__ import annotations

import math

import pandas as pd

from lmperf.benchmarks import load
from lmperf.names import dtype_words, implementation_words, in_order
from lmperf.reporting import marks
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.findings import PAGE, SHORT, Finding, NotMeasured, always, measured, rows_of
from lmperf.reporting.foreign import code
from lmperf.reporting.numbers import EMPTY, fixed, listed, plural, signed_percent
from lmperf.reporting.sections import Section
from lmperf.reporting.sections.profiles.kernel_classes import COPY, MATMUL
from lmperf.reporting.sections.profiles.rows import usual
from lmperf.reporting.side_by_side import each
from lmperf.reporting.tables import (
    Owed,
    TableGroup,
    from_frame,
    number_cells,
    status_cells,
    status_words,
)
from lmperf.results import Table

STEM = "mixed_precision"
SUMS, DTYPES = "accumulation", "dtypes"
SINGLE, HALF, AUTOCAST = "float32", "bfloat16", "autocast_bfloat16"
# Stored bits of a bf16 significand.
BITS = 7
# Kinds of tensors that should be float32 in training, and kinds of tensors that modules return.
KINDS, OUTPUTS = ("parameter", "gradient", "loss"), ("output", "logits")


def head(evidence: MachineEvidence) -> Table | None:
    """The head table (the one in the write-up), which is table M1; None without rows."""
    return next(iter(sums_tables(evidence)), None)


def sums_tables(evidence: MachineEvidence) -> list[Table]:
    """Table M1, a line per sum: value, relative error, and the status if any row failed."""
    frame = _rows(evidence, SUMS)
    if frame.empty:
        return []
    order = {axis.name: axis.choices for axis in load(STEM).axes}["subject"]
    frame = frame.sort_values("subject", key=lambda names: names.map(order.index), kind="stable")
    columns = {
        "subject": frame["subject"],
        "sum": marks.with_stale(number_cells(frame["value"], fixed), frame),
        "error": number_cells(frame["value"] / frame["exact"] - 1, _error),
    }
    if (frame["status"] != "ok").any():
        columns["status"] = status_cells(frame)
    additions, addend = (load(STEM).stated[name] for name in ("additions", "addend"))
    caption = f"{additions:,} additions of {addend}, {additions * addend:g} when exact"
    headers = {"subject": "accumulator + addend"}
    return [from_frame(caption, pd.DataFrame(columns), headers=headers)]


def _error(fraction: float) -> str:
    return signed_percent(fraction, 3)


def _rows(evidence: MachineEvidence, experiment: str) -> pd.DataFrame:
    frame = evidence.frame(STEM)
    return pd.DataFrame() if frame is None else having(frame, experiment=experiment)


def dtypes_tables(evidence: MachineEvidence) -> list[Table]:
    """Tables M2, one per model: the dtype of each tensor (lines) under each autocast (columns)."""
    frame = _rows(evidence, DTYPES)
    subjects = [] if frame.empty else in_order("subject", frame["subject"])
    return each(*(_dtypes_table(having(frame, subject=name), name) for name in subjects))


def _dtypes_table(frame: pd.DataFrame, subject: str) -> Table | None:
    """A table M2. Implementations that give every tensor the same dtype share a column."""
    words = frame["observed_dtype"].where(frame["status"] == "ok", status_words(frame))
    wide = _by_run(frame.assign(words=words)).fillna(EMPTY).map(dtype_words)
    columns, headers = {}, {}
    for dtype in in_order("dtype", wide.columns.get_level_values("dtype")):
        alike: dict[tuple, list[str]] = {}  # the column's cells -> implementations
        for name in in_order("implementation", wide[dtype].columns):
            alike.setdefault(tuple(wide[dtype][name]), []).append(name)
        for cells, names in alike.items():
            column = f"{dtype}.{'+'.join(names)}"
            words = listed(map(implementation_words, names))
            columns[column], headers[column] = cells, f"{dtype_words(dtype)} autocast ({words})"
    table = pd.DataFrame(columns, index=wide.index).reset_index()
    caption = f"Dtypes under autocast, {subject.replace('_', ' ')}"
    return from_frame(caption, table, headers=headers)


def _by_run(frame: pd.DataFrame) -> pd.DataFrame:
    """A data frame of dtypes: a line per tensor, a column per run (dtype, implementation).

    A failed run has its status in every line, since none of its tensors was seen. Unsupported runs
    are left out; the report lists them with their reasons below the tables.
    """
    runs = ["dtype", "implementation"]
    seen, failed = frame.dropna(subset=["tensor"]), frame[frame["tensor"].isna()]
    if seen.empty:
        seen = failed.assign(kind=EMPTY, tensor=EMPTY)
    keys = {"index": ["kind", "tensor"], "columns": runs}
    wide = seen.pivot_table(**keys, values="words", aggfunc="last", sort=False)
    failed = failed[failed["status"] != "unsupported"]
    for *run, words in failed[[*runs, "words"]].itertuples(index=False):
        wide[tuple(run)] = words
    return wide


def _sums(evidence: MachineEvidence) -> dict:
    """The sum with a bf16 accumulator, and half of its distance to the next bf16 number."""
    rows = rows_of(evidence, STEM, experiment=SUMS, subject=f"{HALF} + {HALF}")
    total = rows["value"].iloc[-1]
    half_step = 2.0 ** (math.floor(math.log2(total)) - BITS) / 2
    return {**load(STEM).stated, "sum": total, "half_step": half_step}


def _casts(evidence: MachineEvidence) -> dict:
    """Times of matmuls and of copies and casts in an eager train step, without and with autocast.

    They come from the profiles, of the size and context that their section shows.
    """
    steps = having(usual(evidence), phase="train_step", implementation="eager")
    found = {name: measured(having(steps, dtype=name)).iloc[-1] for name in (SINGLE, AUTOCAST)}
    single, half = found.values()
    return {
        **half[["size", "context_length"]],
        "stale": bool(single["stale"] or half["stale"]),
        **{
            name: {"single": single[column], "half": half[column]}
            for name, column in (("matmul", MATMUL), ("copy", COPY))
        },
    }


def _casts_answer(values: dict) -> str:
    matmul, copy = values["matmul"], values["copy"]
    faster, more = matmul["half"] < matmul["single"], copy["half"] > copy["single"]
    return "both" if faster and more else "is"


def _kept(evidence: MachineEvidence) -> dict:
    """Which kinds of tensors and which outputs are float32 in every run.

    ``torn``: outputs that are neither float32 in every run nor the autocast dtype in every run.
    """
    rows = rows_of(evidence, STEM, experiment=DTYPES)
    keys = [rows["kind"], rows["tensor"]]
    kept = (rows["observed_dtype"] == SINGLE).groupby(keys, sort=False).all()
    lowered = (rows["observed_dtype"] == rows["dtype"]).groupby(keys, sort=False).all()
    whole = kept.groupby(level="kind").all()
    if not {*KINDS, OUTPUTS[0]} <= set(whole.index):
        raise NotMeasured
    outputs = kept.index.get_level_values("kind").isin(OUTPUTS)

    def named(chosen: pd.Series) -> list[str]:
        return [code(tensor) for _, tensor in kept.index[outputs & chosen]]

    return {
        "kept": [plural(kind) for kind in KINDS if whole[kind]],
        "lowered": [plural(kind) for kind in KINDS if not whole[kind]],
        "outputs": named(kept),
        "torn": named(~kept & ~lowered),
    }


def _logits(evidence: MachineEvidence) -> dict:
    """Logits of compiled runs that have the dtype of another run's autocast, in words."""
    rows = rows_of(evidence, STEM, kind="logits", implementation="compiled")
    other = rows["observed_dtype"].isin(rows["dtype"]) & (rows["observed_dtype"] != rows["dtype"])
    pairs = measured(rows[other])[["observed_dtype", "dtype"]].map(dtype_words)
    seen = [f"{got} under {dtype} autocast" for got, dtype in pairs.itertuples(index=False)]
    return {"seen": seen}


_OUTPUTS = (
    "{% if outputs %} So do outputs of {{ outputs | listed }}.{% endif %} Other outputs have its"
    " dtype{% if torn %}, except {{ torn | listed }}, where runs differ (M2){% endif %}."
)
_SUM = "A bf16 sum of {{ '{:,}'.format(additions) }} times {{ addend }} ends at {{ sum | fixed }}"
_MATMULS = (
    " a train step's matmuls from {{ matmul.single | sig }} to {{ matmul.half | sig }} ms"
    " ({{ size }}, context {{ context_length }}{{ ', stale' if stale }}). "
)

FINDINGS = (
    Finding(
        name="accumulator",
        question="What does a bf16 accumulator end at, and why?",
        values=_sums,
        answer=lambda v: "stuck" if v["half_step"] > v["addend"] else "is",
        answers={
            "stuck": _SUM + ". From there on bf16 values are {{ (2 * half_step) | sig }} apart, so"
            " that adding {{ addend }} changes nothing: accumulate in float32.",
            "is": _SUM + ".",
        },
        place=SHORT,
    ),
    Finding(
        name="autocast_casts",
        question="What does bf16 autocast shorten in a step, and what does it add?",
        values=_casts,
        answer=_casts_answer,
        answers={
            "both": "bf16 autocast shortens"
            + _MATMULS
            + "Copies and casts rise from {{ copy.single | sig }} to {{ copy.half | sig }} ms:"
            " operators cast their inputs.",
            "is": "bf16 autocast changes"
            + _MATMULS
            + "Copies and casts change from {{ copy.single | sig }} to {{ copy.half | sig }} ms.",
        },
    ),
    Finding(
        name="autocast_keeps",
        question="Which tensors stay in float32 under autocast?",
        values=_kept,
        answer=lambda v: "some" if v["lowered"] else "all",
        answers={
            "all": "Under autocast, {{ kept | listed }} stay in float32 (a published write-up"
            " (003) reports a float16 loss)." + _OUTPUTS,
            "some": "Under autocast, {{ kept | listed }} stay in float32, {{ lowered | listed }}"
            " not in every run." + _OUTPUTS,
        },
    ),
    Finding(
        name="autocast_logits",
        question="Which logits have the dtype of another autocast?",
        values=_logits,
        answer=always,
        answers={
            "is": "The compiled toy model's logits are {{ seen | listed }}. Possibly the graph of"
            " an earlier run is used, if the key of torch's cache of compiled graphs lacks the"
            " autocast dtype."
        },
        place=PAGE,
    ),
)


def _owed(experiment: str) -> Owed:
    return Owed(lambda frame: frame["experiment"] == experiment)


TABLES = (
    TableGroup("M1", "Accumulation", sums_tables, _owed(SUMS)),
    TableGroup("M2", "Dtypes under autocast", dtypes_tables, _owed(DTYPES)),
)
SECTION = Section(findings=FINDINGS, head=head, tables=TABLES)
