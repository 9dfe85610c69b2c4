"""Facts of a machine and of its evidence: environments, counts, rounds and noise floors."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from lmperf.devices import sheet_of
from lmperf.evidence import plausible
from lmperf.names import STATUSES, dtype_words, in_order, mark_words, phase_words
from lmperf.reporting import gates, jobs, marks
from lmperf.reporting.evidence import MachineEvidence
from lmperf.reporting.foreign import code
from lmperf.reporting.noise import SHORT_MS, noise_floors
from lmperf.reporting.numbers import EMPTY, absent, counted, percent
from lmperf.reporting.rounds import interval_sentence, round_numbers, rounds_words
from lmperf.reporting.stated import stated
from lmperf.reporting.tables import MEDIAN_APART, from_frame, number_cell
from lmperf.results import Table
from lmperf.statistics import FLOOR_QUANTILE, LEAST_FLOOR, LEAST_PAIRS, UNKNOWN_FLOOR

COMMIT_LENGTH = 12
DIRTY = "-dirty"
# Noise floors are shown with this resolution.
LEAST_SHOWN = 0.001
FACTS = {
    "kind": "kind",
    "device": "device",
    "multiprocessors": "SMs",
    "device_memory_gib": "device memory (GiB)",
    "clock_sm_mhz": "processor clock, device (MHz)",
    "clock_memory_mhz": "memory clock, device (MHz)",
    "power_limit_w": "power limit (W)",
    "cpu_model": "CPU",
    "cores": "cores",
    "nccl": "NCCL settings",
    "threads": "threads used",
    "memory_gib": "memory of the newest run (GiB)",
    "os": "operating system",
    "driver": "driver",
    "cuda": "CUDA",
    "torch": "torch",
    "triton": "triton",
    "python": "Python",
    "matmul_precision": "float32 matmul precision",
    "tf32_matmul": "TF32 in matmuls by default",
    "tf32_cudnn": "TF32 in cuDNN by default",
    "lmperf": "lmperf of the newest run",
    "commit": "commit of the newest run",
    "measured_at": "newest run at",
}

# The facts in the first line of the write-up, in order; unknown ones are left out.
LINE = {
    "device_memory_gib": "{:.0f} GiB",
    "power_limit_w": "{:.0f} W",
    "cores": "{} cores",
    "driver": "driver {}",
    "torch": "torch {}",
    "triton": "Triton {}",
    "measured_at": "{:.10}",
}


def environments(evidence: MachineEvidence) -> dict[str, dict]:
    """Name -> facts of the environments in machine.json that measured rows, oldest first."""
    return evidence.once(("environments",), lambda: _environments(evidence))


def _environments(evidence: MachineEvidence) -> dict[str, dict]:
    known = evidence.facts["environments"]
    used = evidence.environment_names()
    kept = {name: facts for name, facts in known.items() if name in used or not used}
    return dict(sorted(kept.items(), key=lambda item: (str(item[1].get("measured_at")), item[0])))


def recorded(evidence: MachineEvidence, frame: pd.DataFrame) -> pd.Series:
    """Whether each row was measured in an environment that machine.json records."""
    return frame["environment"].isin(list(evidence.facts["environments"]))


def unrecorded(evidence: MachineEvidence) -> list[str]:
    """Sorted names of environments that measured rows but are not recorded in machine.json."""
    return sorted(set(map(str, evidence.environment_names())) - set(evidence.facts["environments"]))


def unrecorded_rows(evidence: MachineEvidence) -> int:
    """The number of rows whose environment is not recorded."""
    frames = evidence.present().values()
    key = ("unrecorded_rows",)
    return evidence.once(key, lambda: sum(int((~recorded(evidence, f)).sum()) for f in frames))


def newest(evidence: MachineEvidence) -> dict:
    """The facts of the newest environment; empty if none is recorded."""
    return next(reversed(environments(evidence).values()), {})


def facts_table(evidence: MachineEvidence) -> Table | None:
    """A table with a line for each fact and a column for each environment; None without facts."""
    missing = unrecorded(evidence)
    found = environments(evidence) | {name: {} for name in missing}
    if not found:
        return None
    several = jobs.gpus_words(evidence)
    left_out = {"dirty", *(("uuid", "uuids") if several else ())}
    rest = sorted({key for facts in found.values() for key in facts} - {*FACTS, *left_out})
    labels = {**FACTS, **{key: key.replace("_", " ") for key in rest}}
    lines = [
        [label, *(_fact(facts, key) for facts in found.values())]
        for key, label in labels.items()
        if any(not absent(facts.get(key)) for facts in found.values())
    ]
    headers = {f"environment.{name}": f"environment {name}" for name in found}
    frame = pd.DataFrame(lines, columns=["fact", *headers])
    notes = [
        f"Rows were measured on {several} of this kind." if several else "",
        f"Not recorded: environment {', '.join(missing)}." if missing else "",
    ]
    note = " ".join(filter(None, notes))
    return from_frame("The machine and its software", frame, note, right=[], headers=headers)


def _fact(facts: dict, key: str) -> str:
    value = facts.get(key)
    if absent(value) or value == "" or value == {}:
        return EMPTY
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{name}={value[name]}" for name in sorted(value))
    if key == "commit":
        changes = ", with uncommitted changes" if facts.get("dirty") else ""
        return str(value)[:COMMIT_LENGTH] + changes
    return f"{value:,.4g}" if isinstance(value, float) else str(value)


def device_words(evidence: MachineEvidence) -> str:
    """The newest environment's device, with the number of GPUs if there are several.

    The machine's slug if no device is recorded.
    """
    facts = newest(evidence)
    name = facts.get("device") or facts.get("cpu_model") or evidence.name
    devices = facts.get("devices", 1)
    return f"{devices} x {name}" if devices > 1 else name


def facts_line(evidence: MachineEvidence) -> list[str]:
    """Device, memory, power limit, software, date and commit in words, as far as known."""
    facts, unrecorded = newest(evidence), unrecorded_rows(evidence)
    commit = facts.get("commit") and f"newest commit {code(facts['commit'][:COMMIT_LENGTH])}"
    words = [
        device_words(evidence),
        *(
            form.format(facts[key])
            for key, form in LINE.items()
            if not absent(facts.get(key)) and not (key == "cores" and facts.get("kind") == "cuda")
        ),
        f"{commit} with uncommitted changes" if commit and facts.get("dirty") else commit,
        unrecorded and f"{counted(unrecorded, 'row')} from an unrecorded environment",
    ]
    return [word for word in words if word]


def counts_table(evidence: MachineEvidence) -> Table:
    """A table with a line for each benchmark: numbers of rows by status, gate and mark."""
    frames = evidence.present()
    seen = {status for frame in frames.values() for status in frame["status"].dropna()}
    statuses = in_order("status", seen - {"ok"})
    marked = {stem: marks.counts([frame]) for stem, frame in frames.items()}
    kinds = in_order("marks", {mark for found in marked.values() for mark in found})
    lines = [
        {
            "benchmark": stem,
            "rows": len(frame),
            "ok": int(gates.shown(frame).sum()),
            **{f"status.{s}": int((frame["status"] == s).sum()) for s in statuses},
            "checked": int(gates.gated(frame).sum()),
            "gates_failed": int(gates.red(frame).sum()),
            **{f"mark.{mark}": marked[stem].get(mark, 0) for mark in kinds},
        }
        for stem, frame in frames.items()
    ]
    headers = {
        **{f"status.{status}": STATUSES[status] for status in statuses},
        "gates_failed": "gates failed",
        **{f"mark.{mark}": mark_words(mark) for mark in kinds},
    }
    return from_frame(
        "Rows of evidence in this report, by status", pd.DataFrame(lines), headers=headers
    )


def marked(evidence: MachineEvidence, benchmarks: Sequence[str] | None = None) -> dict[str, int]:
    """Mark -> number of rows that have it in these benchmarks; None means all benchmarks."""
    frames = evidence.present().items()
    return marks.counts(f for stem, f in frames if benchmarks is None or stem in benchmarks)


def watched(evidence: MachineEvidence) -> bool:
    """Whether any row records drift and other load; evidence of older versions lacks both."""
    return any(frame["reference"].notna().any() for frame in evidence.present().values())


def floors_table(evidence: MachineEvidence) -> Table | None:
    """A table of noise floors by benchmark, phase, numerics and kind of the calls.

    A noise floor is how far apart the times of two processes of the same code are. None if no
    implementation was timed in two processes.
    """
    every = {stem: noise_floors(rows) for stem, rows in evidence.present().items()}
    every = {stem: floors for stem, floors in every.items() if floors["pairs"].sum()}
    if not every:
        return None
    lines = [
        {
            "benchmark": stem,
            "phase": phase_words(phase),
            "numerics": dtype_words(dtype) or EMPTY,
            "calls": _CALLS[marks.times_steps(stem), varying],
            "cells": int(of.pairs),
            "apart": number_cell(of.apart, _percent),
            "floor": number_cell(max(of.floor, LEAST_FLOOR), _percent),
        }
        for stem, floors in every.items()
        for phase in in_order("phase", floors.index.get_level_values("phase").unique())
        for dtype in in_order("dtype", floors.loc[phase].index.get_level_values("dtype").unique())
        for varying, of in floors.loc[(phase, dtype)].iterrows()
    ]
    headers = {
        "cells": "pairs",
        "apart": f"apart in {percent(FLOOR_QUANTILE, 0)} of them",
        "floor": "noise floor",
    }
    caption = "Noise floor: how far apart two processes of the same code are"
    note = (
        "Two processes of the same code differ by up to the noise floor"
        f" ({percent(FLOOR_QUANTILE, 0)} of pairs); smaller differences are not called faster or"
        f" slower. With fewer than {LEAST_PAIRS} unmarked pairs, the floor is that of all calls of"
        " this kind, and with fewer of these the benchmark's: no lower than their own, and at"
        f" least {percent(UNKNOWN_FLOOR, 0)} if the benchmark has fewer as well."
    )
    return from_frame(caption, pd.DataFrame(lines), note, headers=headers)


# (whether the benchmark times steps, whether a call `noise.varies`) -> the calls in words.
_CALLS = {
    (True, False): "not host-bound",
    (True, True): "host-bound",
    (False, False): f"from {SHORT_MS} ms",
    (False, True): f"below {SHORT_MS} ms",
}


def _percent(fraction: float) -> str:
    """A floor as a percentage; one too small for its decimals is not shown as zero."""
    return f"under {percent(LEAST_SHOWN)}" if fraction < LEAST_SHOWN else percent(fraction)


def commits_table(evidence: MachineEvidence) -> Table:
    """A table with the number of rows of each benchmark by the commit that measured them."""
    lines = []
    for stem, frame in evidence.present().items():
        for commit, rows in frame["commit"].fillna("").value_counts(sort=False).items():
            state = "with uncommitted changes" if commit.endswith(DIRTY) else "as committed"
            name = commit.removesuffix(DIRTY)
            lines.append(
                {
                    "benchmark": stem,
                    "commit": name or "not recorded",
                    "state": state if name else EMPTY,
                    "rows": rows,
                }
            )
    caption, headers = "The code that measured: rows by commit", {"state": "state of the code"}
    return from_frame(caption, pd.DataFrame(lines), right=["rows"], headers=headers)


def rounds(evidence: MachineEvidence) -> list[int]:
    """The distinct numbers of rounds with which the rows were timed, ascending."""
    found: set[int] = set()
    for frame in evidence.present().values():
        found |= set(round_numbers(frame))
    return sorted(found)


def rows(evidence: MachineEvidence) -> int:
    """The number of rows of the evidence."""
    return sum(len(frame) for frame in evidence.present().values())


def gated(evidence: MachineEvidence) -> int:
    """The number of rows that were checked against a reference."""
    frames = evidence.present().values()
    return evidence.once(("gated",), lambda: sum(int(gates.gated(f).sum()) for f in frames))


def worst_gate(frame: pd.DataFrame) -> str | None:
    """Name of the row that exceeds its error bound most, with the reason; None if no row is red."""
    failed = frame[gates.red(frame)]
    if failed.empty:
        return None
    over = (failed["max_error"] / failed["error_bound"]).fillna(float("inf"))
    return gates.summary(failed.loc[[over.idxmax()]]).red[0]


def uncommitted(evidence: MachineEvidence) -> list[str]:
    """The benchmarks with rows measured by code that had uncommitted changes."""
    frames = evidence.present().items()
    return [s for s, frame in frames if frame["commit"].fillna("").str.endswith(DIRTY).any()]


def red_gates(
    evidence: MachineEvidence, benchmarks: Sequence[str] | None = None
) -> dict[str, list[str]]:
    """Benchmark -> names of its red (withheld) rows with reasons; None means all benchmarks."""
    frames = evidence.present().items()
    wanted = {stem: f for stem, f in frames if benchmarks is None or stem in benchmarks}
    found = {stem: _red(evidence, stem, frame) for stem, frame in wanted.items()}
    return {stem: names for stem, names in found.items() if names}


def _red(evidence: MachineEvidence, stem: str, frame: pd.DataFrame) -> list[str]:
    return evidence.once(("red", stem), lambda: gates.summary(frame).red)


def method(evidence: MachineEvidence) -> dict:
    """The values for the template of the write-up's section on the measuring method."""
    return evidence.once(("method",), lambda: _method(evidence))


