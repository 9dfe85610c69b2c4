"""Evidence: one rule for each benchmark. Its job measures the missing and stale cells.

A job keeps what it measures in a store that no rule names, and makes its CSV from that store at its
end. So Snakemake can delete or restore an output without losing a measurement.
"""

for place, stem in enumerate(PLANS):

    rule:
        name:
            stem
        input:
            kernel_tests(stem),
            due=[due_file(stem, csv_of(stem))] if stem in DUE else [],
        output:
            update(csv_of(stem)),
        log:
            f"logs/{stem}.log",
        priority: len(PLANS) - place  # in the order of the write-up's sections
        resources:
            **allocation(project, PLANS[stem]),
        params:
            lmperf=LMPERF,
            parent=PARENT,
            stem=stem,
            gpus=lambda wildcards, stem=stem: beside_others(PLANS[stem].gpus),
            force=lambda wildcards, stem=stem: ["--force"] if is_forced(stem) else [],
            also=lambda wildcards, stem=stem: also_measured(stem),
            summary=lambda wildcards, stem=stem: (
                "all of it again" if is_forced(stem) else SUMMARIES[stem]
            ),
        message:
            "{params.stem}: {params.summary}"
        shell:
            "exec {params.lmperf:q} measure {params.stem:q} {params.force:q} --log {log:q}"
            " {params.also:q} {params.gpus:q} --parent {params.parent}"


if REPEATS.drawn:

    rule repeatability:
        """Rows of every benchmark a second time, in a new process, after all first times."""
        input:
            [ancient(csv_of(stem)) for stem in PLANS],
            due=[due_file(REPEATS.stem, csv_of(REPEATS.stem))] if REPEATS.is_due else [],
        output:
            update(csv_of(REPEATS.stem)),
        log:
            f"logs/{REPEATS.stem}.log",
        resources:
            **allocation(project, *PLANS.values()),
        params:
            lmperf=LMPERF,
            parent=PARENT,
            gpus=lambda wildcards: beside_others(max(plan.gpus for plan in PLANS.values())),
            force=lambda wildcards: ["--force"] if is_forced(REPEATS.stem) else [],
            summary=lambda wildcards: (
                "all of it again" if is_forced(REPEATS.stem) else REPEATS.summary
            ),
        message:
            "repeatability: {params.summary}"
        shell:
            "exec {params.lmperf:q} repeat {params.force:q} --log {log:q} {params.gpus:q}"
            " --parent {params.parent}"
