"""The commands that the DAG and a person call.

    lmperf plan               what a run would measure, and why
    lmperf measure STEM       measure what is missing or stale of one benchmark
    lmperf report [MACHINE]   render a machine's write-up from its evidence; without MACHINE,
                              report/report.md of the machine at hand
    lmperf summary [MACHINE]  where the write-up is, and what is wrong with its evidence
    lmperf verify [MACHINE]   fail, naming the causes, unless the evidence of the machine at hand,
                              or of MACHINE, or of --all, is whole, fresh and right
    lmperf diff OLD NEW       what changed from one result to another, row by row, worst first
    lmperf compare [REV [REV]]
                              time two versions of the code in turn: the working tree against
                              HEAD, or against REV, or one revision against another
    lmperf selftest           send planted implementations through the pipeline: is each noticed?
    lmperf prune MACHINE      drop stale rows of cells that the grid no longer has
    lmperf machine            the slug of this machine
    lmperf schema             the configuration's JSON schema

Exit codes: 0 done; 1 `verify` found causes, `diff` or `compare` a regression, or `selftest` a case
that did not hold; 2 bad input, said in one line.
"""

from __future__ import annotations

import argparse
import errno
import os
import signal
import sys
from collections import Counter
from pathlib import Path

from lmperf.config import json_schema, load_config, overrides_of, slug
from lmperf.errors import UserError
from lmperf.evidence.plan import Project
from lmperf.own import check_functions

CONFIG = Path("config/config.yaml")


# Of the machine and not of the code: said in a line, as bad input is.
_REFUSED = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT}


