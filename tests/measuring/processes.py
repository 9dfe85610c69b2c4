"""The state of processes, from /proc of Linux."""

from pathlib import Path


def state_of(pid):
    """The state of a process: R runs, S sleeps, T is stopped, Z has ended; None if it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return stat.rpartition(")")[2].split()[0]


def is_running(pid):
    return state_of(pid) not in (None, "Z")
