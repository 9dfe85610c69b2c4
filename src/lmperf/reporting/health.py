"""What a page warns of: red, unchecked, stale, missing, marked, unresolved rows, damaged files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from lmperf.benchmarks import load
from lmperf.evidence import repeatability
from lmperf.reporting import machine, marks
from lmperf.reporting.absence import MOST_LINES, missing_lines
from lmperf.reporting.comparable import sustains
from lmperf.reporting.evidence import MachineEvidence
from lmperf.reporting.foreign import escaped
from lmperf.reporting.jobs import apart_from_ceilings, beside_other_jobs, on_several_devices
from lmperf.reporting.numbers import Count
from lmperf.reporting.sections import Composed
from lmperf.reporting.tables import shortened

REPEATED = "Repeatability (R1)"
# What the write-up says of the rows of a benchmark in its list of limits.
LIMITS = ("red", "unchecked", "stale", "missing", "damaged", "uncommitted")


def health_of(
    evidence: MachineEvidence,
    benchmarks: Sequence[str] | None = None,
    sections: Sequence[Composed] = (),
) -> dict:
    """Numbers of checked, red, unchecked, stale and missing rows, and names of damaged files.

    `missing` includes the rows of the `unmeasured` benchmarks, of which nothing was measured.

    Args:
        benchmarks: stems for all but the number of checked rows; None means all.
        sections: the sections whose unresolved comparisons to count.
    """
    red = machine.red_gates(evidence, benchmarks)

    def number(named: Mapping[str, Sequence[str]]) -> int:
        return sum(len(n) for stem, n in named.items() if benchmarks is None or stem in benchmarks)

    return {
        "gated": machine.gated(evidence),
        "red": number(red),
        "unchecked": sum(
            count
            for stem, count in _unchecked(evidence).items()
            if benchmarks is None or stem in benchmarks
        ),
        "stale": number(evidence.stale),
        "missing": number(evidence.missing),
        "unmeasured": len(evidence.unmeasured),
        "unmeasured_rows": unmeasured(evidence)["rows"],
        "damaged": [
            *(s for s in evidence.damaged if benchmarks is None or s in benchmarks),
            *(evidence.lost if benchmarks is None else ()),
        ],
        "unresolved": _unresolved(sections),
    }


def _unchecked(evidence: MachineEvidence) -> dict[str, int]:
    """Benchmark -> number of rows whose check does not fit into memory."""
    found = evidence.present().items()
    return {stem: int((frame["status"] == "unchecked").sum()) for stem, frame in found}


def _partly_missing(evidence: MachineEvidence) -> dict[str, Sequence[str]]:
    """Names of missing rows, by benchmark, of the benchmarks that have any row."""
    left_out = evidence.unmeasured
    return {stem: names for stem, names in evidence.missing.items() if stem not in left_out}


def unmeasured(evidence: MachineEvidence) -> dict:
    """Titles of the benchmarks of which nothing was measured, and the number of their rows."""
    stems = evidence.unmeasured
    rows = sum(len(evidence.missing[stem]) for stem in stems)
    return {"titles": [load(stem).title for stem in stems], "rows": rows}


def _unresolved(sections: Sequence[Composed]) -> str:
    """The number of unresolved comparisons in the sections' tables in words; empty for none."""
    found = unresolved(sections)
    return "" if found.none else f"{found} comparisons unresolved"


def unresolved(sections: Sequence[Composed]) -> Count:
    """How many comparisons in the sections' tables are unresolved, of how many."""
    parts = [part for section in sections for made in section.parts.values() for part in made]
    return marks.unresolved(parts)


def mostly_unresolved(sections: Sequence[Composed]) -> tuple[str, int] | None:
    """Title of the section with at least half of the unresolved comparisons, and their number.

    None if there is no such section, or if only one section has comparisons.
    """
    counts = [(section.title, unresolved([section])) for section in sections]
    found = {title: count.k for title, count in counts if count.n}
    most = max(found, key=lambda title: found[title], default="")
    enough = len(found) > 1 and 2 * found[most] >= max(sum(found.values()), 1)
    return (most, found[most]) if enough else None


