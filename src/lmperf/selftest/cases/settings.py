"""What is left behind in a process, and clocks that are replaced: no peer must notice."""

from lmperf.selftest.case import Case, Session
from lmperf.selftest.cases import pace
from lmperf.selftest.expectations import NotFaster, PeerKept, Withheld

# At the cell of the session that has nothing in it that harms.
SESSION = Session("settings", pace.SESSION.cpu, pace.SESSION.cuda)
_ALONE = "It runs in a worker of its own, which is stopped while another one is in turn."
CASES = (
    Case(
        "settings",
        "leaves_gradients_off",
        "leaves torch.set_grad_enabled(False) behind",
        PeerKept(),
        _ALONE,
    ),
    Case(
        "settings",
        "leaves_another_dtype",
        "leaves float64 as the default dtype behind",
        PeerKept(),
        _ALONE,
    ),
    Case(
        "settings",
        "leaves_one_thread",
        "leaves torch with one thread behind",
        PeerKept(),
        _ALONE,
    ),
    Case(
        "settings",
        "leaves_spinning_threads",
        "leaves a busy thread for each processor behind",
        PeerKept(),
        _ALONE,
    ),
    Case(
        "settings",
        "slows_the_clock",
        "divides what time.perf_counter and perf_counter_ns say by 1000",
        NotFaster(),
        "The clock's functions are bound before any implementation is imported.",
    ),
    Case(
        "settings",
        "slows_the_harness",
        "divides what every clock says that the harness has bound by 30",
        Withheld(("clock",)),
        "Each slice is timed a second time by the conductor, in another process.",
    ),
    Case(
        "settings",
        "slows_the_events",
        "divides the time between two events of the device, as the harness has bound it, by 1000",
        Withheld(("clock",)),
        "What the device's clock says is held against the host's.",
        needs="cuda",
    ),
)
