"""Evidence: one rule for each benchmark. Its job measures the missing and stale cells.

A job keeps what it measures in a store that no rule names, and makes its CSV from that store at its
end. So Snakemake can delete or restore an output without losing a measurement.
"""

for place, stem in enumerate(PLANS):

    rule:
        name:
            stem
        input:
            # The kernel tests run first.
            lambda wildcards, stem=stem: after(stem, [PLANS[stem].benchmark.check]),
            due=due(stem in DUE_JOBS),
        output:
            update(csv_of(stem)),
        log:
            f"logs/{stem}.log",
        priority: len(PLANS) - place  # in the order of the write-up's sections
        resources:
            gpu=PLANS[stem].gpus if project.machine.kind == "cuda" else 0,
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


if project.repeats_rows:

    rule repeatability:
        """What the first page recommends a second time, in a new process, after all first times."""
        input:
            lambda wildcards: after("repeatability", PLANS),
            due=due("repeatability" in DUE_JOBS),
        output:
            update(csv_of("repeatability")),
        log:
            "logs/repeatability.log",
        resources:
            gpu=max(plan.gpus for plan in PLANS.values()) if project.machine.kind == "cuda" else 0,
        params:
            lmperf=LMPERF,
            parent=os.getpid(),
            measured=lambda wildcards: measured("repeatability"),
        message:
            "repeatability: {params.measured}"
        shell:
            "exec {params.lmperf:q} measure repeatability --log {log:q} --parent {params.parent}"
