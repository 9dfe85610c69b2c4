"""What the rules share: the project, what is due, and how a job calls lmperf.

Snakemake compares files and their times. It does not see an edited kernel, another version of torch,
a CSV that was cut, or a run that was killed; the keys in the evidence do. So this file asks the
evidence what is due each time the workflow is read. If an output is due, its rule gets one more
input, a new file in a temporary folder (`due_file`). That file is newer than the output, so Snakemake
runs the rule. Without it, a rule runs only if another input changes or the user forces it.
"""

import atexit
import fcntl
import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True  # a dry run leaves no files behind
# In a checkout use its own code; a workflow that was installed with lmperf has no such folder.
if (SOURCE := Path(str(workflow.current_basedir)).parent / "src").is_dir():
    sys.path.insert(0, str(SOURCE))

from lmperf.config import load_config
from lmperf.errors import UserError
from lmperf.evidence.allocation import allocation
from lmperf.evidence.project import Project
from lmperf.evidence.store import lock_folder
from lmperf.measuring.rest import wait_for_rest, watch_here
from lmperf.reporting import written


def say(message):
    """Print a line to the user on stderr."""
    print(f"lmperf: {message}", file=sys.stderr, flush=True)


def refuse(message):
    """Exit with code 2 and one line before any job starts."""
    say(message)
    sys.exit(2)


def require_writable_folder():
    """Refuse a read-only folder: Snakemake writes to .snakemake/ even in a dry run."""
    folder = Path(".snakemake") if Path(".snakemake").exists() else Path.cwd()
    if not os.access(folder, os.W_OK):
        refuse(
            f"{folder} is read-only, and Snakemake writes to .snakemake/ even in a dry run;"
            " make it writable or run in a copy. `lmperf list --due` needs no write access"
        )


def csv_of(stem):
    """The evidence of a benchmark on this machine."""
    return f"report/{HERE}/evidence/{stem}.csv"


def new_folder():
    """A new temporary folder; for a cluster it lies in the checkout, which all nodes see."""
    place = None
    if PARTITION:
        place = Path(".snakemake")
        place.mkdir(exist_ok=True)
    return tempfile.mkdtemp(prefix="lmperf-due-", dir=place)


# Snakemake ignores an exception in an input function when the output exists. So all evidence is read
# here, and no input function reads any.
require_writable_folder()
if "gpu" not in workflow.global_resources:  # without the profile that comes with lmperf
    workflow.register_resource("gpu", 1)
try:
    # The values of `--config`, or of `config:` of a module: Snakemake has not read the file yet.
    GIVEN = {key: value for key, value in config.items() if key != "configfile"}
    CONFIGFILE = Path(config.get("configfile", "config/config.yaml"))
    OVERRIDES = [f"{key}={json.dumps(value, sort_keys=True)}" for key, value in GIVEN.items()]
    configuration = load_config(CONFIGFILE, GIVEN)
    PARTITION = configuration.partition
    if "detect" in (word.partition(":")[0] for word in sys.argv):  # its nodes may not be known yet
        configuration = configuration.model_copy(update={"partition": None, "preset": "cpu"})
    project = Project(configuration)
    HERE = project.machine.slug
    PLANS = project.plans
    DUE = [stem for stem, plan in PLANS.items() if plan.is_due]
    SUMMARIES = {stem: plan.summary for stem, plan in PLANS.items()}
    # The rows that are measured a second time; only a run of all benchmarks does that by itself.
    REPEATS = project.repeats
    MEASURED = [*PLANS, *([REPEATS.stem] if project.repeats_rows else [])]
    OTHERS = [machine for machine in project.machines_with_evidence() if machine != HERE]
    MACHINES = [*OTHERS, HERE]
    # Stem -> name of its rule; a module may give its rules other names.
    RULE = {stem: workflow.modifier.modify_rulename(stem) for stem in (*PLANS, REPEATS.stem)}
    HAS_EVIDENCE_HERE = bool(PLANS) or HERE in project.machines_with_evidence()
    # None stands for the overview, report/report.md.
    OUTDATED = [m for m in (*MACHINES, None) if not written.is_current(project, m)]
    # What a job on a cluster, which reads the workflow again on its node, is told by this process.
    TOLD = json.loads(os.environ.get("LMPERF_WORKFLOW", "{}"))
    DUE_FILES = Path(TOLD["due_files"] if TOLD else new_folder())
