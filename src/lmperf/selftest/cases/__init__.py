"""All cases of the self-test by session, in the order in which they run and are reported."""

from lmperf.selftest.case import Case, Session
from lmperf.selftest.cases import answers, busy, ends, long, overlap, pace, ranks, results, settings

# The first session has no harmful implementation, so its times serve as the undisturbed times.
SESSIONS: dict[Session, tuple[Case, ...]] = {
    module.SESSION: module.CASES
    for module in (pace, settings, answers, results, long, ends, busy, ranks, overlap)
}
CASES: tuple[Case, ...] = tuple(case for cases in SESSIONS.values() for case in cases)
