"""Evidence of FlashAttention-2 with rows changed on purpose, and what is shown of it."""

from synthetic import with_frames

from lmperf.reporting.evidence import having
from lmperf.reporting.sections import compose
from lmperf.reporting.sections.flash_attention.kinds import STEM

SINGLE = {"heads": 1, "cuda_graph": False}


def edited(evidence, change, stem=STEM, **where):
    """The evidence with ``change(rows)`` in place of the rows that have these values."""
    frame = evidence.frames[stem].copy()
    rows = having(frame, **where)
    assert len(rows)
    new = change(rows.copy())
    frame.loc[rows.index, new.columns] = new
    return with_frames(evidence, **{stem: frame})


def slower(factor):
    """A change that makes rows take ``factor`` times as long."""

    def change(rows):
        times = rows["rounds_ms"].str.split(";")
        rounds = [";".join(repr(float(t) * factor) for t in row) for row in times]
        return rows.assign(rounds_ms=rounds, median_ms=rows["median_ms"] * factor)

    return change


def constant(ms):
    """A change that makes every round of the rows take so many milliseconds."""

    def change(rows):
        rounds = [";".join([str(ms)] * (text.count(";") + 1)) for text in rows["rounds_ms"]]
        return rows.assign(rounds_ms=rounds, median_ms=ms)

    return change


def hosts(ms):
    """A change that makes the host take so many milliseconds a call."""
    return lambda rows: rows.assign(host_ms=ms)


def failed(rows):
    return rows.assign(status="failed_check", max_error=9.0)


def red(evidence):
    return edited(evidence, failed, implementation="triton", seq_len=128, d_head=64, **SINGLE)


def parts_of(evidence, table):
    return compose(STEM, evidence, drawn=False).parts[table]


def line_of(frame, **where):
    found = having(frame, **where)
    assert len(found) == 1
    return found.iloc[0]
