"""The commands that the DAG and a person call.

    lmperf plan               what a run would measure
    lmperf measure STEM       measure what is missing or stale of one benchmark
    lmperf report [MACHINE]   render a machine's report from its evidence; without MACHINE, all
    lmperf verify [MACHINE]   fail, naming each cause, unless all is whole, fresh and right
    lmperf prune MACHINE      drop stale rows of cells that the grid no longer has
    lmperf machine            the slug of this machine
    lmperf schema             the configuration's JSON schema

Exit codes: 0 done, 1 `verify` found causes, 2 bad input, said in one line.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from lmperf.config import json_schema, load_config
from lmperf.errors import UserError
from lmperf.evidence.plan import Project
from lmperf.own import check_functions

CONFIG = Path("config/config.yaml")


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    # An implementation of the user's own may lie in the checkout, however this was started.
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return options.command(options)
    except UserError as error:
        print(f"lmperf: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # `lmperf plan | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "lmperf", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", type=Path, default=CONFIG, help=f"default: {CONFIG}")
    parser.add_argument(
        "--set", type=_mapping, default={}, metavar="JSON", help="keys that replace the file's"
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    commands.add_parser("plan", help="what a run would measure").set_defaults(command=_plan)
    measure = commands.add_parser("measure", help="measure one benchmark")
    measure.add_argument("stem")
    measure.add_argument("--log", type=Path)
    measure.set_defaults(command=_measure)
    report = commands.add_parser("report", help="render from evidence")
    report.add_argument("machine", nargs="?", help="default: report.md, of all machines")
    report.set_defaults(command=_report)
    verify = commands.add_parser("verify", help="is the evidence whole, fresh, right?")
    verify.add_argument("machines", nargs="*", metavar="MACHINE", help="default: all")
    verify.set_defaults(command=_verify)
    prune = commands.add_parser("prune", help="drop stale rows that no grid asks for")
    prune.add_argument("machine")
    prune.set_defaults(command=_prune)
    commands.add_parser("machine", help="the slug of this machine").set_defaults(command=_machine)
    commands.add_parser("schema", help="JSON schema of the configuration").set_defaults(
        command=_schema
    )
    return parser


def _mapping(text: str) -> dict:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"no JSON: {error}") from None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"must be an object of keys and values, is {text}")
    return value


def _project(options: argparse.Namespace) -> Project:
    return Project(load_config(options.config, options.set))


def _plan(options: argparse.Namespace) -> int:
    project = _project(options)
    print(f"machine {project.machine.slug}, preset {project.preset}")
    for stem, plan in project.plans.items():
        print(f"{stem}: {len(plan.cases)} cases, {len(plan.missing)} missing or stale")
        for name in plan.missing:
            print(f"  {name}")
    return 0


def _measure(options: argparse.Namespace) -> int:
    from lmperf.evidence.record import record
    from lmperf.measuring.stopwatch import process_age

    project = _project(options)
    if options.stem not in project.plans:
        known = ", ".join(project.plans) or "none, since torch is not installed"
        raise UserError(f"{options.stem} is not a benchmark to measure here; there are: {known}")
    check_functions(project.plans[options.stem].benchmark)
    record(project, options.stem, options.log, process_age())
    return 0


def _report(options: argparse.Namespace) -> int:
    from lmperf.reporting.render import render_machine, render_overview

    project = _project(options)
    if options.machine is None:
        render_overview(project)
    else:
        render_machine(project, options.machine)
    return 0


def _verify(options: argparse.Namespace) -> int:
    from lmperf.evidence.review import causes
    from lmperf.reporting.render import silent_gaps

    project = _project(options)
    reasons = causes(project, options.machines)
    machines = options.machines or project.machines_with_evidence()
    gaps = silent_gaps(project, machines)
    found = [*reasons, *gaps]
    for cause in found:
        print(f"verify: {cause}", file=sys.stderr)
    print(f"verify: {len(found)} causes to fail" if found else "verify: all is measured and right")
    return 1 if found else 0


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