except UserError as error:
    refuse(error)
except OSError as error:
    refuse(f"{error.filename}: {error.strerror}")
except TypeError as error:
    refuse(f"--configfile: {error}; a configuration has words, numbers, lists and mappings")
if not TOLD:
    atexit.register(shutil.rmtree, DUE_FILES, ignore_errors=True)

# Snakemake sets these to the threads of a job. A measurement runs with the user's own settings.
THREADS = ["OMP_NUM_THREADS", "GOTO_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"]
THREADS += ["VECLIB_MAXIMUM_THREADS", "NUMEXPR_NUM_THREADS"]
UNSET = [word for name in THREADS if name not in os.environ for word in ("-u", name)]
SET = [f"{name}={os.environ[name]}" for name in THREADS if name in os.environ]
CONFIG = [word for one in sorted(OVERRIDES) for word in ("--config", one)]
LMPERF = ["env", *UNSET, *SET, sys.executable, "-m", "lmperf.cli"]
LMPERF += ["--configfile", str(CONFIGFILE), *CONFIG]
PARENT = os.getpid()  # a measurement ends when this process ends
STARTED = time.time()


def newest_output():
    """The latest time of any output; it may lie in the future, after a clock was set back."""
    reports = [written.target(project, machine) for machine in (*MACHINES, None)]
    outputs = [*(Path(csv_of(stem)) for stem in (*PLANS, REPEATS.stem)), *reports]
    return max((path.stat().st_mtime for path in outputs if path.exists()), default=0)


NEWER = max(time.time(), newest_output() + 1)


def due_file(name, output):
    """A new file that makes Snakemake run the rule that has it as an input.

    If `output` is missing, Snakemake compares the file with the outputs of the rules that depend on
    it. So it is newer than every output.
    """
    path = DUE_FILES / name
    if not TOLD:
        path.write_text(f"{output} is due\n")
        os.utime(path, (NEWER, NEWER))
    return str(path)


def retire_due_files():
    """Make the due files old: Snakemake rejects an output that is older than an input."""
    for path in DUE_FILES.iterdir():
        os.utime(path, (0, 0))


def is_forced(stem):
    """Whether `-R`, `-F` or `-f` asks for all of a benchmark; call it only from `params`.

    Snakemake starts the job of a forced rule by itself. The job must know that it is forced, since
    otherwise it measures only what is due, and Snakemake documents no way to ask. Its settings, of a
    class that the documentation of `snakemake.api` describes, are in `workflow.dag_settings` once
    the workflow was read. Tried with Snakemake 9.27.1.
    """
    if TOLD:
        return stem in TOLD["forced"]
    settings = workflow.dag_settings
    names = {*settings.forcerun, *(settings.targets if settings.forcetargets else ())}
    return settings.forceall or not names.isdisjoint((RULE[stem], csv_of(stem)))


def also_measured(stem):
    """The option with the other benchmarks that this run measures; call it only from `params`.

    Empty if the user forces any other: how much of it is done cannot be seen from the evidence.
    Empty as well if jobs run side by side, since what is left of the others takes no time here.
    """
    targets = set(workflow.dag_settings.targets)
    asked = {one for one in PLANS if targets & {RULE[one], csv_of(one)}}
    named = {one: PLANS[one].benchmark.check for one in asked}
    whole = not targets or targets - {RULE[one] for one in asked} - set(map(csv_of, asked))
    others = [one for one in DUE if one != stem and (whole or one in {*named, *named.values()})]
    others += [REPEATS.stem] if whole and project.repeats_rows and REPEATS.is_due else []
    if not others or runs_side_by_side() or any(is_forced(one) for one in PLANS if one != stem):
        return []
    return ["--also", ",".join(others)]


def runs_side_by_side():
    """Whether jobs run at once, each on GPUs of its own: with `--resources gpu=2`, on a cluster."""
    return PARTITION is not None or workflow.global_resources["gpu"].value > 1


def beside_others(gpus):
    """The option for a job on some GPUs beside others, if any; else it has the whole machine."""
    return ["--gpus", str(gpus)] if runs_side_by_side() else []


def evidence(machine):
    """The CSVs that the write-up of a machine is made from."""
    if machine == HERE and PLANS:
        return [csv_of(stem) for stem in MEASURED]
    return sorted(map(str, Path(f"report/{machine}/evidence").glob("*.csv")))


