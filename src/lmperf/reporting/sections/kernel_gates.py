"""What the gates of a kernel say, for the claims of its section."""

from __future__ import annotations

from lmperf.reporting import gates
from lmperf.reporting.claims import NotMeasured, frame_of
from lmperf.reporting.evidence import MachineEvidence, row_names
from lmperf.reporting.numbers import dtype_words


def worst_gate(evidence: MachineEvidence, stem: str) -> dict:
    """The gated row that is closest to its bound, or furthest over it; raises NotMeasured."""
    frame = frame_of(evidence, stem)
    frame = frame[gates.gated(frame)]
    if frame.empty:
        raise NotMeasured("no row was gated")
    # A row that failed without an error (its result was not finite) is over any bound.
    share = (frame["max_error"] / frame["error_bound"]).fillna(float("inf"))
    worst = frame.loc[[share.idxmax()]]
    return {
        "share": share.max(),
        "error": worst["max_error"].iloc[0],
        "bound": worst["error_bound"].iloc[0],
        "name": row_names(worst)[0],
        "rows": len(frame),
        "red": int(gates.red(frame).sum()),
    }


def kernel_tests(evidence: MachineEvidence, stem: str) -> dict:
    """How many cases of a kernel's tests pass, and the first that does not; raises NotMeasured."""
    frame = frame_of(evidence, stem)
    passed = gates.shown(frame)
    failed = row_names(frame[~passed])
    return {
        "cases": len(frame),
        "passed": int(passed.sum()),
        "failed": failed[0] if failed else None,
        "dtypes": [dtype_words(dtype) for dtype in frame["dtype"].unique()],
    }
