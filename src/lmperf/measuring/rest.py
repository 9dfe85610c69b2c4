"""Waits until other programs leave the machine at rest, for measuring marked rows again."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from lmperf.errors import UserError
from lmperf.measuring.state import Before, watch

# Seconds to wait for rest before giving up.
LIMIT_S = 600.0
# The machine is at rest after this many windows in a row, of this many seconds, without other load.
_WINDOWS, _WINDOW_S = 3, 1.0


class Watching(Protocol):
    """Observes the machine: `measuring.state.Watch`."""

    def before(self, seconds: float) -> Before:
        """Return the machine's load in the next `seconds`."""


def wait_for_rest(
    watching: Watching,
    say: Callable[[str], None],
    limit_s: float = LIMIT_S,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Return once the machine is at rest: its load would mark no row `loaded`.

    Args:
        watching: observes the load.
        say: called once before waiting, with a line that says what is waited for.

    Raises:
        UserError: the machine is still at work after `limit_s` seconds.
    """
    ends, told, quiet = clock() + limit_s, False, 0
    while quiet < _WINDOWS:
        found = watching.before(_WINDOW_S)
        quiet = 0 if found.state.loaded else quiet + 1
        if not found.state.loaded:
            continue
        if clock() >= ends:
            raise UserError(
                f"this machine is still at work after {limit_s:g} s: {found.words}; nothing was"
                " measured again. Stop the other programs, then run this again"
            )
        if not told:
            say(f"waiting up to {limit_s:g} s until this machine is at rest: {found.words}")
            told = True


def watch_here(device: str, uuids: Sequence[str]) -> Watching:
    """Return what observes this machine while lmperf measures nothing.

    uuids: UUIDs of the CUDA devices to observe; empty for other devices, or if they are unknown.
    """
    return watch(device, uuids, tuple)
