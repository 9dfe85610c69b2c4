"""What the rules share: the project, what is due, and how a job calls lmperf.

Snakemake compares files and their times. It does not see an edited kernel, another version of torch,
a CSV that was cut, or a run that was killed; the keys in the evidence do. So this file asks the plans
once, each time the workflow is read. The rule of an output that is due gets one more input, `DUE`,
which is newer than the output. Rules that are forced (`-R`) would become targets as well.
"""

import fcntl
import json
import logging
import os
import re
import signal
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True  # a dry run leaves no files behind
# In a checkout use its own code; a workflow that was installed with lmperf has no such folder.
if (SOURCE := Path(str(workflow.current_basedir)).parent / "src").is_dir():
    sys.path.insert(0, str(SOURCE))

from lmperf.commands.report import say_where
from lmperf.config.read import load_config
from lmperf.errors import UserError, explained
from lmperf.evidence.project import Project
from lmperf.reporting import written
from lmperf.reporting.render import load_templates


def refuse(message, code=2):
    """Exit with a code and one line before any job starts."""
    print(f"lmperf: {message}", file=sys.stderr, flush=True)
    sys.exit(code)


# Snakemake ignores an exception in an input function when the output exists. So all evidence is read
# here, and no input function reads any.
try:
    # The values of `--config`, or of `config:` of a module: Snakemake has not read the file yet.
    GIVEN = {key: value for key, value in config.items() if key != "configfile"}
    CONFIGFILE = Path(config.get("configfile", "config/config.yaml"))
    project = Project(load_config(CONFIGFILE, GIVEN))
    HERE, REPORT, PLANS = project.machine.slug, project.config.report, project.plans
    DUE_JOBS = project.due_jobs
    MACHINES = [*(name for name in project.machines_with_evidence() if name != HERE), HERE]
    written.require_free_paths(project)
    # None stands for the overview, report/report.md.
    OUTDATED = [m for m in (*MACHINES, None) if not written.is_current(project, m)]
    DUE = Path(".snakemake/due")
    DUE.parent.mkdir(exist_ok=True)
    DUE.write_text(f"{time.time_ns()}\n")  # Snakemake ignores the time of a file of known content
except OSError as error:
    refuse(f"{error.filename}: {error.strerror}; a run writes there, a dry run to .snakemake/")
except Exception as error:
    refuse(*explained(error.with_traceback(error.__traceback__.tb_next)))  # without this file

# Snakemake sets these to the threads of a job. A measurement runs with the user's own settings.
THREADS = ["OMP_NUM_THREADS", "GOTO_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"]
THREADS += ["VECLIB_MAXIMUM_THREADS", "NUMEXPR_NUM_THREADS"]
UNSET = [word for name in THREADS if name not in os.environ for word in ("-u", name)]
SET = [f"{name}={os.environ[name]}" for name in THREADS if name in os.environ]
OVERRIDES = [f"{key}={json.dumps(value, sort_keys=True)}" for key, value in sorted(GIVEN.items())]
CONFIG = [word for override in OVERRIDES for word in ("--config", override)]
LMPERF = ["env", *UNSET, *SET, sys.executable, "-m", "lmperf.cli"]
LMPERF += ["--configfile", str(CONFIGFILE), *CONFIG]
STARTED = time.time()
# Stem -> the stems that are measured before it: the kernel tests first, second times last.
JOBS = {stem: [plan.benchmark.check] for stem, plan in PLANS.items()}
JOBS |= {"repeatability": [*PLANS]} if project.repeats_rows else {}
# Stem -> name of its rule; a module may give its rules other names.
RULE = {stem: workflow.modifier.modify_rulename(stem) for stem in JOBS}


def csv_of(stem):
    """The evidence of a benchmark on this machine."""
    return f"{REPORT}/{HERE}/evidence/{stem}.csv"


MEASURED = [csv_of(stem) for stem in JOBS]


def gpus(stem):
    """The number of GPUs that a job holds: as many as the largest of the benchmarks it measures."""
    plans = [PLANS[stem]] if stem in PLANS else PLANS.values()
    return max(plan.gpus for plan in plans) if project.machine.kind == "cuda" else 0


def due(is_due):
    """The input of a rule that makes it run if its output is due."""
    return [str(DUE)] if is_due else []


def is_forced(stem):
    """Whether `-R`, `-F` or `-f` asks for all of a benchmark; call it only from `params` or
    from functions of inputs.

    The job must know, since otherwise it measures only what is due. A job on a cluster, which reads
    the workflow again on its node, is told by `begin_run`. Tried with Snakemake 9.27.1.
    """
    if (forced := os.environ.get("LMPERF_FORCED")) is not None:
        return stem in forced.split(",")
    settings = workflow.dag_settings
    names = {*settings.forcerun, *(settings.targets if settings.forcetargets else ())}
    return settings.forceall or not names.isdisjoint((RULE[stem], csv_of(stem)))


def measured(stem):
    """What a job measures, in words."""
    return "all of it again" if is_forced(stem) else DUE_JOBS.get(stem, "nothing to measure")


def after(stem, earlier):
    """The outputs that a job waits for; call it only from functions of inputs. New ones alone do not
    make the job run again.
    """
    files = [csv_of(name) for name in earlier if name in PLANS]
    # While a job makes an ancient input, Snakemake 9.27.1 ignores what else makes the job run.
    if stem in DUE_JOBS or is_forced(stem):
        return files
    # A missing CSV as an input would make Snakemake run a job that is not due.
    return [ancient(csv) for csv in files if Path(csv).exists()]


def shown(machine):
    """The pages and figures that `snakemake --report` includes; their times make no rule run."""
    pages = [page for page in written.pages(project, machine) if page.name != "report.md"]
    figures = [path for path in written.drawn(project, machine) if "-dark" not in path.stem]
    files = {"Pages": pages, "Figures": figures} if machine not in OUTDATED else {}
    return [
        ancient(report(str(path), category=kind, labels={"name": path.stem.removesuffix("-light")}))
        for kind, paths in files.items()
        for path in paths
    ]


def begin_run():
    """Call it when a run starts. Snakemake ignores `onstart` of a module, so its user calls it."""
    global checkout  # the lock is held while this file is open, however this process ends
    checkout = open(".snakemake/lmperf.lock", "w")
    try:
        fcntl.flock(checkout, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        refuse("another run in this checkout is under way; wait until it ends, or stop it")
    try:
        load_templates(project.own_templates)  # not when the report is rendered at the end
    except UserError as error:
        refuse(error)
    os.environ.update(LMPERF_FORCED=",".join(filter(is_forced, RULE)))
    os.utime(DUE, (0, 0))  # Snakemake rejects an output that is older than an input
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not in the background
        signal.signal(signal.SIGINT, end_quietly)


def end_quietly(number, frame):
    """On Ctrl-C, keep Snakemake from reporting the ended job as an error; the job says what is kept."""
    logging.disable(logging.CRITICAL)  # Snakemake prints all it says with `logging`
    signal.signal(signal.SIGINT, signal.default_int_handler)


def print_summary():
    """Print where the write-up is and what is wrong with its evidence, if this run wrote one."""
    for machine in (None, *MACHINES):
        path = written.target(project, machine)
        if path.exists() and path.stat().st_mtime >= STARTED:
            # Not `project`, which has read the evidence before the run.
            say_where(Project(load_config(CONFIGFILE, GIVEN)), machine)
            return
