"""The machine and how it was measured: facts by environment, counts, rounds and noise floors."""

from __future__ import annotations

import pandas as pd

from lmperf.reporting import gates, speedup
from lmperf.reporting.evidence import MachineEvidence, in_order
from lmperf.reporting.numbers import (
    EMPTY,
    absent,
    dtype_words,
    listed,
    percent,
    phase_words,
)
from lmperf.reporting.tables import MEDIAN_APART, STATUS_WORDS, markdown

COMMIT_LENGTH = 12
DIRTY = "-dirty"
FACTS = {
    "kind": "kind",
    "device": "device",
    "multiprocessors": "multiprocessors",
    "device_memory_gib": "device memory (GiB)",
    "clock_sm_mhz": "processor clock, device (MHz)",
    "clock_memory_mhz": "memory clock, device (MHz)",
    "power_limit_w": "power limit (W)",
    "cpu_model": "CPU",
    "cores": "cores",
    "threads": "threads used",
    "memory_gib": "memory (GiB)",
    "os": "operating system",
    "driver": "driver",
    "cuda": "CUDA",
    "torch": "torch",
    "triton": "triton",
    "python": "Python",
    "matmul_precision": "float32 matmul precision",
    "tf32_matmul": "TF32 in matmuls by default",
    "tf32_cudnn": "TF32 in cuDNN by default",
    "commit": "commit of the newest run",
    "measured_at": "newest run at",
}


def environments(evidence: MachineEvidence) -> dict[str, dict]:
    """The environments in which rows of the evidence were measured, oldest first."""
    known = evidence.facts.get("environments") or {}
    used = {
        name
        for stem in evidence.frames
        if (frame := evidence.frame(stem)) is not None
        for name in frame["environment"].dropna().unique()
    }
    kept = {name: facts for name, facts in known.items() if name in used} or known
    return dict(sorted(kept.items(), key=lambda item: (str(item[1].get("measured_at")), item[0])))


def facts_table(evidence: MachineEvidence) -> str:
    """One line a fact, one column an environment; empty without facts."""
    found = environments(evidence)
    if not found:
        return ""
    rest = sorted({key for facts in found.values() for key in facts} - {*FACTS, "dirty"})
    labels = {**FACTS, **{key: key.replace("_", " ") for key in rest}}
    lines = [
        [label, *(_fact(facts, key) for facts in found.values())]
        for key, label in labels.items()
        if any(key in facts for facts in found.values())
    ]
    headers = ["fact", *(f"environment {name}" for name in found)]
    table = pd.DataFrame(lines, columns=headers)
    return markdown(table, "The machine and its software", left=headers)


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
    """The device that measured, as its newest environment names it; else the slug."""
    found = list(environments(evidence).values())
    facts = found[-1] if found else {}
    return facts.get("device") or facts.get("cpu_model") or evidence.machine


def counts_table(evidence: MachineEvidence) -> str:
    """Rows of each benchmark by status, with its gates."""
    frames = _frames(evidence)
    if not frames:
        return ""
    seen = {status for frame in frames.values() for status in frame["status"].dropna()}
    statuses = [status for status in STATUS_WORDS if status in seen]
    lines = []
    for stem, frame in frames.items():
        counts = frame["status"].value_counts()
        gate = gates.summary(frame)
        by_status = [int(counts.get(status, 0)) for status in ("ok", *statuses)]
        lines.append([stem, len(frame), *by_status, gate.gated, len(gate.red)])
    headers = ["benchmark", "rows", "ok", *(STATUS_WORDS[status] for status in statuses)]
    table = pd.DataFrame(lines, columns=[*headers, "rows gated", "gates failed"])
    return markdown(table, "Rows of evidence, by status", left=["benchmark"])


def floors_table(evidence: MachineEvidence) -> str:
    """The A/A noise floor of each benchmark and phase; empty where there are no pairs."""
    lines = []
    for stem, frame in _frames(evidence).items():
        floors = speedup.noise_floor(frame)
        for phase in in_order("phase", floors.index):
            floor = percent(floors.loc[phase, "floor"], 2)
            paired = frame[frame["again_ms"].notna() & (frame["phase"] == phase)]
            numerics = listed(dtype_words(d) for d in in_order("dtype", paired["dtype"]))
            cells = int(floors.loc[phase, "pairs"])
            lines.append([stem, phase_words(phase), floor, cells, numerics])
    if not lines:
        return ""
    headers = ["benchmark", "phase", "noise floor", "cells", "numerics of these cells"]
    table = pd.DataFrame(lines, columns=headers)
    caption = "Noise floor: how far an implementation differs from itself"
    return markdown(table, caption, left=["benchmark", "phase", "numerics of these cells"])


def commits_table(evidence: MachineEvidence) -> str:
    """Rows of each benchmark by the commit of the code that measured them."""
    lines = []
    for stem, frame in _frames(evidence).items():
        commits = frame.get("commit", pd.Series("", frame.index)).fillna("")
        for commit, rows in commits.value_counts(sort=False).items():
            state = "with uncommitted changes" if commit.endswith(DIRTY) else "as committed"
            name = commit.removesuffix(DIRTY) or "not recorded"
            lines.append([stem, name, state if commit else EMPTY, rows])
    if not lines:
        return ""
    table = pd.DataFrame(lines, columns=["benchmark", "commit", "state of the code", "rows"])
    caption = "The code that measured: rows by commit"
    return markdown(table, caption, left=["benchmark", "commit", "state of the code"])


def failed_gates(evidence: MachineEvidence) -> list[str]:
    """The name of every row with a failed gate, with its benchmark."""
    return [
        f"{stem}: {name}"
        for stem, frame in _frames(evidence).items()
        for name in gates.summary(frame).red
    ]


def rounds(evidence: MachineEvidence) -> list[int]:
    """The numbers of rounds that occur in the evidence, ascending."""
    found: set[int] = set()
    for frame in _frames(evidence).values():
        text = frame["rounds_ms"].dropna().astype(str)
        found |= {int(n) for n in (text.str.count(";") + 1).unique()}
    return sorted(found)


def method(evidence: MachineEvidence) -> dict:
    """What the section on the method is given."""
    frames = _frames(evidence)
    numbers_of_rounds = rounds(evidence)
    return {
        "rows": sum(len(frame) for frame in frames.values()),
        "benchmarks": len(frames),
        "phases": [
            phase_words(phase)
            for phase in in_order("phase", pd.concat([f["phase"] for f in frames.values()]))
        ]
        if frames
        else [],
        "rounds": numbers_of_rounds,
        "intervals": [speedup.interval_sentence(n) for n in numbers_of_rounds],
        "confidence": speedup.CONFIDENCE,
        "apart": MEDIAN_APART,
        "quantile": speedup.FLOOR_QUANTILE,
        "gated": sum(gates.summary(frame).gated for frame in frames.values()),
        "tests": sum(len(frame) for stem, frame in frames.items() if stem.endswith("_check")),
        "commits": commits_table(evidence),
        "failed": failed_gates(evidence),
        "counts": counts_table(evidence),
        "floors": floors_table(evidence),
    }


def _frames(evidence: MachineEvidence) -> dict[str, pd.DataFrame]:
    found = {stem: evidence.frame(stem) for stem in in_order("stem", list(evidence.frames))}
    return {stem: frame for stem, frame in found.items() if frame is not None}
