"""Times steps back to back, as a training run takes them, until clock and power have settled.

In the rounds, a step is timed singly, with pauses between the steps in which the device cools: a
burst. A training run has no pauses, and a device at its power limit is then slower by up to 9 %
(H200). So after a lead-in that heats the device, a stretch of steps runs without any wait between
them, each with new inputs. The clock, the power and the load of the machine are sampled meanwhile.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lmperf.measuring.state import State

# The lead-in before the measured stretch. Clock and power of an H200 settle within a second.
LEAD_S, LEAD_STEPS = 1.5, 2
# The measured stretch: long enough for the power limit, whose controller averages over about a
# second, and enough steps for blocks that can be compared.
LEAST_S, LEAST_STEPS = 5.0, 20
# Steps of seconds, as of large models on a CPU: they heat a device without repetition.
MOST_S, FEWEST_STEPS = 60.0, 5
# The stretch is planned from the time of a step in the lead-in, by so much longer than LEAST_S: a
# step may become faster.
_MARGIN = 1.1
# Consecutive blocks of the stretch whose means are kept: as many as rounds, for an interval.
BLOCKS = 10
# Largest difference between the duration of the stretch by the worker's and by the supervisor's
# clock: a share, and ms for the request and its answer on a busy machine.
_CLOCKS_SHARE, _CLOCKS_MS = 0.03, 20.0


@dataclass(frozen=True)
class Stretch:
    """Steps timed back to back, and the state of the machine meanwhile.

    Attributes:
        times: ms of each step; of a kernel's step, its call without inputs and preparation.
        state: clock, power and load of the machine during the steps.
    """

    times: list[float]
    state: State

    def columns(self) -> dict[str, Any]:
        """Return the columns of a row."""
        blocks = np.array_split(self.times, min(BLOCKS, len(self.times)))
        means = [float(np.mean(block)) for block in blocks]
        return {
            "sustained_ms": float(np.median(means)),
            "sustained_rounds_ms": ";".join(map(repr, means)),
            "sustained_steps": len(self.times),
            "sustained_s": sum(self.times) / 1e3,
            "sustained_mhz": self.state.clock_mhz,
            "sustained_w": self.state.power_w,
        }


def lead_steps(step_ms: float) -> int:
    """Return the number of steps of the lead-in, from ms of a step."""
    return max(LEAD_STEPS, math.ceil(LEAD_S * 1e3 / step_ms))


def stretch_steps(step_ms: float) -> int:
    """Return the number of steps of the measured stretch, from ms of a step."""
    wanted = max(LEAST_STEPS, math.ceil(_MARGIN * LEAST_S * 1e3 / step_ms))
    return max(FEWEST_STEPS, min(wanted, int(MOST_S * 1e3 / step_ms)))


def is_long_enough(times: Sequence[float]) -> bool:
    """Return whether a stretch of steps with these times in ms has lasted for LEAST_S."""
    return sum(times) >= LEAST_S * 1e3


def stretch_fault(times: Sequence[float], here_ms: float) -> str | None:
    """Return why the times of a stretch cannot be true; None if this process's clock agrees.

    Args:
        times: ms of each step, by the worker's clock.
        here_ms: ms from the request for the stretch to its answer, by this process's clock.
    """
    total = sum(times)
    if abs(total - here_ms) <= _CLOCKS_SHARE * here_ms + _CLOCKS_MS:
        return None
    return (
        f"its clock is wrong: {len(times)} steps back to back took {total:.4g} ms by the worker's"
        f" clock, {here_ms:.4g} ms by the supervisor's"
    )
