"""Make the evidence that `same_tables.py` renders: committed, synthetic, and with faults."""

from __future__ import annotations

import csv
import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import synthetic
from synthetic.failures import REASONS, SCOPES, Fault, as_read, faulty

from lmperf.benchmarks import stems
from lmperf.evidence import cost
from lmperf.names import MARKS
from lmperf.reporting.evidence import MachineEvidence, typed_rows

ROOT = Path(__file__).parents[2]
HOSTILE = (
    "<script>alert(1)</script>",
    "a | b || c `x` $(y) {{7*7}} \\frac_1^2 & % # ~",
    "[x](javascript:alert(1)) **bold**",
    "\u202eevil\u200b ± – µ ↑ \U0001d48f",
)
FAULTY = 6


def evidences() -> dict[str, MachineEvidence]:
    """Name -> evidence. Of several entries for one machine, the committed or full one is first."""
    gpu, cpu = synthetic.gpu_evidence(), synthetic.cpu_evidence()
    few = synthetic.small(gpu)
    committed = {path.parent.name: of_machine(path.parent) for path in _machines()}
    return {
        **committed,
        "synthetic gpu": gpu,
        "synthetic cpu": cpu,
        "custom": custom(few),
        "custom cpu": custom(cpu),
        "marked": marked(few),
        "hostile": hostile(few),
        "holes": holes(few),
        **{f"faulty {seed}": drawn(few if seed % 3 else cpu, seed) for seed in range(FAULTY)},
        "everything": hostile(marked(custom(drawn(few, 99)))),
    }


def _machines() -> list[Path]:
    return sorted((ROOT / "report").glob("*/machine.json"))


def of_machine(directory: Path) -> MachineEvidence:
    """The evidence in the directory `report/<machine>`; no row is checked for being stale."""
    rows = {path.stem: _rows(path) for path in sorted((directory / "evidence").glob("*.csv"))}
    spent = rows.pop(cost.STEM, None)
    return MachineEvidence(
        directory.name,
        json.loads((directory / "machine.json").read_text()),
        {stem: as_read(frame, stem) for stem, frame in rows.items() if stem in stems()},
        cost=None if spent is None else typed_rows(spent.to_dict("records"), {}, cost.STEM),
    )


def _rows(path: Path) -> pd.DataFrame:
    with path.open(newline="") as file:
        return pd.DataFrame(list(csv.DictReader(file)), dtype=object)


def custom(evidence: MachineEvidence) -> MachineEvidence:
    """The evidence with a custom implementation `mine` in each benchmark.

    It takes 1.5 times as long as the first implementation that has a time.
    """
    frames = {}
    for stem, frame in evidence.frames.items():
        if "median_ms" not in frame or not frame["median_ms"].notna().any():
            frames[stem] = frame
            continue
        first = frame.loc[frame["median_ms"].notna(), "implementation"].iloc[0]
        mine = frame[frame["implementation"] == first].assign(implementation="mine")
        mine["rounds_ms"] = mine["rounds_ms"].map(_slower)
        for name in ("median_ms", "mean_ms", "least_ms", "sustained_ms"):
            if name in mine:
                mine[name] = 1.5 * mine[name]
        frames[stem] = pd.concat([frame, mine], ignore_index=True)
    return replace(evidence, frames=frames)


def _slower(rounds):
    if not isinstance(rounds, str):
        return rounds
    return ";".join(str(1.5 * float(time)) for time in rounds.split(";"))


def marked(evidence: MachineEvidence) -> MachineEvidence:
    """The evidence with each mark (such as "capped") on some rows, and with some stale rows."""
    draw, names = random.Random(5), [None, *MARKS, ";".join(MARKS)]
    frames = {}
    for stem, frame in evidence.frames.items():
        chosen = [draw.choice(names) if draw.random() < 0.4 else None for _ in frame.index]
        stale = [draw.random() < 0.2 for _ in frame.index]
        frames[stem] = frame.assign(
            marks=pd.Series(chosen, frame.index, dtype=object), reference=1.0, stale=stale
        )
    return replace(evidence, frames=frames)


def hostile(evidence: MachineEvidence) -> MachineEvidence:
    """The evidence with HTML, Markdown and LaTeX markup in failure reasons and names."""
    frames = {}
    for place, (stem, frame) in enumerate(evidence.frames.items()):
        text = HOSTILE[place % len(HOSTILE)]
        failed = frame["status"].ne("ok")
        reasons = frame.get("reason", pd.Series(None, frame.index)).astype(object)
        reasons = reasons.mask(failed, text)
        known = frame["implementation"].unique()
        # `ladder_loss` has a fixed list of implementations and accepts no custom one.
        names = {known[-1]: text} if len(known) > 2 and stem != "ladder_loss" else {}
        frames[stem] = frame.assign(
            reason=reasons, implementation=frame["implementation"].replace(names)
        )
    return replace(evidence, frames=frames)


def holes(evidence: MachineEvidence) -> MachineEvidence:
    """The evidence with a random fifth of the measured numbers replaced by NaN."""
    draw = np.random.default_rng(11)
    kept = ("d_head", "seq_len", "batch", "context_length", "extra_tokens", "step", "heads")
    frames = {}
    for stem, frame in evidence.frames.items():
        frame = frame.copy()
        after = list(frame.columns).index("status")
        for name in frame.columns[after + 1 :]:
            if name not in kept and pd.api.types.is_float_dtype(frame[name]):
                frame[name] = frame[name].mask(draw.random(len(frame)) < 0.2)
        frames[stem] = frame
    return replace(evidence, frames=frames)


def drawn(evidence: MachineEvidence, seed: int) -> MachineEvidence:
    """The evidence with random failed rows in about half of the benchmarks.

    seed: of the random choices.
    """
    draw = random.Random(seed)
    return faulty(
        evidence,
        [
            Fault(stem, draw.choice(SCOPES), tuple(draw.sample(sorted(REASONS), 3)), seed)
            for stem in sorted(evidence.frames)
            if draw.random() < 0.5
        ],
    )
