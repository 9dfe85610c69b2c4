"""Change evidence of whole model steps, and look up what its report section shows."""

import pandas as pd
from synthetic import small_gpu_evidence, with_frames

from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.figures import LIGHT, themed
from lmperf.reporting.findings import state
from lmperf.reporting.sections.end_to_end import SECTION, ways


def with_rows(evidence: MachineEvidence, frame: pd.DataFrame, stem: str = ways.STEM):
    return with_frames(evidence, **{stem: frame.reset_index(drop=True)})


def with_values(evidence: MachineEvidence, values: dict, stem: str = ways.STEM, **where):
    """The evidence with columns set to ``values`` in the rows selected by ``where``."""
    frame = evidence.frames[stem].copy()
    rows = having(frame, **where).index
    assert len(rows), where
    for column, value in values.items():
        frame.loc[rows, column] = value
    return with_rows(evidence, frame, stem)


def with_times_scaled(evidence: MachineEvidence, factor: float, **where) -> MachineEvidence:
    """The evidence with the times of the rows selected by ``where`` multiplied by ``factor``.

    If times get shorter, FLOPs shrink as well, so that no row exceeds the matmul ceiling.
    """
    frame = evidence.frames[ways.STEM].copy()
    rows = having(frame, status="ok", **where).index
    assert len(rows), where
    frame.loc[rows, "flops"] *= min(factor, 1.0)
    frame.loc[rows, ["median_ms", "mean_ms", "least_ms", "sustained_ms"]] *= factor
    for column in ("rounds_ms", "again_ms", "sustained_rounds_ms"):
        frame.loc[rows, column] = [
            ";".join(repr(float(ms) * factor) for ms in text.split(";"))
            if isinstance(text, str)
            else text
            for text in frame.loc[rows, column]
        ]
    return with_rows(evidence, frame)


def with_times(evidence: MachineEvidence, ms: float, **where) -> MachineEvidence:
    """The evidence with rounds and median of selected rows set to ``ms``, and the mean to 2 ``ms``.

    Rows with a sustained time get the same one.
    The FLOPs of these rows become unknown, so that no row exceeds the matmul ceiling.
    """
    frame = evidence.frames[ways.STEM].copy()
    rows = having(frame, status="ok", **where).index
    rounds = [";".join([str(ms)] * (t.count(";") + 1)) for t in frame.loc[rows, "rounds_ms"]]
    values = {"rounds_ms": rounds, "again_ms": None, "median_ms": ms, "mean_ms": 2 * ms}
    values["flops"] = None
    for column, value in values.items():
        frame.loc[rows, column] = value
    lasting = [row for row in rows if frame.loc[row, "sustained_ms"] > 0]
    frame.loc[lasting, ["sustained_ms", "sustained_rounds_ms"]] = [ms, ";".join([str(ms)] * 5)]
    return with_rows(evidence, frame)


def with_equal_times(evidence: MachineEvidence, one: dict, other: dict, **where) -> MachineEvidence:
    """The evidence with the timed rounds of rows ``other`` copied to rows ``one``.

    one, other: column -> value of the rows; neither is then faster.
    """
    frame = evidence.frames[ways.STEM].copy()
    mine, theirs = (having(frame, **each, **where) for each in (one, other))
    assert len(mine) == len(theirs) > 0
    for column in ("rounds_ms", "sustained_rounds_ms"):
        frame.loc[mine.index, column] = theirs[column].to_numpy()
    return with_rows(evidence, frame)


def without_rows(evidence: MachineEvidence, **where) -> MachineEvidence:
    frame = evidence.frames[ways.STEM]
    return with_rows(evidence, frame.drop(having(frame, **where).index))


def with_sdpa(factor: float = 0.5, peak: float = 0.6) -> MachineEvidence:
    """Small GPU evidence with SDPA inside the model, at context 1024 in bf16 autocast."""
    evidence = with_times_scaled(small_gpu_evidence(), 1.0, implementation=ways.EAGER)
    frame = evidence.frames[ways.STEM]
    rows = having(frame, implementation=ways.EAGER, dtype=ways.BF16, context_length=1024)
    rows = rows.assign(implementation="sdpa", peak_mib=peak * rows["peak_mib"], again_ms=None)
    evidence = with_rows(evidence, pd.concat([frame, rows], ignore_index=True))
    return with_times_scaled(evidence, factor, implementation="sdpa")


def with_triton_like_sdpa(evidence: MachineEvidence) -> MachineEvidence:
    """The evidence with a copy of each SDPA row for Triton attention."""
    frame = evidence.frames[ways.STEM]
    rows = having(frame, implementation="sdpa").assign(implementation="triton")
    return with_rows(evidence, pd.concat([frame, rows], ignore_index=True))


def line_of(table, **where) -> pd.Series:
    found = having(table.frame, **where)
    assert len(found) == 1, (where, table.frame)
    return found.iloc[0]


def sentence_of(name: str, evidence: MachineEvidence) -> str:
    finding = next(finding for finding in SECTION.findings if finding.name == name)
    return str(state(finding, evidence))


def light_figure(evidence: MachineEvidence):
    return themed(lambda pen: SECTION.figure(evidence, pen), LIGHT)
