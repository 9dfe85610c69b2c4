"""What the rules share: the project, what is due of it, and how a job calls lmperf.

Snakemake knows of files and their times. It does not know of an edited kernel, another torch, a CSV
that was cut, or a run that was killed; the evidence does. So each step has two rules for the same
file: one for what is due, which runs whatever is there, and one for what is fresh, which has
nothing to run. Which file belongs to which is found out here, whenever the workflow is read.
"""

import fcntl
import json
import os
import re
import subprocess
import sys
from pathlib import Path

from snakemake.cli import get_argument_parser

sys.dont_write_bytecode = True  # a dry run leaves nothing behind
sys.path.insert(0, str(Path(workflow.basedir) / "src"))

from lmperf.config import load_config
from lmperf.errors import UserError
from lmperf.evidence.plan import Project
from lmperf.reporting import written


def refuse(words):
    """End before anything runs, in one line."""
    print(f"lmperf: {words}", file=sys.stderr)
    sys.exit(2)


def forced_names():
    """The rules and files that `-R` names; None where `-F` forces all.

    Snakemake hands this over only after the workflow was read.
    """
    options, _ = get_argument_parser().parse_known_args()
    return None if options.forceall else {*(options.forcerun or [])}


def is_forced(*names):
    """Whether one of these, a rule or a file, is to be made again whatever is there."""
    return ON_DEMAND is None or not ON_DEMAND.isdisjoint(names)


def rule_of(stem):
    """The rule that measures a benchmark."""
    return "check" if stem in CHECKS else "measure"


def csv_of(stem):
    """The evidence of a benchmark on the machine at hand."""
    return f"report/{HERE}/evidence/{stem}.csv"


def summary_of(stem):
    """What a job would measure, and why, in a line."""
    return "all of it, again" if stem in FORCED else PLANS[stem].summary


def is_to_write(machine):
    """Whether a write-up, of a machine or (None) the overview, is to be rendered."""
    path = str(written.target(project, machine))
    forced = is_forced("write_up" if machine else "overview", path)
    return forced or not written.is_current(project, machine)


# All that is asked of the evidence is asked here: what is raised in an input function, Snakemake
# swallows where the output exists.
try:
    # Of `--config`: no file has been read yet.
    OVERRIDES = [f"{key}={json.dumps(value, sort_keys=True)}" for key, value in config.items()]
    project = Project(load_config(Path("config/config.yaml"), config))
    HERE = project.machine.slug
    PLANS = project.plans
    ON_DEMAND = forced_names()
    CHECKS = [stem for stem, plan in PLANS.items() if plan.benchmark.is_check]
    BENCHMARKS = [stem for stem in PLANS if stem not in CHECKS]
    FORCED = [stem for stem in PLANS if is_forced(stem, rule_of(stem), csv_of(stem))]
    DUE = [stem for stem, plan in PLANS.items() if plan.is_due or stem in FORCED]
    SUMMARIES = {stem: summary_of(stem) for stem in DUE}
    OTHERS = [machine for machine in project.machines_with_evidence() if machine != HERE]
    MACHINES = [*OTHERS, HERE]
    HAS_WRITE_UP = bool(PLANS) or HERE in project.machines_with_evidence()
    TO_WRITE = [m for m in MACHINES if (m == HERE and DUE) or is_to_write(m)]
    OVERVIEW_IS_DUE = bool(DUE) or is_to_write(None)
except UserError as error:
    refuse(error)
except OSError as error:
    refuse(f"{error.filename}: {error.strerror}")
except TypeError as error:
    refuse(f"--configfile: {error}; a configuration has words, numbers, lists and mappings")

# Snakemake sets these to a job's threads; a measurement runs with the user's own settings.
THREADS = ["OMP_NUM_THREADS", "GOTO_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"]
THREADS += ["VECLIB_MAXIMUM_THREADS", "NUMEXPR_NUM_THREADS"]
UNSET = [word for name in THREADS if name not in os.environ for word in ("-u", name)]
SET = [f"{name}={os.environ[name]}" for name in THREADS if name in os.environ]
FIGURE_CAPTION = workflow.current_basedir.join("captions/figure.rst")
CONFIG = [word for one in sorted(OVERRIDES) for word in ("--config", one)]
LMPERF = ["env", *UNSET, *SET, sys.executable, "-m", "lmperf.cli", *CONFIG]
PARENT = os.getpid()  # a measurement ends with its Snakemake, however that ends


def as_due(wildcards):
    """No file: has the rules of what is due run whatever is there, and whatever else `-R` names."""
    always = ("check", "measure", "write_up", "overview")
    workflow.dag.forcerules.update(rule for rule in workflow.rules if rule.name in always)
    return []


def any_of(names):
    """A wildcard's constraint: one of these names; what matches nothing when there are none."""
    return "|".join(map(re.escape, names)) or "(?!)"


def due(stems):
    """The wildcard constraint of those that have something to measure."""
    return any_of(stem for stem in stems if stem in DUE)


def evidence(machine):
    """What a machine's write-up rests on: all that is owed here, or what has come from there."""
    if machine == HERE and PLANS:
        return [csv_of(stem) for stem in PLANS]
    return sorted(map(str, Path(f"report/{machine}/evidence").glob("*.csv")))


def tests_of(wildcards):
    """The kernel tests that go before a benchmark."""
    check = PLANS[wildcards.stem].benchmark.check
    return [csv_of(check)] if check else []


def as_found(paths):
    """Inputs whose age means nothing to their rule."""
    return [ancient(path) for path in paths]


def annotated(path, **annotation):
    """A file for `snakemake --report`; that it is newer than another one means nothing."""
    labels = {"name": path.stem.removesuffix("-light")}
    return ancient(report(str(path), labels=labels, **annotation))


def pages(wildcards):
    """The pages of a machine's sections, as they are found."""
    found = written.pages(project, wildcards.machine)
    inner = [page for page in found if page.name != "report.md"]
    return [annotated(page, category="Pages") for page in inner]


def figures(wildcards):
    """The figures of a machine's write-up for a light page, as they are found."""
    found = written.figures(project, wildcards.machine)
    light = [figure for figure in found if not figure.stem.endswith("-dark")]
    return [annotated(path, category="Figures", caption=FIGURE_CAPTION) for path in light]


def hold_checkout():
    """Be the only run in this checkout, until this process ends, however it ends.

    Snakemake's own lock outlives a run that was killed, and is turned off by `profiles/default`.
    """
    global checkout  # closed with the process
    checkout = os.open(".", os.O_RDONLY)
    try:
        fcntl.flock(checkout, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        refuse("another run in this checkout is under way; wait for its end, or end it")


def print_summary():
    """Name the write-ups that this run has written, and what is wrong with their evidence."""
    targets = ([[]] if OVERVIEW_IS_DUE else []) + [[machine] for machine in TO_WRITE]
    done = [words for words in targets if written.is_current(project, *(words or [None]))]
    for words in done[:1]:
        subprocess.run([*LMPERF, "summary", *words], check=False)
