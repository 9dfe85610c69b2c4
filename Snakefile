"""From a configuration to a report: check -> measure -> report.

    snakemake --cores 1 report/report.md        measure what is stale here, and write the report
    snakemake --cores 1 report/MACHINE/report.md     render evidence that is here already
    snakemake --cores 1 verify                  fail, naming each cause, unless all is whole and right

A job is a benchmark, and measures its own missing and stale cells. Which benchmarks have any is found
out below, from the keys in the evidence: Snakemake's memory and file times do not know of an edited
kernel, another torch, or a file that was cut.
"""

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(workflow.basedir) / "src"))

from lmperf.config import load_config
from lmperf.errors import UserError
from lmperf.evidence.plan import Project
from lmperf.reporting.key import rendering_key

try:
    project = Project(load_config(Path("config/config.yaml"), config))
except UserError as error:
    print(f"lmperf: {error}", file=sys.stderr)
    sys.exit(2)

HERE = project.machine.slug
PLANS = project.plans
CHECKS = [stem for stem, plan in PLANS.items() if plan.benchmark.is_check]
BENCHMARKS = [stem for stem in PLANS if stem not in CHECKS]
OTHERS = [machine for machine in project.machines_with_evidence() if machine != HERE]
# Snakemake sets these to a job's threads; a measurement runs with the user's own settings.
THREADS = ["OMP_NUM_THREADS", "GOTO_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"]
THREADS += ["VECLIB_MAXIMUM_THREADS", "NUMEXPR_NUM_THREADS"]
UNSET = [word for name in THREADS if name not in os.environ for word in ("-u", name)]
SET = [f"{name}={os.environ[name]}" for name in THREADS if name in os.environ]
LMPERF = [
    "env",
    *UNSET,
    *SET,
    sys.executable,
    "-m",
    "lmperf.cli",
    "--set",
    json.dumps(config, sort_keys=True),
]


def pending(wildcards):
    """The list of missing and stale cells, newer than the evidence; nothing when there are none."""
    return PLANS[wildcards.stem].write_pending(Path(".lmperf")) or []


def checked(wildcards):
    """The kernel tests that go before a benchmark."""
    check = PLANS[wildcards.stem].benchmark.check
    return f"report/{HERE}/evidence/{check}.csv" if check else []


def evidence(machine):
    """What a machine's report is rendered from: all that is due here, or what has come from there."""
    if machine == HERE and PLANS:
        return expand(f"report/{HERE}/evidence/{{stem}}.csv", stem=PLANS)
    return sorted(map(str, Path(f"report/{machine}/evidence").glob("*.csv")))


wildcard_constraints:
    machine="[a-z0-9._-]+",


localrules:
    verify,


rule overview:
    """The machine at hand, and its comparison with every other machine that has evidence here."""
    input:
        f"report/{HERE}/report.md" if PLANS else [],
        [path for machine in OTHERS for path in evidence(machine)],
    output:
        "report/report.md",
    log:
        "logs/overview.log",
    conda:
        "envs/lmperf.yaml"
    params:
        lmperf=LMPERF,
        key=rendering_key(project.config),
    shell:
        "{params.lmperf:q} report 2> >(tee {log:q} >&2)"


rule report:
    """A machine's report, from its evidence alone."""
    input:
        lambda wildcards: evidence(wildcards.machine),
    output:
        "report/{machine}/report.md",
    log:
        "logs/report/{machine}.log",
    conda:
        "envs/lmperf.yaml"
    params:
        lmperf=LMPERF,
        key=rendering_key(project.config),
    shell:
        "{params.lmperf:q} report {wildcards.machine:q} 2> >(tee {log:q} >&2)"


rule check:
    """Kernel tests against the float64 reference: what the timings of a kernel rest on."""
    input:
        pending,
    output:
        update(f"report/{HERE}/evidence/{{stem}}.csv"),
    log:
        "logs/{stem}.log",
    wildcard_constraints:
        stem="|".join(CHECKS) or "-",
    conda:
        "envs/lmperf.yaml"
    resources:
        gpu=1,
    params:
        lmperf=LMPERF,
        key=lambda wildcards: PLANS[wildcards.stem].fingerprint,
    shell:
        "{params.lmperf:q} measure {wildcards.stem:q} --log {log:q}"


use rule check as measure with:
    input:
        pending,
        checked,
    wildcard_constraints:
        stem="|".join(BENCHMARKS) or "-",


rule verify:
    """Fails, naming each cause, unless the evidence is whole, fresh and right."""
    log:
        "logs/verify.log",
    conda:
        "envs/lmperf.yaml"
    params:
        lmperf=LMPERF,
    shell:
        "{params.lmperf:q} verify 2> >(tee {log:q} >&2)"
