"""Set up all tests: Triton's interpreter without a GPU, a fixed seed, a lock file per process."""

import gc
import os
import signal
from functools import cache

import pytest

# With several test processes, OpenMP threads that spin while they wait would take the cores.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
# Without bytecode files each process that a test starts would compile every module again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# A shell ignores SIGINT in background jobs, and their child processes inherit this setting:
# restore Python's handler.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@cache
def has_gpu():
    """Whether there is a CUDA device."""
    import torch

    return torch.cuda.is_available()


@pytest.hookimpl(optionalhook=True)  # runs without pytest-xdist, too
def pytest_xdist_auto_num_workers(config):
    """Return one test process per core, one more if some tests wait for processes they start.

    The fast part (`make test-fast`) selects by marks and has no such tests.
    """
    if not hasattr(os, "sched_getaffinity"):
        return None
    return len(os.sched_getaffinity(0)) + (not config.option.markexpr)


@pytest.fixture(scope="session", autouse=True)
def lock(tmp_path_factory):
    """Set a measurement lock file per test process, so that no test waits for another process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LMPERF_LOCK", str(tmp_path_factory.mktemp("lock") / "lmperf.lock"))
        yield


def pytest_collection_modifyitems(items):
    """Run tests that start Snakemake first, and skip those marked `gpu` without a CUDA device.

    They take longest: at the end of a run the other test processes would wait for one of them.
    """
    items.sort(key=lambda item: item.get_closest_marker("snakemake") is None)
    if has_gpu():
        return
    skip = pytest.mark.skip(reason="no CUDA device on this machine")
    for item in items:
        # Not `item.keywords`: they contain parameter ids, and "gpu" is one.
        if item.get_closest_marker("gpu"):
            item.add_marker(skip)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session):
    """Collect tests with Triton's interpreter, if there is no GPU, and without garbage collection.

    What is imported stays exempt from it, which took a sixth of the suite's time. Later it is rare:
    of the time of a page it took a twentieth. Not on a GPU, whose memory cycles may hold.
    """
    # With pytest-xdist the process that hands out the tests imports neither them nor torch.
    runs_tests = getattr(session.config.option, "dist", "no") == "no"
    if runs_tests and not has_gpu():
        os.environ["TRITON_INTERPRET"] = "1"
        gc.set_threshold(50_000)
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True)
def seed():
    """Seed PyTorch, so that random inputs do not depend on the tests that ran before."""
    import torch

    torch.manual_seed(0)
