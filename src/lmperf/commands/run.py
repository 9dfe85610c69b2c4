"""`lmperf run` and `lmperf try`: measure cells now and print their verdicts."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lmperf.benchmark import Case
from lmperf.benchmarks import load
from lmperf.commands.options import (
    Settings,
    config_option,
    of_project,
    print_tables,
    say,
    stem_argument,
    wanted_options,
)
from lmperf.config.machine_names import slug
from lmperf.config.read import overrides_of
from lmperf.errors import UserError, meant
from lmperf.evidence.plan import Plan
from lmperf.evidence.project import Project
from lmperf.evidence.store import files_of
from lmperf.evidence.tried import Tried, tried
from lmperf.evidence.wanted import Wanted, chosen, plan_with_cases
from lmperf.measuring.interpreter import CHECKED
from lmperf.measuring.progress import duration
from lmperf.names import axis_words, implementation_words, value_words
from lmperf.own.check import TOO_LONG, problem_of
from lmperf.own.kinds import KINDS

if TYPE_CHECKING:  # pandas is slow to import
    from lmperf.reporting.evidence import Evidence

MINE = "mine"

# How long a step of `lmperf try` may take, and one in which a model is compiled.
_LIMIT_S, _COMPILING_S = 30.0, 300.0
# Characters of a name in a line of its tables, which have at most 100.
_LONGEST_NAME = 24

over_option = click.option("--over", metavar="NAME", help="The baseline of the speed-ups.")


@click.command(short_help="Measure some cells now and print verdicts.")
@stem_argument(required=False)
@wanted_options
@over_option
@click.option(
    "--row",
    "key",
    metavar="KEY",
    help="Measure the row with this key of the evidence of --against again.",
)
@click.option(
    "--against",
    type=slug,
    metavar="MACHINE",
    help="Compare the rows with this machine's evidence: are they reproduced?",
)
@of_project
def run(
    project: Project,
    stem: str | None,
    wanted: Wanted,
    over: str | None,
    key: str | None,
    against: str | None,
) -> int:
    """Measure cells of a benchmark now and print them with verdicts. A cell may lie outside the
    grid of the report. Nothing is stored: `lmperf measure` stores rows.

    With --against the exit code is 0 only if every row is reproduced. --row KEY measures one row
    of that evidence, whose key stands below the tables of a report.

    \b
    Examples:
      lmperf run attention --only seq_len=256,d_head=64 --implementations eager,compiled
      lmperf run flash_attention --only seq_len=2048,causal=true --against nvidia-h200
      lmperf run --row 0b1f5a9c3de47a26 --against nvidia-h200
    """
    if (stem is None) == (key is None):
        raise click.UsageError("name a benchmark, or a row by --row KEY")
    if key and not against:
        raise click.UsageError("--row names a row of a machine's evidence; add --against MACHINE")
    if key and (wanted.pairs or wanted.phases):
        raise click.UsageError("--row names one row; leave --only and the like out")
    from lmperf.reporting import report
    from lmperf.reporting.reproduced import require_comparable

    then = report.evidence_of(project, against) if against else None
    if key:
        stem, wanted = _row_of(then, key)
    if then is not None:
        require_comparable(then, stem, project.machine.kind)
    project.require_torch()
    plan = plan_with_cases(project, stem)
    selected = chosen(project, plan, wanted)
    if outside := {*selected.cases} - {*plan.cases}:
        say(f"outside the grid of the report: {len(outside)} of {len(selected.cases)} cases")
    evidence = _measured_now(project, selected, over)
    wrong = _wrong(evidence, stem)
    if then is not None and not _reproduced(project, then, evidence, stem):
        return 1
    return 1 if wrong else 0


@click.command("try", short_help="Check and time one custom function or class, in seconds.")
@click.argument("use", metavar="MODULE:NAME")
@click.option(
    "--as",
    "kind",
    required=True,
    type=click.Choice([*KINDS]),
    help="What the function or class is.",
)
@click.option("--tolerance", help="The rounding that it declares, as in a configuration.")
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    help="A keyword argument of it, as in a configuration. Repeatable.",
)
@wanted_options
@over_option
@click.option("--quick", is_flag=True, help="Measure the smallest cell alone.")
@click.option("--all", "every", is_flag=True, help="Show all columns.")
@click.option(
    "--limit",
    "limit_s",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="How long one step may take: the import, the first call, the check, one round."
    f"  [default: {_LIMIT_S:g}, or {_COMPILING_S:g} of a model that is compiled]",
)
@config_option
@click.pass_obj
def try_(
    settings: Settings,
    use: str,
    kind: str,
    tolerance: str | None,
    options: Sequence[str],
    wanted: Wanted,
    over: str | None,
    quick: bool,
    every: bool,
    limit_s: float | None,
    overrides: Sequence[str],
) -> int:
    """Check a function or class in the smallest cell, then time it in a cell of the report's first
    page, beside the best peers there: a strategy beside its nearest one. Axes without --only have
    the values of these cells. The first line says what is timed and how long it takes. What fails
    its check is not timed. Nothing is stored.

    \b
    Example:
      lmperf try examples.student_attention:FlashAttention --as attention
    """
    stem, peers = KINDS[kind].tried, KINDS[kind].beside
    declared = {"use": use, **({"tolerance": tolerance} if tolerance else {})}
    declared |= overrides_of(options, "--option")
    limit_s = limit_s or (_COMPILING_S if declared.get("compiled") is True else _LIMIT_S)
    if lists := [name for name, value in declared.items() if isinstance(value, list)]:
        raise UserError(f"--option {lists[0]}: one value is tried; a list is for a configuration")
    overrides = [*overrides, f"implementations.{stem}.{MINE}={json.dumps(declared)}"]
    project = Project(settings.config(overrides, needs_file=False))
    project.require_torch()
    plan = plan_with_cases(project, stem)
    given = plan.benchmark.implementation(MINE).options
    if problem := problem_of(use, plan.benchmark.takes.name, kind, limit_s, given):
        more = "; --limit SECONDS allows more" if TOO_LONG in problem else ""
        raise UserError(problem + more)
    trial = tried(project, plan, MINE, wanted, peers, quick)
    trial = replace(trial, plan=trial.plan.with_benchmark(limit_s=limit_s))
    print(_measures(use, trial), flush=True)
    evidence = _measured_now(project, trial.plan, over, trial.check, short=not every)
    rows = evidence.rows(stem)
    if "timeout" in set(rows["status"]):
        say(f"a step took longer than {limit_s:g} s; --limit SECONDS allows more")
    if len(rows.drop_duplicates([*trial.check.axes, "implementation"])) < len(trial.plan.cases):
        if CHECKED in set(rows["reason"]):
            return 0
        if "unsupported" not in set(rows["status"]):
            say("it fails its check in the smallest cell, so nothing else was measured")
    return 0 if MINE in _right(evidence, stem) and not _wrong(evidence, stem) else 1


def _measures(use: str, trial: Tried) -> str:
    """The line that says what `lmperf try` measures, and how long it takes."""
    beside = ", ".join(map(implementation_words, trial.beside))
    first, *others = trial.cells
    parts = [first, *([pair for pair in cell if pair not in first] for cell in others)]
    cells = " and ".join(
        ", ".join(f"{axis_words(axis)} {value_words(axis, value)}" for axis, value in part)
        for part in parts
    )
    takes = duration(5 * round(trial.seconds / 5), exact=False)
    return f"{trial.plan.stem}: {use} beside {beside}; {cells}; about {takes}"


def _measured_now(
    project: Project,
    chosen: Plan,
    over: str | None,
    check: Case | None = None,
    short: bool = False,
) -> Evidence:
    """Measure the chosen cases, print them with verdicts, and return their rows.

    check: a case that is checked before; see `record`. short: whether to leave out columns.

    Raises:
        UserError: `over` is none of their implementations.
    """
    from lmperf.reporting.formats import terminal
    from lmperf.reporting.measured import failures, short_tables, tables

    if over is not None and over not in chosen.implementations:
        there = meant(over, chosen.implementations)
        raise UserError(f"--over: {over} is not measured here; {there}")
    with tempfile.TemporaryDirectory(prefix="lmperf-run-") as folder:
        evidence = _measured(Project(project.config, Path(folder)), chosen, check)
    make, most = (short_tables, _LONGEST_NAME) if short else (tables, None)
    shown = [terminal(table, most) for table in make(evidence, chosen.benchmark, over)]
    why = failures(evidence.rows(chosen.stem))
    print_tables("\n\n".join([*shown, *([why] if why else [])]))
    return evidence


def _row_of(then: Evidence, key: str) -> tuple[str, Wanted]:
    """The benchmark of the row with this key, and what to measure for it.

    Raises:
        UserError: the evidence has no such row.
    """
    for stem, rows in then.raw.items():
        for row in (row for row in rows if row["key"] == key):
            axes = [(axis.name, row[axis.name]) for axis in load(stem).axes if row[axis.name]]
            return stem, Wanted(axes, [row["implementation"]], [row["phase"]])
    raise UserError(f"--row: the evidence of {then.folder} has no row with the key {key}")


def _reproduced(project: Project, then: Evidence, now: Evidence, stem: str) -> bool:
    """Print how the rows measured now compare with a machine's evidence; whether all agree."""
    from lmperf.reporting.formats import terminal
    from lmperf.reporting.reproduced import REPRODUCED, judgements, table

    judged = judgements(then, now, project.plan(stem).benchmark)
    print_tables(f"\n{terminal(table(judged, then.machine))}")
    return all(judgement.verdict == REPRODUCED for judgement in judged)


def _measured(project: Project, chosen: Plan, check: Case | None) -> Evidence:
    """Measure the chosen cases and phases in a temporary project, and return their rows; those of
    the check alone if it fails."""
    from lmperf.evidence.record import record
    from lmperf.reporting.evidence import Evidence

    plan = replace(chosen, files=files_of(chosen.benchmark, project.directory), quick=False)
    record(project, plan, check=check)
    cases = (*plan.cases, check) if check else plan.cases
    rows = replace(plan, cases=cases).rows
    return Evidence(project.machine.slug, project.known_facts(), {plan.stem: rows})


def _right(evidence: Evidence, stem: str) -> set[str]:
    """The implementations with at least one row that has a result."""
    rows = evidence.rows(stem)
    return set(rows.loc[rows["state"].isna(), "implementation"])


def _wrong(evidence: Evidence, stem: str) -> bool:
    """Whether any row failed; `oom` and `unsupported` are no failures."""
    states = evidence.rows(stem)["state"]
    return bool((states.notna() & ~states.isin(["oom", "unsupported"])).any())
