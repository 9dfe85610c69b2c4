"""Evidence: a job is a benchmark, and measures its own missing and stale cells.

What it measures is kept in a store that no rule names; its CSV is made from that at the end. So
Snakemake can delete or restore an output without a loss.
"""


rule check:
    """Kernel tests against the float64 reference: what the timings of a kernel rest on."""
    input:
        as_due,
    output:
        update(csv_of("{stem}")),
    log:
        "logs/{stem}.log",
    wildcard_constraints:
        stem=due(CHECKS),
    resources:
        gpu=1,
    params:
        lmperf=LMPERF,
        parent=PARENT,
        force=lambda wildcards: ["--force"] if wildcards.stem in FORCED else [],
        summary=lambda wildcards: SUMMARIES[wildcards.stem],
    message:
        "{wildcards.stem}: {params.summary}"
    shell:
        "exec {params.lmperf:q} measure {wildcards.stem:q} {params.force:q} --log {log:q}"
        " --parent {params.parent}"


use rule check as measure with:
    input:
        as_due,
        tests_of,
    wildcard_constraints:
        stem=due(BENCHMARKS),


rule measured:
    """Evidence that is fresh. Nothing runs; it keeps its place in the DAG."""
    input:
        lambda wildcards: as_found(tests_of(wildcards)),
    output:
        update(csv_of("{stem}")),
    wildcard_constraints:
        stem=any_of(stem for stem in PLANS if stem not in DUE),


for stem in PLANS:

    rule:
        name:
            stem
        input:
            csv_of(stem),
        localrule: True
