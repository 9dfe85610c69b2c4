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
        lambda wildcards: MEASURED if wildcards.machine == HERE else [],
        lambda wildcards: shown(wildcards.machine),
        due=lambda wildcards: due(wildcards.machine in OUTDATED),
    output:
        report(
            update(REPORT + "/{machine}/report.md"),
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
    message:
        "write_up: the pages of {wildcards.machine}"
    shell:
        "{params.lmperf:q} report {wildcards.machine:q} > {log:q} 2> >(tee -a {log:q} >&2)"


rule overview:
    """The write-up of this machine beside every other machine that has evidence here."""
    input:
        [f"{REPORT}/{HERE}/report.md"]
        if MEASURED or HERE in project.machines_with_evidence()
        else [],
        due=due(None in OUTDATED),
    output:
        report(update(f"{REPORT}/report.md"), category="Write-up", labels={"name": "overview"}),
    log:
        "logs/report.log",
    params:
        lmperf=LMPERF,
    message:
        f"overview: {REPORT}/report.md"
    shell:
        "{params.lmperf:q} report > {log:q} 2> >(tee -a {log:q} >&2)"
