"""Evidence: one rule for each job. It measures the missing and stale cells of a benchmark, or some
rows of all benchmarks a second time, in a new process, after all first times.

A job keeps what it measures in a store that no rule names, and makes its CSV from that store at its
end. So Snakemake can delete or restore an output without losing a measurement.
"""

for place, (stem, earlier) in enumerate(JOBS.items()):

    rule:
        """Measure what is missing or stale; repeatability: some rows a second time."""
        name:
            stem
        input:
            lambda wildcards, stem=stem, earlier=earlier: after(stem, earlier),
            due=due(stem in DUE_JOBS),
        output:
            update(csv_of(stem)),
        log:
            f"logs/{stem}.log",
        priority: len(JOBS) - place  # in the order of the write-up's sections
        resources:
            gpu=gpus(stem),
        params:
            lmperf=LMPERF,
            parent=os.getpid(),  # a measurement ends when this process ends
            stem=stem,
            force=lambda wildcards, stem=stem: ["--force"] if is_forced(stem) else [],
            measured=lambda wildcards, stem=stem: measured(stem),
        message:
            "{params.stem}: {params.measured}"
        shell:
            "exec {params.lmperf:q} measure {params.stem:q} {params.force:q} --log {log:q}"
            " --parent {params.parent}"
