"""The site: the report of every machine as HTML that needs no network and no server.

A page is a `Page` in the form `html` within the frame `templates/site/page.html.j2`. It is complete
without scripts. With them its tables can be sorted and filtered, a click on a number shows the row
of evidence behind it, and figures are drawn from their Vega-Lite specifications.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import vl_convert

from lmperf.benchmarks import load
from lmperf.errors import UserError
from lmperf.evidence.store import EVIDENCE
from lmperf.names import axis_words, value_words
from lmperf.reporting import figures
from lmperf.reporting.evidence import Evidence
from lmperf.reporting.files import replace_files
from lmperf.reporting.html import target
from lmperf.reporting.pages import REPORT, pages_of, titles_of
from lmperf.reporting.render import Page, load_templates
from lmperf.reporting.untrusted import deep, plain
from lmperf.reporting.words import absent, sig
from lmperf.workflow import TEMPLATES

INDEX, MACHINES, ASSETS = "index.html", "machines", "assets"
COPIED = (f"{EVIDENCE}/*.csv", "traces/*.json.gz", "selftest.csv")
# What a click on a number shows of its row, after the axes: column -> label and unit.
SHOWN = {
    "median_ms": ("median", " ms"),
    "n": ("calls", " "),
    "clock_mhz": ("processor clock", " MHz"),
    "marks": ("marks", ""),
    "commit": ("commit", ""),
    "measured_at": ("measured at", ""),
    "key": ("key of the row", ""),
}
Files = dict[str, str | bytes]


@dataclass(frozen=True)
class Site:
    """What a site is made from.

    Attributes:
        machines: the evidence of each machine; that of the first page is first, and its `others`
            are the rest.
        report: the folder with the folders of the machines, such as `report/`.
        own: folder of the user's templates.
    """

    machines: Sequence[Evidence]
    report: Path
    own: Path | None = None


def build(site: Site, folder: Path, remedy: str, force: bool = False) -> list[Path]:
    """Write the site to a folder; arguments, result and errors as for `replace_files`.

    Raises:
        UserError: no machine has evidence, or a file cannot be written.
    """
    if not site.machines:
        raise UserError(f"there is no evidence in {site.report}/; run make report first")
    return replace_files({folder: files(site)}, remedy, force)


def files(site: Site) -> Files:
    """File name below the folder of the site -> content; each machine is a process."""
    tasks = [partial(files_of_machine, site, number) for number in range(len(site.machines))]
    tasks += [partial(files_of_machines, site)] if len(site.machines) > 1 else []
    written = files_of_assets()
    # A fork of this process would hang where threads that draw figures run in it; a server of forks
    # needs a socket below TMPDIR, whose path may be too long for one.
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        for waiting in [pool.submit(task) for task in tasks]:
            written |= waiting.result()
    return written


def files_of_machine(site: Site, number: int) -> Files:
    """The files in the folder of a machine; of the first one also the first page of the site."""
    evidence = site.machines[number]
    folder = evidence.folder
    pages = pages_of(evidence, site.own, "html")
    titles = titles_of(site.own, evidence)
    names = {REPORT: "Report", **titles}.items()
    links = [(f"{evidence.link}/{target(f'{name}.md')}", words) for name, words in names]
    links += [(f"{MACHINES}.html", "Machines")] if len(site.machines) > 1 else []
    written = _copied(site.report / folder, folder)
    for name, page in pages.items():
        path = target(f"{name}.md")
        sources = [f"{EVIDENCE}/{stem}.csv" for stem in keys_by_stem(evidence, page)]
        sources = [source for source in sources if f"{folder}/{source}" in written]
        written[f"{folder}/{path}"] = framed(site, page, f"{evidence.link}/{path}", links, sources)
        written |= {f"{folder}/{name}": svg for name, svg in page.svgs.items()}
    if number == 0:
        first = Page(REPORT, evidence, "html", site.own, f"{evidence.link}/")
        first.render(pages=titles, overview=True)
        written[INDEX] = framed(site, first, INDEX, [(INDEX, "Report"), *links[1:]], [])
    return written


def files_of_machines(site: Site) -> Files:
    """The page that shows all machines side by side."""
    first, path = site.machines[0], f"{MACHINES}.html"
    page = Page(MACHINES, first, "html", site.own)
    page.render()
    links = [(INDEX, "Report"), (path, "Machines")]
    links += [(f"{machine.link}/{INDEX}", machine.machine) for machine in site.machines]
    return {path: framed(site, page, path, links, [])}


def files_of_assets() -> Files:
    """Style and scripts."""
    folder = TEMPLATES / "site" / ASSETS
    assets: Files = {f"{ASSETS}/{path.name}": path.read_bytes() for path in folder.iterdir()}
    themes = {
        theme: {"colours": colours, "config": figures.config(colours)}
        for theme, colours in figures.THEMES.items()
    }
    assets[f"{ASSETS}/themes.js"] = f"const THEMES = {json.dumps(themes)};\n"
    assets[f"{ASSETS}/vega.js"] = vl_convert.javascript_bundle()
    return assets


def _copied(directory: Path, folder: str) -> Files:
    """The files of a machine that pages link to."""
    paths = [path for pattern in COPIED for path in sorted(directory.glob(pattern))]
    return {f"{folder}/{path.relative_to(directory)}": path.read_bytes() for path in paths}


def title_of(page: Page) -> str:
    """The first heading of a page, as HTML without tags."""
    heading = re.search(r"<h1[^>]*>(.*?)</h1>", page.text, re.DOTALL)
    return re.sub(r"<[^>]*>", "", heading[1]).strip() if heading else page.name


def framed(
    site: Site, page: Page, path: str, links: Sequence[tuple[str, str]], sources: Sequence[str]
) -> str:
    """A page within the frame of the site.

    Args:
        path: of the page below the site.
        links: the navigation: path below the site and words.
        sources: files beside the page with the numbers of its tables.
    """
    template = load_templates(site.own).get_template("site/page.html.j2")
    shown = site.machines if page.name == MACHINES else [page.evidence]
    return template.render(
        title=title_of(page),
        text=page.text,
        path=path,
        links=links,
        root="../" * path.count("/"),
        machine=page.evidence.machine,
        sources=sources,
        rows=in_script(behind(shown, page)),
        charts={name: in_script(spec) for name, spec in page.figures.items()},
        version=version("lmperf"),
    )


def in_script(value: Any) -> str:
    """JSON for a script element that holds data: nothing but ``<`` is read as HTML there."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=float)
    return text.replace("<", "\\u003c")


