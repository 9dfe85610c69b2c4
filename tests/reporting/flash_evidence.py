"""Change FlashAttention-2 evidence, and look up tables and lines of its report section."""

from synthetic import with_frames

from lmperf.reporting.evidence import having
from lmperf.reporting.sections import compose
from lmperf.reporting.sections.flash_attention.kinds import STEM

SINGLE = {"heads": 1, "cuda_graph": False}


def with_changed_rows(evidence, change, stem=STEM, **where):
    """The evidence with the rows selected by ``where`` replaced by ``change(rows)``.

    where: column -> value, or a list of values, of the selected rows.
    """
    frame = evidence.frames[stem].copy()
    rows = having(frame, **where)
    assert len(rows)
    new = change(rows.copy())
    frame.loc[rows.index, new.columns] = new
    return with_frames(evidence, **{stem: frame})


def times_scaled(factor):
    """A function that multiplies all device times of rows by ``factor``."""

    def change(rows):
        times = rows["rounds_ms"].str.split(";")
        rounds = [";".join(repr(float(t) * factor) for t in row) for row in times]
        return rows.assign(rounds_ms=rounds, again_ms=None, median_ms=rows["median_ms"] * factor)

    return change


def times_set(ms):
    """A function that sets the time of every round of rows to ``ms`` milliseconds."""

    def change(rows):
        rounds = [";".join([str(ms)] * (text.count(";") + 1)) for text in rows["rounds_ms"]]
        return rows.assign(rounds_ms=rounds, again_ms=None, median_ms=ms)

    return change


def host_times_set(ms):
    """A function that sets the host time per call of rows to ``ms`` milliseconds."""
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
