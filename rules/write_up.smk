"""Write-ups: from evidence to Markdown and figures.

Outputs are marked `update`, so a failed rendering leaves the old write-up in place. The pages and
figures are not outputs, since Snakemake removes the outputs of a failed job; rendering replaces them.
"""


localrules:
    write_up,
    overview,


rule write_up:
    """A machine's report.md, its pages and its figures, from its evidence alone."""
    input:
        lambda wildcards: WRITE_UP_INPUTS[wildcards.machine],
    output:
        report(
            update("report/{machine}/report.md"),
            category="Write-up",
            labels={"name": "{machine}"},
            caption="captions/write_up.rst",
        ),
    log:
        "logs/report/{machine}.log",
    wildcard_constraints:
        machine="|".join(map(re.escape, MACHINES)),
    params:
        lmperf=LMPERF,
        leads=lambda wildcards: written.leads(project, wildcards.machine),
    shell:
        "{params.lmperf:q} report {wildcards.machine:q} > {log:q} 2> >(tee -a {log:q} >&2)"


rule overview:
    """The write-up of this machine beside every other machine that has evidence here."""
    input:
        [f"report/{HERE}/report.md"] if HAS_EVIDENCE_HERE else [],
        [path for machine in OTHERS for path in evidence(machine)],
        due=[due_file("overview", "report/report.md")] if None in OUTDATED else [],
    output:
        report(update("report/report.md"), category="Write-up", labels={"name": "overview"}),
    log:
        "logs/report.log",
    params:
        lmperf=LMPERF,
    shell:
        "{params.lmperf:q} report > {log:q} 2> >(tee -a {log:q} >&2)"
