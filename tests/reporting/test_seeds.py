"""Pages of random machines, one for each page: a seed changes the rows of `synthetic` in its way.

A machine is slower, noisy, loaded or without a GPU; rows and columns are missing, out of memory or
withheld. What its pages say is not looked at: they read as sentences.
"""

import re
from functools import cache
from random import Random

import planted
import planted_ranks
import pytest
import synthetic

from lmperf.benchmarks import load
from lmperf.reporting.pages import page_names
from lmperf.reporting.render import stems_of

SEEDS = range(12)
FAULTS = [  # of a row with a time
    *({"status": status} for status in ("oom", "unchecked", "timeout", "unsupported")),
    *({"marks": mark} for mark in ("loaded", "capped", "loaded;capped")),
    *({"spread": spread} for spread in (20, 100)),
    {"gpus": "GPU-2"},
    {"waits": True},
]
WITHHELD = [
    {"status": "failed_check"},
    {"status": "nan"},
    {"flops": 1e25},  # faster than any ceiling
]
FACTORS = (0.5, 0.9, 0.97, 1.0, 1.0, 1.01, 1.05, 1.2, 2.0)
TIMED = ("median_ms", "low_ms", "high_ms", "rounds_ms", "n", "stem", "key")
KEPT = {"implementation", "phase", "status", "environment", "together", "measured_at"}


@cache
def known():
    """Stem -> the rows of the synthetic machine; and the names of its pages."""
    machine = synthetic.machine()
    return machine.raw, page_names(None, machine)


def rows_of(r: Random, stem: str, on_gpu: bool):
    """The rows of a benchmark on a random machine."""
    rows, benchmark = known()[0][stem], load(stem)
    names = sorted({row["implementation"] for row in rows})
    faster = {name: r.choice(FACTORS) for name in names}
    names = [name for name in names if r.random() < 0.85]
    for axis in benchmark.axes:
        alone = r.choice(sorted({row[axis.name] for row in rows}))
        if r.random() < 0.5:
            rows = [row for row in rows if row[axis.name] == alone]
    columns = sorted({*benchmark.kinds} - {*benchmark.identity} - KEPT)
    empty = [name for name in columns if r.random() < r.choice((0, 0.1))]
    often = r.choice((0, 0.1, 0.4))
    for row in rows:
        fault = r.choice((r.choice(FAULTS), r.choice(WITHHELD))) if r.random() < often else {}
        needs_gpu = "graph" in row["implementation"] or row.get("dtype") == "tf32"
        is_there = row["implementation"] in names and (on_gpu or not needs_gpu)
        if not is_there or r.random() < 0.05:
            continue
        values = {name: of for name, of in row.items() if of and name not in (*TIMED, *empty)}
        factor = faster[row["implementation"]]
        if not row["median_ms"]:
            for name in values:
                if re.search("(_ms|_mib|^loss|^value)$", name):
                    values[name] = float(values[name]) * factor
            yield planted.row(stem, **values)
            continue
        ms = float(row["median_ms"]) * factor
        fault = dict(fault)
        if fault.pop("waits", False) and on_gpu and "device_ms" in values:
            fault["bound"] = "host"
        if not on_gpu:
            values.pop("bound", None)
        lacks_time = "status" in fault and fault not in WITHHELD
        yield planted.row(stem, None if lacks_time else ms, **values | fault)


def machine(seed: int):
    """The evidence of a seed, and the name of the page that it is about."""
    r = Random(seed)
    every, pages = known()
    page = pages[seed % len(pages)]
    on_gpu = r.random() < 0.7
    stems = {*stems_of(page)} & {*every} or {"end_to_end"}
    stems |= {*r.sample(sorted(every), r.choice((0, 1, 3)))}
    rows = [row for stem in sorted(stems) for row in rows_of(r, stem, on_gpu)]
    rows = [row | {"key": f"{n:016x}"} for n, row in enumerate(rows)]
    facts = planted_ranks.TWO_H200 if on_gpu else planted.CPU
    facts = {name: of for name, of in facts.items() if name == "kind" or r.random() < 0.95}
    stale = frozenset(row["key"] for row in rows if r.random() < r.choice((0, 0.1)))
    return planted.evidence(*rows, facts=facts, stale=stale), page


def prose(text: str):
    """The lines of a page outside tables, figures, code: (line, the next one that is not empty)."""
    text = re.sub(r"^```.*?^```$", "```", text, flags=re.MULTILINE | re.DOTALL)
    lines = [line for line in text.splitlines() if line.strip()]
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        if not re.match(r"[|<`]|Measure a row again", line):
            yield re.sub(r"`[^`]*`", "`code`", line), after


SLIPS = {
    "value": r"\b(nan|inf)\b|(?<![.!?*] )(?<!^- )(?<!^)\bNone\b|[\ue000-\ue003]",
    "dash": r"(^| )–( |$|[.,;:)])",
    "brackets": r"\(\s*[.,;]?\s*\)|\[\]|\[\[|\]\]|\|\|",
    "punctuation": r"[.,;:]\s*[,;:]|[,;:]\s*\.|\.\.| [.,;:)](?! )|\( |[,;]$",
}
LINKS = r"([ ·,]*\[[^\]]*\]\([^)]*\))+"


def faults_of(text: str):
    for line, after in prose(text):
        heading = re.match("#+ ", line)
        below = re.match("#* ?", after)[0]
        if heading and (not after or 0 < len(below) <= len(heading[0])):
            yield "heading without text", line
        if line.endswith(":") and not re.match(r"\s*(- |\d+\. )|[|<`]", after):
            yield "colon without a list", line
        is_sentence = re.search(rf"[.:!?][)*_\"]*({LINKS})?$", line) or re.fullmatch(LINKS, line)
        if (
            not heading
            and not is_sentence
            and not re.match(r"- .*\d rows?(, [^)]*)?\)(:.*)?$", line)
        ):
            yield "no full stop", line
        for name, slip in SLIPS.items():
            if re.search(slip, line):
                yield name, line


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_pages_of_random_machines_read_as_sentences(seed):
    here, name = machine(seed)
    for page in ("report", name):
        assert not [*faults_of(planted.page(page, here).text)], page
