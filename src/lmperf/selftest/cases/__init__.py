"""The cases of the selftest by session, in the order in which they run and are shown."""

from lmperf.selftest.case import Case, Session
from lmperf.selftest.cases import answers, ends, long, pace, results, settings

# The first session has no harmful implementations: its times are the undisturbed ones.
SESSIONS: dict[Session, tuple[Case, ...]] = {
    module.SESSION: module.CASES for module in (pace, settings, answers, results, long, ends)
}
CASES: tuple[Case, ...] = tuple(case for cases in SESSIONS.values() for case in cases)