def behind(machines: Sequence[Evidence], page: Page) -> dict[str, Any]:
    """What the numbers of a page are of: labels, and key of a row -> its texts by label."""
    records = {}
    for evidence in machines:
        for stem, keys in keys_by_stem(evidence, page).items():
            records |= described(evidence, stem, keys)
    labels = list(dict.fromkeys(label for record in records.values() for label in record))
    rows = {key: [record.get(label, "") for label in labels] for key, record in records.items()}
    return deep(plain, {"labels": labels, "rows": rows})


def keys_by_stem(evidence: Evidence, page: Page) -> dict[str, set[str]]:
    """Benchmark -> the keys of its rows that a page shows."""
    keys = {cell.row for table in page.tables for cell in table.cells if cell.row}
    keys |= {key for number in page.numbers for key in number.linked}
    there = {stem: keys & {row["key"] for row in rows} for stem, rows in evidence.raw.items()}
    return {stem: shown for stem, shown in there.items() if shown}


def described(evidence: Evidence, stem: str, keys: set[str]) -> dict[str, dict[str, str]]:
    """Key of a row -> label -> text, for rows of a benchmark."""
    benchmark, rows = load(stem), evidence.rows(stem)
    wanted = [*benchmark.identity, "ms", "low_ms", "high_ms", *SHOWN]
    records = {}
    for row in rows.loc[rows["key"].isin(keys), wanted].to_dict("records"):
        values = {name: value for name, value in row.items() if not absent(value) and value != ""}
        texts = {"benchmark": benchmark.title, "machine": evidence.machine}
        for name in benchmark.identity:
            if name in values:
                texts[axis_words(name)] = str(value_words(name, values[name], benchmark.identity))
        if "low_ms" in values:
            low, ms, high = (sig(values[name], 5) for name in ("low_ms", "ms", "high_ms"))
            texts["time"] = f"{ms} ms ({low} to {high})"
        for name, (label, unit) in SHOWN.items():
            if name in values:
                texts[label] = f"{values[name]:,.12g}{unit}" if unit else str(values[name])
        texts["measure it again"] = f"lmperf run --row {row['key']} --against {evidence.link}"
        records[row["key"]] = texts
    return records
