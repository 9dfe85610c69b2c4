"""Evidence: one rule for each benchmark. Its job measures the missing and stale cells.

A job keeps what it measures in a store that no rule names, and makes its CSV from that store at its
end. So Snakemake can delete or restore an output without losing a measurement.
"""

for stem in PLANS:

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
        resources:
            gpu=1,
        params:
            lmperf=LMPERF,
            parent=PARENT,
            stem=stem,
            force=lambda wildcards, stem=stem: ["--force"] if is_forced(stem) else [],
            summary=lambda wildcards, stem=stem: (
                "all of it again" if is_forced(stem) else SUMMARIES[stem]
            ),
        message:
            "{params.stem}: {params.summary}"
        shell:
            "exec {params.lmperf:q} measure {params.stem:q} {params.force:q} --log {log:q}"
            " --parent {params.parent}"
