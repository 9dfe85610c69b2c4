"""Which steps are host-bound: the host takes longer to launch the kernels than the device to run.

The device then waits for the host, whose last launch comes near the end of the step. This is known
for rows of the clock `step` on a CUDA device, where ``host_ms`` is the time until the host has
queued the last work of a step. Such a time follows the host, which drifts by more than a device
does: tables show the least and the median time, and no finding compares two such rows that were not
timed in turn.
"""

from __future__ import annotations

import pandas as pd

from lmperf.measuring.state import HOST_BOUND


def queued(steps: pd.DataFrame) -> pd.Series:
    """When the host queued the last work of a step, as a fraction of its time; NaN if unknown."""
    return steps["host_ms"] / steps["median_ms"]


def host_bound(steps: pd.DataFrame) -> pd.Series:
    """Whether each step is host-bound; False if the time of the host is unknown."""
    return queued(steps) > HOST_BOUND


def host_bound_back_to_back(steps: pd.DataFrame) -> pd.Series:
    """Whether each sustained step is host-bound; False without a sustained time.

    Without pauses a step can be shorter than a single one, so that it waits for the host sooner.
    """
    return steps["host_ms"] / steps["sustained_ms"] > HOST_BOUND
