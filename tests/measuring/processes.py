"""Processes of this machine, by Linux's /proc."""

from pathlib import Path


def state_of(pid):
    """The letter of its state: R runs, S sleeps, T is stopped, Z has ended; None: it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return stat.rpartition(")")[2].split()[0]


def is_running(pid):
    return state_of(pid) not in (None, "Z")
