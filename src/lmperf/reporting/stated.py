"""Constants for the text on the measuring method, imported from the code that uses them."""

from __future__ import annotations

from collections.abc import Iterable

from lmperf.attention import rounding
from lmperf.dtypes import dtype_of
from lmperf.evidence import at_work, consistent, repeatability
from lmperf.evidence.keys import METHOD_VERSION
from lmperf.evidence.plausible import EVENT_STEP_MS
from lmperf.measuring import clock_settings, rounds, state, sustained, twins
from lmperf.names import dtype_words, in_order
from lmperf.reporting.host_bound import HOST_BOUND
from lmperf.reporting.noise import SHORT_MS
from lmperf.reporting.numbers import MIB
from lmperf.statistics import (
    CONFIDENCE,
    FALSE_DISCOVERY,
    FLOOR_QUANTILE,
    LEAST_FLOOR,
    UNKNOWN_FLOOR,
)
from lmperf.transformer.flops import FLOPS_PER_FORWARD
from lmperf.transformer.rounding import FACTOR

# The bounds of `attention.accuracy.error_bound`, which needs torch; a test compares them.
LOGSUMEXP = {"float32": 2e-5, "tf32": 8 * rounding.UNIT_ROUNDOFF["tf32"]}


def stated(device: str, dtypes: Iterable[str] = ()) -> dict:
    """Constants of the measuring method for a device (cuda, mps, cpu); error bounds by dtype."""
    dtypes = set(dtypes)
    return {
        "version": METHOD_VERSION,
        "clock": _clock(),
        "kernels": rounds.pace_of("kernel", device),
        "steps": rounds.pace_of("step", device),
        "least_rounds": rounds.LEAST_ROUNDS,
        "looks": rounds.LOOKS[1:],
        "checked": rounds.CHECKED_ROUNDS,
        "confidence": CONFIDENCE,
        "quantile": FLOOR_QUANTILE,
        "least_floor": LEAST_FLOOR,
        "short_ms": SHORT_MS,
        "event_step_us": 1000 * EVENT_STEP_MS,
        "unknown_floor": UNKNOWN_FLOOR,
        "false_discovery": FALSE_DISCOVERY,
        "loaded": state.LOADED[device],
        "drift": state.DRIFT[device],
        "capped": state.CAPPED_CLOCK,
        "most_calls": rounds.MOST_REPETITIONS,
        "slow_host": state.SLOW_HOST[device],
        "steady": consistent.STEADY,
        "most_takes": rounds.MOST_TAKES,
        "sustained_s": sustained.LEAST_S,
        "sustained_steps": sustained.LEAST_STEPS,
        "twin_groups": twins.MOST_GROUPS,
        "host_bound": HOST_BOUND,
        "at_work": at_work.MOST,
        "share_of_copy": consistent.SHARE_OF_COPY,
        "repeats": repeatability.ROWS,
        "train_step_flops": FLOPS_PER_FORWARD["train_step"],
        "block": rounding.BLOCK,
        "bounds": _bounds(dtypes),
        "rounded_scores": rounding.ROUNDOFFS_OF_ROUNDED_SCORES,
        "rounded_share": rounding.ROUNDOFFS_OF_ROUNDED_SCORES * rounding.UNIT_ROUNDOFF["bfloat16"],
        "logsumexp": LOGSUMEXP["float32"],
        "logsumexp_tf32": LOGSUMEXP["tf32"] if "tf32" in dtypes else None,
        "factor": FACTOR,
    }


def _clock() -> dict:
    return {
        "flush_mib": clock_settings.FLUSH_BYTES // MIB,
        "shortest_lead_ms": clock_settings.SHORTEST_LEAD_MS,
        "longest_lead_ms": clock_settings.LONGEST_LEAD_MS,
        "outlives_ms": clock_settings.OUTLIVES_MS,
        "outlives_share": clock_settings.OUTLIVES_SHARE,
        "outlives_found": clock_settings.OUTLIVES_FOUND,
        "host_calls": clock_settings.HOST_CALLS,
        "other_share": 1 - clock_settings.OTHER_CLOCK,
        "other_ms": clock_settings.OTHER_CLOCK_MS,
        "loop_calls": clock_settings.LOOP_CALLS,
    }


def _bounds(dtypes: Iterable[str]) -> list[dict]:
    """The error bound of attention for each dtype: in unit roundoffs and as a fraction."""
    allowed = rounding.ROUNDOFFS_ALLOWED
    known = in_order("dtype", set(allowed) & set(dtypes))
    known = [dtype for dtype in known if dtype_of(dtype).autocast is None]
    return [
        {
            "words": dtype_words(dtype),
            "roundoffs": allowed[dtype],
            "share": allowed[dtype] * rounding.UNIT_ROUNDOFF[dtype],
        }
        for dtype in known
    ]
