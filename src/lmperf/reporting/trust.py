"""How far the numbers of a write-up can be trusted, in a few sentences below its title."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lmperf.reporting.numbers import Count, counted


def sentences(
    health: Mapping,
    repeatability: Sequence[str],
    unresolved: Count,
    mostly: tuple[str, int] | None = None,
) -> list[str]:
    """The sentences: checks, what is stale, missing or damaged, repeatability, comparisons.

    Args:
        health: ``gated``, ``red``, ``unchecked``, ``stale`` and ``missing`` (numbers of rows),
            ``unmeasured`` (number of benchmarks), ``unmeasured_rows`` (theirs) and ``damaged``.
        repeatability: the sentences on times measured twice; empty if none were.
        unresolved: of the comparisons in the tables.
        mostly: title of the section that has most of these, and how many it has; None: no section.
    """
    return [
        *_checks(health),
        *_unchecked(health),
        *_gaps(health),
        *(repeatability or ["Repeatability was not measured."]),
        *_comparisons(unresolved, mostly),
    ]


def _checks(health: Mapping) -> list[str]:
    gated, red = health["gated"], health["red"]
    if not gated:
        return ["No result was checked."]
    if red:
        return [f"{red:,} of {counted(gated, 'checked result')} failed and {_are(red)} withheld."]
    return [f"All {counted(gated, 'checked result')} pass."]


def _unchecked(health: Mapping) -> list[str]:
    number = health["unchecked"]
    if not number:
        return []
    results = counted(number, "result")
    why = f"{'its check does' if number == 1 else 'their checks do'} not fit into memory"
    return [f"{results} {_were(number)} not checked and {_are(number)} withheld: {why}."]


def _gaps(health: Mapping) -> list[str]:
    stale, missing, found = health["stale"], health["missing"], []
    if stale:
        why = "code or environment has changed since"
        found.append(f"{counted(stale, 'result')} {_are(stale)} stale: {why}.")
    if missing:
        found.append(f"{counted(missing, 'result')} {_are(missing)} missing{_unmeasured(health)}.")
    return found + [f"**Damaged evidence is withheld: {name}.**" for name in health["damaged"]]


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


def _unmeasured(health: Mapping) -> str:
    number, rows = health["unmeasured"], health["unmeasured_rows"]
    if not number:
        return ""
    of = f"{counted(number, 'benchmark')} that {_were(number)} not measured"
    return f", {rows:,} of them of {of}"


def _were(number: int) -> str:
    return "was" if number == 1 else "were"


def _comparisons(unresolved: Count, mostly: tuple[str, int] | None) -> list[str]:
    if not unresolved.n:
        return []
    if unresolved.none:
        return ["Every comparison is resolved."]
    where = ""
    if mostly:
        title, number = mostly
        those = "all" if number == unresolved.k else f"{number:,}"
        where = f", {those} of them of {title}" if unresolved.k > 1 else f" ({title})"
    return [f"{unresolved} comparisons {_are(unresolved.k)} unresolved{where}."]
