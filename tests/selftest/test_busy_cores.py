"""The load of a busy session is other load, and ends with the session."""

import os
import sys
import time
from pathlib import Path

import pytest

from lmperf.measuring.process import family
from lmperf.selftest.run import BURNER, busy_cores

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/PID/cmdline"),
]


def burners():
    """The ids of the processes that keep a core busy."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if BURNER.encode() in path.read_bytes().split(b"\0"):
                found.add(int(path.parent.name))
        except OSError:
            pass  # the process has ended
    return found


def test_busy_processes_are_no_descendants_and_end(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    with busy_cores():
        (burner,) = burners()
        assert burner not in family(os.getpid())
    deadline = time.monotonic() + 10
    while burners():
        assert time.monotonic() < deadline
        time.sleep(0.01)
