"""Changes of FlashAttention-2 evidence, and access to what the section shows."""

from synthetic import with_frames

from lmperf.reporting.evidence import having
from lmperf.reporting.sections import compose
from lmperf.reporting.sections.flash_attention.kinds import STEM

SINGLE = {"heads": 1, "cuda_graph": False}


def with_changed_rows(evidence, change, stem=STEM, **where):
    """The evidence with ``change(rows)`` in place of the rows selected by ``where``."""
    frame = evidence.frames[stem].copy()
    rows = having(frame, **where)
    assert len(rows)
    new = change(rows.copy())
    frame.loc[rows.index, new.columns] = new
    return with_frames(evidence, **{stem: frame})


def times_scaled(factor):
    """A change that multiplies all times by ``factor``."""

    def change(rows):
        times = rows["rounds_ms"].str.split(";")
        rounds = [";".join(repr(float(t) * factor) for t in row) for row in times]
        return rows.assign(rounds_ms=rounds, median_ms=rows["median_ms"] * factor)

    return change


def times_set(ms):
    """A change that sets every round to ``ms`` milliseconds."""

    def change(rows):
        rounds = [";".join([str(ms)] * (text.count(";") + 1)) for text in rows["rounds_ms"]]
        return rows.assign(rounds_ms=rounds, median_ms=ms)

    return change


def host_times_set(ms):
    """A change that sets the host time per call to ``ms`` milliseconds."""
    return lambda rows: rows.assign(host_ms=ms)


def gate_failed(rows):
    return rows.assign(status="failed_check", max_error=9.0)


def with_failed_gate(evidence):
    return with_changed_rows(
        evidence, gate_failed, implementation="triton", seq_len=128, d_head=64, **SINGLE
    )


def parts_of(evidence, table):
    return compose(STEM, evidence, drawn=False).parts[table]


def line_of(frame, **where):
    found = having(frame, **where)
    assert len(found) == 1
    return found.iloc[0]