def _method(evidence: MachineEvidence) -> dict:
    found, kind = rounds(evidence), newest(evidence).get("kind") or "cpu"
    frames = evidence.present()
    columns = [frame["dtype"] for frame in frames.values() if "dtype" in frame]
    return {
        **stated(kind, {dtype for column in columns for dtype in column.dropna()}),
        "kind": kind,
        "measured": list(frames),
        "rounds": rounds_words(found) if found else "",
        "intervals": interval_sentence(found) if found else "",
        "apart": MEDIAN_APART,
        "marks": marks.counted_words(marked(evidence)),
        "watched": watched(evidence),
        "gated": gated(evidence),
        "rows": rows(evidence),
        "margins": _margins(evidence),
    }


def _margins(evidence: MachineEvidence) -> dict[str, float | None]:
    """How far below the least possible time a time must be to be withheld, as a fraction.

    ``measured``: by the ceilings measured on the machine; None without ceilings. ``sheet``: by the
    data sheet of the device; None without a data sheet.
    """
    facts = newest(evidence)
    margin = plausible.GPU_MARGIN if facts.get("kind") == "cuda" else plausible.CPU_MARGIN
    measured = None if evidence.frame("ceilings") is None else margin
    known = facts.get("kind") == "cuda" and sheet_of(facts.get("device"))
    return {"measured": measured, "sheet": plausible.SHEET_MARGIN if known else None}
