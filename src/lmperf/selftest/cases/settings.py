"""Cases that change settings, threads or clocks of their process, but not their neighbour's."""

from lmperf.selftest.case import Case, Session
from lmperf.selftest.cases import pace
from lmperf.selftest.expectations import NeighbourKept, NotFaster, NothingLeft, Withheld

# The same cell as the session `pace`, which has no harmful implementation, to compare times.
SESSION = Session("settings", pace.SESSION.cpu, pace.SESSION.cuda)
_ALONE = "It runs in a worker of its own, which is stopped while others are timed."
CASES = (
    Case(
        "settings",
        "leaves_gradients_off",
        "leaves gradients disabled (torch.set_grad_enabled(False))",
        NeighbourKept(),
        _ALONE,
    ),
    Case(
        "settings",
        "leaves_another_dtype",
        "leaves float64 as the default dtype",
        NeighbourKept(),
        _ALONE,
    ),
    Case(
        "settings",
        "leaves_one_thread",
        "leaves torch with one thread",
        NeighbourKept(),
        _ALONE,
    ),
    Case(
        "settings",
        "leaves_spinning_threads",
        "leaves a busy thread on every core",
        NeighbourKept(),
        _ALONE,
    ),
    Case(
        "settings",
        "slows_the_clock",
        "makes time.perf_counter and perf_counter_ns 1000 times slower",
        NotFaster(),
        "The measuring code binds its clocks before any implementation is imported.",
    ),
    Case(
        "settings",
        "slows_the_bound_clocks",
        "makes every clock that the measuring code has bound 30 times slower",
        Withheld(("clock",)),
        "The supervisor times each slice as well, in another process.",
    ),
    Case(
        "settings",
        "slows_one_clock",
        "makes the clock of the timed calls run at 0.8 of its speed",
        Withheld(("clock",)),
        "The same clock times the whole slice, which must end when the supervisor hears of it.",
    ),
    Case(
        "imports",
        "leaves_a_process",
        "starts a process in a session of its own when it is imported",
        NothingLeft(),
        "Workers, and what imports a module to check it, adopt such processes and end them.",
    ),
    Case(
        "settings",
        "slows_the_events",
        "divides the time between device events, as bound by the measuring code, by 1000",
        Withheld(("clock",)),
        "The device's clock is compared with the host's.",
        needs="cuda",
    ),
)
