"""Write-ups: from evidence to Markdown and figures.

Outputs are marked `update`, so that a rendering that fails leaves what was there before. The pages and
figures of a write-up are no outputs, since Snakemake removes outputs: they are replaced by rendering.
"""


rule write_up:
    """A machine's write-up, from its evidence alone: report.md, a page for each section, figures."""
    input:
        as_due,
        lambda wildcards: evidence(wildcards.machine),
    output:
        update("report/{machine}/report.md"),
    log:
        "logs/report/{machine}.log",
    wildcard_constraints:
        machine=any_of(TO_WRITE),
    params:
        lmperf=LMPERF,
    shell:
        "{params.lmperf:q} report {wildcards.machine:q} > {log:q} 2> >(tee -a {log:q} >&2)"


rule written:
    """A write-up that is what its evidence renders to. Nothing runs; its files stand in `--report`."""
    input:
        lambda wildcards: as_found(evidence(wildcards.machine)),
        pages,
        figures,
    output:
        report(
            update("report/{machine}/report.md"),
            category="Write-up",
            labels={"name": "{machine}"},
            caption="captions/write_up.rst",
        ),
    wildcard_constraints:
        machine=any_of(machine for machine in MACHINES if machine not in TO_WRITE),
    params:
        findings=lambda wildcards: written.findings(project, wildcards.machine),


rule overview:
    """The write-up of the machine at hand, beside every other machine that has evidence here."""
    input:
        as_due,
        f"report/{HERE}/report.md" if HAS_WRITE_UP else [],
        [path for machine in OTHERS for path in evidence(machine)],
    output:
        update("report/{overview}.md"),
    log:
        "logs/{overview}.log",
    wildcard_constraints:
        overview="report" if OVERVIEW_IS_DUE else any_of([]),
    params:
        lmperf=LMPERF,
    shell:
        "{params.lmperf:q} report > {log:q} 2> >(tee -a {log:q} >&2)"


rule overview_written:
    """The same when it is what the evidence renders to."""
    input:
        ancient(f"report/{HERE}/report.md") if HAS_WRITE_UP else [],
    output:
        report(update("report/{overview}.md"), category="Write-up", labels={"name": "overview"}),
    wildcard_constraints:
        overview=any_of([]) if OVERVIEW_IS_DUE else "report",
