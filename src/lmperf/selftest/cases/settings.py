"""Cases that change settings, threads or clocks of their process, but not their neighbour's."""

from lmperf.selftest.case import Case, Session
from lmperf.selftest.cases import pace
from lmperf.selftest.expectations import NeighbourKept, NotFaster, NothingLeft

# The same cell as the session `pace`, which has no harmful implementation, to compare times.
SESSION = Session("settings", pace.SESSION.cpu, pace.SESSION.cuda)
_PUT_BACK = "After each call of an implementation, torch's settings are put back."
CASES = (
    Case(
        "settings",
        "leaves_gradients_off",
        "leaves gradients disabled (torch.set_grad_enabled(False))",
        NeighbourKept(),
        _PUT_BACK,
    ),
    Case(
        "settings",
        "leaves_another_dtype",
        "leaves float64 as the default dtype",
        NeighbourKept(),
        _PUT_BACK,
    ),
    Case(
        "settings",
        "leaves_one_thread",
        "leaves torch with one thread",
        NeighbourKept(),
        _PUT_BACK,
    ),
    Case(
        "settings",
        "leaves_spinning_threads",
        "leaves a busy thread on every core",
        NeighbourKept(),
        "A process that is busy after its calls is replaced.",
    ),
    Case(
        "settings",
        "slows_the_clock",
        "makes time.perf_counter and perf_counter_ns 1000 times slower",
        NotFaster(),
        "The measuring code binds its clocks before any implementation is imported.",
    ),
    Case(
        "imports",
        "leaves_a_process",
        "starts a process in a session of its own when it is imported",
        NothingLeft(),
        "Workers, and what imports a module to check it, adopt such processes and end them.",
    ),
)
