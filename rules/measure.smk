"""Evidence: a job is a benchmark, and measures its own missing and stale cells."""


rule check:
    """Kernel tests against the float64 reference: what the timings of a kernel rest on."""
    output:
        update(f"report/{HERE}/evidence/{{stem}}.csv"),
    log:
        "logs/{stem}.log",
    wildcard_constraints:
        stem=due(CHECKS),
    resources:
        gpu=1,
    params:
        lmperf=LMPERF,
        summary=lambda wildcards: PLANS[wildcards.stem].summary,
    message:
        "{wildcards.stem}: {params.summary}"
    shell:
        "{params.lmperf:q} measure {wildcards.stem:q} --log {log:q}"


use rule check as measure with:
    input:
        tests_of,
    wildcard_constraints:
        stem=due(BENCHMARKS),


rule measured:
    """Evidence that is fresh. Nothing runs; it keeps its place in the DAG."""
    input:
        lambda wildcards: as_found(tests_of(wildcards)),
    output:
        update(f"report/{HERE}/evidence/{{stem}}.csv"),
    wildcard_constraints:
        stem=any_of(stem for stem in PLANS if stem not in DUE),
