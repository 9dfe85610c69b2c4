"""Why a time changed between two measurements: what differs in the keys and facts of their rows.

A key covers the code and the environment of a row. Equal keys: neither has changed. Unequal keys
with the same environment: the code has. With two environments the facts that differ are named; the
code counts as unchanged only if both rows were measured from the same commit.
"""

from __future__ import annotations

from collections.abc import Mapping

from lmperf.reporting.diff.comparison import CLOCK
from lmperf.reporting.numbers import absent
from lmperf.statistics import LEAST_FLOOR

# Fact of an environment -> its words in a cause.
FACTS = {
    "torch": "torch",
    "triton": "Triton",
    "cuda": "CUDA",
    "driver": "driver",
    "python": "Python",
    "device": "device",
    "power_limit_w": "power limit",
    "threads": "threads",
    "settings": "settings",
}
CODE, ANOTHER_RUN, UNKNOWN = "code", "another run, of the same code and software", "environment"
COMMIT_LENGTH = 7


def cause(row: Mapping, was: Mapping, now: Mapping) -> str:
    """Why a compared row changed, in words.

    Args:
        row: of `lmperf.reporting.diff.comparison.Comparison.rows`, with `environment`, `commit` and
            `clock_mhz` of each side.
        was, now: facts of the two environments; empty if not recorded.
    """
    if row["verdict"] == CLOCK:
        return _clock(row) or "clock"
    found = []
    if row["key_old"] != row["key_new"]:
        same_environment = row["environment_old"] == row["environment_new"]
        found += [] if same_environment else _facts(was, now) or [UNKNOWN]
        if same_environment:
            found.append(f"{CODE} ({_commits(row)})")
        elif row["commit_old"] != row["commit_new"]:
            found.append(f"perhaps {CODE} ({_commits(row)})")
    found += filter(None, [_clock(row)])
    return ", ".join(found) or ANOTHER_RUN


def _facts(was: Mapping, now: Mapping) -> list[str]:
    return [
        f"{words} {_fact(was, name)} to {_fact(now, name)}"
        for name, words in FACTS.items()
        if was.get(name) != now.get(name)
    ]


def _fact(facts: Mapping, name: str) -> str:
    value = facts.get(name)
    if absent(value):
        return "unknown"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _commits(row: Mapping) -> str:
    was, now = (_short(row[f"commit_{side}"]) for side in ("old", "new"))
    return f"{was} to {now}"


def _short(commit) -> str:
    return "unknown" if absent(commit) else str(commit)[:COMMIT_LENGTH]


def _clock(row: Mapping) -> str:
    """The change of the processor clock, if it is one; empty if it is not or not recorded."""
    was, now = row["clock_mhz_old"], row["clock_mhz_new"]
    if absent(was) or absent(now) or abs(now / was - 1) <= LEAST_FLOOR:
        return ""
    return f"clock {was:,.0f} to {now:,.0f} MHz"