def main(arguments: list[str] | None = None) -> int:
    # Told to end, it ends in order: its workers with it, nothing half-written.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        # An implementation of the user's own may lie in the checkout, however this was started.
        if (here := _current_directory()) not in sys.path:
            sys.path.insert(0, here)
        options = _parser().parse_args(arguments)
        return options.command(options)
    except UserError as error:
        _say(str(error))
        return 2
    except BrokenPipeError:  # `lmperf plan | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        if error.errno not in _REFUSED:
            raise
        _say(str(UserError(f"{error.filename or 'the system'}: {error.strerror}")))
        return 2
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _current_directory() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise UserError("the current directory is gone; change into the checkout") from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "lmperf", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", type=Path, default=CONFIG, help=f"default: {CONFIG}")
    parser.add_argument(
        "--set", type=overrides_of, default={}, metavar="JSON", help="keys that replace the file's"
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    commands.add_parser("plan", help="what a run would measure").set_defaults(command=_plan)
    measure = commands.add_parser("measure", help="measure one benchmark")
    measure.add_argument("stem")
    measure.add_argument("--log", type=Path)
    measure.add_argument(
        "--retry-failed",
        action="store_true",
        help="once more what crashed, hung or had too little memory",
    )
    measure.add_argument(
        "--parent", type=int, metavar="PID", help="end when the process that started this ends"
    )
    measure.set_defaults(command=_measure)
    report = commands.add_parser("report", help="render from evidence")
    report.add_argument("machine", nargs="?", type=slug, help="default: report/report.md")
    report.set_defaults(command=_report)
    summary = commands.add_parser("summary", help="where the write-up is")
    summary.add_argument("machine", nargs="?", type=slug, help="default: report/report.md")
    summary.add_argument(
        "--current", action="store_true", help="fail unless it is what its evidence renders to"
    )
    summary.set_defaults(command=_summary)
    verify = commands.add_parser("verify", help="is the evidence whole, fresh, right?")
    whose = verify.add_mutually_exclusive_group()
    whose.add_argument(
        "machines", nargs="*", type=slug, default=[], metavar="MACHINE", help="default: here"
    )
    whose.add_argument("--all", action="store_true", help="every machine that has evidence")
    verify.add_argument("--verbose", action="store_true", help="a line for each row")
    verify.set_defaults(command=_verify)
    diff = commands.add_parser("diff", help="what changed from one result to another")
    for name in ("old", "new"):
        diff.add_argument(name, help="directory of a machine's evidence, MACHINE, or MACHINE@REV")
    _add_choice(diff)
    diff.set_defaults(command=_diff)
    compare = commands.add_parser("compare", help="time two versions of the code in turn")
    compare.add_argument(
        "revisions", nargs="*", metavar="REV", help="of Git, or a directory with src/lmperf"
    )
    _add_choice(compare)
    compare.add_argument("--implementations", type=_names, default=[], metavar="NAME,...")
    compare.add_argument("--phases", type=_names, default=[], metavar="NAME,...")
    compare.add_argument(
        "--no-twin",
        action="store_true",
        help="do not time the old version against itself: 2/3 of the time and of the memory",
    )
    compare.set_defaults(command=_compare)
    commands.add_parser("selftest", help="is what is planted noticed?").set_defaults(
        command=_selftest
    )
    prune = commands.add_parser("prune", help="drop stale rows that no grid asks for")
    prune.add_argument("machine", type=slug)
    prune.set_defaults(command=_prune)
    commands.add_parser("machine", help="the slug of this machine").set_defaults(command=_machine)
    commands.add_parser("schema", help="JSON schema of the configuration").set_defaults(
        command=_schema
    )
    return parser


def _add_choice(parser: argparse.ArgumentParser) -> None:
    """Which rows are compared, from which difference on, and how it is written."""
    parser.add_argument(
        "--only",
        type=_pairs,
        action="extend",
        default=[],
        metavar="AXIS=VALUE,...",
        help="one of several values by | or by the same axis again",
    )
    parser.add_argument("--benchmark", action="append", default=[], metavar="STEM")
    parser.add_argument(
        "--at-least", type=_percentage, default=2.0, metavar="PERCENT", help="default: 2; least: 1"
    )
    parser.add_argument("--format", choices=("text", "markdown", "json"), default="text")


def _pairs(text: str) -> list[tuple[str, str]]:
    pairs = [part.partition("=") for part in text.split(",")]
    if not all(name and equals and value for name, equals, value in pairs):
        raise argparse.ArgumentTypeError(f"must be AXIS=VALUE,..., is {text}")
    return [(name.strip(), one.strip()) for name, _, value in pairs for one in value.split("|")]


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def _percentage(text: str) -> float:
    value = float(text)
    if not 0 <= value < 100:
        raise argparse.ArgumentTypeError(f"must be from 0 to 100, is {text}")
    return value


def _project(options: argparse.Namespace) -> Project:
    return Project(load_config(options.config, options.set))


def _plan(options: argparse.Namespace) -> int:
    project = _project(options)
    print(f"machine {project.machine.slug}, preset {project.preset}")
    for stem, plan in project.plans.items():
        print(f"{stem}: {plan.summary}")
        for case, why in plan.due:
            print(f"  {case.name}: {why}")
    return 0


def _measure(options: argparse.Namespace) -> int:
    from lmperf.compiler import require_caches
    from lmperf.evidence.record import record
    from lmperf.measuring.follow import die_with
    from lmperf.measuring.lock import machine_lock
    from lmperf.measuring.stopwatch import process_age

    require_caches()
    if options.parent is not None:
        die_with(options.parent)
    if options.retry_failed:
        options.set["retry_failed"] = True
    # Before anything else: what another run has measured meanwhile need not be measured again.
    with machine_lock(_say):
        project = _project(options)
        if options.stem not in project.plans:
            known = ", ".join(project.plans) or "none, since torch is not installed"
            raise UserError(
                f"{options.stem} is not a benchmark to measure here; there are: {known}"
            )
        check_functions(project.plans[options.stem].benchmark)
        record(project, options.stem, options.log, process_age())
    return 0


def _say(words: str) -> None:
    print(f"lmperf: {words}", file=sys.stderr)


def _report(options: argparse.Namespace) -> int:
    from lmperf.measuring.lock import machine_lock
    from lmperf.reporting import written
    from lmperf.reporting.render import render_machine, render_overview

    with machine_lock(_say):  # rendering is load beside a measurement
        project = _project(options)
        if options.machine is None:
            render_overview(project)
        else:
            render_machine(project, options.machine)
        written.record(project, options.machine)
    _say_where(project, options.machine)
    return 0


def _summary(options: argparse.Namespace) -> int:
    project = _project(options)
    _say_where(project, options.machine)
    faults = _not_rendered(project, options.machine) if options.current else []
    for words in faults:
        _say(words)
    return 1 if faults else 0


def _not_rendered(project: Project, machine: str | None) -> list[str]:
    """The files of a write-up that are not what its evidence renders to, with what that means."""
    from lmperf.reporting.render import edited
    from lmperf.reporting.written import target

    folder = target(project, machine).parent
    words = "is not what its evidence renders to: edited, or of before"
    return [f"{folder / name}: {words}" for name in edited(project, machine)]


def _say_where(project: Project, machine: str | None) -> None:
    """Name the file to open, and what is wrong with its evidence, a line for each kind."""
    from lmperf.evidence.review import causes, tally
    from lmperf.reporting.written import target

    whose = machine or project.machine.slug
    path = target(project, machine)
    print(f"{path}: the write-up of {whose}" if path.exists() else f"{path}: not written yet")
    if whose not in project.machines_with_evidence():
        print(f"  {whose} has not been measured")
        return
    for line in tally(causes(project, whose)):
        print(f"  {line}")


def _verify(options: argparse.Namespace) -> int:
    from lmperf.evidence.review import causes, out_of_memory
    from lmperf.reporting.render import silent_gaps

    project = _project(options)
    machines = options.machines or [project.machine.slug]
    if options.all:
        machines = project.machines_with_evidence()
    found = [cause for machine in machines for cause in causes(project, machine)]
    lines = [line for cause in found for line in (cause.lines if options.verbose else [str(cause)])]
    known = [machine for machine in machines if machine in project.machines_with_evidence()]
    lines += silent_gaps(project, known)
    lines += [words for machine in known for words in _not_rendered(project, machine)]
    for line in lines:
        print(f"verify: {line}", file=sys.stderr)
    for cause in (cause for machine in known for cause in out_of_memory(project, machine)):
        print(f"verify: {cause}")  # a result, where the device is too small; named all the same
    words = ", ".join(machines) or "no machine"
    print(f"verify: {words}: " + (f"{len(lines)} causes" if lines else "all is measured and right"))
    return 1 if lines else 0


def _diff(options: argparse.Namespace) -> int:
    from lmperf.reporting.diff.comparison import compare
    from lmperf.reporting.diff.forms import FORMS
    from lmperf.reporting.diff.results import read_result

    old, new = read_result(options.old), read_result(options.new)
    found = compare(old, new, options.at_least / 100, options.only, options.benchmark)
    sys.stdout.write(FORMS[options.format](found))
    return 1 if found.regressions else 0


def _compare(options: argparse.Namespace) -> int:
    from lmperf.comparing.cells import Wanted
    from lmperf.comparing.run import compare_versions
    from lmperf.reporting.diff.forms import FORMS

    if len(options.revisions) > 2:
        raise UserError("compare takes two revisions at most")
    wanted = Wanted(options.benchmark, options.only, options.implementations, options.phases)
    found = compare_versions(
        _project(options), options.revisions, wanted, options.at_least / 100, not options.no_twin
    )
    if found is None:
        print("lmperf: the code of no benchmark differs; name one by --benchmark", file=sys.stderr)
        return 0
    sys.stdout.write(FORMS[options.format](found))
    return 1 if found.regressions else 0


def _selftest(options: argparse.Namespace) -> int:
    from lmperf.reporting.selftest import HELD, NOT_HELD, NOT_RUN
    from lmperf.selftest.run import run
    from lmperf.selftest.write import answer, write

    project = _project(options)
    if not project.can_measure:
        raise UserError("nothing can be measured here, since torch is not installed")
    results = list(run(project))
    answers = Counter(answer(result) for result in results)
    for result in results:
        if answer(result) == NOT_HELD:
            print(f"selftest: {result.case.name}: {result.outcome.words}", file=sys.stderr)
    counts = f"{answers[HELD]} held, {answers[NOT_HELD]} did not, {answers[NOT_RUN]} not run"
    print(f"{write(project, results)}: {counts}")
    return 1 if answers[NOT_HELD] else 0


def _prune(options: argparse.Namespace) -> int:
    from lmperf.evidence.review import prune

    print(f"{prune(_project(options), options.machine)} stale rows dropped")
    return 0


def _machine(options: argparse.Namespace) -> int:
    print(_project(options).machine.slug)
    return 0


def _schema(options: argparse.Namespace) -> int:
    sys.stdout.write(json_schema())
    return 0


if __name__ == "__main__":
    sys.exit(main())
