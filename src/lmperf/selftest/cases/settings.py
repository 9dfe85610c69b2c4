"""Cases that change settings, threads or clocks of their process: the peer must not be affected."""

from lmperf.selftest.case import Case, Session
from lmperf.selftest.cases import pace
from lmperf.selftest.expectations import NotFaster, PeerKept, Withheld

# The same cell as the session `pace`, which has no harmful implementation, to compare times.
SESSION = Session("settings", pace.SESSION.cpu, pace.SESSION.cuda)
_ALONE = "It runs in a worker of its own, which is stopped while others are timed."
CASES = (
    Case(
        "settings",
        "leaves_gradients_off",
        "leaves gradients disabled (torch.set_grad_enabled(False))",
        PeerKept(),
        _ALONE,
    ),
    Case(
        "settings",
        "leaves_another_dtype",
        "leaves float64 as the default dtype",
        PeerKept(),
        _ALONE,
    ),
    Case(
        "settings",
        "leaves_one_thread",
        "leaves torch with one thread",
        PeerKept(),
        _ALONE,
    ),
    Case(
        "settings",
        "leaves_spinning_threads",
        "leaves a busy thread on every core",
        PeerKept(),
        _ALONE,
    ),
    Case(
        "settings",
        "slows_the_clock",
        "makes time.perf_counter and perf_counter_ns 1000 times slower",
        NotFaster(),
        "The harness binds its clocks before any implementation is imported.",
    ),
    Case(
        "settings",
        "slows_the_harness",
        "makes every clock that the harness has bound 30 times slower",
        Withheld(("clock",)),
        "The supervisor times each slice as well, in another process.",
    ),
    Case(
        "settings",
        "slows_the_events",
        "divides the time between device events, as bound by the harness, by 1000",
        Withheld(("clock",)),
        "The device's clock is compared with the host's.",
        needs="cuda",
    ),
)