def kernel_tests(stem):
    """The kernel tests that must run before a benchmark; new ones alone do not make it run again."""
    check = PLANS[stem].benchmark.check
    # A missing CSV as an input would make Snakemake run a benchmark that is not due.
    needed = check in PLANS and (stem in DUE or Path(csv_of(check)).exists())
    return [ancient(csv_of(check))] if needed else []


def for_report(path, category):
    """A file that `snakemake --report` includes; its time makes no rule run."""
    name = path.stem.removesuffix("-light")
    return ancient(report(str(path), category=category, labels={"name": name}))


def write_up_inputs(machine):
    """What a write-up is made from, with its pages and figures if they are up to date."""
    if machine in OUTDATED:
        return [*evidence(machine), due_file(f"{machine}-write-up", f"report/{machine}/report.md")]
    pages = [page for page in written.pages(project, machine) if page.name != "report.md"]
    figures = [path for path in written.drawn(project, machine) if "-dark" not in path.stem]
    return [
        *evidence(machine),
        *(for_report(page, "Pages") for page in pages),
        *(for_report(figure, "Figures") for figure in figures),
    ]


WRITE_UP_INPUTS = {machine: write_up_inputs(machine) for machine in MACHINES}


def workflow_description():
    """The file that `snakemake --report` opens on: what the report is, and what it says."""
    text = Path(str(workflow.current_basedir), "rules/captions/workflow.rst").read_text()
    for machine in (HERE, *OTHERS):
        if sentences := written.leads(project, machine):
            listed = "\n".join(f"- {sentence}" for sentence in sentences)
            text += f"\n{{% raw %}}What the evidence of {machine} says:\n\n{listed}{{% endraw %}}\n"
    path = DUE_FILES / "workflow.rst"
    path.write_text(text)
    return str(path)


def begin_run():
    """Call it when a run starts. Snakemake ignores `onstart` of a module, so its user calls it."""
    lock_checkout()
    wait_until_at_rest()
    retire_due_files()
    tell_jobs()
    end_quietly_if_interrupted()


def lock_checkout():
    """Refuse a second run in this checkout until this process ends, however it ends.

    Snakemake's own lock outlives a killed run; `profiles/default` turns it off.
    """
    global checkout  # the lock is held while this descriptor is open
    try:
        checkout = lock_folder(Path(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        refuse("another run in this checkout is under way; wait until it ends, or stop it")


def tell_jobs():
    """Tell the jobs of a cluster what only this process knows; they inherit the environment."""
    if PARTITION:
        forced = [stem for stem in (*PLANS, REPEATS.stem) if is_forced(stem)]
        told = json.dumps({"due_files": str(DUE_FILES), "forced": forced})
        os.environ.update(LMPERF_WORKFLOW=told)


def wait_until_at_rest():
    """With `remeasure`, wait until other programs rest, once, before the first job.

    On a cluster each job waits on its node.
    """
    jobs = [*PLANS.values(), *([REPEATS] if project.repeats_rows else [])]
    if PARTITION or not any(job.remeasure and job.unsettled for job in jobs):
        return
    try:
        wait_for_rest(watch_here(project.machine.kind, project.device_uuids), say)
    except UserError as error:
        refuse(error)
    except KeyboardInterrupt:
        sys.exit(130)


def end_quietly_if_interrupted():
    """On Ctrl-C print one line, and keep Snakemake from reporting the ended job as an error."""

    def interrupted(number, frame):
        logging.disable(logging.CRITICAL)  # Snakemake prints all it says with `logging`
        print(file=sys.stderr)  # ends the line of ^C
        say("interrupted; what was measured is stored, and make report goes on from there")
        signal.signal(signal.SIGINT, signal.default_int_handler)
        raise KeyboardInterrupt  # Snakemake ends its jobs

    # A shell ignores SIGINT in background jobs: leave it so.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupted)


def print_summary():
    """Print where the write-up is and what is wrong with its evidence, if this run wrote one."""
    for machine in (None, *MACHINES):
        path = written.target(project, machine)
        if path.exists() and path.stat().st_mtime >= STARTED:
            subprocess.run([*LMPERF, "summary", *([machine] if machine else [])], check=False)
            return
