"""Evidence of steps with rows changed on purpose, for the tests of what is said of them."""

import pandas as pd
from synthetic import gpu_evidence, with_frames

from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.figures import LIGHT, themed
from lmperf.reporting.findings import state
from lmperf.reporting.sections.end_to_end import SECTION, ways


def with_frame(evidence: MachineEvidence, frame: pd.DataFrame, stem: str = ways.STEM):
    return with_frames(evidence, **{stem: frame.reset_index(drop=True)})


def edited(evidence: MachineEvidence, values: dict, stem: str = ways.STEM, **where):
    """The evidence with columns of some rows set."""
    frame = evidence.frames[stem].copy()
    rows = having(frame, **where).index
    assert len(rows), where
    for column, value in values.items():
        frame.loc[rows, column] = value
    return with_frame(evidence, frame, stem)


def scaled(evidence: MachineEvidence, factor: float, **where) -> MachineEvidence:
    """The evidence with the times of some rows multiplied; their work too, where they get shorter,
    so that no row is faster than possible."""
    frame = evidence.frames[ways.STEM].copy()
    rows = having(frame, status="ok", **where).index
    assert len(rows), where
    frame.loc[rows, "flops"] *= min(factor, 1.0)
    frame.loc[rows, ["median_ms", "mean_ms"]] *= factor
    for column in ("rounds_ms", "again_ms"):
        frame.loc[rows, column] = [
            ";".join(repr(float(ms) * factor) for ms in text.split(";"))
            if isinstance(text, str)
            else text
            for text in frame.loc[rows, column]
        ]
    return with_frame(evidence, frame)


def timed(evidence: MachineEvidence, ms: float, **where) -> MachineEvidence:
    """The evidence in which rounds and median of some rows are so long, and their mean twice; their
    work is not known, so that none is faster than possible."""
    frame = evidence.frames[ways.STEM].copy()
    rows = having(frame, status="ok", **where).index
    rounds = [";".join([str(ms)] * (t.count(";") + 1)) for t in frame.loc[rows, "rounds_ms"]]
    values = {"rounds_ms": rounds, "again_ms": None, "median_ms": ms, "mean_ms": 2 * ms}
    values["flops"] = None
    for column, value in values.items():
        frame.loc[rows, column] = value
    return with_frame(evidence, frame)


def level(evidence: MachineEvidence, one: dict, other: dict, **where) -> MachineEvidence:
    """The evidence with the rounds of some rows those of others: neither is the faster."""
    frame = evidence.frames[ways.STEM].copy()
    mine, theirs = (having(frame, **each, **where) for each in (one, other))
    assert len(mine) == len(theirs) > 0
    frame.loc[mine.index, "rounds_ms"] = theirs["rounds_ms"].to_numpy()
    return with_frame(evidence, frame)


def without(evidence: MachineEvidence, **where) -> MachineEvidence:
    frame = evidence.frames[ways.STEM]
    return with_frame(evidence, frame.drop(having(frame, **where).index))


def with_attention(factor: float = 0.5, peak: float = 0.6) -> MachineEvidence:
    """Evidence in which SDPA was timed inside the model, at one context, in bf16."""
    evidence = scaled(gpu_evidence(), 1.0, implementation=ways.EAGER)
    frame = evidence.frames[ways.STEM]
    rows = having(frame, implementation=ways.EAGER, dtype=ways.BF16, context_length=1024)
    rows = rows.assign(implementation="sdpa", peak_mib=peak * rows["peak_mib"], again_ms=None)
    evidence = with_frame(evidence, pd.concat([frame, rows], ignore_index=True))
    return scaled(evidence, factor, implementation="sdpa")


def also_triton(evidence: MachineEvidence) -> MachineEvidence:
    """The evidence with every row of SDPA once more, as one of the project's kernel."""
    frame = evidence.frames[ways.STEM]
    rows = having(frame, implementation="sdpa").assign(implementation="triton")
    return with_frame(evidence, pd.concat([frame, rows], ignore_index=True))


def cells(table, **where) -> pd.Series:
    found = having(table.frame, **where)
    assert len(found) == 1, (where, table.frame)
    return found.iloc[0]


def said(name: str, evidence: MachineEvidence) -> str:
    finding = next(finding for finding in SECTION.findings if finding.name == name)
    return str(state(finding, evidence))


def drawn(evidence: MachineEvidence):
    return themed(lambda pen: SECTION.figure(evidence, pen), LIGHT)
