"""`lmperf run` and `lmperf try`: measure cells now and print their verdicts."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lmperf.benchmark import Case
from lmperf.benchmarks import load
from lmperf.commands.options import (
    Settings,
    config_option,
    implementations_option,
    of_project,
    only_option,
    phases_option,
    print_tables,
    say,
    stem_argument,
)
from lmperf.config import slug
from lmperf.custom import problem_of
from lmperf.errors import UserError, meant
from lmperf.evidence.plan import Plan, evidence_of
from lmperf.evidence.project import Project
from lmperf.evidence.wanted import Wanted, beyond_the_grid, plan_with_cases, select
from lmperf.names import axis_words, implementation_words, value_words
from lmperf.transformer.sizes import SIZES

if TYPE_CHECKING:  # pandas is slow to import
    from lmperf.reporting.evidence import Evidence

MINE, STEP = "mine", "train_step"

# Kind of function -> the benchmark in which `lmperf try` measures it, and the only implementation
# that is measured beside it; empty: all that need no compiler.
_TRIED = {
    "attention": ("flash_attention", ""),
    "lrpe": ("lrpe", ""),
    "model": ("end_to_end", ""),
    "train_step": ("end_to_end", ""),
    "ddp": ("distributed", "ddp"),
    "fsdp": ("distributed", "fsdp2"),
    "sharded_optimizer": ("distributed", "zero_redundancy"),
}
# A model for strategies on GPUs, smaller than those of the grid.
_SMALL_MODEL = (("size", "small"), ("context_length", "128"))

over_option = click.option("--over", metavar="NAME", help="The baseline of the speed-ups.")


@click.command(short_help="Measure some cells now and print verdicts.")
@stem_argument(required=False)
@only_option
@implementations_option
@phases_option
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
    only,
    implementations,
    phases,
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
    if key and (only or implementations or phases):
        raise click.UsageError("--row names one row; leave --only and the like out")
    from lmperf.reporting import report
    from lmperf.reporting.reproduced import require_comparable

    then = report.evidence_of(project, against) if against else None
    wanted = Wanted((), only, implementations, phases)
    if key:
        stem, wanted = _row_of(then, key)
    if then is not None:
        require_comparable(then, stem, project.machine.kind)
    project.require_torch()
    plan = plan_with_cases(project, stem)
    chosen = _chosen(project, plan, wanted)
    if outside := {*chosen.cases} - {*plan.cases}:
        say(f"outside the grid of the report: {len(outside)} of {len(chosen.cases)} cases")
    evidence = _measured_now(project, chosen, over)
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
    type=click.Choice([*_TRIED]),
    help="What the function or class is.",
)
@click.option("--tolerance", help="The rounding that it declares, as in a configuration.")
@only_option
@implementations_option
@phases_option
@over_option
@click.option(
    "--limit",
    "limit_s",
    type=click.FloatRange(0, min_open=True),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="How long one step may take: the first call, the check, one round.",
)
@config_option
@click.pass_obj
def try_(
    settings: Settings,
    use: str,
    kind: str,
    tolerance: str | None,
    only,
    implementations,
    phases,
    over: str | None,
    limit_s: float,
    overrides: Sequence[str],
) -> int:
    """Check a function or class against the reference, and time it with other implementations: a
    strategy with its nearest peer. Axes without --only have the values of the smallest cell; the
    first line says which. Nothing is stored.

    \b
    Example:
      lmperf try examples.student_attention:FlashAttention --as attention
    """
    stem, peer = _TRIED[kind]
    if kind == STEP and not phases:
        phases = [STEP]
    declared = json.dumps({"use": use, **({"tolerance": tolerance} if tolerance else {})})
    overrides = [*overrides, f"implementations.{stem}.{MINE}={declared}"]
    project = settings.project(overrides, needs_file=False)
    project.require_torch()
    plan = plan_with_cases(project, stem)
    if problem := problem_of(use, plan.benchmark.takes, kind):
        raise UserError(problem)
    smaller = _SMALL_MODEL if peer and project.preset != "cpu" else ()
    only = [*only, *(pair for pair in smaller if pair[0] not in dict(only))]
    only += _smallest(_chosen(project, plan, Wanted(only=only, implementations=[MINE])), only)
    names = implementations or _beside(plan, peer)
    print(_measures(use, stem, names, only), flush=True)
    chosen = _chosen(project, plan, Wanted((), only, dict.fromkeys([*names, MINE]), phases))
    chosen.benchmark.limit_s = limit_s
    evidence = _measured_now(project, chosen, over)
    if "timeout" in set(evidence.rows(stem)["status"]):
        say(f"a step took longer than {limit_s:g} s; --limit SECONDS allows more")
    return 0 if MINE in _right(evidence, stem) and not _wrong(evidence, stem) else 1


def _chosen(project: Project, plan: Plan, wanted: Wanted) -> Plan:
    """The wanted cases and phases of a benchmark, also those outside the grid of the report."""
    (chosen,) = select([beyond_the_grid(project, plan, wanted)], wanted)
    return chosen


def _smallest(plan: Plan, only: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """The other (axis, value) pairs of the smallest cell of a plan.

    The smallest cell has the smallest product of the values of its integer axes, and of the
    model's parameters.
    """
    case = min(plan.cases, key=_work)
    given = {axis for axis, _ in only}
    return [(axis, str(value)) for axis, value in case.cell if axis not in given]


def _work(case: Case) -> int:
    numbers = [value for value in case.axes.values() if type(value) is int]
    size = SIZES.get(str(case.axes.get("size")))
    return prod(numbers) * (size.parameters() if size else 1)


def _beside(plan: Plan, peer: str) -> list[str]:
    """The names of what is measured beside a custom implementation: its peer, or if it has none the
    project's implementations that need no compilation at the first call."""
    if peer:
        return [peer]
    known = [plan.benchmark.implementation(name) for name in plan.implementations]
    return [one.name for one in known if one.origin == "project" and not one.compiles]


