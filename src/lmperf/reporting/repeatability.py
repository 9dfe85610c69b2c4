"""Table R1: how far times differ between the run that made the report and a second process.

`lmperf.evidence.repeatability` draws the rows and holds their second times. A row is compared with
the row of the report that has the same key: the same cell, code, method and environment. The
difference is |second time / first time - 1|. Sustained times are compared as well, where both rows
have one.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd

from lmperf.benchmarks import load
from lmperf.evidence.repeatability import MOST_COMPILED, STEM
from lmperf.names import UNSETTLED, mark_words
from lmperf.reporting import gates, jobs, marks
from lmperf.reporting.evidence import MachineEvidence, row_names
from lmperf.reporting.findings import NotMeasured
from lmperf.reporting.host_bound import host_bound
from lmperf.reporting.numbers import Count, counted, percent
from lmperf.reporting.tables import as_cell, from_frame, number_cell, number_cells
from lmperf.results import EMPTY, Table
from lmperf.statistics import FLOOR_QUANTILE

TITLE = "Repeatability"
# Kind of a row -> its words, in the order of the table.
KINDS = {
    "kernel": "kernels",
    "device": "device-bound steps",
    "host": "host-bound steps",
    "step": "steps",
}
# With fewer rows of a kind the head page is silent about it; table R1 shows them.
LEAST_ROWS = 3
_SINGLE, _SUSTAINED = "median_ms", "sustained_ms"
# Time -> what its line in the table adds to the kind.
_TIMES = {_SINGLE: "", _SUSTAINED: ", sustained"}


def compared(evidence: MachineEvidence) -> pd.DataFrame:
    """A line for each row that was measured a second time.

    Columns: `row` (its name), `key`, `kind`, `marks` (of either time), `elsewhere` (whether another
    GPU gave the second time), `state` (why it is left out; empty for a row that counts). Also, for
    median_ms and sustained_ms, `<time>.first`, `<time>.again` and `<time>.difference`; each is NaN
    if unknown.
    """
    return evidence.once((STEM,), lambda: _compared(evidence))


def _compared(evidence: MachineEvidence) -> pd.DataFrame:
    parts = [_of_benchmark(evidence, stem) for stem in evidence.repeats]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def _of_benchmark(evidence: MachineEvidence, stem: str) -> pd.DataFrame:
    again, first = evidence.repeated(stem), evidence.frame(stem)
    first = again.iloc[:0] if first is None else first
    first = first.drop_duplicates("key").set_index("key", drop=False)
    known = again["key"].isin(first.index)
    beside = first.reindex(again["key"]).set_axis(again.index)
    has_first, has_second = again["key"].isin(first.index[gates.shown(first)]), gates.shown(again)
    noted = [
        marks.both(one, other)
        for one, other in zip(marks.marks_of(again), marks.marks_of(beside), strict=True)
    ]
    disturbed = pd.Series([not UNSETTLED.isdisjoint(of) for of in noted], again.index)
    found = pd.DataFrame(
        {
            "row": [f"{stem}: {name}" for name in row_names(again)],
            "key": again["key"],
            "kind": _kinds(evidence, stem, pd.concat([beside[known], again[~known]])),
            "marks": noted,
            "elsewhere": _elsewhere(evidence, stem, beside, again),
            "state": np.select(
                [~known, ~(has_first & has_second), disturbed],
                ["no first time", "no valid time", "marked"],
                "",
            ),
        },
        index=again.index,
    )
    for name in _TIMES:
        one = beside[name].where(has_first).astype(float)
        other = again[name].where(has_second).astype(float)
        found[f"{name}.first"], found[f"{name}.again"] = one, other
        found[f"{name}.difference"] = (other / one - 1).abs()
    return found


def _elsewhere(
    evidence: MachineEvidence, stem: str, first: pd.DataFrame, again: pd.DataFrame
) -> pd.Series:
    """Whether the GPUs of both times of a row are recorded, and differ."""
    one = jobs.devices_of_rows(evidence, first, stem)
    other = jobs.devices_of_rows(evidence, again, STEM)
    known = jobs.sets_of_gpus(evidence)
    return one.isin(known) & other.isin(known) & (one != other)


def _kinds(evidence: MachineEvidence, stem: str, rows: pd.DataFrame) -> pd.Series:
    if load(stem).clock == "kernel":
        return pd.Series("kernel", rows.index)
    cuda = {name for name, f in evidence.facts["environments"].items() if f.get("kind") == "cuda"}
    steps = np.where(host_bound(rows.astype({"host_ms": float})), "host", "device")
    return pd.Series(np.where(rows["environment"].isin(cuda), steps, "step"), rows.index)


def differences(evidence: MachineEvidence) -> dict[tuple[str, str], pd.Series]:
    """(kind, time) -> differences of the rows that count; in the order of the table."""
    rows = compared(evidence)
    rows = rows[rows["state"] == ""] if len(rows) else rows
    found = {
        (kind, name): rows.loc[rows["kind"] == kind, f"{name}.difference"].dropna()
        for kind in KINDS
        for name in _TIMES
        if len(rows)
    }
    return {which: values for which, values in found.items() if len(values)}


def within(values: pd.Series) -> float:
    """The difference that FLOOR_QUANTILE of the rows do not exceed; the largest of up to 20."""
    return float(np.quantile(values, FLOOR_QUANTILE, method="higher"))


def tables(evidence: MachineEvidence) -> list[Table]:
    """Table R1: the differences by kind of row, and each row; empty if no row was measured."""
    rows = compared(evidence)
    if rows.empty:
        return []
    if not differences(evidence):
        return [replace(_each(rows), notes=_note(evidence))]
    return [_summary(evidence), _each(rows)]


def _summary(evidence: MachineEvidence) -> Table:
    lines = [
        {
            "times": KINDS[kind] + _TIMES[name],
            "rows": len(values),
            **{
                column: number_cell(value, percent)
                for column, value in (
                    ("median", float(values.median())),
                    ("within", within(values)),
                    ("worst", float(values.max())),
                )
            },
        }
        for (kind, name), values in differences(evidence).items()
    ]
    headers = {"within": f"{percent(FLOOR_QUANTILE, 0)} within"}
    frame = pd.DataFrame(lines, columns=["times", "rows", "median", "within", "worst"])
    if (frame["within"] == frame["worst"]).all():  # so with up to 20 rows of each kind
        frame = frame.drop(columns="within")
    caption = "How far times differ in a second process"
    return from_frame(caption, frame, _note(evidence), right=[*frame][1:], headers=headers)


def _note(evidence: MachineEvidence) -> str:
    rows = compared(evidence)
    missing = len(evidence.missing.get(STEM, ()))
    left_out = [
        f"{counted(number, 'row')} {words}"
        for state, words in (
            ("no first time", "without a first time of the same code"),
            ("no valid time", "without two valid times"),
            ("marked", "measured while the machine was at work, drifted or had a slow host"),
        )
        if (number := int((rows["state"] == state).sum()))
    ]
    left_out += [f"{counted(missing, 'row')} not measured again"] if missing else []
    elsewhere = int((rows["elsewhere"] & (rows["state"] == "")).sum())
    return (
        "Difference: |second / first - 1|. The rows are the same in every run; at most"
        f" {MOST_COMPILED} of them are compiled steps."
        + (f" On another GPU the second time: {counted(elsewhere, 'row')}." if elsewhere else "")
        + (f" Left out: {'; '.join(left_out)}." if left_out else "")
    )


def _each(rows: pd.DataFrame) -> Table:
    named = zip(rows["row"], rows["key"], strict=True)
    columns, headers = {"row": [replace(as_cell(name), row=key) for name, key in named]}, {}
    for name, words in ((_SINGLE, ""), (_SUSTAINED, "sustained, ")):
        if rows[f"{name}.difference"].notna().any():
            for part, header in (("first", "first"), ("again", "second")):
                columns[f"{name}.{part}"] = number_cells(rows[f"{name}.{part}"])
                headers[f"{name}.{part}"] = f"{words}{header} (ms)"
            column = f"{name}.difference"
            columns[column], headers[column] = number_cells(rows[column], percent), words + "apart"
    noted = rows["marks"].map(lambda of: ", ".join(map(mark_words, of)) or EMPTY)
    columns["kind"], columns["marks"] = rows["kind"].map(KINDS), noted
    frame = pd.DataFrame(columns)
    right = [name for name in frame if name not in ("row", "kind", "marks")]
    return from_frame("The rows measured a second time", frame, right=right, headers=headers)


def counts(evidence: MachineEvidence) -> tuple[int, int]:
    """The numbers of rows measured a second time, and of rows that were drawn."""
    measured = sum(map(len, evidence.repeats.values()))
    return measured, measured + len(evidence.missing.get(STEM, ()))


def values(evidence: MachineEvidence) -> dict:
    """The values of the finding on repeatability; raises NotMeasured without rows that count.

    `kinds`: (words, whole percent within which the kind repeats), for kinds with enough rows.
    Sustained times have sentences of their own (`further`). `left_out`: the rows that do not count,
    since they are marked, in words: `2 disturbed steps`.
    """
    rows = compared(evidence)
    if rows.empty:
        raise NotMeasured
    kinds: dict[str, float] = {}
    for (kind, name), found in differences(evidence).items():
        if name == _SINGLE and len(found) >= LEAST_ROWS:
            kinds[kind] = within(found)
    marked = rows[rows["state"] == "marked"]
    if not kinds and marked.empty:
        raise NotMeasured
    are_kernels = {*(marked["kind"] == "kernel")}
    what = "row" if len(are_kernels) > 1 else "kernel" if are_kernels == {True} else "step"
    return {
        "kinds": [(KINDS[kind], _whole_percent(far)) for kind, far in kinds.items()],
        "rows": int((rows["state"] == "").sum()),
        "marked": len(marked),
        "left_out": counted(len(marked), f"disturbed {what}"),
        "share": FLOOR_QUANTILE,
    }


def further(evidence: MachineEvidence) -> list[str]:
    """Sentences for the trust line: how far sustained steps repeat, and other GPUs."""
    said = []
    parts = [found for (_, name), found in differences(evidence).items() if name == _SUSTAINED]
    if sum(map(len, parts)) >= LEAST_ROWS:
        found = pd.concat(parts)
        far = _whole_percent(within(found))
        said.append(f"Sustained steps repeat within {far} % ({counted(len(found), 'row')}).")
    rows = compared(evidence)
    elsewhere = rows.loc[rows["state"] == "", "elsewhere"] if len(rows) else pd.Series(dtype=bool)
    if elsewhere.any():
        number = Count(int(elsewhere.sum()), len(elsewhere))
        said.append(f"{'All' if number.all else number} second times are from another GPU.")
    return said


def _whole_percent(far: float) -> int:
    """A difference as a percentage: that of the table, rounded up, and at least 1."""
    return max(1, math.ceil(round(100 * far, 1)))


def answer(found: dict) -> str:
    """The name of the answer of the finding on repeatability."""
    if not found["kinds"]:
        return "unknown"
    return "some_marked" if found["marked"] else "all"