def notices_of(evidence: MachineEvidence, benchmarks: Sequence[str]) -> dict:
    """What a page warns of: stale, missing, red and marked rows, and damaged evidence.

    ``missing_lines``: the missing rows in a few lines, which name their values.
    ``back_to_back``: whether the page has steps timed back to back.
    """
    red = machine.red_gates(evidence, benchmarks)
    apart = apart_from_ceilings(evidence, benchmarks)
    return {
        "damaged": {s: evidence.damaged[s] for s in benchmarks if s in evidence.damaged},
        "stale": _listed(evidence.stale, benchmarks),
        "missing": _listed(evidence.missing, benchmarks),
        "missing_lines": _listed(_missing_lines(evidence, benchmarks), benchmarks),
        "red": _listed(red, benchmarks),
        "marks": marks.counted_words(machine.marked(evidence, benchmarks)),
        "devices": on_several_devices(evidence, benchmarks),
        "back_to_back": any(
            sustains(evidence.frames[stem]).any() for stem in benchmarks if stem in evidence.frames
        ),
        "beside_other_jobs": beside_other_jobs(evidence, benchmarks),
        "apart": None if apart.none else apart,
    }


def _listed(names: Mapping[str, Sequence[str]], benchmarks: Sequence[str]) -> list[str]:
    """The rows of some benchmarks, with the title of the benchmark if there are several."""
    titles = {stem: f"{load(stem).title}: " if len(benchmarks) > 1 else "" for stem in benchmarks}
    return [f"{title}{name}" for stem, title in titles.items() for name in names.get(stem, ())]


def _missing_lines(evidence: MachineEvidence, benchmarks: Sequence[str]) -> dict[str, list[str]]:
    found = {}
    for stem in benchmarks:
        names, rows = evidence.missing.get(stem, []), evidence.lacking.get(stem)
        more = len(names) - MOST_LINES
        shown = [*names[:MOST_LINES], *([f"{more:,} more"] if more > 0 else [])]
        found[stem] = missing_lines(rows) if names and rows is not None else shown
    return found


def limits_of(evidence: MachineEvidence) -> list[dict]:
    """A line for each benchmark with one of ``LIMITS``; not for one that lacks all rows."""
    red = machine.red_gates(evidence)
    worst = {stem: machine.worst_gate(frame) for stem, frame in evidence.present().items()}
    uncommitted = machine.uncommitted(evidence)
    missing, unchecked = _partly_missing(evidence), _unchecked(evidence)
    found = [*evidence.frames, *evidence.stale, *missing, *evidence.damaged]
    lines = [
        {
            "title": REPEATED if stem == repeatability.STEM else load(stem).title,
            "red": len(red.get(stem, ())),
            "worst": worst.get(stem),
            "unchecked": unchecked.get(stem, 0),
            "stale": len(evidence.stale.get(stem, ())),
            "missing": len(missing.get(stem, ())),
            "damaged": evidence.damaged.get(stem),
            "uncommitted": stem in uncommitted,
        }
        for stem in dict.fromkeys(found)
    ]
    return [line for line in lines if any(line[kind] for kind in LIMITS)]


def unsupported_reasons(evidence: MachineEvidence) -> list[dict]:
    """The reasons for which rows of several benchmarks are unsupported, and the number of rows.

    Such a reason is one of the machine, as missing instructions; others are on the pages.
    """
    frames = [frame for frame in evidence.present().values() if "reason" in frame]
    reasons = [frame.loc[frame["status"] == "unsupported", "reason"] for frame in frames]
    found = Counter(reason for of in reasons for reason in of.dropna())
    several = Counter(reason for of in reasons for reason in of.dropna().unique())
    return [
        {"reason": escaped(shortened(reason)), "rows": rows}
        for reason, rows in found.most_common()
        if several[reason] > 1
    ]