def _measures(use: str, stem: str, names: Sequence[str], only: Sequence[tuple[str, str]]) -> str:
    """The line that says what `lmperf try` measures, before it does."""
    beside = ", ".join(implementation_words(name) for name in names) or "nothing"
    cell = ", ".join(f"{axis_words(axis)} {value_words(axis, value)}" for axis, value in only)
    return f"{stem}: {use} beside {beside}; {cell}"


def _measured_now(project: Project, chosen: Plan, over: str | None) -> Evidence:
    """Measure the chosen cases, print them with verdicts, and return their rows.

    Raises:
        UserError: `over` is none of their implementations.
    """
    if over is not None and over not in chosen.implementations:
        there = meant(over, chosen.implementations)
        raise UserError(f"--over: {over} is not measured here; {there}")
    with tempfile.TemporaryDirectory(prefix="lmperf-run-") as folder:
        evidence = _measured(Project(project.config, Path(folder)), chosen)
    _print(evidence, chosen, over)
    return evidence


def _row_of(then: Evidence, key: str) -> tuple[str, Wanted]:
    """The benchmark of the row with this key, and what to measure for it.

    Raises:
        UserError: the evidence has no such row.
    """
    for stem, rows in then.raw.items():
        for row in (row for row in rows if row["key"] == key):
            axes = [(axis.name, row[axis.name]) for axis in load(stem).axes if row[axis.name]]
            return stem, Wanted((), axes, [row["implementation"]], [row["phase"]])
    raise UserError(f"--row: the evidence of {then.machine} has no row with the key {key}")


def _reproduced(project: Project, then: Evidence, now: Evidence, stem: str) -> bool:
    """Print how the rows measured now compare with a machine's evidence; whether all agree."""
    from lmperf.reporting.formats import terminal
    from lmperf.reporting.reproduced import REPRODUCED, judgements, table

    found = judgements(then, now, project.plan(stem).benchmark)
    print_tables(f"\n{terminal(table(found, then.machine))}")
    return all(one.verdict == REPRODUCED for one in found)


def _measured(project: Project, chosen: Plan) -> Evidence:
    """Measure the chosen cases and phases in a temporary project, and return their rows."""
    from lmperf.evidence.record import record
    from lmperf.reporting.evidence import Evidence

    plan = replace(chosen, evidence=evidence_of(chosen.benchmark, project.directory), quick=False)
    record(project, plan)
    return Evidence(project.machine.slug, project.known_facts(), {plan.stem: replace(plan).rows})


def _print(evidence: Evidence, chosen: Plan, over: str | None) -> None:
    from lmperf.reporting.formats import terminal
    from lmperf.reporting.measured import failures, tables

    shown = [terminal(table) for table in tables(evidence, chosen.benchmark, over)]
    why = failures(evidence.rows(chosen.stem))
    print_tables("\n\n".join([*shown, *([why] if why else [])]))


def _right(evidence: Evidence, stem: str) -> set[str]:
    """The implementations with at least one row that has a result."""
    rows = evidence.rows(stem)
    return set(rows.loc[rows["state"].isna(), "implementation"])


def _wrong(evidence: Evidence, stem: str) -> bool:
    """Whether any row failed; `oom` and `unsupported` are no failures."""
    states = evidence.rows(stem)["state"]
    return bool((states.notna() & ~states.isin(["oom", "unsupported"])).any())
